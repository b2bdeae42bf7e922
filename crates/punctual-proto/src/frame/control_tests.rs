//! The control stream's frames, written, read, and read from rubbish.

use proptest::{collection::vec, prelude::*};
use rangemap::RangeSet;

use super::*;
use crate::frame::block::tests::any_place;

const EXAMPLE: Settings = Settings {
    max_block_size: 16 << 20,
    receive_bytes: 64 << 20,
    receive_blocks: 16_384,
    channels: 256,
    repair_window: 4 << 20,
};

fn any_settings() -> impl Strategy<Value = Settings> {
    let value = varint::any_value;
    (value(), value(), value(), value(), value()).prop_map(
        |(max_block_size, receive_bytes, receive_blocks, channels, repair_window)| Settings {
            max_block_size,
            receive_bytes,
            receive_blocks,
            channels,
            repair_window,
        },
    )
}

/// Anything that may follow SETTINGS.
fn any_frame() -> impl Strategy<Value = ControlFrame> {
    let value = varint::any_value;
    let id = || value().prop_map(BlockId);
    let reason = (0..6_u8).prop_map(|byte| reason_from_wire(byte).unwrap());
    let run = (varint::any_value(), 1..=lists::MAX_RUNS_HOLD / lists::MAX_LIST as u64);
    let runs = vec(run, 1..lists::MAX_LIST).prop_map(|runs| {
        let mut all = RangeSet::new();
        runs.into_iter().for_each(|(start, count)| all.insert(start..(start + count).min(varint::MAX + 1)));
        all.into_iter().collect()
    });
    let why = (0..6_u8).prop_map(|byte| reason_from_wire(byte).unwrap());
    let delta = (value(), any::<bool>()).prop_map(|(size, sign)| {
        let micros = (size / 2) as i64;
        Delta::from_micros(if sign { !micros } else { micros })
    });
    prop_oneof![
        (value(), value()).prop_map(|(bytes, blocks)| ControlFrame::Credit { bytes, blocks }),
        (id(), reason, value(), proptest::option::of(any_place()))
            .prop_map(|(id, reason, size, channel)| ControlFrame::Dropped { id, reason, size, channel }),
        (id(), any::<u32>(), value()).prop_map(|(id, at, good_bytes)| ControlFrame::Completed { id, at, good_bytes }),
        vec((id(), any::<u32>()), 1..lists::MAX_LIST).prop_map(|mut list| {
            let near = list.windows(2).take_while(|pair| lists::can_follow(pair[0].0, pair[1].0)).count();
            list.truncate(1 + near);
            ControlFrame::CompletedList(list)
        }),
        (id(), value()).prop_map(|(id, good_bytes)| ControlFrame::Freed { id, good_bytes }),
        id().prop_map(|id| ControlFrame::Refused { id }),
        (id(), delta).prop_map(|(id, delta)| ControlFrame::Expect { id, delta }),
        (id(), any::<u8>(), proptest::option::of(value().prop_map(|micros| micros.max(1))))
            .prop_map(|(id, priority, deadline)| ControlFrame::Update { id, priority, deadline }),
        value().prop_map(|bytes| ControlFrame::Heard { bytes }),
        (why, runs).prop_map(|(reason, runs)| ControlFrame::DroppedList(reason, runs)),
        (value(), 0..3_usize, 0.0..1e9).prop_map(|(path, role, cost)| {
            let role = PathRole::ALL[role];
            ControlFrame::Path { path, terms: Terms { role, cost } }
        }),
        (value(), proptest::option::of(any::<u32>()))
            .prop_map(|(latency, channel)| ControlFrame::Latency { channel: channel.map(Channel), latency }),
        Just(ControlFrame::Finished),
        Just(ControlFrame::Taken),
    ]
}

/// A frame, or the type, the length and the filler of an extension.
#[derive(Debug, Clone)]
enum Item {
    Frame(ControlFrame),
    Extension(u64, usize),
}

fn any_item() -> impl Strategy<Value = Item> {
    prop_oneof![
        4 => any_frame().prop_map(Item::Frame),
        1 => (EXTENSIONS, 0..5000_usize).prop_map(|(frame_type, length)| Item::Extension(frame_type, length)),
    ]
}

