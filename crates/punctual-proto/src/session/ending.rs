//! How a session begins to be of use, and how it ends: acceptance, the peaceful end, the farewell.
//!
//! A session that nobody has accepted yet says nothing, so its peer has no credit: nothing can be delivered to an application that does not know of it.
//!
//! In peace a session ends in three steps. One side hands over no more ([`Session::finish`]) and says so once all its blocks have ended; the other says when its application has dealt
//! with what it was given ([`Session::caught_up`]); then the first closes. QUIC says farewell once, over the first path it has, and nobody acknowledges it: so it goes over the best path,
//! over the others as far as they help, and all that again.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::VarInt;

use super::{Phase, Session, patience::Patience};
use crate::{
    error::CloseReason,
    event::Event,
    frame::ControlFrame,
    limits::RECEIVE_WINDOW,
    network::{NetworkPath, Transmit},
    noq,
};

/// How many times each datagram of the farewell is sent over each path. With a tenth of all packets lost one session in a thousand is left to find out by itself.
const TIMES: u32 = 3;
/// The shortest and the longest time between two of them: losses come in bursts, and somebody waits for the end.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// Datagrams of a farewell, at most: QUIC sends one for each level of encryption the peer may have reached.
const MAX_DATAGRAMS: NonZeroUsize = NonZeroUsize::new(3).expect("it is not zero");

/// What both sides have said of the end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// We hand over no more.
    finishing: bool,
    /// We have said so,
    finished: bool,
    /// and the peer's application has everything.
    taken: bool,
    /// The peer hands over no more,
    peer_finished: bool,
    /// and has been told that our application has everything,
    told: bool,
    /// which it says itself: that it was given all is not enough.
    by_word: bool,
}

/// What the peer is told last.
#[derive(Debug, Default)]
pub(super) struct Farewell {
    /// What to say once what was to be said before has left.
    waiting: Option<(VarInt, Bytes)>,
    /// What QUIC has said of it that has not left yet.
    unsent: VecDeque<(Transmit, Vec<u8>)>,
    /// What was said, and over which path.
    said: Vec<(Transmit, Vec<u8>)>,
    /// How often it is to be said again, and when next.
    left: u32,
    due: Option<Instant>,
    /// What is to leave now: over this path, this one of what was said.
    copies: VecDeque<(NetworkPath, usize)>,
}

impl Farewell {
    /// Whether all has been said that is to be said.
    fn is_over(&self) -> bool {
        self.waiting.is_none() && self.left == 0 && self.unsent.is_empty() && self.copies.is_empty()
    }

    /// When the next copies are due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.left > 0)
    }
}

impl Session {
    /// Has it wait to be accepted. Only before the handshake is done.
    pub(crate) fn await_acceptance(&mut self) {
        self.is_held = true;
    }

