//! Parameter sets, as far as slice headers need them to be read, and the frame rate in them (H.265, 7.3.2 and E.2.1).

use std::collections::BTreeMap;

use super::{bits::Bits, reference_set::ReferenceSet};

/// The latest parameter set of each number.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    sequences: BTreeMap<u32, Sequence>,
    pictures: BTreeMap<u32, PictureParameters>,
    /// Of the video parameter set, which seldom says.
    video_rate: Option<f64>,
    sequence_rate: Option<f64>,
}

/// A sequence parameter set.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    /// Whether slice headers name a colour plane.
    pub(super) separate_planes: bool,
    /// Bits of a picture order count in a slice header.
    pub(super) order_bits: u32,
    pub(super) reference_sets: Vec<ReferenceSet>,
    /// Luma samples of a side of a coding tree block and of the picture, from which slice addresses have their length.
    block: u32,
    width: u32,
    height: u32,
    rate: Option<f64>,
}

/// A picture parameter set.
#[derive(Debug, Clone, Copy)]
pub(super) struct PictureParameters {
    sequence: u32,
    /// Whether a slice segment may go without most of its header.
    pub(super) dependent_segments: bool,
    /// Whether slice headers say if the picture is shown.
    pub(super) output_flag: bool,
    /// Bits of slice headers that are left for extensions.
    pub(super) extra_bits: u32,
}

/// The type of a NAL unit, from the first byte of its header.
pub(super) const fn unit_type(first: u8) -> u8 {
    first >> 1 & 0x3f
}

impl Parameters {
    /// Takes note of a complete NAL unit, if it is a parameter set of the base layer that can be read.
    pub(super) fn learn(&mut self, nal: &[u8]) {
        let &[first, second, ..] = nal else { return };
        if first & 1 != 0 || second >> 3 != 0 {
            return;
        }
        let Some(mut bits) = Bits::of(nal) else { return };
        match unit_type(first) {
            32 => self.video_rate = video_rate(&mut bits).or(self.video_rate),
            33 => {
                if let Some((id, sequence)) = Sequence::parse(&mut bits) {
                    self.sequence_rate = sequence.rate.or(self.sequence_rate);
                    self.sequences.insert(id, sequence);
                }
            }
            34 => {
                if let Some((id, picture)) = PictureParameters::parse(&mut bits) {
                    self.pictures.insert(id, picture);
                }
            }
            _ => {}
        }
    }

    /// Those that a slice goes by which names the picture parameter set `id`.
    pub(super) fn of(&self, id: u32) -> Option<(&PictureParameters, &Sequence)> {
        let picture = self.pictures.get(&id)?;
        Some((picture, self.sequences.get(&picture.sequence)?))
    }

    pub(super) fn frame_rate(&self) -> Option<f64> {
        self.sequence_rate.or(self.video_rate)
    }
}

impl Sequence {
    /// Bits of the address of a slice segment: as many as number the coding tree blocks.
    pub(super) fn address_bits(&self) -> u32 {
        let blocks = u64::from(self.width.div_ceil(self.block)) * u64::from(self.height.div_ceil(self.block));
        blocks.next_power_of_two().trailing_zeros()
    }

    fn parse(bits: &mut Bits<'_>) -> Option<(u32, Self)> {
        bits.skip(4)?;
        let sub_layers = bits.number(3)?;
        bits.skip(1)?;
        profile_and_levels(bits, sub_layers)?;
        let id = bits.golomb(15)?;
        let separate_planes = bits.golomb(3)? == 3 && bits.flag()?;
        let (width, height) = (bits.golomb(MAX_SIDE)?, bits.golomb(MAX_SIDE)?);
        if bits.flag()? {
            // The window within the picture that is shown.
            bits.skip_golombs(4)?;
        }
        bits.skip_golombs(2)?;
        let order_bits = bits.golomb(12)? + 4;
        let layers_told = if bits.flag()? { sub_layers + 1 } else { 1 };
        bits.skip_golombs(3 * layers_told)?;
        let smallest = bits.golomb(3)? + 3;
        let block = 1 << (smallest + bits.golomb(3)?);
        // Transform blocks.
        bits.skip_golombs(4)?;
        if bits.flag()? && bits.flag()? {
            scaling_lists(bits)?;
        }
        bits.skip(2)?;
        if bits.flag()? {
            // Uncompressed blocks.
            bits.skip(8)?;
            bits.skip_golombs(2)?;
            bits.skip(1)?;
        }
        let mut reference_sets = Vec::new();
        for _ in 0..bits.golomb(64)? {
            reference_sets.push(ReferenceSet::parse(bits, &reference_sets, false)?);
        }
        if bits.flag()? {
            for _ in 0..bits.golomb(32)? {
                bits.skip(order_bits + 1)?;
            }
        }
        bits.skip(2)?;
        // A set whose end is damaged is as good as one that says nothing of time.
        let rate = bits.flag().and_then(|present| if present { display_rate(bits) } else { None });
        Some((id, Self { separate_planes, order_bits, reference_sets, block, width, height, rate }))
    }
}

