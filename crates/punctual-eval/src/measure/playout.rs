//! What someone who watches sees: stalls and rebuffers.

use std::collections::BTreeMap;

use super::{Playout, Run};
use crate::record::{BlockRow, Nanos};

/// Play-out lags hand-over by the deadline. A stall begins with a block that is not on time, and lasts as long as those after
/// it are not either. Sources play out independently.
pub(super) fn stalls(run: &Run<'_>) -> Option<f64> {
    let mut stalled: BTreeMap<u16, bool> = BTreeMap::new();
    let mut stalls = 0;
    for block in run.record.blocks.iter().filter(|block| block.deadline.is_some()) {
        let stalled = stalled.entry(block.source).or_default();
        let late = !block.on_time();
        stalls += u32::from(late && !*stalled);
        *stalled = late;
    }
    super::if_blocks(run, || stalls.into())
}

pub(super) fn rebuffers(run: &Run<'_>) -> Option<f64> {
    play(run).map(|played| played.rebuffers.into())
}

pub(super) fn rebuffer_s(run: &Run<'_>) -> Option<f64> {
    play(run).map(|played| played.dry as f64 / 1e9)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Played {
    rebuffers: u32,
    dry: Nanos,
}

fn play(run: &Run<'_>) -> Option<Played> {
    let playout = run.config.playout.as_ref()?;
    let source = run.record.sources.iter().position(|name| *name == playout.source)?;
    let blocks = run.record.blocks.iter().filter(|block| usize::from(block.source) == source);
    player(&blocks.map(|block: &BlockRow| block.usable).collect::<Vec<_>>(), playout)
}

/// Plays blocks in order, given when each was delivered. `None` if there are none.
///
/// The player begins when the first blocks fill its buffer. When the next block is not there, it waits for it. It then goes on
/// with at most a buffer of what has arrived meanwhile, skipping the rest: its lag behind the source stays bounded, as the two
/// segments of MAppLE's player (section V) bound it, and a long rebuffer does not buy immunity from later ones. A block that
/// never comes is dark for its play time.
fn player(delivered: &[Option<Nanos>], playout: &Playout) -> Option<Played> {
    let block = u64::try_from(playout.block.0.as_nanos()).unwrap_or(Nanos::MAX).max(1);
    let buffer = playout.buffer.0.as_nanos().div_ceil(block.into());
    let buffer = usize::try_from(buffer).unwrap_or(usize::MAX).clamp(1, delivered.len().max(1));
    let mut now = delivered.get(..buffer)?.iter().flatten().copied().max().unwrap_or(0);
    let mut played = Played::default();
    let mut dark = false;
    let mut next = 0;
    while let Some(block_delivered) = delivered.get(next) {
        let wait = block_delivered.map(|at| at.saturating_sub(now));
        if wait != Some(0) && !dark {
            played.rebuffers += 1;
        }
        dark = wait.is_none();
        played.dry = played.dry.saturating_add(wait.unwrap_or(block));
        if let Some(wait @ 1..) = wait {
            now += wait;
            let there = delivered[next..].iter().take_while(|at| at.is_some_and(|at| at <= now)).count();
            next += there.saturating_sub(buffer);
        }
        now = now.saturating_add(block);
        next += 1;
    }
    Some(played)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::record::RunRecord;

    #[test]
    fn consecutive_late_blocks_are_one_stall() {
        let blocks = vec![block(0, 200), block(1, 10), block(2, 200), lost(3), block(4, 10), lost(5)];
        assert_close(value("stalls", &of_blocks(blocks)), 3.0);
    }

    #[test]
    fn sources_stall_on_their_own_and_only_with_deadlines() {
        let of = |source, block: BlockRow| BlockRow { source, ..block };
        let no_deadline = BlockRow { deadline: None, ..lost(2) };
        let blocks = vec![of(0, lost(0)), of(1, block(1, 10)), of(0, lost(2)), of(1, lost(3)), of(2, no_deadline)];
        assert_close(value("stalls", &of_blocks(blocks)), 2.0);
    }

    /// A block every 200 ms with these latencies, in the player of two blocks.
    fn watch(latencies: &[Option<u64>]) -> Played {
        let delivered: Vec<_> = (0..).zip(latencies).map(|(i, ms)| ms.map(|ms| (i * 200 + ms) * MS)).collect();
        player(&delivered, &with_playout().playout.unwrap()).unwrap()
    }

    fn played(rebuffers: u32, dry_ms: u64) -> Played {
        Played { rebuffers, dry: dry_ms * MS }
    }

    #[test]
    fn a_buffer_hides_what_it_is_long_enough_for() {
        let steady = [Some(50); 10];
        assert_eq!(watch(&steady), played(0, 0));
        // Play of block 2 is due at 650 ms: the start at 250 ms, and two blocks.
        let mut late = steady;
        late[2] = Some(250);
        assert_eq!(watch(&late), played(0, 0));
        late[2] = Some(251);
        assert_eq!(watch(&late), played(1, 1));
    }

    #[test]
    fn a_long_rebuffer_does_not_protect_from_the_next() {
        let mut latencies = [Some(50); 20];
        latencies[2] = Some(1050);
        // Stops at 650 ms, goes on at 1,450 ms; blocks 2 to 7 are there then, of which it plays 6 and 7.
        assert_eq!(watch(&latencies), played(1, 800));
        latencies[12] = Some(250);
        assert_eq!(watch(&latencies).rebuffers, 1);
        latencies[12] = Some(251);
        assert_eq!(watch(&latencies).rebuffers, 2);
    }

    #[test]
    fn a_block_that_never_comes_is_dark() {
        let mut latencies = [Some(50); 10];
        (latencies[4], latencies[5]) = (None, None);
        assert_eq!(watch(&latencies), played(1, 400));
        assert_eq!(watch(&[None; 3]), played(1, 600));
    }

    #[test]
    fn a_source_slower_than_play_rebuffers_at_every_block() {
        let latencies: Vec<_> = (0..10).map(|i| Some(50 + 100 * i)).collect();
        // Two blocks of lead last until block 4; from there each is 100 ms late.
        assert_eq!(watch(&latencies), played(6, 600));
    }

    #[test]
    fn rebuffers_need_a_player_and_its_source() {
        let record = of_blocks(vec![block(0, 10), block(200, 10), block(400, 1210)]);
        let measure = |key, record: &RunRecord| value_with(key, record, &Default::default(), &with_playout());
        assert_close(measure("rebuffers", &record), 1.0);
        assert_close(measure("rebuffer_s", &record), 1.0);
        assert_eq!(value("rebuffers", &record), None);
        assert_eq!(measure("rebuffers", &RunRecord { sources: vec!["audio".to_owned()], ..record }), None);
    }

    #[test]
    fn no_blocks_no_rebuffers() {
        assert_eq!(player(&[], &with_playout().playout.unwrap()), None);
    }
}
