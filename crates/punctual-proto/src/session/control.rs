//! The control stream: settings, credit, what became of blocks.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use noq_proto::{Connection, Dir, ReadError, StreamId, VarInt};

use super::{
    backlog::Backlog,
    given_up::GivenUp,
    patience::{Company, Patience, WORTH_WORDS},
};
use crate::{
    block::{BlockId, DropReason},
    error::ProtocolError,
    frame::{
        ControlDecoder, ControlFrame, Settings,
        continuation::{self, CONTINUATION, Splice},
        control, lists,
    },
    limits::Limits,
    noq::MOST_PIECES,
    token::Token,
};

/// More answers than this, in bytes, that the peer has not read, and it has stopped listening while it goes on talking.
const MAX_BACKLOG: usize = 1 << 20;
/// The same, with what is said of our own blocks: that stays below it, being [`ENOUGH`] and a word or two on each that is live.
const MAX_WORDS: usize = 4 << 20;
/// More than this, and no more blocks are taken of which there might be something to say.
const ENOUGH: usize = 512 << 10;
/// More than this, and feedback the application volunteers is refused.
const MAX_VOLUNTARY: usize = 64 << 10;
/// The control stream goes before any other.
const PRIORITY: i32 = i32::MAX;
/// After this many bytes the peer is told that they have been read: one word of five bytes in a thousand, and what it has to say again, should
/// a path die, fits a few packets.
const HEARD_EVERY: u64 = 4 << 10;
/// Or after so many pieces, as few bytes may be.
const HEARD_PIECES: usize = 64;
/// Of a stream of which [`MOST_PIECES`] wait for one that was lost QUIC's receiver despairs. So many handed on that may be under way are well below that, and
/// more than there are where all is well.
const MANY_PIECES: usize = MOST_PIECES / 2;
/// The most bytes of the control stream read at once: few enough that their events do not count for much.
const READ_CHUNK: usize = 4 << 10;

/// What waits for words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hurry {
    /// They tell what we have dropped.
    Least,
    /// They only end a matter, too: what became of the peer's blocks.
    Little,
    /// Something does.
    Some,
    /// Blocks behind them do not, and they are to be there before those.
    Most,
}

/// Up to where the control stream went each time that words of it were handed on, as far as the peer is not known to have read them.
#[derive(Debug, Default)]
struct Pieces(VecDeque<u64>);

impl Pieces {
    fn on_handed_on(&mut self, end: u64) {
        // QUIC may have taken nothing.
        if self.0.back().is_none_or(|&last| last < end) {
            self.0.push_back(end);
        }
    }

    fn on_heard(&mut self, place: u64) {
        let read = self.0.partition_point(|&end| end <= place);
        self.0.drain(..read);
    }

    /// How many times what may be under way is.
    fn excess(&self) -> u32 {
        u32::try_from(self.0.len() / MANY_PIECES).unwrap_or(u32::MAX)
    }
}

