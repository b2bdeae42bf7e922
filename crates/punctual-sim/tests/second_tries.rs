//! DMTP's retransmission: what is unacknowledged of a block goes again once, at its time, by the fastest path.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::*;
use punctual_proto::{Block, BlockId, FragmentKind, FragmentSent, Observer, PathId, Redundancy, multipath};
use punctual_sim::{LinkSpec, Loss};

const CHEAP: PathId = PathId(0);
const FAST: PathId = PathId(1);
/// One way on the cheap path, and on the fast one.
const SLOW: Duration = ms(60);
const QUICK: Duration = ms(20);

type Fragments = Arc<Mutex<Vec<(Instant, FragmentSent)>>>;

struct Watching(Fragments);

impl Observer for Watching {
    fn fragment_sent(&mut self, at: Instant, fragment: &FragmentSent) {
        self.0.lock().expect("no panics").push((at, *fragment));
    }
}

/// What has left of a block.
#[derive(Default)]
struct Left {
    last_sent: Option<Instant>,
    again: Vec<(Instant, FragmentSent)>,
}

struct Run {
    blocks: BTreeMap<BlockId, Left>,
    /// Packets that the cheap path has lost.
    lost: u64,
    late: usize,
}

/// 5 kB each 50 ms, over a cheap path that loses and a fast one that is dear.
fn run(loss: f64, deadline: Duration) -> Run {
    let fragments = Fragments::default();
    let links = vec![LinkSpec::new(20.0, SLOW).loss(Loss::Bernoulli(loss)), LinkSpec::new(20.0, QUICK)];
    let mut setup = Setup { back: |link| link.clone().loss(Loss::None), ..Setup::new(links) };
    let seen = fragments.clone();
    setup.config.session.observer = Some(Arc::new(move |_| Box::new(Watching(seen.clone()))));
    setup.config.session.path_scheduler = multipath::by_name("dmtp:quality=0.9").expect("known");
    let block = Block::new(vec![7; 5_000]).deadline(deadline).redundancy(Redundancy::Retransmit);
    let mut pair = setup.connect(Source::new(block, ms(50), 200));
    let (client, session) = pair.world.client(pair.connection);
    pair.world.enter(client, |cx| {
        let now = cx.instant();
        let session = cx.session(session).expect("it is open");
        for (path, cost) in [(CHEAP, 1.0), (FAST, 100.0)] {
            session.set_path_cost(now, path, cost).expect("it is open");
        }
    });
    let link = pair.world.path_links(pair.paths[0]).0[0];
    pair.world.run_for(ms(12_000));
    let mut blocks = BTreeMap::<BlockId, Left>::new();
    for (at, fragment) in fragments.lock().expect("no panics").iter() {
        let left = blocks.entry(fragment.block).or_default();
        match fragment.kind {
            FragmentKind::Source => left.last_sent = Some(*at),
            FragmentKind::Resent => left.again.push((*at, *fragment)),
            other => panic!("{other:?}"),
        }
    }
    let (client, session) = pair.world.client(pair.connection);
    let clean = pair.world.enter(client, |cx| cx.session(session).expect("it is open").is_clean());
    assert!(clean, "every block has ended");
    Run { blocks, lost: pair.world.counters(link).lost, late: pair.late().len() }
}

#[test]
fn what_is_lost_goes_again_once_at_its_time_by_the_fastest_path() {
    let run = run(0.03, ms(200));
    assert!(run.lost >= 15, "{} were lost", run.lost);
    assert_eq!((run.blocks.len(), run.late), (200, 0));
    let mut again = 0;
    for (id, left) in &run.blocks {
        let last_sent = left.last_sent.expect("it left");
        let first = left.again.first().map(|(at, _)| *at);
        let mut bytes = BTreeSet::new();
        for (at, fragment) in &left.again {
            // Answers come by the path that was heard last, if that is not clearly the longer one; and at first little is known of them.
            assert!((SLOW + QUICK..SLOW * 2 + ms(60)).contains(&(*at - last_sent)), "{id}: {:?}", *at - last_sent);
            assert!(first.is_some_and(|first| *at - first < ms(6)), "{id}: not at once");
            assert_eq!(fragment.path, FAST, "{id}");
            assert!(bytes.insert(fragment.offset), "{id} twice");
        }
        again += left.again.len() as u64;
    }
    // Packets of other kinds are lost, too; and of the first blocks answers may be expected too soon.
    assert!(again >= run.lost / 2 && again <= run.lost + 4, "{again} of {}", run.lost);
}

#[test]
fn what_is_acknowledged_does_not_go_again() {
    let run = run(0.0, ms(200));
    assert_eq!((run.lost, run.late, run.blocks.len()), (0, 0, 200));
    // At first it is not known how long answers take, nor by which path they come.
    assert_eq!(run.blocks.values().skip(5).map(|left| left.again.len()).sum::<usize>(), 0);
}

#[test]
fn what_could_not_arrive_any_more_does_not_go_again() {
    // There and back, and once more by the fast path, takes 100.
    let run = run(0.03, ms(95));
    assert!(run.lost >= 15 && run.late >= 5, "{} were lost, {} late", run.lost, run.late);
    assert_eq!(run.blocks.values().map(|left| left.again.len()).sum::<usize>(), 0);
}
