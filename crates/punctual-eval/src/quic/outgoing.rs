//! What the client has put on its streams, and what of it has left.

use std::{collections::BTreeMap, time::Duration};

use noq_proto::{PathId, StreamId};

use super::tap::StreamFrame;

/// What became of a message at its sender. Times count from the run's beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// When QUIC took its first byte.
    pub taken: Option<Duration>,
    /// When QUIC took its last.
    pub taken_whole: Option<Duration>,
    /// When its first byte left, header included.
    pub first_sent: Option<Duration>,
    /// When its last byte left for the first time.
    pub last_sent: Option<Duration>,
    /// Bytes that left again, header included.
    pub resent_bytes: u64,
}

/// Stream bytes that left on a path, headers of messages included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) new_bytes: u64,
    pub(super) resent_bytes: u64,
}

/// The client's streams.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    streams: BTreeMap<StreamId, Outlet>,
    /// By message.
    pub(super) sent: Vec<Sent>,
    pub(super) by_path: BTreeMap<PathId, Left>,
    /// Bytes of messages that are on a stream and have never left.
    pub(super) unsent: u64,
    /// The same, of bulk data.
    pub(super) unsent_bulk: u64,
}

#[derive(Debug, Default)]
struct Outlet {
    bulk: bool,
    written: u64,
    sent: u64,
    /// Messages on it, in order: where they end, and which they are.
    ends: Vec<(u64, usize)>,
}

impl Outgoing {
    pub(super) fn new(messages: usize) -> Self {
        Self { sent: vec![Sent::default(); messages], ..Self::default() }
    }

    /// A stream was opened.
    pub(super) fn open(&mut self, stream: StreamId, bulk: bool) {
        self.streams.insert(stream, Outlet { bulk, ..Outlet::default() });
    }

    /// All of a stream has arrived, and nothing more will be put on it.
    pub(super) fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    /// A message (not a block of bulk data) begins on a stream.
    pub(super) fn begin(&mut self, stream: StreamId, index: usize, bytes: u64) {
        if let Some(outlet) = self.streams.get_mut(&stream) {
            outlet.ends.push((outlet.written + bytes, index));
        }
    }

    /// Bytes were put on a stream.
    pub(super) fn on_written(&mut self, stream: StreamId, bytes: u64) {
        let Some(outlet) = self.streams.get_mut(&stream) else { return };
        outlet.written += bytes;
        *(if outlet.bulk { &mut self.unsent_bulk } else { &mut self.unsent }) += bytes;
    }

    /// Bytes left.
    pub(super) fn on_frame(&mut self, frame: StreamFrame, now: Duration) {
        let (start, end) = (frame.offset, frame.offset + frame.bytes);
        let left = self.by_path.entry(frame.path).or_default();
        let Some(outlet) = self.streams.get_mut(&frame.stream) else {
            left.resent_bytes += frame.bytes;
            return;
        };
        let old = outlet.sent.clamp(start, end);
        left.resent_bytes += old - start;
        left.new_bytes += end - old;
        *(if outlet.bulk { &mut self.unsent_bulk } else { &mut self.unsent }) -= end - old;
        // Those messages that the frame has something of.
        let mut at = outlet.ends.partition_point(|(message_end, _)| *message_end <= start);
        let mut begin = at.checked_sub(1).map_or(0, |before| outlet.ends[before].0);
        while let Some(&(message_end, index)) = outlet.ends.get(at).filter(|_| begin < end) {
            let sent = &mut self.sent[index];
            sent.resent_bytes += old.min(message_end).saturating_sub(start.max(begin));
            if end > old && old < message_end {
                sent.first_sent.get_or_insert(now);
                if end >= message_end {
                    sent.last_sent = Some(now);
                }
            }
            (at, begin) = (at + 1, message_end);
        }
        outlet.sent = outlet.sent.max(end);
    }
}

#[cfg(test)]
mod tests {
    use noq_proto::{Dir, Side};

    use super::*;

    #[test]
    fn bytes_are_told_apart() {
        let stream = StreamId::new(Side::Client, Dir::Uni, 0);
        let ms = Duration::from_millis;
        let frame = |offset, bytes| StreamFrame { path: PathId::ZERO, stream, offset, bytes };
        let mut outgoing = Outgoing::new(3);
        outgoing.open(stream, false);
        for index in 0..3 {
            outgoing.begin(stream, index, 100);
            outgoing.on_written(stream, 100);
        }
        assert_eq!(outgoing.unsent, 300);
        outgoing.on_frame(frame(0, 60), ms(1));
        outgoing.on_frame(frame(60, 140), ms(2));
        assert_eq!(outgoing.unsent, 100);
        // Lost and sent again, with some new bytes behind.
        outgoing.on_frame(frame(50, 200), ms(3));
        outgoing.on_frame(frame(250, 50), ms(4));
        let sent = |taken: Option<(u64, u64)>, resent_bytes| Sent {
            first_sent: taken.map(|(first, _)| ms(first)),
            last_sent: taken.map(|(_, last)| ms(last)),
            resent_bytes,
            ..Sent::default()
        };
        assert_eq!(outgoing.sent, [sent(Some((1, 2)), 50), sent(Some((2, 2)), 100), sent(Some((3, 4)), 0)]);
        assert_eq!(outgoing.by_path[&PathId::ZERO], Left { new_bytes: 300, resent_bytes: 150 });
        assert_eq!(outgoing.unsent, 0);
        outgoing.close(stream);
        outgoing.on_frame(frame(0, 60), ms(5));
        assert_eq!(outgoing.by_path[&PathId::ZERO].resent_bytes, 210);
    }
}