fn encode(settings: Settings, items: &[Item]) -> (Vec<u8>, Vec<ControlFrame>) {
    let mut out = Vec::new();
    open_stream(&mut out);
    let mut frames = vec![ControlFrame::Settings(settings)];
    frames[0].encode(&mut out);
    for item in items {
        match item {
            Item::Frame(frame) => {
                frame.encode(&mut out);
                frames.push(frame.clone());
            }
            Item::Extension(frame_type, length) => {
                varint::put(&mut out, *frame_type);
                varint::put(&mut out, *length as u64);
                out.resize(out.len() + length, 0xff);
            }
        }
    }
    (out, frames)
}

/// A stream that has got as far as SETTINGS, and then `bytes`.
fn after_settings(bytes: &[u8]) -> Result<Vec<ControlFrame>, ProtocolError> {
    let mut decoder = ControlDecoder::default();
    decoder.push(&encode(EXAMPLE, &[]).0);
    assert_eq!(decoder.next(), Ok(Some(ControlFrame::Settings(EXAMPLE))));
    decoder.push(bytes);
    std::iter::from_fn(|| decoder.next().transpose()).collect()
}

fn first(bytes: &[u8]) -> Result<Option<ControlFrame>, ProtocolError> {
    let mut decoder = ControlDecoder::default();
    decoder.push(bytes);
    let first = decoder.next();
    if first.is_err() {
        decoder.push(bytes);
        assert_eq!(decoder.next(), first, "errors are final");
    }
    first
}

/// A stream whose first frame is SETTINGS with this payload.
fn settings(payload: &[u8]) -> Result<Option<ControlFrame>, ProtocolError> {
    first(&[&[0x40, 0x50, 0x00, payload.len() as u8], payload].concat())
}

#[test]
fn the_stream_type_comes_first() {
    assert_eq!(first(&[0x40]), Ok(None));
    assert_eq!(first(&[0x40, 0x50]), Ok(None));
    assert_eq!(first(&[0x40, 0x51]), Err(ProtocolError::Stream));
    assert_eq!(first(&[0x00]), Err(ProtocolError::Stream));
}

#[test]
fn settings_come_first_and_once() {
    for frame_type in [CREDIT, UPDATE, 0x08, 0x40, 0x7f] {
        let mut bytes = vec![0x40, 0x50];
        varint::put(&mut bytes, frame_type);
        assert_eq!(first(&bytes), Err(ProtocolError::Settings), "{frame_type:#x}");
    }
    let mut again = Vec::new();
    ControlFrame::Settings(EXAMPLE).encode(&mut again);
    assert_eq!(after_settings(&again), Err(ProtocolError::Settings));
}

#[test]
fn settings_that_cannot_be() {
    let all = |channels, repair_window| {
        Ok(Some(ControlFrame::Settings(Settings {
            max_block_size: 9,
            receive_bytes: 8,
            receive_blocks: 7,
            channels,
            repair_window,
        })))
    };
    assert_eq!(settings(&[1, 5, 5, 4, 6, 3, 7, 1, 9, 2, 8]), all(6, 5), "in any order");
    assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7]), all(0, 0), "channels and repairs may be left out");
    assert_eq!(settings(&[1, 0, 5, 1, 9, 2, 8, 3, 7, 0x40, 0x99, 5, 0, 5]), all(0, 0), "unknown ids are ignored");
    let bad = Err(ProtocolError::Settings);
    assert_eq!(settings(&[2, 1, 9, 2, 8, 3, 7]), bad, "another version");
    assert_eq!(settings(&[2, 0xff]), bad, "another version, whatever follows");
    assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 1, 9]), bad, "said twice");
    assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 4, 1, 4, 1]), bad, "said twice");
    assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 5, 1, 5, 1]), bad, "said twice");
    for missing in [[2, 8, 3, 7], [1, 9, 3, 7], [1, 9, 2, 8]] {
        assert_eq!(settings(&[&[1][..], &missing].concat()), bad, "left out");
    }
    assert_eq!(settings(&[1]), bad);
    assert_eq!(settings(&[]), Err(ProtocolError::Malformed), "no version");
    assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 4]), Err(ProtocolError::Malformed), "half a pair");
}

