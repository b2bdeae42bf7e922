//! MPEG transport streams (ISO/IEC 13818-1): which packets are of tables, of audio, of which kind of picture.

use std::collections::BTreeMap;

use super::nal::{Codec, Picture};

/// Bytes of a packet.
const PACKET: usize = 188;
const SYNC: u8 = 0x47;
/// The packets that fill a stream up.
const NULL: u16 = 0x1fff;
/// Programs and streams that are followed: more are taken for data of middling importance.
const MOST: usize = 256;

/// How much a packet matters; the greater, the more is lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// It fills the stream up.
    Nothing,
    /// It is of such a picture.
    Video(Picture),
    /// Data of which nothing is known: subtitles, say.
    Other,
    /// It is of sound, of which every gap is heard.
    Audio,
    /// It says what else is what.
    Tables,
}

/// A transport stream, as far as it has been seen.
#[derive(Debug, Default)]
pub struct TransportStream {
    /// Tables of programs,
    maps: Vec<u16>,
    /// and streams.
    streams: BTreeMap<u16, Stream>,
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Audio,
    Other,
    /// Video of a coding that is read, perhaps; the picture that it is at, and whether that is certain.
    Video {
        codec: Option<Codec>,
        picture: Picture,
        certain: bool,
    },
}

impl Stream {
    const fn video(codec: Option<Codec>) -> Self {
        // Until one is seen to begin, it may be anything.
        Self::Video { codec, picture: Picture::Reference, certain: false }
    }
}

impl TransportStream {
    /// Sees a datagram: how much the packet in it matters that matters most. `None` if it is not of a transport stream.
    pub fn weigh(&mut self, datagram: &[u8]) -> Option<Weight> {
        let (packets, rest) = datagram.as_chunks::<PACKET>();
        if !rest.is_empty() || packets.iter().any(|packet| packet[0] != SYNC) {
            return None;
        }
        packets.iter().map(|packet| self.packet(packet)).max()
    }

    fn packet(&mut self, packet: &[u8; PACKET]) -> Weight {
        let pid = u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff;
        let begins = packet[1] & 0x40 != 0;
        let (adapted, has_payload) = (packet[3] & 0x20 != 0, packet[3] & 0x10 != 0);
        let mut payload = &packet[4..];
        let mut random_access = false;
        if adapted {
            let length = usize::from(payload[0]);
            random_access = length > 0 && payload[1] & 0x40 != 0;
            payload = payload.get(1 + length..).unwrap_or_default();
        }
        if !has_payload {
            payload = &[];
        }
        match pid {
            NULL => Weight::Nothing,
            0 => {
                self.programs(payload, begins);
                Weight::Tables
            }
            // Conditional access, descriptions, and what DVB has beside them.
            1..=0x1f => Weight::Tables,
            _ if self.maps.contains(&pid) => {
                self.program(payload, begins);
                Weight::Tables
            }
            _ => self.stream(pid, payload, begins, random_access),
        }
    }

    /// A program association table (2.4.4.3).
    fn programs(&mut self, payload: &[u8], begins: bool) {
        let Some(section) = section(payload, begins, 0).and_then(|section| section.get(8..)) else { return };
        self.maps.clear();
        for program in section.as_chunks::<4>().0.iter().take(MOST) {
            let (number, pid) = (u16::from_be_bytes([program[0], program[1]]), pid_of(program[2], program[3]));
            // Program 0 is the network's description.
            if number != 0 {
                self.maps.push(pid);
            }
        }
    }

    /// A program map (2.4.4.8).
    fn program(&mut self, payload: &[u8], begins: bool) {
        let Some(section) = section(payload, begins, 2) else { return };
        let Some(&[high, low]) = section.get(10..12) else { return };
        let described = usize::from(u16::from_be_bytes([high, low]) & 0x0fff);
        let mut rest = section.get(12 + described..).unwrap_or_default();
        while let Some((&[kind, pid_high, pid_low, high, low], behind)) = rest.split_first_chunk::<5>() {
            let described = usize::from(u16::from_be_bytes([high, low]) & 0x0fff).min(behind.len());
            let (descriptors, behind) = behind.split_at(described);
            rest = behind;
            let pid = pid_of(pid_high, pid_low);
            let said = stream_of(kind, descriptors);
            match self.streams.get(&pid) {
                // As before: it is at some picture.
                Some(known) if std::mem::discriminant(known) == std::mem::discriminant(&said) => {
                    if let (Stream::Video { codec: new, .. }, Some(Stream::Video { codec, .. })) =
                        (said, self.streams.get_mut(&pid))
                    {
                        *codec = new;
                    }
                }
                _ if self.streams.len() < MOST => drop(self.streams.insert(pid, said)),
                _ => {}
            }
        }
    }

