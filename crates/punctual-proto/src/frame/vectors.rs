//! Holds `docs/protocol.md` to the code: its test vectors and its table of errors.

use std::{fmt::Write, ops::Range};

use bytes::Bytes;

use super::{
    Arrival, Arrivals, ControlDecoder, ControlFrame, DatagramFrame, DatagramFrames, DatagramWriter, RepairHead,
    Settings, SourceHead, continuation, control, time,
};
use crate::{
    block::{BlockId, Channel, DropReason},
    error::ProtocolError,
    fec::{Code, Encoder},
    role::Terms,
};

const PROTOCOL: &str = include_str!("../../../../docs/protocol.md");

/// The cells of the rows of the first table under a heading, without the table's own heading.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let under = PROTOCOL.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    let rows: Vec<_> = under
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert!(!rows.is_empty(), "no table under {heading:?}");
    rows
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    assert!(digits.len().is_multiple_of(2), "{text}");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect(text)).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Frames and the error behind them, as the tables put them.
fn describe<F>(frames: &[F], error: Option<ProtocolError>, describe: impl Fn(&F) -> String) -> String {
    let error = error.map(|error| format!("error {error:?}"));
    let parts: Vec<_> = frames.iter().map(describe).chain(error).collect();
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}

fn with_place(mut text: String, place: Option<(Channel, u64)>) -> String {
    if let Some((Channel(channel), position)) = place {
        write!(text, " channel={channel} position={position}").unwrap();
    }
    text
}

fn with_deadline(mut text: String, deadline: Option<u64>) -> String {
    if let Some(deadline) = deadline {
        write!(text, " deadline={deadline}").unwrap();
    }
    text
}

