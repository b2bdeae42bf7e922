//! How a session ends in peace: who has no more to send, and who has taken everything.

use std::time::Duration;

use punctual_proto::{CloseReason, ReceivedBlock};

use super::Session;
use crate::{events::Undelivered, shared::Gone};

impl Session {
    /// Has a block count as taken only once the application waits for the next one ([`recv`](Self::recv)), not when it is given it: a peer that [finishes](Self::finish) then knows that
    /// all of its blocks have been dealt with, written to a file, say.
    pub fn confirm_on_next_recv(&self) {
        // A session that is gone has nobody to tell.
        let _: Result<(), Gone> = self.link().drive(|session, _, _| session.confirm_by_word());
    }

    /// Whether the peer hands over no more blocks and all that came have been given out by [`recv`](Self::recv); or the session has ended, likewise.
    ///
    /// Blocks go both ways in a session, and each side says for itself when it has [no more](Self::finish_sending).
    pub fn peer_has_finished(&self) -> bool {
        let link = self.link();
        link.shared.with(|state, _| match state.session(link.id) {
            Ok((session, _)) => session.peer_has_finished(),
            Err(Gone) => state.sessions.get(&link.id).is_none_or(|slot| slot.inbox.is_empty()),
        })
    }

    /// The next complete block from the peer, as [`recv`](Self::recv); `None` once the peer has said that there are no more, though the session goes on.
    ///
    /// ```no_run
    /// # async fn example(session: punctual::Session) -> Result<(), punctual::CloseReason> {
    /// while let Some(block) = session.recv_until_finished().await? {
    ///     println!("{} bytes", block.data.len());
    /// }
    /// // The peer has no more to say. We may have.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_until_finished(&self) -> Result<Option<ReceivedBlock>, CloseReason> {
        loop {
            let readable = self.link().signals.readable.notified();
            match self.try_recv() {
                Ok(Some(block)) => return Ok(Some(block)),
                Ok(None) => {
                    self.link().catch_up();
                    if self.peer_has_finished() {
                        return Ok(None);
                    }
                    readable.await;
                }
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Accepts no more blocks, and waits as [`finish`](Self::finish) does, but does not close the session: the peer may go on sending. Whether the peer's
    /// application has taken everything within `timeout`.
    pub async fn finish_sending(&self, timeout: Duration) -> bool {
        self.hand_over_no_more();
        let _ = tokio::time::timeout(timeout, self.taken_or_closed()).await;
        self.link().slot(|slot| slot.taken).unwrap_or(false)
    }

    fn hand_over_no_more(&self) {
        let link = self.link();
        link.slot(|slot| {
            slot.finishing.get_or_insert_default();
        });
        // A session that is gone has nothing left to finish.
        let _: Result<(), Gone> = link.drive(|session, _, now| session.finish(now));
        link.signals.writable.notify_waiters();
    }

    async fn taken_or_closed(&self) {
        let link = self.link();
        loop {
            let changed = link.signals.changed.notified();
            if link.slot(|slot| slot.taken || slot.closed.is_some()).unwrap_or(true) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the peer has heard what it is to know of our application before the session is closed.
    async fn heard_or_closed(&self) {
        let link = self.link();
        loop {
            let changed = link.signals.changed.notified();
            if !link.drive(|session, _, _| session.awaits_hearing()).unwrap_or(false) {
                return;
            }
            changed.await;
        }
    }

    /// Ends the session in peace: accepts no more blocks, waits until those handed over have ended and the peer's application has taken them, for `timeout` at most, and closes it.
    /// If the peer has finished, too, and is told that its own blocks are taken, it is waited for until it has heard that, within the same time: the word would go with the session.
    ///
    /// A block is [delivered](crate::Outcome::Delivered) once the peer's session has all of it, and only sessions that the peer's application has accepted get any. That the application has *taken* all of them is told
    /// by [`Undelivered::taken`]: it was given them, or has dealt with them, if it says so itself ([`confirm_on_next_recv`](Self::confirm_on_next_recv)). A peer that does not speak Punctual says nothing of that.
    ///
    /// The peer's own blocks are not waited for: which side closes when is for the applications to agree on.
    pub async fn finish(&self, timeout: Duration) -> Undelivered {
        let link = self.link();
        self.hand_over_no_more();
        let both = async {
            self.taken_or_closed().await;
            self.heard_or_closed().await;
        };
        let _ = tokio::time::timeout(timeout, both).await;
        self.close(0, "");
        let reason = self.closed().await;
        let mut undelivered = link.slot(|slot| slot.finishing.clone()).flatten().unwrap_or_default();
        undelivered.taken = link.slot(|slot| slot.taken).unwrap_or(false);
        undelivered.reason = Some(reason);
        undelivered.blocks.sort_unstable_by_key(|(id, _)| *id);
        undelivered
    }
}