    /// A packet of a stream, or of what may be one.
    fn stream(&mut self, pid: u16, payload: &[u8], begins: bool, random_access: bool) -> Weight {
        // A packet of a PES that begins (2.4.3.6): what it is of, how long its header is.
        let pes = match payload.first_chunk::<9>() {
            Some(&[0, 0, 1, id, .., length]) if begins => Some((id, 9 + usize::from(length))),
            _ => None,
        };
        if let Some((id, _)) = pes
            && !self.streams.contains_key(&pid)
            && self.streams.len() < MOST
        {
            // No table has been seen yet. Numbers of streams tell sound from video.
            let guess = match id {
                0xc0..=0xdf => Stream::Audio,
                0xe0..=0xef => Stream::video(None),
                _ => Stream::Other,
            };
            self.streams.insert(pid, guess);
        }
        match self.streams.get_mut(&pid) {
            Some(Stream::Audio) => Weight::Audio,
            Some(Stream::Other) | None => Weight::Other,
            Some(Stream::Video { codec, picture, certain }) => {
                if begins {
                    (*picture, *certain) = (Picture::Reference, false);
                }
                if random_access {
                    (*picture, *certain) = (Picture::Key, true);
                }
                if !*certain && let Some(codec) = *codec {
                    let coded = payload.get(pes.map_or(0, |(_, header)| header)..).unwrap_or_default();
                    if let Some(said) = units(coded).filter_map(|unit| codec.picture(unit)).max() {
                        (*picture, *certain) = (said, true);
                    }
                }
                Weight::Video(*picture)
            }
        }
    }
}

fn pid_of(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low]) & 0x1fff
}

/// The section that begins in a packet, without its checksum; as much of it as there is.
fn section(payload: &[u8], begins: bool, table: u8) -> Option<&[u8]> {
    let (&pointer, rest) = payload.split_first().filter(|_| begins)?;
    let section = rest.get(usize::from(pointer)..)?;
    let &[id, high, low, ..] = section else { return None };
    let length = 3 + usize::from(u16::from_be_bytes([high, low]) & 0x0fff);
    (id == table && length >= 12).then(|| &section[..section.len().min(length - 4)])
}

/// What a program map says of a stream (table 2-34, and what ATSC and DVB have beside it).
fn stream_of(kind: u8, descriptors: &[u8]) -> Stream {
    match kind {
        0x1b => Stream::video(Some(Codec::H264)),
        0x24 => Stream::video(Some(Codec::H265)),
        0x01 | 0x02 | 0x10 | 0x21 | 0x33 | 0x42 | 0xd1 | 0xea => Stream::video(None),
        0x03 | 0x04 | 0x0f | 0x11 | 0x1c | 0x2d | 0x2e | 0x81 | 0x82 | 0x84 | 0x87 => Stream::Audio,
        // Private data: descriptors tell.
        0x06 if is_sound(descriptors) => Stream::Audio,
        _ => Stream::Other,
    }
}

/// Whether there is a descriptor of AC-3, Enhanced AC-3, DTS, AAC, or a registration of Opus or AC-3.
fn is_sound(mut descriptors: &[u8]) -> bool {
    while let Some((&[tag, length], rest)) = descriptors.split_first_chunk::<2>() {
        let (body, rest) = rest.split_at(usize::from(length).min(rest.len()));
        match tag {
            0x6a | 0x7a | 0x7b | 0x7c => return true,
            0x05 if body.starts_with(b"Opus") || body.starts_with(b"AC-3") || body.starts_with(b"EAC3") => return true,
            _ => descriptors = rest,
        }
    }
    false
}

