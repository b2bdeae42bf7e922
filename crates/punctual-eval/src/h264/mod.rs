//! Access units out of an H.264 byte stream (ITU-T H.264, Annex B), as blocks with priorities and dependencies.
//!
//! What the bitstream says of the worth of a picture:
//!
//! - an I picture depends on nothing,
//! - a P picture on the reference picture decoded before it (and through that one on all back to the I picture),
//! - a B picture on its nearest reference pictures before and after it in display order, as far as they were
//!   decoded before it, as they must be.
//!
//! Pictures that nothing refers to matter least.

mod picture;
mod references;

use h264_reader::{
    Context,
    nal::{Nal as _, RefNal, UnitType, pps::PicParameterSet, sps::SeqParameterSet},
};

use crate::annexb::{self, Codec, Placed, Unit};
use picture::{Picture, first_of_new_picture, parse_slice};
use references::References;

pub use crate::annexb::{AccessUnit, DisplayOrder, Kind, nal_units};

/// Cuts an H.264 byte stream into access units.
pub type Splitter = annexb::Splitter<H264>;

/// What is known of an H.264 stream: its parameter sets and the pictures decoded lately.
#[derive(Default)]
pub struct H264 {
    parameters: Context,
    references: References,
    frame_rate: Option<f64>,
}

/// Bytes of a slice that are certain to hold its header, but for absurd streams.
///
/// A header that is cut short by this is judged when its NAL unit is complete.
const SLICE_HEADER: usize = 128;

impl Codec for H264 {
    type Picture = Picture;

    const HEADER: usize = 1;

    fn judge(&self, unit: &mut Unit<Picture>, nal: &[u8], complete: bool) -> Option<bool> {
        match nal[0] & 0x1f {
            // Delimiter, parameter sets, SEI, prefix and the like (H.264, 7.4.1.2.3).
            6..=9 | 14..=18 => Some(unit.has_slice),
            1 | 2 | 5 => {
                if !complete && nal.len() < SLICE_HEADER {
                    return None;
                }
                let slice = parse_slice(&self.parameters, nal, complete);
                if slice.is_none() && !complete && nal.len() < 4 * SLICE_HEADER {
                    return None;
                }
                if unit.has_slice && first_of_new_picture(unit.picture.as_ref(), slice.as_ref(), nal) {
                    return Some(true);
                }
                unit.has_slice = true;
                match (&mut unit.picture, slice) {
                    (Some(picture), Some(slice)) => picture.join(&slice),
                    (picture @ None, slice) => *picture = slice,
                    (Some(_), None) => {}
                }
                Some(false)
            }
            _ => Some(false),
        }
    }

    fn learn(&mut self, nal: &[u8]) {
        let nal = RefNal::new(nal, &[], true);
        match nal.header().map(|header| header.nal_unit_type()) {
            Ok(UnitType::SeqParameterSet) => {
                if let Ok(sps) = SeqParameterSet::from_bits(nal.rbsp_bits()) {
                    // A rate nobody films at is a mistake in the stream.
                    self.frame_rate = sps.fps().filter(|rate| (0.1..=1000.0).contains(rate)).or(self.frame_rate);
                    self.parameters.put_seq_param_set(sps);
                }
            }
            Ok(UnitType::PicParameterSet) => {
                if let Ok(pps) = PicParameterSet::from_bits(&self.parameters, nal.rbsp_bits()) {
                    self.parameters.put_pic_param_set(pps);
                }
            }
            _ => {}
        }
    }

    fn place(&mut self, index: u64, picture: Option<&Picture>) -> Placed {
        self.references.place(index, picture)
    }

    fn goes_on(&mut self, part: u64, index: u64) {
        self.references.goes_on(part, index);
    }

    /// By the VUI timing of the latest sequence parameter set.
    fn frame_rate(&self) -> Option<f64> {
        self.frame_rate
    }

    /// Beside IDR pictures, encoders that never send more than one of those repeat the parameter sets where one may begin.
    fn begins_decoding(unit: &AccessUnit) -> bool {
        unit.idr || unit.kind == Kind::I && nal_units(&unit.data).any(|nal| nal[0] & 0x1f == 7)
    }
}

/// All access units of a stream that is in memory.
pub fn split(stream: &[u8], max_size: usize) -> (Vec<AccessUnit>, Option<f64>) {
    annexb::split::<H264>(stream, max_size)
}

#[cfg(test)]
mod tests;
