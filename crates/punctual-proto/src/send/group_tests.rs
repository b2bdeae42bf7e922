use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::base::FragmentKind;

const A: PathId = PathId(0);

fn contents(index: u64) -> Contents {
    Contents::of(Piece { id: BlockId(index), range: 0..100, with_info: false, kind: FragmentKind::Source })
}

fn block_of(contents: &Contents) -> u64 {
    contents.iter().next().map(|piece| piece.id.0).expect("a piece")
}

/// A closed group of m sources that expires in a second, with so many repairs due, and so many more to spare.
fn group(now: Instant, m: u64, due: usize, spare: usize) -> Group {
    let mut group = Group::new(now, 0, false);
    group.expires = now + Duration::from_secs(1);
    (0..m).for_each(|index| group.add(Bytes::from_static(b"symbol"), contents(index), A));
    let shards = vec![Bytes::from_static(b"shard"); due + spare];
    assert_eq!(group.close(now, shards, due, |_| true), Verdict::default());
    group
}

fn lose(group: &mut Group, now: Instant, index: u8) -> Verdict {
    group.on_lost(now, index, A, true, |_| true)
}

fn ack(group: &mut Group, now: Instant, index: u8) -> Verdict {
    group.on_acked(now, index, |_| true)
}

#[test]
fn any_m_acknowledged_are_all() {
    let now = Instant::now();
    let mut group = group(now, 3, 2, 0);
    [0, 1].into_iter().for_each(|index| group.on_repair_sent(index));
    assert_eq!(lose(&mut group, now, 1), Verdict::default(), "repairs are on their way");
    assert_eq!(ack(&mut group, now, 0), Verdict::default());
    assert_eq!(ack(&mut group, now, 4), Verdict::default());
    let verdict = ack(&mut group, now, 3);
    assert_eq!(verdict.recovered.iter().map(block_of).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(verdict.restored, 100, "one of them is lost, the other on its way");
    assert_eq!(lose(&mut group, now, 2).restored, 100, "and was lost, too");
}

#[test]
fn what_the_receiver_may_have_forgotten_is_not_inferred() {
    let now = Instant::now();
    let mut group = group(now, 2, 1, 0);
    group.on_repair_sent(0);
    lose(&mut group, now, 0);
    let late = now + Duration::from_secs(2);
    ack(&mut group, late, 1);
    let verdict = ack(&mut group, late, 2);
    assert!(verdict.recovered.is_empty());
    assert_eq!(verdict.lost.iter().map(|(contents, _)| block_of(contents)).collect::<Vec<_>>(), [0]);
}

#[test]
fn where_one_is_missing_one_more_goes() {
    let now = Instant::now();
    let mut group = group(now, 4, 1, 3);
    group.on_repair_sent(0);
    assert_eq!(lose(&mut group, now, 0), Verdict::default());
    assert_eq!(lose(&mut group, now, 1).more, [1], "two are lost, one repair is on its way");
    assert!(group.due_shard(1).is_some() && group.due_shard(2).is_none());
}

#[test]
fn a_lone_loss_goes_again_itself_and_without_resends_or_time_all_do() {
    let now = Instant::now();
    let mut lone = group(now, 4, 0, 3);
    assert_eq!(lose(&mut lone, now, 2).lost.len(), 1);
    let mut mute = group(now, 4, 1, 3);
    mute.resends = false;
    mute.on_repair_sent(0);
    lose(&mut mute, now, 0);
    assert_eq!(lose(&mut mute, now, 1).lost.len(), 2);
    let mut late = group(now, 4, 1, 3);
    late.on_repair_sent(0);
    lose(&mut late, now, 0);
    assert_eq!(late.on_lost(now, 1, A, false, |_| true).lost.len(), 2);
}

#[test]
fn what_has_ended_is_not_made_good() {
    let now = Instant::now();
    let mut group = group(now, 2, 0, 1);
    assert_eq!(group.on_lost(now, 0, A, true, |contents| block_of(contents) != 0), Verdict::default());
}

#[test]
fn what_does_not_wait_is_spoken_of_no_more() {
    let now = Instant::now();
    let mut group = group(now, 2, 1, 0);
    group.on_repair_sent(0);
    let taken = group.take_out(0, |piece| piece.id == BlockId(0));
    assert_eq!(block_of(&taken), 0);
    assert!(group.take_out(1, |piece| piece.id == BlockId(0)).is_empty());
    // Neither restored nor lost, whatever comes.
    assert_eq!(lose(&mut group, now, 0), Verdict::default());
    ack(&mut group, now, 1);
    assert_eq!(ack(&mut group, now, 2), Verdict { recovered: vec![Contents::default()], ..Verdict::default() });
}

proptest! {
    /// Whatever becomes of its packets, in whatever order, each source is spoken of at most once; and it is recovered only if
    /// the receiver has m symbols.
    #[test]
    fn every_source_has_one_fate(
        m in 1_u64..20,
        due in 0_usize..6,
        spare in 0_usize..4,
        fates in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
    ) {
        let now = Instant::now();
        let mut group = group(now, m, due, spare);
        (0..due as u8).for_each(|index| group.on_repair_sent(index));
        let mut in_flight: Vec<u8> = (0..(m as usize + due) as u8).collect();
        let (mut acked, mut spoken) = (0, vec![0; m as usize]);
        for (which, arrives) in fates {
            if in_flight.is_empty() {
                break;
            }
            let index = in_flight.swap_remove(which.index(in_flight.len()));
            acked += u64::from(arrives);
            let verdict = if arrives { ack(&mut group, now, index) } else { lose(&mut group, now, index) };
            prop_assert!(verdict.recovered.is_empty() || acked >= m);
            for contents in verdict.recovered.iter().chain(verdict.lost.iter().map(|(contents, _)| contents)) {
                spoken[block_of(contents) as usize] += 1;
            }
            for repair in verdict.more {
                group.on_repair_sent(repair);
                in_flight.push(m as u8 + repair);
            }
        }
        prop_assert!(spoken.iter().all(|&times| times <= 1), "{spoken:?}");
        if in_flight.is_empty() {
            prop_assert!(group.is_over());
        }
    }
}