/// What we say.
#[derive(Debug)]
pub(super) struct Control {
    stream: Option<StreamId>,
    /// What goes before the rest on a stream that continues another.
    head: Vec<u8>,
    /// All that was said, encoded, but for what the peer is known to have read,
    words: Backlog,
    /// which is this many bytes.
    heard: u64,
    /// How many of the words QUIC has been given, for this stream.
    given: usize,
    /// How many bytes QUIC has been given since the session began, each counted once.
    said: u64,
    /// When the stream went on elsewhere last.
    said_again: Option<Instant>,
    /// Blocks that are complete, all in time, behind the words.
    completed: Vec<(BlockId, u32)>,
    /// Blocks that were dropped before they were opened, behind those.
    given_up: GivenUp,
    /// Live blocks of which the application has changed what it said, and the peer has not been told yet: only the last word on each counts.
    updates: BTreeMap<BlockId, (Option<u64>, u8)>,
    /// Up to where the peer is to have read before our application's word of the end is known to be heard.
    awaited: Option<u64>,
    /// How much of the words is of our own blocks: no less than that, and all of it forgotten when all words have been heard.
    own: usize,
    /// Of what has not been handed on.
    hurry: Hurry,
    /// How many bytes the blocks have of which that says that they are complete.
    ended: u64,
    /// When words were last handed on.
    flushed: Option<Instant>,
    /// There have been some that tell of complete blocks.
    has_told: bool,
    /// Whether others come while these wait.
    company: Company,
    pieces: Pieces,
    /// QUIC takes no more for now.
    is_blocked: bool,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            stream: None,
            head: Vec::new(),
            words: Backlog::default(),
            heard: 0,
            given: 0,
            said: 0,
            said_again: None,
            completed: Vec::new(),
            given_up: GivenUp::default(),
            updates: BTreeMap::new(),
            awaited: None,
            own: 0,
            hurry: Hurry::Least,
            ended: 0,
            flushed: None,
            has_told: false,
            company: Company::default(),
            pieces: Pieces::default(),
            is_blocked: false,
        }
    }

    /// Shows the token, if there is one, and says what we accept, ahead of all that waits; the stream is opened as soon as the peer allows it.
    pub(super) fn begin(&mut self, token: Option<&Token>, limits: &Limits) {
        let mut ahead = Vec::new();
        control::open_stream(&mut ahead);
        if let Some(token) = token {
            ControlFrame::Token(token.clone()).encode(&mut ahead);
        }
        let settings = Settings {
            max_block_size: limits.max_block_size,
            receive_bytes: limits.receive_bytes,
            receive_blocks: limits.receive_blocks,
            channels: limits.channels as u64,
            repair_window: limits.repair_window,
        };
        ControlFrame::Settings(settings).encode(&mut ahead);
        self.awaited = self.awaited.map(|place| place + ahead.len() as u64);
        self.words.put_ahead(ahead);
    }

    /// Queues a frame.
    pub(super) fn write(&mut self, frame: &ControlFrame) {
        use ControlFrame::{Completed, CompletedList, Dropped, Freed, Heard, Latency};
        self.write_completed();
        self.hurry = self.hurry.max(match frame {
            Latency { .. } => Hurry::Most,
            Completed { .. } | CompletedList(_) | Freed { .. } | Heard { .. } => Hurry::Little,
            // Others of its channel wait for a block that was dropped.
            Dropped { channel: None, .. } => Hurry::Least,
            _ => Hurry::Some,
        });
        let before = self.words.len();
        frame.encode(self.words.end());
        if matches!(frame, Dropped { .. }) {
            self.own += self.words.len() - before;
        }
    }

    /// Queues the word that our application has taken everything, of which it is of interest whether the peer has read it.
    pub(super) fn write_taken(&mut self) {
        self.write(&ControlFrame::Taken);
        self.awaited = Some(self.heard + self.words.len() as u64);
    }

    /// Whether the peer is to be told that our application has taken everything, and is not known to have read that.
    pub(super) fn awaits_hearing(&self) -> bool {
        self.awaited.is_some()
    }

    /// Queues the word that a block of `size` bytes is complete, all of it in time unless `good_bytes` says how much. What comes in a row shares a frame.
    pub(super) fn complete(&mut self, now: Instant, id: BlockId, at: u32, size: u64, good_bytes: Option<u64>) {
        self.ended += size;
        self.company.on_complete(now);
        if let Some(good_bytes) = good_bytes {
            return self.write(&ControlFrame::Completed { id, at, good_bytes });
        }
        let near = |&(last, _): &(BlockId, u32)| lists::can_follow(last, id);
        if self.completed.len() == lists::MAX_LIST || !self.completed.last().is_none_or(near) {
            self.write_completed();
        }
        self.completed.push((id, at));
        self.hurry = self.hurry.max(Hurry::Little);
    }

    /// Queues the word that a block of no channel was dropped before it was opened.
    pub(super) fn give_up(&mut self, id: BlockId, reason: DropReason) {
        self.given_up.add(id, reason);
    }

    /// Queues a change of a block's deadline and priority.
    pub(super) fn update(&mut self, id: BlockId, deadline: Option<u64>, priority: u8) {
        self.hurry = self.hurry.max(Hurry::Some);
        self.updates.insert(id, (deadline, priority));
    }

    /// The block has ended: how it was to go on does not matter.
    pub(super) fn forget_update(&mut self, id: BlockId) {
        self.updates.remove(&id);
    }

    fn write_completed(&mut self) {
        if !self.completed.is_empty() {
            ControlFrame::CompletedList(std::mem::take(&mut self.completed)).encode(self.words.end());
        }
    }

    /// Bytes that QUIC has not been given yet.
    fn waiting(&self) -> usize {
        self.head.len() + self.words.len() - self.given
    }

    fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.completed.is_empty() && self.given_up.is_empty() && self.updates.is_empty()
    }

    /// Whether there are words that QUIC has not been given yet, and would take.
    pub(super) fn waits(&self) -> bool {
        self.flushed.is_some() && !self.is_empty() && !self.is_blocked
    }

    /// When [`flush`](Self::flush) is due.
    pub(super) fn due(&self, patience: Patience) -> Option<Instant> {
        let wait = match (self.pieces.excess(), self.hurry) {
            (0, Hurry::Most) => Duration::ZERO,
            (0, Hurry::Some) => patience.short,
            (0, Hurry::Little) if self.may_wait_for_company() && self.company.is_expected() => patience.rare,
            (0, Hurry::Little) => patience.long,
            (0, Hurry::Least) => patience.slow,
            // If none of them is heard of, the more of them the longer.
            (excess, _) => patience.longest.saturating_mul(excess.saturating_mul(excess)),
        };
        self.flushed.filter(|_| self.waits()).map(|flushed| flushed + wait)
    }

    /// Whether there are words only of what ended, and on so little that was complete that they are to share packets.
    fn may_wait_for_company(&self) -> bool {
        self.hurry == Hurry::Little && self.has_told && self.ended < WORTH_WORDS && self.pieces.excess() == 0
    }

    /// Whether there is room for what the application volunteers.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < MAX_VOLUNTARY
    }

    /// Hands queued frames to QUIC, when it is time.
    pub(super) fn flush(&mut self, now: Instant, patience: Patience, conn: &mut Connection) {
        if self.is_empty() || self.due(patience).is_some_and(|due| now < due) {
            return;
        }
        let Some(id) = self.stream.or_else(|| self.open(conn)) else { return };
        self.write_completed();
        self.hand_on(id, conn);
        if self.waiting() == 0 {
            let before = self.words.len();
            self.given_up.write(self.words.end());
            for (id, (deadline, priority)) in std::mem::take(&mut self.updates) {
                ControlFrame::Update { id, priority, deadline }.encode(self.words.end());
            }
            self.own += self.words.len() - before;
            self.hand_on(id, conn);
        }
        self.is_blocked = self.waiting() > 0;
        let last = self.flushed.filter(|_| self.may_wait_for_company());
        self.company.on_told(now, last.map(|last| last + patience.rare));
        self.flushed = Some(now);
        self.has_told |= std::mem::take(&mut self.ended) > 0;
        self.hurry = if self.is_blocked { self.hurry.max(Hurry::Some) } else { Hurry::Least };
    }

    /// Gives QUIC what it takes of the words. Blocked by flow control: what is left waits for the next time.
    fn hand_on(&mut self, id: StreamId, conn: &mut Connection) {
        let mut stream = conn.send_stream(id);
        if !self.head.is_empty() {
            let written = stream.write(&self.head).unwrap_or(0);
            self.head.drain(..written);
        }
        if self.head.is_empty() {
            self.given += stream.write(self.words.behind(self.given)).unwrap_or(0);
            self.said = self.said.max(self.heard + self.given as u64);
            self.pieces.on_handed_on(self.heard + self.given as u64);
        }
    }

    fn open(&mut self, conn: &mut Connection) -> Option<StreamId> {
        self.stream = conn.streams().open(Dir::Uni);
        if let Some(id) = self.stream {
            // Cannot fail: the stream was opened just now.
            let _ = conn.send_stream(id).set_priority(PRIORITY);
        }
        self.stream
    }

    /// The stream has a gap that QUIC will not fill, or not soon: all that the peer may not have is said again, on another.
    ///
    /// Whether that can be done, or is needless: once in a `round_trip` is enough.
    pub(super) fn say_again(&mut self, now: Instant, round_trip: Duration, conn: &mut Connection) -> bool {
        if self.said_again.is_some_and(|last| now.saturating_duration_since(last) < round_trip) {
            return false;
        }
        let Some(before) = self.stream else { return true };
        if self.open(conn).is_none() {
            self.stream = Some(before);
            return false;
        }
        // Fails only if the peer wants no more of it: no matter.
        let _ = conn.send_stream(before).reset(VarInt::from_u64(CONTINUATION).unwrap_or_default());
        self.head.clear();
        continuation::put(&mut self.head, self.heard);
        self.pieces = Pieces::default();
        (self.given, self.is_blocked) = (0, false);
        self.hurry = self.hurry.max(Hurry::Some);
        self.said_again = Some(now);
        true
    }

    /// Whether this is the stream on which we speak.
    pub(super) fn is_on(&self, id: StreamId) -> bool {
        self.stream == Some(id)
    }

    /// The peer has read this much. Whether that is up to what was awaited.
    ///
    /// # Errors
    /// If that is more than was said.
    pub(super) fn on_heard(&mut self, bytes: u64) -> Result<bool, ProtocolError> {
        if bytes > self.said {
            return Err(ProtocolError::Stream);
        }
        // Of what it has read on the stream before this one, some may be still to come on this one, which cannot leave it out any more.
        let more = usize::try_from(bytes.saturating_sub(self.heard)).map_or(self.given, |more| more.min(self.given));
        self.words.forget(more);
        self.own = self.own.min(self.words.len());
        self.given -= more;
        self.heard += more as u64;
        self.pieces.on_heard(self.heard);
        Ok(self.awaited.take_if(|place| bytes >= *place).is_some())
    }

    /// There is so much to say that nothing should be added to it.
    pub(super) fn has_enough(&self) -> bool {
        self.words.len() + self.given_up.waiting() > ENOUGH
    }

    /// # Errors
    /// If the peer goes on talking and has stopped listening.
    pub(super) fn check_backlog(&self) -> Result<(), ProtocolError> {
        let words = self.words.len();
        if words - self.own > MAX_BACKLOG || words > MAX_WORDS { Err(ProtocolError::Stream) } else { Ok(()) }
    }
}

