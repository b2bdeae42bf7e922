use proptest::prelude::*;

use super::*;
use crate::annexb::Kind;

const MAX: usize = 1 << 20;

/// Writes a NAL unit bit by bit.
pub(super) struct Writer {
    header: [u8; 2],
    bits: Vec<bool>,
}

impl Writer {
    /// Of the lowest temporal layer.
    pub(super) fn nal(kind: u8) -> Self {
        Self { header: [kind << 1, 1], bits: Vec::new() }
    }

    pub(super) fn bit(mut self, bit: bool) -> Self {
        self.bits.push(bit);
        self
    }

    pub(super) fn number(mut self, value: u32, bits: u32) -> Self {
        self.bits.extend((0..bits).rev().map(|bit| value >> bit & 1 == 1));
        self
    }

    pub(super) fn ue(self, value: u32) -> Self {
        let bits = (value + 1).ilog2();
        self.number(0, bits).number(value + 1, bits + 1)
    }

    fn ues(self, values: &[u32]) -> Self {
        values.iter().fold(self, |writer, &value| writer.ue(value))
    }

    /// The NAL unit, with emulation prevention.
    pub(super) fn end(self) -> Vec<u8> {
        let mut bits = self.bits;
        bits.push(true);
        bits.resize(bits.len().next_multiple_of(8), false);
        let mut nal = self.header.to_vec();
        for byte in bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit))) {
            if nal.ends_with(&[0, 0]) && byte <= 3 {
                nal.push(3);
            }
            nal.push(byte);
        }
        nal
    }

    /// General profile, tier and level, with nothing of sub-layers.
    fn profile(self) -> Self {
        self.number(0x0160, 16).number(0, 32).number(0, 32).number(0x93, 16)
    }
}

const ORDER_BITS: u32 = 8;

fn video_parameters(rate: Option<u32>) -> Vec<u8> {
    let vps = Writer::nal(32).number(0x0c01 >> 1, 12).number(0, 3).bit(true).number(0xffff, 16).profile();
    let vps = vps.bit(true).ues(&[4, 2, 4]).number(0, 6).ue(0).bit(rate.is_some());
    match rate {
        Some(rate) => vps.number(1000, 32).number(rate * 1000, 32).bit(false).ue(0).bit(false).end(),
        None => vps.bit(false).end(),
    }
}

/// 320 by 192 samples, one reference set: what is 1 before, with all that may stand between it and the frame rate.
fn sequence_parameters(rate: Option<u32>) -> Vec<u8> {
    let sps = Writer::nal(33).number(0, 4).number(0, 3).bit(true).profile();
    let sps = sps.ues(&[0, 1, 320, 192]).bit(true).ues(&[0, 0, 0, 6]).ues(&[0, 0, ORDER_BITS - 4]);
    let sps = sps.bit(true).ues(&[4, 2, 4]).ues(&[0, 3, 0, 3, 1, 1]);
    // Scaling lists: the first as it stands, all others as predicted.
    let mut sps = sps.bit(true).bit(true);
    for (size, matrices) in [(0, 6), (1, 6), (2, 6), (3, 2)] {
        for matrix in 0..matrices {
            sps = match (size, matrix) {
                (2, 0) => sps.bit(true).ue(7).ues(&[1; 64]),
                _ => sps.bit(false).ue(0),
            };
        }
    }
    let sps = sps.number(0b10, 2).bit(true).number(0x77, 8).ues(&[0, 0]).bit(false);
    // Two sets: one before, at -1; and the same moved by -1, which makes two.
    let sps = sps.ue(2).ues(&[1, 0, 0]).bit(true).bit(true).bit(true).ue(0).bit(true).bit(true);
    let sps = sps.bit(true).ue(1).number(3, ORDER_BITS).bit(true).number(0b11, 2);
    let Some(rate) = rate else { return sps.bit(false).bit(false).end() };
    let sps = sps.bit(true).bit(true).number(255, 8).number(1, 16).number(1, 16).bit(true).bit(false);
    let sps = sps.bit(true).number(5, 3).bit(false).bit(true).number(1, 8).number(1, 8).number(1, 8);
    let sps = sps.bit(true).ues(&[0, 0]).number(0, 3).bit(true).ues(&[0, 0, 0, 0]);
    sps.bit(true).number(1, 32).number(rate, 32).bit(false).bit(false).bit(false).end()
}

/// Dependent slice segments, an output flag and two extra bits.
fn picture_parameters() -> Vec<u8> {
    Writer::nal(34).ues(&[3, 0]).bit(true).bit(true).number(2, 3).number(0, 20).end()
}

/// A slice of a picture, long enough that its header is looked at before it is complete.
struct Slice {
    kind: u8,
    coding: Coding,
    count: u32,
    before: &'static [u32],
    after: &'static [u32],
    first: bool,
}

