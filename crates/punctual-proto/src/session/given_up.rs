//! Blocks that were given up before anything of them was said: all that is to be said of them is that they will not come.

use rangemap::RangeSet;

use crate::{
    block::{BlockId, DropReason},
    frame::{ControlFrame, lists},
};

/// A run and the gap before it take two bytes if they are short, and four as a rule.
const RUN: usize = 4;

/// Blocks of which the peer has not been told yet that they were dropped before they were opened, by why.
///
/// They are kept as runs of ids, and words are made of them only when there is room for words: where little comes through, or nothing for a while,
/// nearly all that is handed over is dropped, and what is to be said of it does not become more with time.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Vec<(DropReason, RangeSet<u64>)>);

impl GivenUp {
    pub(super) fn add(&mut self, id: BlockId, reason: DropReason) {
        let ids = id.0..id.0 + 1;
        match self.0.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, runs)) => runs.insert(ids),
            None => self.0.push((reason, RangeSet::from([ids]))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// About how many bytes it takes to say it.
    pub(super) fn waiting(&self) -> usize {
        self.0.iter().map(|(_, runs)| runs.len() * RUN).sum()
    }

    /// Says it all.
    pub(super) fn write(&mut self, words: &mut Vec<u8>) {
        for (reason, all) in self.0.drain(..) {
            let mut runs = Vec::new();
            let mut room = lists::MAX_RUNS_HOLD;
            for run in all {
                let mut begin = run.start;
                while begin < run.end {
                    if room == 0 || runs.len() == lists::MAX_LIST {
                        ControlFrame::DroppedList(reason, std::mem::take(&mut runs)).encode(words);
                        room = lists::MAX_RUNS_HOLD;
                    }
                    let end = run.end.min(begin + room);
                    room -= end - begin;
                    runs.push(begin..end);
                    begin = end;
                }
            }
            ControlFrame::DroppedList(reason, runs).encode(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        frame::{ControlDecoder, Settings, control},
        limits::Limits,
    };

    fn read(words: &[u8]) -> Vec<ControlFrame> {
        let mut stream = Vec::new();
        control::open_stream(&mut stream);
        let Limits { max_block_size, receive_bytes, receive_blocks, .. } = Limits::default();
        let settings = Settings { max_block_size, receive_bytes, receive_blocks, channels: 0, repair_window: 0 };
        ControlFrame::Settings(settings).encode(&mut stream);
        stream.extend_from_slice(words);
        let mut decoder = ControlDecoder::default();
        decoder.push(&stream);
        std::iter::from_fn(|| decoder.next().unwrap()).skip(1).collect()
    }

    #[test]
    fn a_minute_without_a_network_is_a_few_words() {
        let (mut given_up, mut words) = (GivenUp::default(), Vec::new());
        (0..1_200_000).for_each(|id| given_up.add(BlockId(id), DropReason::Expired));
        assert_eq!(given_up.waiting(), RUN);
        given_up.write(&mut words);
        assert!(words.len() < 12_000, "{}", words.len());
        assert!(given_up.is_empty());
    }

    proptest! {
        #[test]
        fn all_are_told_once_and_why(ids in prop::collection::btree_map(0u64..5_000, prop::bool::ANY, 1..2_000)) {
            let reason = |cancelled: bool| if cancelled { DropReason::Cancelled } else { DropReason::Expired };
            let mut given_up = GivenUp::default();
            ids.iter().for_each(|(&id, &cancelled)| given_up.add(BlockId(id), reason(cancelled)));
            let mut words = Vec::new();
            given_up.write(&mut words);
            let mut told = Vec::new();
            for frame in read(&words) {
                let ControlFrame::DroppedList(reason, runs) = frame else { panic!("{frame:?}") };
                told.extend(runs.into_iter().flatten().map(|id| (id, reason)));
            }
            told.sort_by_key(|&(id, _)| id);
            let expected: Vec<_> = ids.into_iter().map(|(id, cancelled)| (id, reason(cancelled))).collect();
            prop_assert_eq!(told, expected);
        }
    }
}
