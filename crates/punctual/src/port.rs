//! One socket as the driver works it: what waits to leave, and a rest after reads that keep failing.

use std::{
    io,
    sync::Arc,
    task::Context,
    time::{Duration, Instant},
};

use tracing::{debug, trace};

use crate::{
    outbox::Outbox,
    socket::{ReceiveBuffers, Socket},
};

/// Reads that may fail one after the other before the socket is given a rest. An error that answers a datagram of ours (ICMP, where the
/// system tells of it) is used up by one read. One that stays, as that of a socket whose interface was deleted may, would leave the socket
/// "readable" for ever, and the driver would do nothing else.
const FAILED_READS: u32 = 16;

/// How long the rest is: too short to harm a path, and the most that a broken socket then costs is some hundred calls a second.
const REST: Duration = Duration::from_millis(20);

/// A socket, what waits to leave through it, and whether it is worth reading.
pub(crate) struct Port {
    pub(crate) socket: Arc<Socket>,
    pub(crate) outbox: Outbox,
    reads: Reads,
}

impl Port {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, outbox: Outbox::default(), reads: Reads::default() }
    }

    /// How many of the buffers the socket has filled; `None` if there is nothing to read for now. See [`Socket::receive`].
    pub(crate) fn receive(&mut self, buffers: &mut ReceiveBuffers, unannounced: bool) -> Option<usize> {
        if self.reads.rest_until().is_some_and(|end| Instant::now() < end) {
            return None;
        }
        match self.socket.receive(buffers, unannounced) {
            Ok(n) => {
                self.reads.succeeded();
                Some(n)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.reads.succeeded();
                None
            }
            Err(error) => {
                trace!(local = %self.socket.address, %error, "cannot receive");
                if self.reads.failed(Instant::now()) {
                    debug!(local = %self.socket.address, %error, "the socket cannot be read; it is tried again now and then");
                }
                None
            }
        }
    }

    /// When it wants to be looked at again though nothing has happened to it.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.reads.rest_until(), self.outbox.due()].into_iter().flatten().min()
    }

    /// Whether it can be worked on now; if not, the task is woken when it can.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> bool {
        let rests = self.reads.rest_until().is_some();
        let readable = !rests && self.socket.poll_readable(cx).is_ready();
        readable | (self.outbox.is_blocked() && self.socket.poll_writable(cx).is_ready())
    }
}

/// How reading goes.
#[derive(Debug, Default)]
struct Reads {
    failed: u32,
    rest_until: Option<Instant>,
}

impl Reads {
    fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// `true` if this begins the first rest.
    fn failed(&mut self, now: Instant) -> bool {
        self.failed = self.failed.saturating_add(1);
        self.rest_until = (self.failed >= FAILED_READS).then(|| now + REST);
        self.failed == FAILED_READS
    }

    fn rest_until(&self) -> Option<Instant> {
        self.rest_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_only_fails_is_read_now_and_then() {
        let mut reads = Reads::default();
        let start = Instant::now();
        for _ in 1..FAILED_READS {
            assert!(!reads.failed(start));
            assert_eq!(reads.rest_until(), None, "a few errors are no reason to stop");
        }
        assert!(reads.failed(start));
        assert_eq!(reads.rest_until(), Some(start + REST));
        // From now on each failure costs a rest, until a read succeeds.
        assert!(!reads.failed(start + REST));
        assert_eq!(reads.rest_until(), Some(start + 2 * REST));
        reads.succeeded();
        assert_eq!(reads.rest_until(), None);
        assert!(!reads.failed(start));
        assert_eq!(reads.rest_until(), None);
    }
}