/// What the peer says.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    stream: Option<StreamId>,
    /// Whether there may be something to read.
    pub(super) readable: bool,
    /// There may be a frame in what has been read.
    holds: bool,
    splice: Splice,
    /// How much the peer has been told to have been read, and in how many pieces what has been read since has come.
    told: u64,
    pieces: usize,
    /// The peer waits for being told so.
    asked: bool,
    decoder: ControlDecoder,
}

impl Hearing {
    /// The peer speaks on this stream from now on.
    pub(super) fn on_opened(&mut self, id: StreamId, conn: &mut Connection) {
        if let Some(before) = self.stream.replace(id) {
            // Fails if it was reset, and that has been read.
            let _ = conn.recv_stream(before).stop(VarInt::from_u64(CONTINUATION).unwrap_or_default());
        }
        if id.index() > 0 {
            self.splice.begin();
        }
        self.readable = true;
    }

    /// Reads a little more. Whether there was anything; then there may be frames to take.
    ///
    /// # Errors
    /// If the stream has ended, or does not continue the one before.
    pub(super) fn read(&mut self, conn: &mut Connection) -> Result<bool, ProtocolError> {
        let Some(id) = self.stream.filter(|_| self.readable) else { return Ok(false) };
        let mut stream = conn.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(false) };
        let next = chunks.next(READ_CHUNK);
        // What this frees for the peer is told with the next packet.
        let _ = chunks.finalize();
        match next {
            Ok(Some(chunk)) => {
                self.pieces += 1;
                self.decoder.push(self.splice.take(&chunk.bytes)?);
                self.holds = true;
                return Ok(true);
            }
            // It goes on elsewhere, where nothing of that has arrived yet.
            Err(ReadError::Reset(code)) if code.into_inner() == CONTINUATION => self.stream = None,
            Ok(None) | Err(ReadError::Reset(_)) => return Err(ProtocolError::Stream),
            Err(ReadError::Blocked) => {}
        }
        self.readable = false;
        Ok(false)
    }

    /// The next frame of what was read.
    ///
    /// # Errors
    /// If it makes no sense, or does not belong there.
    pub(super) fn next(&mut self) -> Result<Option<ControlFrame>, ProtocolError> {
        let frame = self.decoder.next()?;
        self.holds = frame.is_some();
        self.asked |= matches!(frame, Some(ControlFrame::Taken));
        Ok(frame)
    }

    /// Whether there may be more to be read, or taken of what was.
    pub(super) fn has_more(&self) -> bool {
        self.readable || self.holds
    }

    /// How much has been read, if that is to be told.
    pub(super) fn news(&mut self) -> Option<u64> {
        let place = self.splice.place();
        let more = place - self.told;
        let due = more >= HEARD_EVERY || more > 0 && (self.asked || self.pieces >= HEARD_PIECES);
        if due {
            (self.told, self.pieces, self.asked) = (place, 0, false);
        }
        due.then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_once_and_until_they_are_heard() {
        let mut pieces = Pieces::default();
        // As often as something comes in while QUIC takes nothing.
        (0..10_000).for_each(|_| pieces.on_handed_on(7));
        assert_eq!(pieces.0.len(), 1);
        (8..=2 * MANY_PIECES as u64).for_each(|end| pieces.on_handed_on(end));
        assert_eq!(pieces.excess(), 1);
        pieces.on_handed_on(1_000_000);
        pieces.on_heard(2 * MANY_PIECES as u64);
        assert_eq!((pieces.excess(), pieces.0.len()), (0, 1));
    }
}