use super::picture::Coding;

impl Slice {
    const fn new(kind: u8, coding: Coding, count: u32) -> Self {
        Self { kind, coding, count, before: &[], after: &[], first: true }
    }

    const fn refers(self, before: &'static [u32], after: &'static [u32]) -> Self {
        Self { before, after, ..self }
    }

    fn write(&self) -> Vec<u8> {
        let mut slice = Writer::nal(self.kind).bit(self.first);
        if (16..=23).contains(&self.kind) {
            slice = slice.bit(false);
        }
        slice = slice.ue(3);
        if !self.first {
            // 5 by 3 blocks of 64 samples.
            slice = slice.bit(false).number(7, 4);
        }
        slice = slice.number(0, 2).ue(match self.coding {
            Coding::B => 0,
            Coding::P => 1,
            Coding::I => 2,
        });
        slice = slice.bit(true);
        if !matches!(self.kind, 19 | 20) {
            slice = slice.number(self.count, ORDER_BITS);
            slice = match (self.before, self.after) {
                // The second of the parameter set's.
                ([1, 2], []) => slice.bit(true).number(1, 1),
                (before, after) => {
                    let mut slice = slice.bit(false).bit(false).ues(&[before.len() as u32, after.len() as u32]);
                    for side in [before, after] {
                        let mut last = 0;
                        for &distance in side {
                            slice = slice.ue(distance - last - 1).bit(true);
                            last = distance;
                        }
                    }
                    slice
                }
            };
        }
        let mut nal = slice.end();
        nal.extend([0xa5; 200]);
        nal
    }
}

fn stream(nals: &[Vec<u8>]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [&[0, 0, 0, 1], &nal[..]].concat()).collect()
}

/// Decoded I0 P4 B2 b1 b3, then a CRA picture at 8 with b6 (leading, refers across it) and P9.
fn group() -> Vec<Vec<u8>> {
    use Coding::{B, I, P};
    let slices = [
        Slice::new(19, I, 0),
        Slice::new(1, P, 4).refers(&[4], &[]),
        Slice::new(1, B, 2).refers(&[2], &[2]),
        Slice::new(0, B, 1).refers(&[1], &[1, 3]),
        Slice::new(0, B, 3).refers(&[1, 3], &[1]),
        Slice::new(21, I, 8).refers(&[4], &[]),
        Slice::new(8, B, 6).refers(&[2], &[2]),
        Slice::new(1, P, 9).refers(&[1], &[]),
        Slice::new(1, P, 10).refers(&[1, 2], &[]),
    ];
    slices.iter().map(Slice::write).collect()
}

fn parameters() -> Vec<Vec<u8>> {
    vec![video_parameters(None), sequence_parameters(Some(50)), picture_parameters()]
}

fn joined(units: &[AccessUnit]) -> Vec<u8> {
    units.iter().flat_map(|unit| unit.data.iter().copied()).collect()
}

#[test]
fn pictures_are_told_apart_and_placed() {
    let bytes = stream(&[parameters(), group()].concat());
    let (units, rate) = split(&bytes, MAX);
    assert_eq!(rate, Some(50.0));
    assert!(joined(&units) == bytes);
    let kinds: String = units.iter().map(|unit| unit.kind.letter()).collect();
    assert_eq!(kinds, "IPPBBIBPP");
    let needs: Vec<_> = units.iter().map(|unit| &unit.dependencies[..]).collect();
    assert_eq!(needs, [&[][..], &[0], &[0, 1], &[0, 2], &[2, 1], &[], &[1, 5], &[5], &[7]]);
    let starts: Vec<_> = units.iter().filter(|unit| H265::begins_decoding(unit)).map(|unit| unit.index).collect();
    assert_eq!(starts, [0, 5]);
    let mut shown: Vec<_> = units.iter().map(|unit| (unit.display, unit.index)).collect();
    shown.sort();
    assert_eq!(shown.iter().map(|&(_, index)| index).collect::<Vec<_>>(), [0, 3, 2, 4, 1, 6, 5, 7, 8]);
}

#[test]
fn order_counts_go_round() {
    use Coding::{I, P};
    let mut nals = parameters();
    nals.push(Slice::new(19, I, 0).write());
    nals.extend((1..600u32).map(|n| Slice::new(1, P, n % 256).refers(&[1], &[]).write()));
    let (units, _) = split(&stream(&nals), MAX);
    assert_eq!(units.len(), 600);
    assert!(units.iter().all(|unit| unit.display.count == unit.index as i64));
    assert!(units[1..].iter().all(|unit| unit.dependencies == [unit.index - 1]));
}

