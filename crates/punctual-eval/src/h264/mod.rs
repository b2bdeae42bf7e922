//! Access units out of an H.264 byte stream (ITU-T H.264, Annex B), as blocks with priorities and dependencies.
//!
//! Bytes go in as they come from a file or a pipe; access units come out, each with what the bitstream says about its worth:
//!
//! - an I picture depends on nothing,
//! - a P picture on the reference picture decoded before it (and through that one on all back to the I picture),
//! - a B picture on its nearest reference pictures before and after it in display order, as far as they were
//!   decoded before it, as they must be.
//!
//! Pictures that nothing refers to matter least. Every byte of the stream is in exactly one access
//! unit: joined together, they are the stream again, whatever it holds.
//!
//! An end of an access unit is only known by the beginning of the next (that is how Annex B is), so a unit read
//! from a live pipe is complete one unit later, or at the end of the stream.

mod picture;
mod references;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h264_reader::{
    Context,
    nal::{Nal as _, RefNal, UnitType, pps::PicParameterSet, sps::SeqParameterSet},
};
use memchr::memmem;

use picture::{Picture, first_of_new_picture, parse_slice};
use references::References;

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
    /// Whether decoding can start here.
    pub idr: bool,
    /// Whether it is one field, half a frame.
    pub field: bool,
    /// Sorts access units into the order of display.
    pub display: DisplayOrder,
}

