//! RTP (RFC 3550), and the payloads of H.264 (RFC 6184) and H.265 (RFC 7798) in it.

use super::nal::{Codec, Picture};

/// The payload type that MPEG transport streams have (RFC 3551).
const MPEG_TS: u8 = 33;

/// What is read of an RTP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What its payload is; by convention of the two ends, for the most part.
    pub payload_type: u8,
    /// Of video: the last packet of its frame.
    pub marker: bool,
    /// Of video: the same for all packets of a frame.
    pub timestamp: u32,
    /// Which source it is of.
    pub source: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a datagram; `None` if it is not RTP, or is RTCP, which may share a port with it (RFC 5761).
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = datagram.split_first_chunk::<12>()?;
        let (flags, marked) = (head[0], head[1]);
        if flags >> 6 != 2 || (192..=223).contains(&marked) {
            return None;
        }
        rest = rest.get(4 * usize::from(flags & 0x0f)..)?;
        if flags & 0x10 != 0 {
            let (extension, behind) = rest.split_first_chunk::<4>()?;
            rest = behind.get(4 * usize::from(u16::from_be_bytes([extension[2], extension[3]]))..)?;
        }
        if flags & 0x20 != 0 {
            let padding = usize::from(*rest.last()?);
            rest = rest.get(..rest.len().checked_sub(padding)?)?;
        }
        Some(Self {
            payload_type: marked & 0x7f,
            marker: marked & 0x80 != 0,
            timestamp: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            source: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
            payload: rest,
        })
    }

    /// Whether it carries an MPEG transport stream.
    pub fn is_transport_stream(&self) -> bool {
        self.payload_type == MPEG_TS
    }

    /// What it says of its picture, if it is video of that coding.
    pub fn picture(&self, codec: Codec) -> Option<Picture> {
        match codec {
            Codec::H264 => h264(self.payload),
            Codec::H265 => h265(self.payload),
        }
    }
}

fn h264(payload: &[u8]) -> Option<Picture> {
    let codec = Codec::H264;
    let &first = payload.first()?;
    match first & 0x1f {
        1..=23 => codec.picture(payload),
        // STAP-A, and STAP-B with a decoding order number behind the first byte.
        24 => aggregate(codec, &payload[1..]),
        25 => aggregate(codec, payload.get(3..)?),
        // FU-A, FU-B: the unit's first byte is in two parts.
        28 | 29 => {
            let &fragment = payload.get(1)?;
            let header = first & 0xe0 | fragment & 0x1f;
            let skipped = if first & 0x1f == 29 { 4 } else { 2 };
            fragment_of(codec, &[header], fragment, payload.get(skipped..)?)
        }
        _ => None,
    }
}

fn h265(payload: &[u8]) -> Option<Picture> {
    let codec = Codec::H265;
    let (&first, &second) = (payload.first()?, payload.get(1)?);
    match first >> 1 & 0x3f {
        48 => aggregate(codec, &payload[2..]),
        49 => {
            let &fragment = payload.get(2)?;
            fragment_of(codec, &[first & 0x81 | (fragment & 0x3f) << 1, second], fragment, &payload[3..])
        }
        0..=47 => codec.picture(payload),
        _ => None,
    }
}

/// The most that any of several units says.
fn aggregate(codec: Codec, mut units: &[u8]) -> Option<Picture> {
    let mut most = None;
    while let Some((size, rest)) = units.split_first_chunk::<2>() {
        let size = usize::from(u16::from_be_bytes(*size)).min(rest.len());
        let (unit, rest) = rest.split_at(size);
        most = most.max(codec.picture(unit));
        units = rest;
    }
    most
}

/// What a part of a unit says. Only the first part has the slice's header: of another, a key picture is certain, and that others refer to it.
fn fragment_of(codec: Codec, header: &[u8], fragment: u8, rest: &[u8]) -> Option<Picture> {
    let begins = fragment & 0x80 != 0;
    if begins {
        let mut unit = [0; 18];
        let (head, body) = unit.split_at_mut(header.len());
        let taken = rest.len().min(body.len());
        head.copy_from_slice(header);
        body[..taken].copy_from_slice(&rest[..taken]);
        return codec.picture(&unit[..header.len() + taken]);
    }
    codec.picture(header).filter(|picture| *picture == Picture::Key)
}

/// The frame that a source is at: packets of one timestamp, up to the marker.
#[derive(Debug)]
pub struct FrameSet<Id> {
    frame: Option<Frame<Id>>,
}

#[derive(Debug)]
struct Frame<Id> {
    source: u32,
    timestamp: u32,
    picture: Option<Picture>,
    last: Option<Id>,
}

impl<Id> Default for FrameSet<Id> {
    fn default() -> Self {
        Self { frame: None }
    }
}

impl<Id: Copy> FrameSet<Id> {
    /// Sees a packet: what its frame is worth, as far as that is known, and the packet of the frame before it.
    pub fn next(&mut self, packet: &Packet<'_>, codec: Option<Codec>) -> (Option<Picture>, Option<Id>) {
        let said = codec.and_then(|codec| packet.picture(codec));
        let same = |frame: &&mut Frame<Id>| (frame.source, frame.timestamp) == (packet.source, packet.timestamp);
        let (picture, before) = match self.frame.as_mut().filter(same) {
            Some(frame) => {
                frame.picture = frame.picture.max(said);
                (frame.picture, frame.last)
            }
            None => {
                let Packet { source, timestamp, .. } = *packet;
                self.frame = Some(Frame { source, timestamp, picture: said, last: None });
                (said, None)
            }
        };
        if packet.marker {
            // What follows is another frame, even if it has the same timestamp by mistake.
            self.frame = None;
        }
        (picture, before)
    }

