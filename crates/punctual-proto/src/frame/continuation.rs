//! The control stream goes on, on another stream of QUIC's.
//!
//! What was on its way on a path that died is lost, and QUIC does not know it: it takes a packet for lost once one sent after it *on the same
//! path* has been acknowledged, and here none ever will. All that is said later would wait behind the gap. So the side that
//! speaks opens another stream, which begins with its type and the place from which it repeats what was said, and gives the first one up.

use super::varint;
use crate::error::ProtocolError;

/// The type of such a stream, its first integer; also the code with which the one before is reset, or no longer read.
pub(crate) const CONTINUATION: u64 = 0x51;

/// Writes what goes before the words: they begin `from` bytes after the beginning of the control stream.
pub(crate) fn put(out: &mut Vec<u8>, from: u64) {
    varint::put(out, CONTINUATION);
    varint::put(out, from);
}

/// Reads the bytes of a control stream, wherever they come, each once.
#[derive(Debug, Default)]
pub(crate) struct Splice {
    /// How many bytes have been passed on.
    place: u64,
    /// What there is of the head of the present stream, as long as it is not complete.
    head: Option<Vec<u8>>,
    /// How many of the next bytes have been passed on before.
    known: u64,
}

impl Splice {
    /// How many bytes of the control stream have been passed on.
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// A stream begins that continues the one before, if there was one.
    pub(crate) fn begin(&mut self) {
        self.head = Some(Vec::new());
        self.known = 0;
    }

    /// Takes the next bytes of the present stream, and returns what of them is new.
    ///
    /// # Errors
    /// [`ProtocolError::Stream`] if the stream is of another type, or begins behind what has been read so far.
    pub(crate) fn take<'a>(&mut self, mut bytes: &'a [u8]) -> Result<&'a [u8], ProtocolError> {
        if let Some(head) = &mut self.head {
            let before = head.len();
            head.extend(bytes.iter().take(varint::MAX_LEN * 2 - before));
            let mut rest = &head[..];
            let kind = varint::try_get(&mut rest);
            if kind.is_some_and(|kind| kind != CONTINUATION) {
                return Err(ProtocolError::Stream);
            }
            let Some(from) = kind.and_then(|_| varint::try_get(&mut rest)) else { return Ok(&[]) };
            bytes = &bytes[head.len() - rest.len() - before..];
            self.known = self.place.checked_sub(from).ok_or(ProtocolError::Stream)?;
            self.head = None;
        }
        let known = usize::try_from(self.known).map_or(bytes.len(), |known| known.min(bytes.len()));
        self.known -= known as u64;
        let new = &bytes[known..];
        self.place += new.len() as u64;
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(from: u64, words: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        put(&mut stream, from);
        stream.extend_from_slice(words);
        stream
    }

    proptest! {
        /// However often it goes on elsewhere, from whatever place before, and in whatever pieces it comes: each byte is read once.
        #[test]
        fn each_byte_is_read_once(
            words in prop::collection::vec(any::<u8>(), 1..400),
            streams in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
            piece in 1..50_usize,
        ) {
            let mut splice = Splice::default();
            let mut read = Vec::new();
            for (at, (back, end)) in streams.into_iter().enumerate() {
                let from = if at == 0 { 0 } else { back.index(read.len() + 1) };
                let end = from + end.index(words.len() - from + 1);
                let bytes = if at == 0 { words[..end].to_vec() } else { stream(from as u64, &words[from..end]) };
                if at > 0 {
                    splice.begin();
                }
                for piece in bytes.chunks(piece) {
                    read.extend_from_slice(splice.take(piece).expect("no gap"));
                }
                prop_assert_eq!(&read[..], &words[..read.len()]);
                prop_assert!(read.len() >= end);
                prop_assert_eq!(splice.place(), read.len() as u64);
            }
        }
    }

    #[test]
    fn a_gap_and_another_type_are_refused() {
        let mut splice = Splice::default();
        assert_eq!(splice.take(&[1, 2, 3]), Ok(&[1, 2, 3][..]));
        splice.begin();
        assert_eq!(splice.take(&stream(4, &[5])), Err(ProtocolError::Stream));
        splice.begin();
        assert_eq!(splice.take(&[0x40, 0x50]), Err(ProtocolError::Stream));
        splice.begin();
        assert_eq!(splice.take(&stream(3, &[4])), Ok(&[4][..]));
    }
}
