//! Video as a byte stream of NAL units (Annex B of ITU-T H.264 and of H.265), cut into access units: blocks with priorities and dependencies.
//!
//! Bytes go in as they come from a file or a pipe; access units come out, each with what the bitstream says about its worth. Start codes
//! and access units are alike in both codings and are found here ([`Splitter`]); what a NAL unit means is for [`h264`](crate::h264) and
//! [`h265`](crate::h265) to say ([`Codec`]).
//!
//! Every byte of the stream is in exactly one access unit: joined together, they are the stream again, whatever it holds.

mod splitter;

use bytes::Bytes;
use memchr::memmem;

pub use splitter::Splitter;

/// One access unit: the bytes of one picture (or one field) and the parameter sets and delimiters before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Position in the stream, from 0, in decoding order.
    pub index: u64,
    /// The bytes, start codes included.
    pub data: Bytes,
    /// What it is to the other pictures.
    pub kind: Kind,
    /// Positions of the access units without which this one cannot be decoded; at most two.
    pub dependencies: Vec<u64>,
    /// Whether decoding can start here: an IDR picture of H.264, any random access point of H.265.
    pub idr: bool,
    /// Whether it is one field, half a frame.
    pub field: bool,
    /// Sorts access units into the order of display.
    pub display: DisplayOrder,
}

/// The place of a picture in display order: coded video sequence, then picture order count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DisplayOrder {
    /// Counts the pictures at which picture order counts begin anew.
    pub sequence: u64,
    /// Picture order count within the sequence.
    pub count: i64,
}

/// What an access unit is to the others, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Decodable by itself.
    I,
    /// Refers to earlier pictures, and others may refer to it (P, and B that serve as reference).
    Reference,
    /// Nothing refers to it.
    Disposable,
    /// No picture that could be understood.
    Unknown,
}

impl Kind {
    /// One letter for tables and plots.
    pub fn letter(self) -> char {
        match self {
            Self::I => 'I',
            Self::Reference => 'P',
            Self::Disposable => 'B',
            Self::Unknown => '?',
        }
    }

    /// The deadline of a block that holds such a picture, where `playout` is when it is to be seen.
    ///
    /// A picture that others refer to is worth having after its own moment has passed: without it, all of them are lost,
    /// up to the next I picture. So it gets as much time again.
    pub fn deadline(self, playout: std::time::Duration) -> std::time::Duration {
        match self {
            Self::Disposable => playout,
            Self::I | Self::Reference | Self::Unknown => playout * 2,
        }
    }

    /// The priority of a block that holds such a picture: 0 is the highest.
    ///
    /// Evenly apart and well below the scale's end, so that schedulers that weigh a priority against a deadline see a
    /// difference, and less urgent data of other kinds still finds room below. What could not be understood
    /// ranks with I, for it may be anything.
    pub fn priority(self) -> u8 {
        match self {
            Self::I | Self::Unknown => 0,
            Self::Reference => 64,
            Self::Disposable => 128,
        }
    }
}

/// What tells one video coding from the other.
pub trait Codec: Default {
    /// A coded picture, as far as its slice headers tell.
    type Picture;

    /// Bytes of a NAL unit's header.
    const HEADER: usize;

    /// Whether `nal` (start code removed, not empty, perhaps cut short unless `complete`) begins an access unit other than `unit`; `None` if
    /// that takes more bytes to say. If it belongs to `unit`, what it says of the picture is noted there.
    fn judge(&self, unit: &mut Unit<Self::Picture>, nal: &[u8], complete: bool) -> Option<bool>;

    /// Takes note of a complete NAL unit (start code removed), of which parameter sets are of interest.
    fn learn(&mut self, nal: &[u8]);

    /// Places the access unit `index`, the next in decoding order, among those before it.
    fn place(&mut self, index: u64, picture: Option<&Self::Picture>) -> Placed;

    /// The access unit `part`, placed last, goes on in `index`: who needs the one needs the other.
    fn goes_on(&mut self, part: u64, index: u64);

    /// Frames per second by the stream's own word.
    fn frame_rate(&self) -> Option<f64>;

    /// Whether a decoder that has seen nothing yet can begin with this access unit.
    fn begins_decoding(unit: &AccessUnit) -> bool;
}

/// The access unit in progress, as far as it is known.
pub struct Unit<P> {
    /// From its first slice that was understood, if there was one.
    pub picture: Option<P>,
    /// Whether it has a coded slice, understood or not.
    pub has_slice: bool,
}

impl<P> Default for Unit<P> {
    fn default() -> Self {
        Self { picture: None, has_slice: false }
    }
}

/// What has been found out about an access unit; the fields are those of [`AccessUnit`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "said of AccessUnit")]
pub struct Placed {
    pub kind: Kind,
    pub dependencies: Vec<u64>,
    pub idr: bool,
    pub field: bool,
    pub display: DisplayOrder,
}

/// All access units of a stream that is in memory, and its frame rate.
pub fn split<C: Codec>(stream: &[u8], max_size: usize) -> (Vec<AccessUnit>, Option<f64>) {
    let mut splitter = Splitter::<C>::new(max_size);
    splitter.push(stream);
    let mut units = Vec::new();
    while let Some(unit) = splitter.next_unit() {
        units.push(unit);
    }
    while let Some(unit) = splitter.finish() {
        units.push(unit);
    }
    (units, splitter.frame_rate())
}

/// The NAL units of an access unit, without their start codes and trailing zeros.
pub fn nal_units(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let codes: Vec<usize> = memmem::find_iter(data, &[0, 0, 1]).collect();
    let ends: Vec<usize> = codes.iter().skip(1).copied().chain([data.len()]).collect();
    codes.into_iter().zip(ends).filter_map(|(code, end)| {
        let nal = data.get(code + 3..end)?;
        let len = nal.iter().rposition(|&byte| byte != 0)? + 1;
        Some(&nal[..len])
    })
}