    /// Names the packet that was seen last.
    pub fn named(&mut self, id: Id) {
        if let Some(frame) = &mut self.frame {
            frame.last = Some(id);
        }
    }

    /// Forgets names.
    pub fn clear(&mut self) {
        self.frame = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(marker: bool, timestamp: u32, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x80, u8::from(marker) << 7 | 96, 0, 1];
        packet.extend(timestamp.to_be_bytes());
        packet.extend([0, 0, 0, 9]);
        packet.extend(payload);
        packet
    }

    #[test]
    fn a_header_may_have_sources_an_extension_and_padding() {
        let plain = packet(true, 7, b"xyz");
        let read = Packet::parse(&plain).unwrap();
        assert_eq!((read.payload_type, read.marker, read.timestamp, read.source), (96, true, 7, 9));
        assert_eq!(read.payload, b"xyz");
        let mut all = vec![0xb1, 96, 0, 1, 0, 0, 0, 7, 0, 0, 0, 9, 1, 1, 1, 1];
        all.extend([0xbe, 0xde, 0, 1, 5, 5, 5, 5, b'x', b'y', b'z', 0, 2]);
        assert_eq!(Packet::parse(&all).unwrap().payload, b"xyz");
        for end in 0..all.len() {
            assert!(Packet::parse(&all[..end]).is_none_or(|read| read.payload.len() <= 5), "{end}");
        }
        let mut padded = plain;
        padded[0] |= 0x20;
        *padded.last_mut().unwrap() = 200;
        assert_eq!(Packet::parse(&padded), None, "more padding than there is");
    }

    #[test]
    fn rtcp_and_others_are_not_rtp() {
        assert_eq!(Packet::parse(&[0x80, 200, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None, "a sender report");
        assert_eq!(Packet::parse(&[0x47; 188]), None, "a transport stream");
        assert_eq!(Packet::parse(&[0x80, 96, 0]), None);
    }

    #[test]
    fn payloads_are_read() {
        let picture = |codec, payload: &[u8]| Packet::parse(&packet(false, 1, payload)).unwrap().picture(codec);
        let h264 = |payload: &[u8]| picture(Codec::H264, payload);
        let (i, p) = (0b1000_1000, 0b1001_1000);
        assert_eq!(h264(&[0x65, i]), Some(Picture::Key));
        assert_eq!(h264(&[0x78, 0, 2, 0x09, 0xf0, 0, 2, 0x67, 1]), Some(Picture::Key), "the most of an aggregate");
        assert_eq!(h264(&[0x78, 0, 200, 0x41, p]), Some(Picture::Reference), "a size that is too large");
        assert_eq!(h264(&[0x5c, 0x81, i]), Some(Picture::Key), "the first part of an I slice");
        assert_eq!(h264(&[0x5c, 0x81, p]), Some(Picture::Reference));
        assert_eq!(h264(&[0x5c, 0x01, i]), None, "another part has no slice header");
        assert_eq!(h264(&[0x7c, 0x05, 0xff]), Some(Picture::Key), "of an IDR picture it needs none");
        let h265 = |payload: &[u8]| picture(Codec::H265, payload);
        assert_eq!(h265(&[19 << 1, 1]), Some(Picture::Key));
        assert_eq!(h265(&[48 << 1, 1, 0, 2, 1 << 1, 1]), Some(Picture::Reference));
        assert_eq!(h265(&[49 << 1, 1, 0x80, 0]), Some(Picture::Disposable));
        assert_eq!(h265(&[49 << 1, 1, 19, 0]), Some(Picture::Key));
        // What ends too early, and types that there are none of.
        for payload in [&[][..], &[0x78], &[0x7c], &[0x7d, 0x85, 0], &[0x7f]] {
            assert_eq!(h264(payload), None, "{payload:?}");
        }
        for payload in [&[][..], &[49 << 1], &[49 << 1, 1], &[0x60, 0], &[63 << 1, 0]] {
            assert_eq!(h265(payload), None, "{payload:?}");
        }
    }

    #[test]
    fn packets_of_a_frame_hang_together_and_frames_do_not() {
        let mut set = FrameSet::default();
        let mut see = |marker, timestamp, payload: &[u8], name| {
            let datagram = packet(marker, timestamp, payload);
            let seen = set.next(&Packet::parse(&datagram).unwrap(), Some(Codec::H264));
            set.named(name);
            seen
        };
        assert_eq!(see(false, 1, &[0x67], 0), (Some(Picture::Key), None));
        assert_eq!(see(false, 1, &[0x06], 1), (Some(Picture::Key), Some(0)), "SEI of a key frame");
        assert_eq!(see(true, 1, &[0x65], 2), (Some(Picture::Key), Some(1)));
        assert_eq!(see(false, 2, &[0x41, 0x98], 3), (Some(Picture::Reference), None));
        assert_eq!(see(false, 3, &[0x01, 0x98], 4), (Some(Picture::Disposable), None), "the marker was lost");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_passed_over(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(packet) = Packet::parse(&bytes) {
                packet.picture(Codec::H264);
                packet.picture(Codec::H265);
            }
        }
    }
}
