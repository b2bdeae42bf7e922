//! Sessions at the door.

use std::net::SocketAddr;

use crate::{session::Session, shared::Gone, tls::Fingerprint};

/// A session that a client has started and that waits to be let in; from [`Endpoint::incoming`](crate::Endpoint::incoming).
///
/// Until it is [accepted](Self::accept) its client cannot send a block, so that one that is [refused](Self::refuse) has delivered none: what
/// its client had to send, it knows to be with it still. To drop it is to refuse it with code 0 and no words.
///
/// ```no_run
/// # async fn example(endpoint: punctual::Endpoint) {
/// const BUSY: u32 = 1;
/// let mut guests = Vec::new();
/// while let Some(incoming) = endpoint.incoming().await {
///     if guests.len() < 10 {
///         guests.push(incoming.accept());
///     } else {
///         incoming.refuse(BUSY, "ten are here already");
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "to drop it is to refuse it"]
pub struct Incoming(Session);

impl Incoming {
    pub(crate) fn new(session: Session) -> Self {
        Self(session)
    }

    /// Lets it in: from here on its client may send blocks. It may have ended while it waited; the session then says so.
    pub fn accept(self) -> Session {
        // One that has ended while it waited has what it brought all the same.
        let _: Result<(), Gone> = self.0.link().drive(|session, _, now| session.accept(now));
        self.0
    }

    /// Turns it away: its client is told that it was closed by its peer, with this code and these words, as by [`Session::close`].
    pub fn refuse(self, code: u32, reason: &str) {
        self.0.close(code, reason);
    }

    /// Whether it has ended while it waits: its client has gone, or has not been heard of for too long. What it may have brought can be had by [accepting](Self::accept) it all the same.
    pub fn has_ended(&self) -> bool {
        self.0.close_reason().is_some()
    }

    /// Where it comes from; `None` if it has ended before anything was known of it.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        let first_path = || self.0.path_stats().first().map(|path| path.network.remote);
        self.0.remote_address().or_else(first_path)
    }

    /// The certificate that the client has shown, as [`Session::peer_fingerprint`].
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.0.peer_fingerprint()
    }
}
