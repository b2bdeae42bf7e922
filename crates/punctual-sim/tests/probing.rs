//! How long paths take that carry nothing, with pings and without.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::{Block, PathEvent, PathId, PathStats, Probing, multipath::PathRole};
use punctual_sim::{LinkSpec, Schedule, World};

/// 5 Mbit/s in frames, due in 200 ms.
fn frames(seconds: u64) -> Source {
    Source::new(Block::new(vec![7; 12_500]).deadline(ms(200)), ms(20), 50 * seconds)
}

fn link(mbps: f64, millis: u64) -> LinkSpec {
    LinkSpec::new(mbps, ms(millis))
}

/// A pair of which all paths but the first are backups.
fn with_backups(links: Vec<LinkSpec>, probing: Probing, seconds: u64, cost: f64) -> Pair {
    let paths = links.len() as u32;
    let mut setup = Setup::new(links);
    setup.config.session.probing = probing;
    let mut pair = setup.connect(frames(seconds));
    let (client, session) = pair.world.client(pair.connection);
    pair.world.enter(client, |cx| {
        let now = cx.instant();
        let session = cx.session(session).expect("it is open");
        for path in (1..paths).map(PathId) {
            session.set_path_role(now, path, PathRole::Backup).expect("it is open");
            session.set_path_cost(now, path, cost).expect("it is open");
        }
    });
    pair
}

fn stats(pair: &mut Pair) -> Vec<PathStats> {
    let (client, session) = pair.world.client(pair.connection);
    pair.world.enter(client, |cx| {
        let now = cx.instant();
        cx.session(session).expect("it is open").path_stats(now)
    })
}

/// What a backup is known to take two seconds after its delays have changed: one way, and there and back.
fn after_change(probing: Probing, there: u64, back: u64) -> (Duration, Duration) {
    let mut pair = with_backups(vec![link(20.0, 10), link(10.0, 20)], probing, 12, 0.0);
    pair.world.run_for(ms(6_300));
    let path = pair.paths[1];
    let links = [pair.world.path_links(path).0[0], pair.world.path_links(path).1[0]];
    for (link, millis) in links.into_iter().zip([there, back]) {
        pair.world.update_link(link, |spec| spec.delay = Schedule::fixed(ms(millis)));
    }
    pair.world.run_for(ms(2_000));
    let backup = &stats(&mut pair)[1];
    (backup.one_way_delay, backup.min_rtt)
}

#[test]
fn a_backup_that_becomes_longer_is_known_to_be_within_two_seconds() {
    for (there, back) in [(80, 80), (80, 20), (5, 5)] {
        let (one_way, rtt) = after_change(Probing::Free, there, back);
        assert!(one_way.abs_diff(ms(there)) < ms(5), "{there} and {back}: {one_way:?}");
        // The answer comes by the path that carries data.
        assert!(rtt.abs_diff(ms(there + 10)) < ms(5), "{there} and {back}: {rtt:?}");
    }
    let (one_way, rtt) = after_change(Probing::Off, 80, 80);
    assert!(one_way < ms(30) && rtt < ms(60), "{one_way:?}, {rtt:?}");
}

/// UDP bytes that left, on all paths and on each, and bytes of blocks.
fn sent(pair: &mut Pair) -> (u64, Vec<u64>, u64) {
    let stats = stats(pair);
    let udp: Vec<_> = stats.iter().map(|path| path.bytes_sent).collect();
    (udp.iter().sum(), udp, stats.iter().map(|path| path.source_bytes).sum())
}

#[test]
fn pings_are_a_thousandth_of_what_is_sent() {
    let run = |probing| {
        let links = [vec![link(20.0, 10)], vec![link(10.0, 20); 5]].concat();
        let mut pair = with_backups(links, probing, 30, 0.0);
        pair.world.run_for(ms(29_000));
        sent(&mut pair)
    };
    let (all, paths, blocks) = run(Probing::Free);
    let (without, before, _) = run(Probing::Off);
    assert!(all <= without + blocks / 1_000, "{all} and {without} of {blocks}");
    for (path, before) in paths.iter().zip(before).skip(1) {
        assert!(*path > before, "none is left out: {path} after {before}");
    }
}

#[test]
fn a_metered_path_is_probed_on_request_only() {
    let run = |probing, cost| {
        let mut pair = with_backups(vec![link(20.0, 10), link(10.0, 20)], probing, 12, cost);
        // What was said of it comes behind the handshake.
        pair.world.run_for(ms(1_000));
        let before = sent(&mut pair).1[1];
        pair.world.run_for(ms(10_000));
        sent(&mut pair).1[1] - before
    };
    assert_eq!(run(Probing::Free, 1.0), run(Probing::Off, 1.0));
    for (probing, cost) in [(Probing::All, 1.0), (Probing::Free, 0.0)] {
        assert!(run(probing, cost) > run(Probing::Off, cost) + 150, "{probing} at {cost}");
    }
}

#[test]
fn the_same_run_pings_the_same_paths_in_turn() {
    let run = || {
        let links = [vec![link(20.0, 10)], vec![link(10.0, 20); 6]].concat();
        let mut pair = with_backups(links, Probing::Free, 20, 0.0);
        // By then no path is still asked whether it is there and how large packets may be.
        pair.world.run_for(ms(6_000));
        let before = sent(&mut pair).1;
        pair.world.run_for(ms(12_000));
        let of = |path: &PathStats| (path.bytes_sent, path.packets_sent, path.rtt, path.one_way_delay);
        let paths: Vec<_> = stats(&mut pair).iter().map(of).collect();
        let meanwhile: Vec<_> = before.iter().zip(&paths).skip(1).map(|(before, after)| after.0 - before).collect();
        (paths, meanwhile)
    };
    let (paths, meanwhile) = run();
    assert_eq!(run().0, paths);
    // Two of six each second: four pings each.
    assert!(meanwhile[0] > 0 && meanwhile.iter().all(|bytes| *bytes == meanwhile[0]), "{meanwhile:?}");
}

#[test]
fn a_backup_that_dies_is_missed_within_two_seconds() {
    let run = |probing| {
        let mut pair = with_backups(vec![link(20.0, 10), link(10.0, 20)], probing, 10, 0.0);
        let path = pair.paths[1];
        pair.world.at(pair.start + ms(5_600), move |world: &mut World| world.kill_path(path));
        pair.world.run_for(ms(7_600));
        let late = pair.late().into_iter().filter(|(_, at, _)| (ms(1_000)..ms(7_000)).contains(at)).count();
        assert_eq!(late, 0);
        pair.source().path_events.iter().any(|(_, id, event)| *id == 1 && matches!(event, PathEvent::Suspected { .. }))
    };
    assert!(run(Probing::Free));
    assert!(!run(Probing::Off));
}