/// The beginnings of units of a coded stream (Annex B), as far as they are there.
fn units(coded: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = coded.windows(3).enumerate().filter(|(_, window)| *window == [0, 0, 1]);
    starts.map(|(at, _)| &coded[at + 3..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VIDEO: u16 = 0x100;
    const AUDIO: u16 = 0x101;
    const MAP: u16 = 0x1000;

    fn packet(pid: u16, begins: bool, random_access: bool, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![SYNC, u8::from(begins) << 6 | (pid >> 8) as u8, pid as u8, 0x30];
        let stuffing = PACKET - 4 - 2 - payload.len();
        packet.extend([1 + stuffing as u8, u8::from(random_access) << 6]);
        packet.extend(std::iter::repeat_n(0xff, stuffing));
        packet.extend(payload);
        packet
    }

    fn table(id: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + 5 + 4) as u8;
        [&[0, id, 0xb0, length, 0, 1, 0xc1, 0, 0], body, &[9; 4]].concat()
    }

    fn pes(id: u8, coded: &[u8]) -> Vec<u8> {
        [&[0, 0, 1, id, 0, 0, 0x80, 0x80, 5, 1, 1, 1, 1, 1], coded].concat()
    }

    fn with_tables() -> TransportStream {
        let mut stream = TransportStream::default();
        let programs = table(0, &[0, 1, 0xe0 | (MAP >> 8) as u8, 0]);
        let map = table(2, &[0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0, 0x0f, 0xe1, 1, 0xf0, 0]);
        assert_eq!(stream.weigh(&packet(0, true, false, &programs)), Some(Weight::Tables));
        assert_eq!(stream.weigh(&packet(MAP, true, false, &map)), Some(Weight::Tables));
        stream
    }

    #[test]
    fn pictures_are_followed_through_their_packets() {
        let mut stream = with_tables();
        let mut weigh = |begins, random_access, payload: &[u8]| {
            stream.weigh(&packet(VIDEO, begins, random_access, payload)).unwrap()
        };
        let key = Weight::Video(Picture::Key);
        assert_eq!(weigh(true, true, &pes(0xe0, &[0, 0, 0, 1, 9, 0xf0])), key);
        assert_eq!(weigh(false, false, &[5; 100]), key);
        let p = pes(0xe0, &[0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x41, 0b1001_1000]);
        assert_eq!(weigh(true, false, &p), Weight::Video(Picture::Reference));
        let b = pes(0xe0, &[0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x01, 0b1001_1100]);
        assert_eq!(weigh(true, false, &b), Weight::Video(Picture::Disposable));
        assert_eq!(weigh(false, false, &[0, 0, 1, 0x65]), Weight::Video(Picture::Disposable), "of the same picture");
        assert_eq!(weigh(true, false, &pes(0xe0, &[0, 0, 0, 1, 9, 0xf0])), Weight::Video(Picture::Reference));
        assert_eq!(weigh(false, false, &[0, 0, 1, 0x65]), key, "the slice comes in the next packet");
    }

    #[test]
    fn a_datagram_is_worth_what_its_best_packet_is() {
        let mut stream = with_tables();
        let sound = packet(AUDIO, true, false, &pes(0xc0, b"sound"));
        let null = packet(NULL, false, false, &[]);
        let video = packet(VIDEO, false, false, &[1; 50]);
        assert_eq!(stream.weigh(&[&null[..], &video, &sound].concat()), Some(Weight::Audio));
        assert_eq!(stream.weigh(&[&null[..], &video].concat()), Some(Weight::Video(Picture::Reference)));
        assert_eq!(stream.weigh(&null), Some(Weight::Nothing));
        assert!(Weight::Audio > Weight::Video(Picture::Key));
    }

    #[test]
    fn before_tables_are_seen_numbers_of_streams_tell() {
        let mut stream = TransportStream::default();
        assert_eq!(stream.weigh(&packet(AUDIO, true, false, &pes(0xc1, b""))), Some(Weight::Audio));
        assert_eq!(stream.weigh(&packet(VIDEO, true, true, &pes(0xe0, b""))), Some(Weight::Video(Picture::Key)));
        assert_eq!(stream.weigh(&packet(0x200, false, false, b"?")), Some(Weight::Other));
    }

    #[test]
    fn what_is_no_transport_stream_is_not_taken_for_one() {
        let mut stream = TransportStream::default();
        assert_eq!(stream.weigh(&[SYNC; 187]), None);
        assert_eq!(stream.weigh(&[0x80; 188]), None);
        assert_eq!(stream.weigh(&[]), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_weighed_and_little_is_kept(
            packets in proptest::collection::vec((0u16..0x2000, any::<bool>(), proptest::collection::vec(any::<u8>(), 182)), 0..50),
        ) {
            let mut stream = with_tables();
            for (pid, begins, payload) in packets {
                prop_assert!(stream.weigh(&packet(pid, begins, false, &payload)).is_some());
            }
            prop_assert!(stream.streams.len() <= MOST && stream.maps.len() <= MOST);
        }
    }
}