#[test]
fn unknown_types_fail_before_their_length() {
    for frame_type in (LATENCY + 1..0x200).filter(|t| !EXTENSIONS.contains(t)) {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, frame_type);
        assert_eq!(after_settings(&bytes), Err(ProtocolError::UnknownFrame), "{frame_type:#x}");
    }
}

#[test]
fn malformed_payloads() {
    for payload in [
        &[0x01, 0x01, 5][..],                                    // CREDIT cut short
        &[0x01, 0x03, 5, 5, 5],                                  // CREDIT with something behind
        &[0x02, 0x04, 1, 6, 0, 0],                               // DROPPED for an unknown reason
        &[0x02, 0x04, 1, 0, 0, 2],                               // DROPPED with an unknown flag
        &[0x02, 0x04, 1, 0, 0, 1],                               // DROPPED without the channel it promises
        &[0x02, 0x0d, 1, 0, 0, 1, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0], // DROPPED in a channel of 33 bits
        &[0x03, 0x05, 1, 0, 0, 0, 0],                            // COMPLETED cut short
        &[0x04, 0x00],                                           // FREED with nothing
        &[0x05, 0x01, 0x40],                                     // REFUSED with half an id
        &[0x06, 0x03, 1, 1, 1],                                  // EXPECT with something behind
        &[0x07, 0x02, 1, 1],                                     // UPDATE cut short
        &[0x05, 0x44, 0x01],                                     // 1,025 bytes
        &[0x05, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // as long as can be
    ] {
        assert_eq!(after_settings(payload), Err(ProtocolError::Malformed), "{payload:02x?}");
    }
    assert_eq!(after_settings(&[0x05, 0x44, 0x00]), Ok(vec![]), "1,024 bytes may come");
}

#[test]
fn endless_extensions_are_not_kept() {
    let mut decoder = ControlDecoder::default();
    decoder.push(&encode(EXAMPLE, &[]).0);
    decoder.push(&[0x40, 0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert!(matches!(decoder.next(), Ok(Some(ControlFrame::Settings(_)))));
    for _ in 0..100 {
        assert_eq!(decoder.next(), Ok(None));
        decoder.push(&[0; 10_000]);
        assert_eq!(decoder.held(), 0);
    }
}

proptest! {
    #[test]
    fn round_trip_in_any_chunks(
        settings in any_settings(),
        items in vec(any_item(), 0..12),
        chunks in vec(prop_oneof![Just(0_usize), 1..4_usize, 1..2000_usize], 1..50),
    ) {
        let (bytes, expected) = encode(settings, &items);
        let mut decoder = ControlDecoder::default();
        let mut frames = Vec::new();
        let mut rest = &bytes[..];
        for chunk in chunks.into_iter().chain([usize::MAX]) {
            let (chunk, after) = rest.split_at(chunk.min(rest.len()));
            rest = after;
            decoder.push(chunk);
            while let Some(frame) = decoder.next().unwrap() {
                frames.push(frame);
            }
            prop_assert!(decoder.held() <= ControlDecoder::HELD);
        }
        prop_assert_eq!(decoder.held(), 0);
        prop_assert_eq!(frames, expected);
    }

    #[test]
    fn every_frame_byte_by_byte(frame in any_frame()) {
        let (bytes, expected) = encode(EXAMPLE, &[Item::Frame(frame)]);
        let mut decoder = ControlDecoder::default();
        let mut frames = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            decoder.push(&[*byte]);
            frames.extend(decoder.next().unwrap());
            prop_assert_eq!(frames.len() == 2, at + 1 == bytes.len());
        }
        prop_assert_eq!(frames, expected);
    }

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..300)) {
        crate::frame::fuzzing::control(&bytes);
    }

    #[test]
    fn arbitrary_bytes_after_settings(bytes in vec(prop_oneof![0..8_u8, any::<u8>()], 0..300)) {
        let _ = after_settings(&bytes);
    }
}
