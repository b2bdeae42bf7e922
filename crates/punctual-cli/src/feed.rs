//! Hands pieces of an input over to a session as blocks, each when its time has come, and keeps the books on what becomes of them.

mod held;
mod left_out;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use punctual::{Block, Channel, CloseReason, DropReason, Outcome, SendError, Session};
use punctual_eval::annexb::Kind;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    exit::Failure,
    source::{MAX_PIECE, Piece},
    stats::Tally,
};
pub(crate) use held::{Blocks, Held};
pub(crate) use left_out::LeftOut;

/// What holds for all blocks that do not say it themselves, and what has become of them.
pub(crate) struct Feeder {
    pub(crate) deadline: Option<Duration>,
    /// Of the most important blocks.
    pub(crate) priority: u8,
    pub(crate) channel: Option<Channel>,
    pub(crate) tally: Tally,
    pub(crate) blocks: Blocks,
    pub(crate) left_out: LeftOut,
    /// What the peer is asked for, for each channel before the first of its blocks.
    pub(crate) latency: Option<Duration>,
}

impl Feeder {
    /// Hands over what an earlier session left, and then what there is, to the end of the input, be that a good one or not; or until the session ends.
    pub(crate) async fn send_all(
        &self,
        session: &Session,
        input: &mut Input,
        outcomes: &mut JoinSet<()>,
    ) -> Result<(), CloseReason> {
        let mut wished = BTreeSet::new();
        for position in self.blocks.begin_again(&self.tally) {
            self.send(session, position, &mut wished, outcomes).await?;
        }
        loop {
            input.fill().await;
            // It stays in its place until its time has come, lest it be lost with the session.
            let Some(piece) = &input.next else { return Ok(()) };
            if let Some(spacing) = piece.spacing {
                input.pace.wait(spacing).await;
            }
            if let Some(piece) = input.next.take() {
                let position = self.hold(piece);
                self.send(session, position, &mut wished, outcomes).await?;
            }
            while outcomes.try_join_next().is_some() {}
        }
    }

    /// Makes a block of a piece, and keeps it until it has ended, which one that is too long does at once; its position.
    pub(crate) fn hold(&self, piece: Piece) -> u64 {
        self.tally.handed_over();
        let too_long = piece.too_long;
        let rank = piece.picture.map_or(0, Kind::priority);
        let playout = piece.own.deadline.unwrap_or(self.deadline);
        let mut block = Block::new(piece.data);
        block.priority = piece.own.priority.unwrap_or_else(|| self.priority.saturating_add(rank));
        block.deadline = playout.map(|playout| piece.picture.map_or(playout, |picture| picture.deadline(playout)));
        block.channel = piece.own.channel.unwrap_or(self.channel);
        // From here, the deadline counts. What keeps a beat has its own from its turn on, wherever it comes from: else all of a pipe that is
        // read faster than the beat would be too late before its turn. Its delay counts from the first byte all the same.
        let now = Instant::now();
        let came = piece.begun.unwrap_or(now);
        let begin = if piece.spacing.is_some() { now } else { came };
        block.begin = Some(begin);
        let kept_back = begin.saturating_duration_since(came);
        let position = self.blocks.hold(Held { block, playout, kept_back, needs: piece.dependencies });
        if let Some(size) = too_long {
            self.left_out.note(position, &SendError::TooLarge { size, limit: MAX_PIECE as u64 });
            self.blocks.give_up(position, &self.tally);
        }
        position
    }

    /// Hands a block over, or gives it up if there is no room for it before its deadline, or if it is none that can be sent.
    async fn send(
        &self,
        session: &Session,
        position: u64,
        wished: &mut BTreeSet<Option<Channel>>,
        outcomes: &mut JoinSet<()>,
    ) -> Result<(), CloseReason> {
        let Some(block) = self.blocks.block(position) else {
            self.blocks.give_up(position, &self.tally);
            return Ok(());
        };
        if self.latency.is_some() && wished.insert(block.channel) {
            // The session has ended if it cannot be said, which comes to light below.
            let _ = session.wish_latency(block.channel, self.latency);
        }
        let size = block.data.len() as u64;
        match session.send(block).await {
            Ok(sent) => {
                self.blocks.named(position, sent.id());
                let (blocks, tally, left_out) = (self.blocks.clone(), self.tally.clone(), self.left_out.clone());
                // How large a block may be is known only by then, if it is refused for that.
                let session = session.clone();
                outcomes.spawn(async move {
                    let outcome = sent.await;
                    if let Some(why) = why_refused(&session, size, &outcome) {
                        left_out.note(position, &why);
                    }
                    blocks.ended(position, &outcome, &tally);
                });
                return Ok(());
            }
            Err(SendError::Full(_)) => {}
            Err(SendError::Closed) => return Err(session.closed().await),
            // A frame or message that cannot go is no reason to keep back the others.
            Err(why) => self.left_out.note(position, &why),
        }
        self.blocks.give_up(position, &self.tally);
        Ok(())
    }
}

/// Whether the receiver has refused a block of this size because it takes none that large. How large they may be is known only once it has said so, which may be after the
/// first blocks have left; later ones are not accepted at all.
fn why_refused(session: &Session, size: u64, outcome: &Outcome) -> Option<SendError> {
    if !matches!(outcome, Outcome::Dropped { reason: DropReason::Refused, .. }) {
        return None;
    }
    let limit = session.stats().peer_max_block_size.filter(|&limit| size > limit)?;
    Some(SendError::TooLarge { size, limit })
}

/// What there is to send.
pub(crate) struct Input {
    pieces: mpsc::Receiver<Result<Piece, Failure>>,
    /// The next one, if it has been read.
    pub(crate) next: Option<Piece>,
    /// There are no more to be read.
    pub(crate) ended: bool,
    /// What was wrong with it at its end: what had come before is still to be sent.
    pub(crate) failure: Option<Failure>,
    /// Pieces come by themselves, and go stale. Those that keep a beat wait for their turn instead.
    pub(crate) is_live: bool,
    pace: Pace,
}

impl Input {
    pub(crate) fn new(pieces: mpsc::Receiver<Result<Piece, Failure>>) -> Self {
        Self { pieces, next: None, ended: false, failure: None, is_live: false, pace: Pace::default() }
    }

    /// Waits for the next piece; at the end there is none.
    pub(crate) async fn fill(&mut self) {
        if self.next.is_none() && !self.ended {
            match self.pieces.recv().await.transpose() {
                Ok(piece) => self.next = piece,
                Err(failure) => self.failure = Some(failure),
            }
            self.ended = self.next.is_none();
            self.is_live |= self.next.as_ref().is_some_and(|piece| piece.begun.is_some() && piece.spacing.is_none());
        }
    }
}

/// Keeps pieces apart in time.
#[derive(Default)]
struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// Waits until it is time for the next piece, which the one after it follows by `spacing`.
    async fn wait(&mut self, spacing: Duration) {
        let due = self.due(Instant::now(), spacing);
        tokio::time::sleep_until(due.into()).await;
    }

    /// When the next piece is due. A piece that comes much too late, from a camera that paused, say, sets a new beat: those after it
    /// are not hurried.
    fn due(&mut self, now: Instant, spacing: Duration) -> Instant {
        let due = self.next.filter(|&next| now < next + spacing).unwrap_or(now);
        self.next = Some(due + spacing);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_beat() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        let dues = [0, 1, 85, 86, 500, 501].map(|now| pace.due(start + ms(now), ms(40)) - start);
        assert_eq!(dues, [0, 40, 80, 120, 500, 540].map(ms), "a little late is made up for, a pause is not");
    }
}
