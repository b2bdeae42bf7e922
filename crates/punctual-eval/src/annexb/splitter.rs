//! From bytes to access units.

use bytes::BytesMut;
use memchr::memmem;

use super::{AccessUnit, Codec, Placed, Unit};

/// Cuts a byte stream into access units. [`push`](Self::push) bytes, take units with [`next_unit`](Self::next_unit), and at the end the last
/// with [`finish`](Self::finish).
///
/// An access unit is known to be complete when the next one begins: that is how Annex B is. From a live pipe that is a picture later,
/// unless [`flush`](Self::flush) is told that nothing more comes for the moment.
pub struct Splitter<C: Codec> {
    /// Everything that has not left in an access unit; begins where the current access unit begins.
    buf: BytesMut,
    /// Where to look for the next start code.
    scanned: usize,
    /// The NAL unit at the end of `buf`, whose end is not known yet.
    open: Option<OpenNal>,
    unit: Unit<C::Picture>,
    /// The part of the current access unit that has left already, if one has.
    part: Option<(u64, Placed)>,
    codec: C,
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

impl<C: Codec> Splitter<C> {
    /// A splitter whose access units never exceed `max_size` bytes; longer ones are cut.
    pub fn new(max_size: usize) -> Self {
        Self {
            buf: BytesMut::new(),
            scanned: 0,
            open: None,
            unit: Unit::default(),
            part: None,
            codec: C::default(),
            max_size: max_size.max(1),
            next_index: 0,
        }
    }

    /// Takes in the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Frames per second by the stream's own word (the timing of its latest parameter sets).
    pub fn frame_rate(&self) -> Option<f64> {
        self.codec.frame_rate()
    }

    /// Bytes that are neither in an access unit that has left nor on their way with one: what a unit in progress has so far.
    pub fn pending(&self) -> usize {
        self.buf.len()
    }

    /// The next access unit that is known to be complete.
    pub fn next_unit(&mut self) -> Option<AccessUnit> {
        loop {
            // The access unit in progress may end where the NAL unit in progress begins, and that may be known
            // long before that NAL unit is complete.
            if let Some(start) = self.judge(self.buf.len(), false) {
                match self.end_unit(start) {
                    None => continue,
                    unit => return unit,
                }
            }
            let Some(code) = memmem::find(&self.buf[self.scanned..], &[0, 0, 1]).map(|at| at + self.scanned) else {
                self.scanned = self.buf.len().saturating_sub(2).max(self.scanned);
                break;
            };
            // The zero byte before 00 00 01 belongs to the start code, if it is not the NAL header's own.
            let floor = self.open.as_ref().map_or(0, |nal| nal.payload);
            let start = if code > floor && self.buf[code - 1] == 0 { code - 1 } else { code };
            if let Some(end) = self.close_nal(start) {
                match self.end_unit(end) {
                    None => continue,
                    unit => return unit,
                }
            }
            self.open = Some(OpenNal { start, payload: code + 3, judged: false });
            self.scanned = code + 3;
        }
        (self.buf.len() > self.max_size).then(|| self.emit(self.buf.len(), false))
    }

    /// What is in hand of the access unit in progress, because the input has fallen silent, which says that the unit is most likely complete.
    /// To be called until there is nothing left.
    ///
    /// Should more of it come nevertheless, that is an access unit of its own, which needs this one, and on which depends what depends
    /// on the picture. What is no picture yet stays: delimiters and parameter sets go with the picture behind them.
    pub fn flush(&mut self) -> Option<AccessUnit> {
        if let Some(unit) = self.next_unit() {
            return Some(unit);
        }
        // Zeros at the end may be the beginning of a start code.
        let mut end = self.buf.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if let Some(nal) = self.open.as_ref().filter(|nal| !nal.judged) {
            // A NAL unit of which there is a header and a byte can be judged. Of less, nothing can be said.
            match end > nal.payload + C::HEADER {
                false => end = nal.start,
                true => {
                    if let Some(start) = self.judge(end, true) {
                        if let Some(unit) = self.end_unit(start) {
                            return Some(unit);
                        }
                        return self.flush();
                    }
                }
            }
        }
        (self.unit.has_slice && end > 0).then(|| self.emit(end, true))
    }

    /// The last access unit, once `next_unit` has none left and no more bytes will come.
    pub fn finish(&mut self) -> Option<AccessUnit> {
        if let Some(unit) = self.next_unit() {
            return Some(unit);
        }
        if let Some(end) = self.close_nal(self.buf.len()) {
            return self.end_unit(end).or_else(|| self.finish());
        }
        (!self.buf.is_empty()).then(|| self.emit(self.buf.len(), false))
    }

    /// The open NAL unit ends at `end`. Says where the access unit before it ends, if it turns out to begin a new one.
    fn close_nal(&mut self, end: usize) -> Option<usize> {
        if let Some(start) = self.judge(end, true) {
            return Some(start);
        }
        let nal = self.open.take()?;
        if let Some(bytes) = self.buf.get(nal.payload..end).filter(|bytes| !bytes.is_empty()) {
            self.codec.learn(bytes);
        }
        None
    }

    /// Decides, if it can be decided yet, whether the open NAL unit begins a new access unit, and answers with its offset if so.
    fn judge(&mut self, end: usize, complete: bool) -> Option<usize> {
        let nal = self.open.as_mut().filter(|nal| !nal.judged)?;
        let bytes = self.buf.get(nal.payload..end).filter(|bytes| !bytes.is_empty())?;
        if self.codec.judge(&mut self.unit, bytes, complete)? {
            return Some(nal.start);
        }
        nal.judged = true;
        None
    }

    /// The access unit in progress ends before `end`, where another begins; `None` if all of it has left already.
    fn end_unit(&mut self, end: usize) -> Option<AccessUnit> {
        if self.part.is_some() && self.buf[..end].iter().all(|&byte| byte == 0) {
            // Zeros before a start code are of no picture; they go with the next.
            (self.unit, self.part) = (Unit::default(), None);
            return None;
        }
        Some(self.emit(end, false))
    }

    /// Lets the first `end` bytes leave as an access unit, or as many of them as one may have; `open_end` if more of it may come.
    fn emit(&mut self, end: usize, open_end: bool) -> AccessUnit {
        // Of one that is cut, the rest is still to come.
        let goes_on = open_end || end > self.max_size;
        let end = end.min(self.max_size);
        let data = self.buf.split_to(end).freeze();
        self.scanned = self.scanned.saturating_sub(end);
        self.open = self.open.take().and_then(|nal| {
            Some(OpenNal { start: nal.start.checked_sub(end)?, payload: nal.payload - end, judged: nal.judged })
        });
        let index = self.next_index;
        self.next_index += 1;
        let placed = match self.part.take() {
            Some((part, placed)) => {
                self.codec.goes_on(part, index);
                Placed { dependencies: vec![part], idr: false, ..placed }
            }
            None => self.codec.place(index, self.unit.picture.as_ref()),
        };
        match goes_on {
            true => self.part = Some((index, placed.clone())),
            false => self.unit = Unit::default(),
        }
        let Placed { kind, dependencies, idr, field, display } = placed;
        AccessUnit { index, data, kind, dependencies, idr, field, display }
    }
}
