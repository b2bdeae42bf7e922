//! What a video is wrapped in that should have been a plain byte stream, by its first bytes.

use std::path::Path;

use super::video::Coding;

/// What stands where a byte stream was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A file format, by its name.
    Container(&'static str),
    /// A byte stream of the other coding.
    Coding(Coding),
}

/// As many bytes from the beginning as are certain to be enough.
pub(super) const ENOUGH: usize = 5 * 192;

/// Finds out what the bytes are, from the first of the stream on, if they are known not to be a byte stream of `coding`.
pub(super) fn recognise(head: &[u8], coding: Coding) -> Option<Found> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if let Some(nal) = head.strip_prefix(&[0, 0, 0, 1]).or_else(|| head.strip_prefix(&[0, 0, 1])) {
        return match (nal, coding) {
            ([0xba, ..], _) => Some(Found::Container("an MPEG program stream")),
            // A parameter set or a delimiter, which streams begin with, is none to the other coding.
            ([0x40 | 0x42 | 0x44 | 0x46, 1, ..], Coding::H264) => Some(Found::Coding(Coding::H265)),
            ([0x09 | 0x27 | 0x47 | 0x67, ..], Coding::H265) => Some(Found::Coding(Coding::H264)),
            _ => None,
        };
    }
    let boxes: [&[u8]; 7] = [b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"wide"];
    let container = if boxes.iter().any(|name| at(4, name)) {
        "an MP4 file"
    } else if at(0, &[0x1a, 0x45, 0xdf, 0xa3]) {
        "a Matroska file"
    } else if at(0, b"FLV") {
        "a Flash video"
    } else if at(0, b"RIFF") {
        "an AVI file"
    } else if is_transport_stream(head) {
        "an MPEG transport stream"
    } else {
        return None;
    };
    Some(Found::Container(container))
}

/// Packets of 188 bytes, or of 192 with a time before each, that begin with 0x47. The first may be cut short: one joins a live stream anywhere.
fn is_transport_stream(head: &[u8]) -> bool {
    const SYNC: u8 = 0x47;
    const IN_A_ROW: usize = 4;
    [188, 192].into_iter().any(|size| {
        (0..size).any(|first| {
            let mut packets = head.iter().skip(first).step_by(size).take(IN_A_ROW);
            packets.len() == IN_A_ROW && packets.all(|&byte| byte == SYNC)
        })
    })
}

impl Found {
    /// What it is, and what to do about it.
    pub(super) fn advice(self, name: &Path, coding: Coding) -> String {
        let shown = name.display();
        match self {
            Self::Coding(other) => format!("{shown} is an {other} stream, not {coding}: give {}", other.flag()),
            Self::Container(what) => {
                format!("{shown} is {what}, not an {coding} byte stream: make one with {}", command(name, coding))
            }
        }
    }
}

/// What makes a byte stream of a video file, to be piped in.
pub(super) fn command(name: &Path, coding: Coding) -> String {
    let input = match name.to_str() {
        Some("standard input") | None => "FILE".into(),
        Some(name) if name.contains(' ') => format!("'{name}'"),
        Some(name) => name.to_owned(),
    };
    let (filter, format) = coding.ffmpeg();
    format!("`ffmpeg -i {input} -c copy -bsf:v {filter} -f {format} -`, and pipe it in")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::CLIP;

    fn packets(size: usize, first: usize) -> Vec<u8> {
        (0..2000usize).map(|at| if at >= first && (at - first).is_multiple_of(size) { 0x47 } else { 0xff }).collect()
    }

    #[test]
    fn containers_are_told_from_byte_streams() {
        let container = |head: &[u8]| match recognise(head, Coding::H264) {
            Some(Found::Container(what)) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(container(b"\0\0\0\x18ftypmp42\0\0\0\0"), "an MP4 file");
        assert_eq!(container(b"\x1a\x45\xdf\xa3\0\0"), "a Matroska file");
        assert_eq!(container(b"\0\0\x01\xba\0\0"), "an MPEG program stream");
        for (size, first) in [(188, 0), (188, 187), (192, 4)] {
            assert_eq!(container(&packets(size, first)[..ENOUGH]), "an MPEG transport stream");
        }
    }

    #[test]
    fn byte_streams_are_let_through() {
        assert_eq!(recognise(CLIP, Coding::H264), None);
        assert_eq!(recognise(&CLIP[1234..], Coding::H264), None);
        assert_eq!(recognise(&[0, 0, 0, 1, 0x40, 1, 0x0c], Coding::H265), None);
        for nothing in [&b""[..], b"G", b"hello", &[0x47; 100]] {
            assert_eq!(recognise(nothing, Coding::H264), None);
        }
    }

    #[test]
    fn one_coding_is_told_from_the_other() {
        assert_eq!(recognise(CLIP, Coding::H265), Some(Found::Coding(Coding::H264)));
        assert_eq!(recognise(&[0, 0, 0, 1, 0x40, 1, 0x0c], Coding::H264), Some(Found::Coding(Coding::H265)));
    }

    #[test]
    fn the_advice_can_be_pasted() {
        let advice = Found::Container("an MP4 file").advice(Path::new("my film.mp4"), Coding::H264);
        assert!(advice.contains("ffmpeg -i 'my film.mp4' -c copy -bsf:v h264_mp4toannexb -f h264 -`"), "{advice}");
        let advice = Found::Container("an MP4 file").advice(Path::new("standard input"), Coding::H265);
        assert!(advice.contains("ffmpeg -i FILE -c copy -bsf:v hevc_mp4toannexb -f hevc -`"), "{advice}");
        let advice = Found::Coding(Coding::H265).advice(Path::new("x"), Coding::H264);
        assert_eq!(advice, "x is an H.265 stream, not H.264: give --h265");
    }
}
