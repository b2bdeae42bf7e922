//! Access units out of an H.265 byte stream (ITU-T H.265, Annex B), as blocks with priorities and dependencies.
//!
//! What the bitstream says of the worth of a picture:
//!
//! - a random access point (IRAP: IDR, BLA, CRA) and every other picture of I slices alone depend on nothing,
//! - a P picture on the latest decoded of the pictures in its reference picture set,
//! - a B picture on the nearest of those before and after it in display order.
//!
//! A sub-layer non-reference picture (of the types that end in `_N`) is nobody's reference and matters least: pictures of higher temporal
//! layers might refer to one, but encoders do not make them so. Where a slice header could not be understood, the reference picture decoded
//! before stands for the set. Of layered streams (scalable, multiview), the base layer's pictures decide; the others' NAL units go with them.

mod bits;
mod parameters;
mod picture;
mod reference_set;
mod references;

use crate::annexb::{self, AccessUnit, Codec, Placed, Unit};
use parameters::{Parameters, unit_type};
use picture::{Picture, parse_slice};
use references::References;

/// Cuts an H.265 byte stream into access units.
pub type Splitter = annexb::Splitter<H265>;

/// What is known of an H.265 stream: its parameter sets and the pictures decoded lately.
#[derive(Default)]
pub struct H265 {
    parameters: Parameters,
    references: References,
}

/// Bytes of a slice that are certain to hold what is read of its header: with the largest reference picture sets, some eighty.
const SLICE_HEADER: usize = 128;

impl Codec for H265 {
    type Picture = Picture;

    const HEADER: usize = 2;

    fn judge(&self, unit: &mut Unit<Picture>, nal: &[u8], complete: bool) -> Option<bool> {
        let &[first, second, ..] = nal else { return complete.then_some(false) };
        let layer = (first & 1) << 5 | second >> 3;
        if layer > 0 {
            return Some(false);
        }
        match unit_type(first) {
            0..=31 => {
                // The first bit of a slice segment says whether it is the first of its picture.
                let Some(&flags) = nal.get(2) else { return complete.then_some(false) };
                let first_of_picture = flags & 0x80 != 0;
                if unit.has_slice && first_of_picture {
                    return Some(true);
                }
                if !complete && nal.len() < SLICE_HEADER {
                    return None;
                }
                unit.has_slice = true;
                match (&mut unit.picture, parse_slice(&self.parameters, nal)) {
                    (Some(picture), Some(slice)) => picture.join(&slice),
                    (picture @ None, slice) => *picture = slice,
                    (Some(_), None) => {}
                }
                Some(false)
            }
            // Parameter sets, delimiter, prefix SEI, and what is reserved or left open for the like (H.265, 7.4.2.4.4).
            32..=35 | 39 | 41..=44 | 48..=55 => Some(unit.has_slice),
            _ => Some(false),
        }
    }

    fn learn(&mut self, nal: &[u8]) {
        self.parameters.learn(nal);
    }

    fn place(&mut self, index: u64, picture: Option<&Picture>) -> Placed {
        self.references.place(index, picture)
    }

    fn goes_on(&mut self, part: u64, index: u64) {
        self.references.goes_on(part, index);
    }

    /// By the VUI timing of the latest sequence parameter set, or the timing of the latest video parameter set.
    fn frame_rate(&self) -> Option<f64> {
        self.parameters.frame_rate()
    }

    fn begins_decoding(unit: &AccessUnit) -> bool {
        unit.idr
    }
}

/// All access units of a stream that is in memory.
pub fn split(stream: &[u8], max_size: usize) -> (Vec<AccessUnit>, Option<f64>) {
    annexb::split::<H265>(stream, max_size)
}

#[cfg(test)]
mod tests;