    /// Says that the application knows of the session: from here on the peer may send blocks. Only sessions of a server
    /// [that waits for it](crate::ServerConfig::wait_for_acceptance) need it; for others it does nothing.
    pub fn accept(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_held) && self.phase == Phase::Open && !self.door.is_shut() {
            self.begin_to_speak();
        }
        self.settle(now);
    }

    /// The peer may send from here on.
    pub(super) fn begin_to_speak(&mut self) {
        if self.punctual == Some(true) {
            self.receiver.begin();
            self.control.begin(self.door.shows(), self.receiver.limits());
        }
        self.conn.set_receive_window(VarInt::from_u32(RECEIVE_WINDOW));
    }

    /// Hands over no more: once every block has ended and the peer's application has dealt with what it was given, [`Event::Taken`] follows. Nothing is closed: the
    /// peer may go on, until it [has finished](Self::peer_has_finished), too.
    ///
    /// A peer that does not speak Punctual says nothing of its application; then the event follows when every block has ended.
    pub fn finish(&mut self, now: Instant) {
        self.ending.finishing = true;
        self.store.on_last(now);
        self.settle(now);
    }

    /// Has the peer told of the application's having everything only when it says so ([`caught_up`](Self::caught_up)), not as soon as it has been given the last block.
    pub fn confirm_by_word(&mut self) {
        self.ending.by_word = true;
    }

    /// Says that the application has dealt with every block that it was given. Whether the peer waited for that word: then the endpoint is to be drained.
    pub fn caught_up(&mut self, now: Instant) -> bool {
        let waited = self.tell_taken();
        if waited {
            self.settle(now);
        }
        waited
    }

    /// The application was given a block.
    pub(super) fn on_given(&mut self) {
        if !self.ending.by_word {
            self.tell_taken();
        }
    }

    fn tell_taken(&mut self) -> bool {
        let waited = self.ending.peer_finished && !self.ending.told && !self.receiver.has_ready();
        if waited && self.phase == Phase::Open {
            self.ending.told = true;
            self.control.write_taken();
        }
        waited
    }

    /// Whether the peer is to be told that our application has taken everything, and is not known to have heard that: were the session closed now, it might never. Once it has,
    /// [`Event::Heard`] follows.
    pub fn awaits_hearing(&self) -> bool {
        self.phase == Phase::Open && self.control.awaits_hearing()
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.ending.finishing
    }

    /// Whether the peer hands over no more and the application has been given everything. It is told to look by an [`Event::Readable`]. A peer that does not speak
    /// Punctual does not say so.
    pub fn peer_has_finished(&self) -> bool {
        self.ending.peer_finished && !self.receiver.has_ready()
    }

    /// The peer hands over no more: the application is to look again.
    pub(super) fn on_finished(&mut self) {
        if !std::mem::replace(&mut self.ending.peer_finished, true) {
            self.events.push(Event::Readable);
        }
        self.on_given();
    }

    /// The peer's application has everything. A word of that before we have finished is nothing we could have been waiting for.
    pub(super) fn on_taken(&mut self) {
        if self.ending.finished && !std::mem::replace(&mut self.ending.taken, true) {
            self.events.push(Event::Taken);
        }
    }

    /// Says that nothing more is handed over, once nothing is under way any more.
    pub(super) fn look_for_the_end(&mut self) {
        if !self.ending.finishing || self.ending.finished || self.phase != Phase::Open || self.store.len() > 0 {
            return;
        }
        self.ending.finished = true;
        if self.punctual == Some(true) {
            self.control.write(&ControlFrame::Finished);
        }
        // Nothing can be taken of nothing, nor will a peer say so that does not speak Punctual.
        if self.punctual != Some(true) || self.store.tally().accepted == 0 {
            self.on_taken();
        }
    }

    /// Ends the session at once: every live block is dropped ([`DropReason::SessionClosed`](crate::DropReason)).
    ///
    /// `code` 0 is a normal end; codes from [`ProtocolError::BASE`](crate::ProtocolError::BASE) to 255 above it are Punctual's own. Of `reason` the first 256 bytes are told.
    pub fn close(&mut self, now: Instant, code: u32, reason: &str) {
        if matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        self.farewell.waiting = Some((VarInt::from_u32(code), noq::told_of(reason).to_owned().into()));
        if self.phase == Phase::Open && self.control.waits() {
            // What is to be said of blocks leaves before.
            self.control.flush(now, Patience::NONE, &mut self.conn);
        } else {
            self.say_farewell(now);
        }
        self.end(now, CloseReason::Local);
        self.settle(now);
    }

    /// Tells the peer that the session is over, if that is to be told still.
    fn say_farewell(&mut self, now: Instant) -> bool {
        let Some((code, reason)) = self.farewell.waiting.take() else { return false };
        self.part(now, code, reason);
        true
    }

    /// Has QUIC close the connection, and what it says of that repeated.
    pub(super) fn part(&mut self, now: Instant, code: VarInt, reason: Bytes) {
        // QUIC takes the first path that it has, dead or alive, unless that is being abandoned.
        if let Some(best) = self.paths.choose_control(now) {
            let others = self.paths.iter().filter(|path| path.slot() != best).map(|path| path.quic);
            for other in others.collect::<Vec<_>>() {
                // The last path can't be, nor one that is gone: all the better.
                let _ = self.conn.close_path(now, other, VarInt::from_u32(0));
            }
        }
        self.conn.close(now, code, reason);
        self.farewell.left = TIMES - 1;
        self.farewell.due = now.checked_add(self.pause());
    }

    fn pause(&self) -> Duration {
        (self.shortest_rtt() / 2).clamp(PAUSE.0, PAUSE.1)
    }

    /// The next datagram of a session that is not, or no longer, open.
    pub(super) fn poll_parting(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let mut transmit = self.poll_last_words(now, buf);
        if transmit.is_none() && !self.has_no_path() && self.say_farewell(now) {
            transmit = self.poll_last_words(now, buf);
        }
        if let Some(transmit) = transmit {
            self.note_farewell(transmit, buf);
            return Some(transmit);
        }
        let (path, index) = self.farewell.copies.pop_front()?;
        let (transmit, bytes) = self.farewell.said.get(index)?;
        buf.extend_from_slice(bytes);
        Some(Transmit { path, ..*transmit })
    }

    /// What QUIC says, which it does once, is asked for all at once when it is the last: asked for one datagram at a time it would begin anew with the first level of encryption, for
    /// ever, as long as it has the keys of that ([contract](crate::noq)).
    fn poll_last_words(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.farewell.unsent.is_empty() {
            // What was said before goes out nevertheless.
            if self.has_no_path() {
                return None;
            }
            if !self.conn.is_closed() {
                return self.poll_quic(now, buf);
            }
            let (transmit, datagram) = self.poll_quic_for(now, MAX_DATAGRAMS, buf)?;
            let pieces = buf[..transmit.size].chunks(datagram);
            self.farewell
                .unsent
                .extend(pieces.map(|piece| (Transmit { size: piece.len(), ..transmit }, piece.to_vec())));
            buf.clear();
        }
        let (transmit, bytes) = self.farewell.unsent.pop_front()?;
        buf.extend_from_slice(&bytes);
        Some(transmit)
    }

    /// Keeps what QUIC says for the last time, and has it go over the other paths, too: to a peer that takes it for a move of the first, as servers do where both paths end at the same address of theirs.
    fn note_farewell(&mut self, transmit: Transmit, buf: &[u8]) {
        if self.farewell.left == 0 || self.farewell.said.len() >= MAX_DATAGRAMS.get() {
            return;
        }
        self.farewell.said.push((transmit, buf[..transmit.size].to_vec()));
        let index = self.farewell.said.len() - 1;
        let others = self.paths.iter().map(|path| path.network).filter(|&path| path != transmit.path);
        self.farewell.copies.extend(others.map(|path| (path, index)));
    }

    /// Says it all again, if it is time.
    pub(super) fn repeat_farewell(&mut self, now: Instant) {
        if self.farewell.due().is_none_or(|due| now < due) {
            return;
        }
        self.farewell.left -= 1;
        self.farewell.due = now.checked_add(self.pause());
        for (index, &(transmit, _)) in self.farewell.said.iter().enumerate() {
            let others = self.paths.iter().map(|path| path.network).filter(|&path| path != transmit.path);
            self.farewell.copies.extend(std::iter::once(transmit.path).chain(others).map(|path| (path, index)));
        }
    }

    /// Whether the session is over and the peer has been told as often as it will be.
    pub(crate) fn has_parted(&self) -> bool {
        matches!(self.phase, Phase::Closed(_)) && self.farewell.is_over()
    }
}
