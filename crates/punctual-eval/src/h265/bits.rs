//! The bits of a NAL unit, behind its header and without its emulation prevention bytes.
//!
//! Those bytes and Exp-Golomb codes are those of H.264, so its reader reads them. What is wrong with a NAL unit that cannot be read is
//! of no interest here: all answers are `None` then.

use std::num::NonZeroUsize;

use h264_reader::rbsp::{BitRead as _, BitReader, ByteReader};

pub(super) struct Bits<'a>(BitReader<ByteReader<&'a [u8]>>);

const HEADER: NonZeroUsize = NonZeroUsize::new(2).expect("two is not zero");

impl<'a> Bits<'a> {
    /// Of a NAL unit of which the start code has been removed.
    pub(super) fn of(nal: &'a [u8]) -> Option<Self> {
        (nal.len() > HEADER.get()).then(|| Self(BitReader::new(ByteReader::skipping_bytes(nal, HEADER))))
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        self.0.read_bit("flag").ok()
    }

    /// A number of at most 32 bits.
    pub(super) fn number(&mut self, bits: u32) -> Option<u32> {
        self.0.read_var(bits, "number").ok()
    }

    pub(super) fn skip(&mut self, bits: u32) -> Option<()> {
        self.0.skip(bits, "skipped").ok()
    }

    /// An unsigned Exp-Golomb code of at most `max`.
    pub(super) fn golomb(&mut self, max: u32) -> Option<u32> {
        self.0.read_ue("code").ok().filter(|&value| value <= max)
    }

    /// Passes over so many Exp-Golomb codes, signed or not.
    pub(super) fn skip_golombs(&mut self, count: u32) -> Option<()> {
        (0..count).try_for_each(|_| self.0.read_ue("skipped").ok().map(drop))
    }
}
