//! What a NAL unit of H.264 (ITU-T H.264, 7.3) or H.265 (ITU-T H.265, 7.3) is worth.

/// How video is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// AVC.
    H264,
    /// HEVC.
    H265,
}

/// What a picture is to others; the greater, the more is lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Picture {
    /// No other refers to it: most B frames.
    Disposable,
    /// Later ones refer to it: P frames.
    Reference,
    /// Decoding can begin with it, or cannot begin without: I frames and parameter sets.
    Key,
}

impl Codec {
    /// What a NAL unit says of its picture, as far as its beginning tells; `None` if it says nothing of it, as SEI and delimiters.
    ///
    /// ```
    /// use punctual_gateway::media::{Codec, Picture};
    ///
    /// assert_eq!(Codec::H264.picture(&[0x65, 0x88]), Some(Picture::Key), "a slice of an IDR picture");
    /// assert_eq!(Codec::H265.picture(&[0x02, 0x01]), Some(Picture::Reference), "TRAIL_R");
    /// ```
    pub fn picture(self, nal: &[u8]) -> Option<Picture> {
        let (&first, rest) = nal.split_first()?;
        match self {
            Self::H264 => {
                let is_referred_to = first & 0x60 != 0;
                let by_reference = if is_referred_to { Picture::Reference } else { Picture::Disposable };
                match first & 0x1f {
                    5 | 7 | 8 | 13 | 15 => Some(Picture::Key),
                    // Non-IDR slices, and partition A, tell what they are made of.
                    1 | 2 => Some(if is_intra(rest) { Picture::Key } else { by_reference }),
                    3 | 4 => Some(by_reference),
                    _ => None,
                }
            }
            Self::H265 => match first >> 1 & 0x3f {
                16..=23 | 32..=34 => Some(Picture::Key),
                // Table 7-1: of trailing and leading pictures the even types are those that no other of their layer refers to.
                kind @ 0..=15 if kind % 2 == 0 => Some(Picture::Disposable),
                0..=15 => Some(Picture::Reference),
                _ => None,
            },
        }
    }
}

/// Whether a slice is of I or SI macroblocks only (H.264, table 7-6). Emulation prevention is not looked for: it cannot be in the few bits that are read
/// unless the picture has millions of macroblocks.
fn is_intra(slice: &[u8]) -> bool {
    let mut bits = slice.iter().take(16).flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let first_macroblock = exp_golomb(&mut bits);
    let slice_type = first_macroblock.and_then(|_| exp_golomb(&mut bits));
    slice_type.is_some_and(|slice_type| matches!(slice_type % 5, 2 | 4))
}

/// An unsigned Exp-Golomb code (H.264, 9.1).
fn exp_golomb(bits: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut zeros = 0;
    while bits.next()? == 0 {
        zeros += 1;
        if zeros > 32 {
            return None;
        }
    }
    let mut rest = 0;
    for _ in 0..zeros {
        rest = rest << 1 | u64::from(bits.next()?);
    }
    Some((1 << zeros) - 1 + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h264_slices_say_what_they_are() {
        let picture = |nal: &[u8]| Codec::H264.picture(nal);
        // first_mb_in_slice 0 is `1`; slice_type 7 (I) is `0001000`, 5 (P) is `00110`, 6 (B) is `00111`.
        let (i, p, b) = (0b1000_1000, 0b1001_1000, 0b1001_1100);
        assert_eq!(picture(&[0x65, i]), Some(Picture::Key));
        assert_eq!(picture(&[0x41, i]), Some(Picture::Key), "an I frame that is no IDR");
        assert_eq!(picture(&[0x41, p]), Some(Picture::Reference));
        assert_eq!(picture(&[0x41, b]), Some(Picture::Reference), "a B frame that others refer to");
        assert_eq!(picture(&[0x01, b]), Some(Picture::Disposable));
        assert_eq!(picture(&[0x67, 0x64]), Some(Picture::Key), "a sequence parameter set");
        assert_eq!(picture(&[0x09, 0xf0]), None, "a delimiter");
        assert_eq!((picture(&[]), picture(&[0x41])), (None, Some(Picture::Reference)));
        assert_eq!(picture(&[0x41, 0, 0, 0, 0, 0, 0]), Some(Picture::Reference), "no code is that long");
    }

    #[test]
    fn h265_types_say_what_they_are() {
        let picture = |kind: u8| Codec::H265.picture(&[kind << 1, 1]);
        assert_eq!(
            (picture(19), picture(21), picture(33)),
            (Some(Picture::Key), Some(Picture::Key), Some(Picture::Key))
        );
        assert_eq!((picture(1), picture(9)), (Some(Picture::Reference), Some(Picture::Reference)));
        assert_eq!((picture(0), picture(8)), (Some(Picture::Disposable), Some(Picture::Disposable)));
        assert_eq!((picture(35), picture(39)), (None, None), "a delimiter, SEI");
    }

    #[test]
    fn codes_are_read_as_the_standard_has_them() {
        let read = |text: &str| exp_golomb(&mut text.bytes().map(|bit| bit - b'0'));
        let table = [("1", 0), ("010", 1), ("011", 2), ("00100", 3), ("00111", 6), ("0001000", 7), ("0001010", 9)];
        assert!(table.iter().all(|(text, number)| read(text) == Some(*number)));
        assert_eq!((read(""), read("00"), read("001")), (None, None, None));
    }
}
