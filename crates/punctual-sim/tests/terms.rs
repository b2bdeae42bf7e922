//! What paths cost, what they may carry, and which are preferred: dear ones carry what the others would not carry in time, and no more.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::{
    Block, PathId, Session,
    multipath::{PathBudget, PathRole},
};
use punctual_sim::{LinkSpec, Loss};

const WARM_UP: Duration = ms(500);

/// 24 kB 50 times a second, due in 200 ms.
fn frames(seconds: u32) -> Source {
    Source::new(Block::new(vec![0; 24_000]).deadline(ms(200)), ms(20), 50 * u64::from(seconds))
}

/// A run whose sender says something of its paths at its beginning; then the share of payload that left on the first path, and the blocks that were late.
fn run(
    links: Vec<LinkSpec>,
    seconds: u32,
    say: impl Fn(&mut Session, std::time::Instant),
    dies: Option<u64>,
) -> (f64, usize, Vec<u64>) {
    let mut pair = Setup::new(links).connect(frames(seconds));
    let (client, session) = pair.world.client(pair.connection);
    pair.world.enter(client, |cx| {
        let now = cx.instant();
        say(cx.session(session).expect("it is open"), now);
    });
    if let Some(at) = dies {
        let (path, at) = (pair.paths[0], pair.start + ms(at));
        pair.world.at(at, move |world| world.kill_path(path));
        pair.world.at(at + ms(1_000), move |world| world.revive_path(path));
    }
    pair.world.run_for(ms(1_000) * seconds + ms(1_000));
    let late = pair.late().into_iter().filter(|(_, at, _)| *at >= WARM_UP).count();
    let sent: Vec<u64> = pair.world.enter(client, |cx| {
        let now = cx.instant();
        let stats = cx.session(session).expect("it is open").path_stats(now);
        stats.iter().map(|path| path.bytes_sent).collect()
    });
    (sent[0] as f64 / sent.iter().sum::<u64>() as f64, late, sent)
}

fn costs(session: &mut Session, now: std::time::Instant) {
    for (path, cost) in [(0, 1.0), (1, 2.0)] {
        session.set_path_cost(now, PathId(path), cost).expect("it is open");
    }
}

#[test]
fn a_cheap_path_that_loses_carries_what_has_time_for_a_second_try() {
    for (loss, least) in [(0.0, 0.97), (0.02, 0.85), (0.1, 0.65)] {
        let (share, late, _) = run(vec![dmtp_link().loss(Loss::Bernoulli(loss)), dmtp_link()], 10, costs, None);
        assert_eq!(late, 0, "{loss}");
        assert!(share >= least, "{loss}: {share}");
    }
    // Without a word about costs both carry half.
    let (share, late, _) = run(vec![dmtp_link(); 2], 10, |_, _| {}, None);
    assert!(late == 0 && (0.4..0.6).contains(&share), "{share}");
}

#[test]
fn a_cheap_path_that_died_is_used_again() {
    let (share, late, _) = run(vec![dmtp_link(), dmtp_link()], 10, costs, Some(3_000));
    assert!(late <= 4, "{late} were late");
    assert!(share >= 0.8, "it was away for 1 s of 10: {share}");
}

#[test]
fn a_preferred_path_comes_before_a_cheaper_one() {
    let prefer = |session: &mut Session, now| {
        costs(session, now);
        session.set_path_role(now, PathId(1), PathRole::Preferred).expect("it is open");
    };
    let (share, late, _) = run(vec![dmtp_link(), dmtp_link()], 5, prefer, None);
    assert!(late == 0 && share < 0.1, "{share}");
}

#[test]
fn a_budget_is_kept_and_nothing_is_late_for_it() {
    let budget = PathBudget::new(1_000_000, ms(10_000)).expect("something in some time");
    let thrift = |session: &mut Session, now| {
        session.set_path_budget(now, PathId(0), Some(budget)).expect("it is open");
    };
    let (_, late, sent) = run(vec![dmtp_link(), dmtp_link()], 10, thrift, None);
    assert_eq!(late, 0);
    // Half of it is spent as if it were nothing, and comes in again; the rest is kept for need.
    assert!((500_000..1_600_000).contains(&sent[0]), "{} bytes", sent[0]);
    // Alone, it is all there is.
    let alone = |session: &mut Session, now| {
        let none = PathBudget::new(1_000, ms(10_000));
        session.set_path_budget(now, PathId(0), none).expect("it is open");
    };
    let (_, late, sent) = run(vec![dmtp_link()], 2, alone, None);
    assert!(late == 0 && sent[0] > 2_000_000, "a backup that is alone carries all: {} bytes, {late} late", sent[0]);
}
