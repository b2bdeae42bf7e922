//! Hands pieces of an input over to a session as blocks, each when its time has come, and keeps the books on what becomes of them.

mod held;

use std::time::{Duration, Instant};

use punctual::{Block, Channel, CloseReason, SendError, Session};
use punctual_eval::annexb::Kind;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{exit::Failure, say::say, source::Piece, stats::Tally};
pub(crate) use held::{Blocks, Held};

/// What holds for all blocks that do not say it themselves, and what has become of them.
pub(crate) struct Feeder {
    pub(crate) deadline: Option<Duration>,
    /// Of the most important blocks.
    pub(crate) priority: u8,
    pub(crate) channel: Option<Channel>,
    pub(crate) tally: Tally,
    pub(crate) blocks: Blocks,
}

/// Why not everything was handed over.
pub(crate) enum Stopped {
    /// The session ended.
    Session(CloseReason),
    /// The input is no good.
    Input(Failure),
}

impl Feeder {
    /// Hands over what an earlier session left, and then what there is, to the end of the input.
    pub(crate) async fn send_all(
        &self,
        session: &Session,
        input: &mut Input,
        outcomes: &mut JoinSet<()>,
    ) -> Result<(), Stopped> {
        for position in self.blocks.begin_again(&self.tally) {
            self.send(session, position, outcomes).await?;
        }
        loop {
            input.fill().await.map_err(Stopped::Input)?;
            // It stays in its place until its time has come, lest it be lost with the session.
            let Some(piece) = &input.next else {
                return input.failure.take().map_or(Ok(()), |failure| Err(Stopped::Input(failure)));
            };
            if let Some(spacing) = piece.spacing {
                input.pace.wait(spacing).await;
            }
            if let Some(piece) = input.next.take() {
                let position = self.hold(piece);
                self.send(session, position, outcomes).await?;
            }
            while outcomes.try_join_next().is_some() {}
        }
    }

    /// Makes a block of a piece, and keeps it until it has ended; its position.
    pub(crate) fn hold(&self, piece: Piece) -> u64 {
        self.tally.handed_over();
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
        self.blocks.hold(Held { block, playout, kept_back, needs: piece.dependencies })
    }

    /// Hands a block over, or gives it up if there is no room for it before its deadline, or if it is none that can be sent.
    async fn send(&self, session: &Session, position: u64, outcomes: &mut JoinSet<()>) -> Result<(), Stopped> {
        let Some(block) = self.blocks.block(position) else {
            self.blocks.give_up(position, &self.tally);
            return Ok(());
        };
        match session.send(block).await {
            Ok(sent) => {
                self.blocks.named(position, sent.id());
                let (blocks, tally) = (self.blocks.clone(), self.tally.clone());
                outcomes.spawn(async move { blocks.ended(position, &sent.await, &tally) });
                return Ok(());
            }
            Err(SendError::Full(_)) => {}
            Err(SendError::Closed) => return Err(Stopped::Session(session.closed().await)),
            // A frame or message that cannot go is no reason to keep back the others.
            Err(error @ (SendError::Empty | SendError::TooLarge { .. })) => say!("punctual: left out: {error}"),
            Err(error) => return Err(Stopped::Input(Failure::Usage(error.to_string()))),
        }
        self.blocks.give_up(position, &self.tally);
        Ok(())
    }
}

/// What there is to send.
pub(crate) struct Input {
    pieces: mpsc::Receiver<Result<Piece, Failure>>,
    /// The next one, if it has been read.
    pub(crate) next: Option<Piece>,
    /// There are no more to be read.
    pub(crate) ended: bool,
    /// What was wrong with it at its end, if that came to light while there was no session: what had come before is still to be sent.
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
    pub(crate) async fn fill(&mut self) -> Result<(), Failure> {
        if self.next.is_none() && !self.ended {
            let piece = self.pieces.recv().await.transpose();
            self.ended = !matches!(piece, Ok(Some(_)));
            self.next = piece?;
            self.is_live |= self.next.as_ref().is_some_and(|piece| piece.begun.is_some() && piece.spacing.is_none());
        }
        Ok(())
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
