//! What the peer owes: a word on each block of which it has all, and the first of all, its SETTINGS.

use std::time::{Duration, Instant};

use super::Session;
use crate::error::ProtocolError;

/// However soon a session is dead that nothing is heard of, words may take so long.
const ANSWERS_TAKE: Duration = Duration::from_secs(5);

/// Whether the peer says anything.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// When what it owes is looked for.
    due: Option<Instant>,
    /// It has said something since that was done last.
    heard: bool,
    /// How often on end it had not.
    silences: u32,
}

impl Answers {
    /// The peer has said something.
    pub(super) fn on_word(&mut self) {
        self.heard = true;
    }
}

impl Session {
    /// The session has begun, or what was owed has been looked for.
    pub(super) fn await_answers(&mut self, now: Instant) {
        self.answers.due = now.checked_add(self.answers_take());
    }

    /// How long the peer may take to say what it has to say, twice.
    pub(super) fn answers_take(&self) -> Duration {
        self.config.idle_timeout.max(ANSWERS_TAKE)
    }

    /// When [`look_for_answers`](Self::look_for_answers) is due.
    pub(super) fn next_look_for_answers(&self) -> Option<Instant> {
        self.answers.due.filter(|_| self.is_owed_answers())
    }

    /// No block waits for ever for a peer that does not say what became of it. As long as the application does not take what there is to be heard, it
    /// is not the peer that is silent.
    pub(super) fn look_for_answers(&mut self, now: Instant) {
        if self.next_look_for_answers().is_none_or(|at| now < at) {
            return;
        }
        self.await_answers(now);
        let heard = std::mem::take(&mut self.answers.heard);
        let unanswered = self.store.unanswered();
        if !heard && !unanswered.is_empty() || !self.store.knows_peer() {
            // The first time that may be an outage, of which the session is not dead yet.
            self.answers.silences += 1;
            if self.answers.silences > 1 {
                self.fail(now, ProtocolError::Silent);
            }
            return;
        }
        self.answers.silences = 0;
        unanswered.into_iter().for_each(|id| self.store.end_unanswered(id));
    }

    fn is_owed_answers(&self) -> bool {
        self.punctual == Some(true) && self.stalled.is_none() && self.store.len() > 0
    }
}