fn describe_datagram_frame(frame: &DatagramFrame) -> String {
    match frame {
        DatagramFrame::Timestamp { sent } => format!("TIMESTAMP sent={sent}"),
        DatagramFrame::Arrivals(Arrivals { path, list }) => {
            let mark = |ce: bool| if ce { " ce" } else { "" };
            let one = |Arrival { stamp, received, ce }: &Arrival| format!("{stamp} at {received}{}", mark(*ce));
            format!("ARRIVALS path={path}: {}", list.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        DatagramFrame::BlockInfo(info) => {
            let (id, size, age, priority) = (info.id.0, info.size, info.age, info.priority);
            let text = format!("BLOCK_INFO id={id} size={size} age={age} priority={priority}");
            with_place(with_deadline(text, info.deadline), info.channel)
        }
        DatagramFrame::Fragment { id: BlockId(id), offset, data } => {
            format!("FRAGMENT id={id} offset={offset} data={}", to_hex(data).replace(' ', ""))
        }
        DatagramFrame::Source { head: SourceHead { group, index, life }, symbol } => {
            format!("SOURCE group={group} index={index} life={life} symbol of {} bytes", symbol.len())
        }
        DatagramFrame::Repair { head: RepairHead { group, life, sources, repairs, index }, shard } => format!(
            "REPAIR group={group} life={life} sources={sources} repairs={repairs} index={index} shard={}",
            to_hex(shard).replace(' ', "")
        ),
    }
}

fn describe_control_frame(frame: &ControlFrame) -> String {
    match *frame {
        ControlFrame::Token(ref token) => format!("TOKEN of {} bytes", token.bytes().len()),
        ControlFrame::Settings(Settings { max_block_size, receive_bytes, receive_blocks, channels, repair_window }) => {
            format!(
                "SETTINGS max_block_size={max_block_size} receive_bytes={receive_bytes} \
                 receive_blocks={receive_blocks} channels={channels} repair_window={repair_window}"
            )
        }
        ControlFrame::Credit { bytes, blocks } => format!("CREDIT bytes={bytes} blocks={blocks}"),
        ControlFrame::Dropped { id: BlockId(id), reason, size, channel } => {
            with_place(format!("DROPPED id={id} reason={} size={size}", reason_name(reason)), channel)
        }
        ControlFrame::Completed { id: BlockId(id), at, good_bytes } => {
            format!("COMPLETED id={id} at={at} good_bytes={good_bytes}")
        }
        ControlFrame::CompletedList(ref list) => {
            let one = |(BlockId(id), at): &(BlockId, u32)| format!("{id} at {at}");
            format!("COMPLETED_LIST {}", list.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        ControlFrame::Freed { id: BlockId(id), good_bytes } => {
            format!("FREED id={id} good_bytes={good_bytes}")
        }
        ControlFrame::Refused { id: BlockId(id) } => format!("REFUSED id={id}"),
        ControlFrame::Expect { id: BlockId(id), delta } => format!("EXPECT id={id} delta={}", delta.as_micros()),
        ControlFrame::Update { id: BlockId(id), priority, deadline } => {
            with_deadline(format!("UPDATE id={id} priority={priority}"), deadline)
        }
        ControlFrame::Heard { bytes } => format!("HEARD bytes={bytes}"),
        ControlFrame::Path { path, terms: Terms { role, cost } } => format!("PATH path={path} role={role} cost={cost}"),
        ControlFrame::Latency { channel, latency } => match channel {
            Some(Channel(channel)) => format!("LATENCY latency={latency} channel={channel}"),
            None => format!("LATENCY latency={latency}"),
        },
        ControlFrame::Finished => "FINISHED".into(),
        ControlFrame::Taken => "TAKEN".into(),
        ControlFrame::DroppedList(reason, ref runs) => {
            let one = |run: &Range<u64>| match run.end - run.start {
                1 => run.start.to_string(),
                _ => format!("{} to {}", run.start, run.end - 1),
            };
            let runs = runs.iter().map(one).collect::<Vec<_>>().join(", ");
            format!("DROPPED_LIST reason={} {runs}", reason_name(reason))
        }
    }
}

fn reason_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Expired => "expired",
        DropReason::Cancelled => "cancelled",
        DropReason::DependencyDropped => "dependency_dropped",
        DropReason::Refused => "refused",
        DropReason::SessionClosed => "session_closed",
        DropReason::Lost => "lost",
    }
}

/// `whole`: blocks that are whole are written as such. `None` if they do not all fit.
fn write_datagram(frames: &[DatagramFrame], capacity: usize, whole: bool) -> Option<Bytes> {
    let mut writer = DatagramWriter::new(capacity);
    let mut frames = frames.iter().peekable();
    while let Some(frame) = frames.next() {
        let fits = match frame {
            DatagramFrame::BlockInfo(info)
                if let Some(DatagramFrame::Fragment { data, .. }) = frames.peek()
                    && whole
                    && info.size == data.len() as u64 =>
            {
                frames.next();
                writer.block(info, data)
            }
            DatagramFrame::BlockInfo(info) if whole && info.size == 0 => writer.block(info, &[]),
            DatagramFrame::Timestamp { sent } => writer.timestamp(*sent),
            DatagramFrame::Arrivals(Arrivals { path, list }) => writer.arrivals(*path, list, usize::MAX) == list.len(),
            DatagramFrame::BlockInfo(info) => writer.block_info(info),
            DatagramFrame::Fragment { id, offset, data } => writer.fragment(*id, *offset, data) == data.len(),
            DatagramFrame::Source { head, .. } => writer.source(head.group, head.index, head.life),
            DatagramFrame::Repair { head, shard } => writer.repair(head, shard),
        };
        if !fits {
            return None;
        }
    }
    Some(writer.finish())
}

#[test]
fn datagrams() {
    for row in table("Vectors: datagrams") {
        let [bytes, written, meaning] = row[..] else { panic!("{row:?}") };
        let bytes = from_hex(bytes);
        let mut error = None;
        let frames: Vec<_> = DatagramFrames::new(Bytes::copy_from_slice(&bytes))
            .filter_map(|frame| frame.map_err(|e| error = Some(e)).ok())
            .collect();
        assert_eq!(describe(&frames, error, describe_datagram_frame), meaning);
        if written == "yes" {
            // Full to the last byte, or with room to spare.
            let (full, spare) = (bytes.len(), bytes.len() + 64);
            let variants = [(full, false), (spare, false), (spare, true)];
            let variants = variants.map(|(capacity, whole)| write_datagram(&frames, capacity, whole));
            assert!(variants.iter().flatten().any(|variant| variant == &bytes), "{meaning}: {variants:02x?}");
        }
    }
}

#[test]
fn control_streams() {
    let mut settings = Vec::new();
    control::open_stream(&mut settings);
    ControlFrame::Settings(Settings {
        max_block_size: 1,
        receive_bytes: 1,
        receive_blocks: 1,
        channels: 1,
        repair_window: 1,
    })
    .encode(&mut settings);

    for (heading, before, known) in [
        ("Vectors: the beginning of a control stream", &[][..], 0),
        ("Vectors: control frames after SETTINGS", &settings, 1),
    ] {
        for row in table(heading) {
            let [bytes, written, meaning] = row[..] else { panic!("{row:?}") };
            let bytes = from_hex(bytes);
            let mut decoder = ControlDecoder::default();
            decoder.push(before);
            decoder.push(&bytes);
            let mut frames = Vec::new();
            let error = loop {
                match decoder.next() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            frames.drain(..known);
            assert_eq!(describe(&frames, error, describe_control_frame), meaning);
            if written == "yes" {
                let mut out = Vec::new();
                if known == 0 {
                    control::open_stream(&mut out);
                }
                frames.iter().for_each(|frame| frame.encode(&mut out));
                assert_eq!(to_hex(&out), to_hex(&bytes), "{meaning}");
            }
        }
    }
}

/// Each is one stream; of the ten bytes 0 to 9, some have been read.
#[test]
fn continuations() {
    let said: Vec<u8> = (0..10).collect();
    for row in table("Vectors: streams that continue another") {
        let [read, bytes, new] = row[..] else { panic!("{row:?}") };
        let mut splice = continuation::Splice::default();
        splice.take(&said[..read.parse().unwrap()]).unwrap();
        splice.begin();
        let found = match splice.take(&from_hex(bytes)) {
            Ok([]) => "nothing".into(),
            Ok(new) => to_hex(new),
            Err(error) => format!("error {error:?}"),
        };
        assert_eq!(found, new, "{bytes}");
    }
    let mut head = Vec::new();
    continuation::put(&mut head, 3);
    assert_eq!(to_hex(&head), "40 51 03");
}

#[test]
fn repairs() {
    for row in table("Vectors: repairs") {
        let [symbols, repairs] = row[..] else { panic!("{row:?}") };
        let all = |text: &str| text.split(';').map(|one| Bytes::from(from_hex(one))).collect::<Vec<_>>();
        let (symbols, repairs) = (all(symbols), all(repairs));
        let made = Encoder::new().encode(&symbols, repairs.len());
        assert_eq!(made, repairs, "{}", made.iter().map(|shard| to_hex(shard)).collect::<Vec<_>>().join("; "));
        // As many of them as there can be in place of the first symbols.
        let code = Code { sources: symbols.len(), repairs: repairs.len(), shard_len: repairs[0].len() };
        let kept = symbols.iter().enumerate().skip(repairs.len()).map(|(index, symbol)| (index, &symbol[..]));
        let shards = repairs.iter().map(|shard| &shard[..]).enumerate().take(symbols.len());
        assert_eq!(code.restore(kept, shards).unwrap(), symbols[..repairs.len().min(symbols.len())]);
    }
}

#[test]
fn times() {
    for row in table("Vectors: times") {
        let [wire, near, time] = row[..] else { panic!("{row:?}") };
        let number = |text: &str| text.replace(',', "").parse::<u64>().expect(text);
        let wire = u32::from_be_bytes(from_hex(wire).try_into().unwrap());
        assert_eq!(time::from_wire(wire, number(near)), number(time));
        assert_eq!(time::to_wire(number(time)), wire);
    }
}

#[test]
fn errors() {
    let rows = table("Errors");
    for row in &rows {
        let [code, name, _] = row[..] else { panic!("{row:?}") };
        let code = u64::from_str_radix(code.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(ProtocolError::from_code(code).map(|error| format!("{error:?}")).as_deref(), Some(name));
    }
    assert_eq!(
        ProtocolError::from_code(u64::from(ProtocolError::BASE) + 1 + rows.len() as u64),
        None,
        "all are listed"
    );
}