#[test]
fn the_frame_rate_is_in_either_parameter_set() {
    let rate = |nals: &[Vec<u8>]| split(&stream(nals), MAX).1;
    assert_eq!(rate(&[video_parameters(Some(25)), sequence_parameters(None)]), Some(25.0));
    assert_eq!(rate(&[video_parameters(Some(25)), sequence_parameters(Some(30))]), Some(30.0));
    assert_eq!(rate(&[video_parameters(None), sequence_parameters(None)]), None);
    assert_eq!(rate(&[sequence_parameters(Some(100_000))]), None, "nobody films at that rate");
}

#[test]
fn slices_of_a_picture_stay_together() {
    use Coding::{B, I, P};
    let second = |slice: Slice| Slice { first: false, ..slice }.write();
    // A dependent segment (the flag behind the parameter set's number), a suffix SEI, and a slice of another layer.
    let dependent = [Writer::nal(1).bit(false).ue(3).bit(true).number(9, 4).end(), vec![0xa5; 200]].concat();
    let other_layer = [vec![1 << 1, 1 << 3 | 1, 0x80], vec![0xa5; 200]].concat();
    let nals = [
        parameters(),
        vec![Slice::new(19, I, 0).write(), second(Slice::new(19, I, 0)), dependent, vec![40 << 1, 1, 5], other_layer],
        vec![vec![35 << 1, 1, 0x50], Slice::new(1, P, 1).refers(&[1], &[]).write()],
        vec![second(Slice::new(1, B, 1).refers(&[1], &[]))],
    ];
    let bytes = stream(&nals.concat());
    let (units, _) = split(&bytes, MAX);
    assert_eq!(units.iter().map(|unit| unit.kind).collect::<Vec<_>>(), [Kind::I, Kind::Reference]);
    assert!(joined(&units) == bytes);
}

#[test]
fn the_next_picture_is_known_by_its_first_bytes() {
    let nals = [parameters(), group()].concat();
    let mut splitter = Splitter::new(MAX);
    splitter.push(&stream(&nals[..4]));
    assert_eq!(splitter.next_unit(), None);
    // Start code, header and the bit that says it is a picture's first.
    splitter.push(&stream(&nals[4..])[..7]);
    assert_eq!(splitter.next_unit().map(|unit| unit.data.len()), Some(stream(&nals[..4]).len()));
}

#[test]
fn silence_ends_a_picture() {
    let nals = [parameters(), group()].concat();
    let (units, _) = split(&stream(&nals), MAX);
    let mut splitter = Splitter::new(MAX);
    for unit in &units {
        splitter.push(&unit.data);
        assert_eq!(splitter.flush().as_ref(), Some(unit));
        assert_eq!((splitter.flush(), splitter.pending()), (None, 0));
    }
}

#[test]
fn without_parameter_sets_little_is_known() {
    let (units, rate) = split(&stream(&group()), MAX);
    assert_eq!((units.len(), rate), (9, None));
    assert!(units.iter().all(|unit| unit.kind == Kind::Unknown && !H265::begins_decoding(unit)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn garbage_comes_out_as_it_went_in(
        // Zeros, ones and NAL headers abound.
        bytes in prop::collection::vec(prop_oneof![4 => Just(0u8), 3 => Just(1), 2 => 0u8..90, 1 => any::<u8>()], 0..3000),
        piece in 1usize..300,
        max in 1usize..2000,
        silences: bool,
    ) {
        let mut splitter = Splitter::new(max);
        let mut units = Vec::new();
        for bytes in bytes.chunks(piece) {
            splitter.push(bytes);
            units.extend(std::iter::from_fn(|| if silences { splitter.flush() } else { splitter.next_unit() }));
        }
        units.extend(std::iter::from_fn(|| splitter.finish()));
        prop_assert!(joined(&units) == bytes);
        prop_assert!(units.iter().all(|unit| !unit.data.is_empty() && unit.data.len() <= max));
        prop_assert!(units.iter().all(|unit| unit.dependencies.iter().all(|&on| on < unit.index)));
    }

    #[test]
    fn a_damaged_stream_comes_out_as_it_went_in(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30)) {
        let mut bytes = stream(&[parameters(), group(), parameters(), group()].concat());
        for (at, value) in flips {
            // Mostly in parameter sets and slice headers, which are what is read.
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let (units, _) = split(&bytes, MAX);
        prop_assert!(joined(&units) == bytes);
    }

    #[test]
    fn parameter_sets_of_any_bytes_are_read_or_not(kind in 32u8..35, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut parameters = Parameters::default();
        parameters.learn(&[&[kind << 1, 1], &bytes[..]].concat());
        let _ = parse_slice(&parameters, &[&[2, 1], &bytes[..]].concat());
    }
}
