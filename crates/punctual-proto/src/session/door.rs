//! Who is let in: the token that a client shows, and those by which a server lets it in.
//!
//! Until a client has shown the right one its session does not exist for the server's application, and it may not send any block.

use std::{sync::Arc, time::Instant};

use super::Session;
use crate::{error::ProtocolError, event::Event, token::Token};

/// What a session shows, or wants to be shown.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// What we show, as a client.
    shows: Option<Token>,
    /// What we want to be shown, as a server; nothing in particular if there is none, or once it has been shown.
    wants: Arc<[Token]>,
    /// Until when that may take.
    due: Option<Instant>,
}

impl Door {
    /// Whether the peer has yet to show something.
    pub(super) fn is_shut(&self) -> bool {
        !self.wants.is_empty()
    }

    /// What we show.
    pub(super) fn shows(&self) -> Option<&Token> {
        self.shows.as_ref()
    }

    /// When the peer will have been waited for long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Session {
    /// Shows the server a token. Only before the handshake is done.
    pub(crate) fn show(&mut self, token: Token) {
        self.door.shows = Some(token);
    }

    /// Lets in a client that shows one of these, of which there are some. Only before the handshake is done.
    pub(crate) fn want(&mut self, tokens: Arc<[Token]>) {
        self.door.wants = tokens;
    }

    /// The handshake is done, but for what the peer has to show.
    pub(super) fn wait_at_the_door(&mut self, now: Instant) {
        if self.punctual == Some(true) {
            self.door.due = now.checked_add(self.answers_take());
        } else {
            // It has no words to show anything with.
            self.fail(now, ProtocolError::Token);
        }
    }

    /// The peer shows a token. One that nobody asked for does no harm.
    pub(super) fn on_token(&mut self, token: &Token) -> Result<(), ProtocolError> {
        if self.conn.side().is_client() {
            return Err(ProtocolError::Settings);
        }
        if self.door.is_shut() {
            if !token.is_among(&self.door.wants) {
                return Err(ProtocolError::Token);
            }
            self.door = Door::default();
            self.let_in();
            // Paths may have come and gone meanwhile.
            self.events.last_first();
        }
        Ok(())
    }

    /// The session begins: the application is told, and may speak.
    pub(super) fn let_in(&mut self) {
        if !self.is_held {
            self.begin_to_speak();
        }
        let punctual = self.punctual == Some(true);
        tracing::debug!(punctual, "connected");
        self.events.push(Event::Connected { punctual });
    }

    /// Ends the session of a peer that has not shown anything for too long.
    pub(super) fn look_at_the_door(&mut self, now: Instant) {
        if self.door.due.take_if(|due| *due <= now).is_some() {
            self.fail(now, ProtocolError::Token);
        }
    }
}