/// A level 6.2 picture has at most 16,888 samples on a side (H.265, A.4.1); streams beyond all levels have some more.
const MAX_SIDE: u32 = 1 << 16;

impl PictureParameters {
    fn parse(bits: &mut Bits<'_>) -> Option<(u32, Self)> {
        let (id, sequence) = (bits.golomb(63)?, bits.golomb(15)?);
        let (dependent_segments, output_flag, extra_bits) = (bits.flag()?, bits.flag()?, bits.number(3)?);
        Some((id, Self { sequence, dependent_segments, output_flag, extra_bits }))
    }
}

/// Passes over profile, tier and level; `sub_layers` are those beside the first.
fn profile_and_levels(bits: &mut Bits<'_>, sub_layers: u32) -> Option<()> {
    const PROFILE: u32 = 88;
    const LEVEL: u32 = 8;
    bits.skip(PROFILE + LEVEL)?;
    let told = (0..sub_layers).map(|_| Some((bits.flag()?, bits.flag()?))).collect::<Option<Vec<_>>>()?;
    if sub_layers > 0 {
        bits.skip(2 * 8u32.checked_sub(sub_layers)?)?;
    }
    told.into_iter()
        .try_for_each(|(profile, level)| bits.skip(if profile { PROFILE } else { 0 } + if level { LEVEL } else { 0 }))
}

/// Passes over scaling lists (H.265, 7.3.4).
fn scaling_lists(bits: &mut Bits<'_>) -> Option<()> {
    for size in 0..4 {
        let matrices = if size == 3 { 2 } else { 6 };
        for _ in 0..matrices {
            let codes = if bits.flag()? { 64.min(1 << (4 + 2 * size)) + u32::from(size > 1) } else { 1 };
            bits.skip_golombs(codes)?;
        }
    }
    Some(())
}

/// The frame rate in the VUI (H.265, E.2.1).
fn display_rate(bits: &mut Bits<'_>) -> Option<f64> {
    if bits.flag()? && bits.number(8)? == 255 {
        // The shape of a sample.
        bits.skip(32)?;
    }
    if bits.flag()? {
        // Overscan.
        bits.skip(1)?;
    }
    if bits.flag()? {
        // The kind of signal, and its colours.
        bits.skip(4)?;
        if bits.flag()? {
            bits.skip(24)?;
        }
    }
    if bits.flag()? {
        // Where chroma samples lie.
        bits.skip_golombs(2)?;
    }
    bits.skip(3)?;
    if bits.flag()? {
        // The window that is shown.
        bits.skip_golombs(4)?;
    }
    if bits.flag()? { rate(bits) } else { None }
}

/// The frame rate in a video parameter set (H.265, 7.3.2.1).
fn video_rate(bits: &mut Bits<'_>) -> Option<f64> {
    bits.skip(4 + 2 + 6)?;
    let sub_layers = bits.number(3)?;
    bits.skip(1 + 16)?;
    profile_and_levels(bits, sub_layers)?;
    let layers_told = if bits.flag()? { sub_layers + 1 } else { 1 };
    bits.skip_golombs(3 * layers_told)?;
    let layers = bits.number(6)? + 1;
    for _ in 0..bits.golomb(1023)? {
        bits.skip(layers)?;
    }
    if bits.flag()? { rate(bits) } else { None }
}

/// Pictures per second, from the units of a clock that one takes; `None` for what nobody films at, which is a mistake in the stream.
fn rate(bits: &mut Bits<'_>) -> Option<f64> {
    let (units, scale) = (bits.number(32)?, bits.number(32)?);
    let rate = f64::from(scale) / f64::from(units);
    (0.1..=1000.0).contains(&rate).then_some(rate)
}
