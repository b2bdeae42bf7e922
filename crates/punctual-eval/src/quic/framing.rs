//! Messages on a stream: each behind a header of eight bytes, its index and its length.

/// Bytes of a header.
pub(super) const HEADER: usize = 8;
/// Index of what is not a message but a block of a bulk transfer.
pub(super) const BULK: u32 = u32::MAX;

/// The header of a message.
pub(super) fn header(index: u32, bytes: u32) -> [u8; HEADER] {
    (u64::from(index) << 32 | u64::from(bytes)).to_be_bytes()
}

/// Some bytes of a message, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) index: u32,
    pub(super) bytes: u32,
    /// Whether the message is complete with it.
    pub(super) last: bool,
}

/// Takes a stream apart.
#[derive(Debug, Default)]
pub(super) struct Deframer {
    header: [u8; HEADER],
    /// Bytes of it that are there.
    filled: usize,
    index: u32,
    /// Bytes of the message that are not.
    missing: u32,
}

impl Deframer {
    /// Takes in the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Piece)) {
        while !bytes.is_empty() {
            if self.filled < HEADER {
                let n = bytes.len().min(HEADER - self.filled);
                self.header[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
                self.filled += n;
                bytes = &bytes[n..];
                if self.filled < HEADER {
                    return;
                }
                let header = u64::from_be_bytes(self.header);
                (self.index, self.missing) = ((header >> 32) as u32, header as u32);
            }
            let n = bytes.len().min(self.missing as usize);
            self.missing -= n as u32;
            bytes = &bytes[n..];
            let last = self.missing == 0;
            if last {
                self.filled = 0;
            }
            if n > 0 || last {
                take(Piece { index: self.index, bytes: n as u32, last });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a stream is cut, the messages are those put on it.
        #[test]
        fn messages_come_out_as_they_went_in(
            sizes in proptest::collection::vec(0..60u32, 1..20),
            cuts in proptest::collection::vec(1..50usize, 1..50),
        ) {
            let mut stream = Vec::new();
            for (index, size) in sizes.iter().enumerate() {
                stream.extend_from_slice(&header(index as u32, *size));
                stream.resize(stream.len() + *size as usize, 0);
            }
            let (mut deframer, mut got, mut ended) = (Deframer::default(), vec![0; sizes.len()], Vec::new());
            let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                deframer.push(now, |piece| {
                    got[piece.index as usize] += piece.bytes;
                    if piece.last {
                        ended.push(piece.index);
                    }
                });
                rest = later;
            }
            prop_assert_eq!(got, sizes);
            prop_assert!(ended.iter().copied().eq(0..ended.len() as u32));
        }
    }
}