/// The place of a picture in display order: coded video sequence, then picture order count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DisplayOrder {
    /// Counts IDR pictures.
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
    pub fn deadline(self, playout: Duration) -> Duration {
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

/// Cuts a byte stream into access units. [`push`](Self::push) bytes, take units with [`next_unit`](Self::next_unit), and at the end the last
/// with [`finish`](Self::finish).
pub struct Splitter {
    /// Everything that has not left in an access unit; begins where the current access unit begins.
    buf: BytesMut,
    /// Where to look for the next start code.
    scanned: usize,
    /// The NAL unit at the end of `buf`, whose end is not known yet.
    open: Option<OpenNal>,
    /// The first slice of the current access unit, if it has been seen.
    picture: Option<Picture>,
    /// Whether the current access unit has a coded slice, understood or not.
    has_slice: bool,
    parameters: Context,
    references: References,
    frame_rate: Option<f64>,
    max_size: usize,
    next_index: u64,
}

struct OpenNal {
    /// Offset in `buf` of its start code, leading zero byte included.
    start: usize,
    /// Offset of its first byte behind the start code.
    payload: usize,
    /// Whether it has been decided if it begins a new access unit.
    judged: bool,
}

/// Bytes of a slice that are certain to hold its header, but for absurd streams.
///
/// A header that is cut short by this is judged when its NAL unit is complete.
const SLICE_HEADER: usize = 128;

impl Splitter {
    /// A splitter whose access units never exceed `max_size` bytes; longer ones are cut.
    pub fn new(max_size: usize) -> Self {
        Self {
            buf: BytesMut::new(),
            scanned: 0,
            open: None,
            picture: None,
            has_slice: false,
            parameters: Context::default(),
            references: References::default(),
            frame_rate: None,
            max_size: max_size.max(1),
            next_index: 0,
        }
    }

    /// Takes in the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Frames per second by the stream's own word (VUI timing of its latest sequence parameter set).
    pub fn frame_rate(&self) -> Option<f64> {
        self.frame_rate
    }

    /// The next access unit that is known to be complete.
    pub fn next_unit(&mut self) -> Option<AccessUnit> {
        loop {
            // The access unit in progress may end where the NAL unit in progress begins, and that may be known
            // long before that NAL unit is complete.
            if let Some(start) = self.judge(self.buf.len(), false) {
                return Some(self.emit(start));
            }
            let Some(code) = memmem::find(&self.buf[self.scanned..], &[0, 0, 1]).map(|at| at + self.scanned) else {
                self.scanned = self.buf.len().saturating_sub(2).max(self.scanned);
                break;
            };
            // The zero byte before 00 00 01 belongs to the start code, if it is not the NAL header's own.
            let floor = self.open.as_ref().map_or(0, |nal| nal.payload);
            let start = if code > floor && self.buf[code - 1] == 0 { code - 1 } else { code };
            if let Some(end) = self.close_nal(start) {
                return Some(self.emit(end));
            }
            self.open = Some(OpenNal { start, payload: code + 3, judged: false });
            self.scanned = code + 3;
        }
        (self.buf.len() > self.max_size).then(|| self.emit(self.buf.len()))
    }

    /// The last access unit, once `next_unit` has none left and no more bytes will come.
    pub fn finish(&mut self) -> Option<AccessUnit> {
        if let Some(unit) = self.next_unit() {
            return Some(unit);
        }
        if let Some(end) = self.close_nal(self.buf.len()) {
            return Some(self.emit(end));
        }
        (!self.buf.is_empty()).then(|| self.emit(self.buf.len()))
    }

    /// The open NAL unit ends at `end`. Says where the access unit before it ends, if it turns out to begin a new one.
    fn close_nal(&mut self, end: usize) -> Option<usize> {
        if let Some(start) = self.judge(end, true) {
            return Some(start);
        }
        let nal = self.open.take()?;
        self.learn(nal.payload, end);
        None
    }

    /// Decides, if it can be decided yet, whether the open NAL unit begins a new access unit, and answers with its offset if so.
    fn judge(&mut self, end: usize, complete: bool) -> Option<usize> {
        let nal = self.open.as_mut().filter(|nal| !nal.judged)?;
        let bytes = self.buf.get(nal.payload..end).filter(|bytes| !bytes.is_empty())?;
        let start = nal.start;
        let boundary = match bytes[0] & 0x1f {
            // Delimiter, parameter sets, SEI, prefix and the like (H.264, 7.4.1.2.3).
            6..=9 | 14..=18 => self.has_slice,
            1 | 2 | 5 => {
                if !complete && bytes.len() < SLICE_HEADER {
                    return None;
                }
                let slice = parse_slice(&self.parameters, bytes, complete);
                if slice.is_none() && !complete && bytes.len() < 4 * SLICE_HEADER {
                    return None;
                }
                let boundary = self.has_slice && first_of_new_picture(self.picture.as_ref(), slice.as_ref(), bytes);
                if !boundary {
                    self.has_slice = true;
                    match (&mut self.picture, slice) {
                        (Some(picture), Some(slice)) => picture.join(&slice),
                        (picture @ None, slice) => *picture = slice,
                        (Some(_), None) => {}
                    }
                }
                boundary
            }
            _ => false,
        };
        if boundary {
            return Some(start);
        }
        nal.judged = true;
        None
    }

    /// Takes note of parameter sets.
    fn learn(&mut self, payload: usize, end: usize) {
        let Some(bytes) = self.buf.get(payload..end).filter(|bytes| !bytes.is_empty()) else { return };
        let nal = RefNal::new(bytes, &[], true);
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

    /// Lets the first `end` bytes leave as an access unit, or as many of them as one may have.
    fn emit(&mut self, end: usize) -> AccessUnit {
        // What is left of one that was cut is still a picture, so that the next one is told from it.
        let has_slice = end > self.max_size;
        let end = end.min(self.max_size);
        let data = self.buf.split_to(end).freeze();
        self.scanned = self.scanned.saturating_sub(end);
        self.open = self.open.take().and_then(|nal| {
            Some(OpenNal { start: nal.start.checked_sub(end)?, payload: nal.payload - end, judged: nal.judged })
        });
        let index = self.next_index;
        self.next_index += 1;
        self.has_slice = has_slice;
        let picture = self.picture.take();
        let placed = self.references.place(index, picture.as_ref());
        AccessUnit {
            index,
            data,
            kind: placed.kind,
            dependencies: placed.dependencies,
            idr: picture.as_ref().is_some_and(Picture::is_idr),
            field: picture.as_ref().is_some_and(Picture::is_field),
            display: placed.display,
        }
    }
}

/// All access units of a stream that is in memory.
pub fn split(stream: &[u8], max_size: usize) -> (Vec<AccessUnit>, Option<f64>) {
    let mut splitter = Splitter::new(max_size);
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

#[cfg(test)]
mod tests;
