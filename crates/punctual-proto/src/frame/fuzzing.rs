//! The decoders, for the targets in `/fuzz`: not part of the API.
//!
//! Each takes any bytes, panics if a decoder does, and checks that what was read is written and read back as the same.

use bytes::Bytes;

use super::{
    ControlDecoder, ControlFrame, DatagramFrame, DatagramFrames, DatagramWriter, continuation::Splice,
    control::open_stream, varint,
};
use crate::error::ProtocolError;

/// Reads a datagram's payload.
pub fn datagram(bytes: &[u8]) {
    let mut frames = DatagramFrames::new(Bytes::copy_from_slice(bytes));
    let read: Vec<_> = frames.by_ref().map_while(Result::ok).collect();
    assert_eq!(frames.next(), None, "an error is the last item");

    // A frame shrinks when it is written anew, unless it now has a length that it did without before, or was a BLOCK: that may become two.
    let mut writer = DatagramWriter::new(16 * bytes.len() + 64);
    if let Some(DatagramFrame::Source { head, symbol }) = read.first() {
        assert!(writer.source(head.group, head.index, head.life));
        assert!(bytes.ends_with(symbol));
    }
    if let Some(DatagramFrame::Timestamp { sent }) =
        read.iter().find(|frame| matches!(frame, DatagramFrame::Timestamp { .. }))
    {
        assert!(writer.timestamp(*sent));
    }
    let mut frames = read.iter().peekable();
    while let Some(frame) = frames.next() {
        match frame {
            DatagramFrame::BlockInfo(info)
                if let Some(DatagramFrame::Fragment { id, offset: 0, data }) = frames.peek()
                    && (info.id, info.size) == (*id, data.len() as u64)
                    && writer.block(info, data) =>
            {
                frames.next();
            }
            DatagramFrame::Timestamp { .. } | DatagramFrame::Source { .. } => {}
            DatagramFrame::Repair { head, shard } => assert!(writer.repair(head, shard)),
            DatagramFrame::Arrivals(arrivals) => {
                assert_eq!(writer.arrivals(arrivals.path, &arrivals.list, usize::MAX), arrivals.list.len());
            }
            DatagramFrame::BlockInfo(info) => assert!(writer.block_info(info)),
            DatagramFrame::Fragment { id, offset, data } => {
                assert!(offset + data.len() as u64 <= varint::MAX);
                assert_eq!(writer.fragment(*id, *offset, data), data.len());
            }
        }
    }
    // The writer put the timestamp first; nothing else changes its place. The symbol is what is written now.
    let is_source = |frame: &DatagramFrame| matches!(frame, DatagramFrame::Source { .. });
    let not_source = |frame: &Result<_, _>| !frame.as_ref().is_ok_and(is_source);
    let is_timestamp = |frame: &DatagramFrame| matches!(frame, DatagramFrame::Timestamp { .. });
    let (mut expected, others): (Vec<_>, Vec<_>) = read.into_iter().partition(is_timestamp);
    expected.extend(others.into_iter().filter(|frame| !is_source(frame)));
    let again: Result<Vec<_>, _> = DatagramFrames::new(writer.finish()).filter(not_source).collect();
    assert_eq!(again, Ok(expected));
}

/// Reads a control stream in chunks: a byte that says how long the next one is, then that many bytes, and again.
///
/// The same stream in one piece must say the same.
pub fn control(mut bytes: &[u8]) {
    let mut in_chunks = Reader::default();
    let mut stream = Vec::new();
    while let Some((&len, rest)) = bytes.split_first() {
        let (chunk, rest) = rest.split_at(rest.len().min(len.into()));
        bytes = rest;
        stream.extend_from_slice(chunk);
        in_chunks.push(chunk);
    }
    let mut whole = Reader::default();
    whole.push(&stream);
    assert_eq!(whole.frames, in_chunks.frames);
    assert_eq!(whole.error, in_chunks.error);

    let mut out = Vec::new();
    open_stream(&mut out);
    for frame in &whole.frames {
        frame.encode(&mut out);
    }
    let mut again = Reader::default();
    again.push(&out);
    assert_eq!(again.frames, whole.frames);
    assert_eq!(again.error, None);
}

#[derive(Default)]
struct Reader {
    decoder: ControlDecoder,
    frames: Vec<ControlFrame>,
    error: Option<ProtocolError>,
}

impl Reader {
    fn push(&mut self, chunk: &[u8]) {
        self.decoder.push(chunk);
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => self.frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        assert!(self.decoder.held() <= ControlDecoder::HELD);
    }
}

/// Reads a control stream that goes on elsewhere again and again: a byte whose lowest bit says whether it does so here, and how long the next
/// chunk is, then that many bytes.
pub fn continuation(mut bytes: &[u8]) {
    let mut splice = Splice::default();
    while let Some((&what, rest)) = bytes.split_first() {
        let (chunk, rest) = rest.split_at(rest.len().min(usize::from(what / 2)));
        bytes = rest;
        if what % 2 == 1 {
            splice.begin();
        }
        let before = splice.place();
        let Ok(new) = splice.take(chunk) else { return };
        assert!(chunk.ends_with(new));
        assert_eq!(splice.place(), before + new.len() as u64);
    }
}
