//! What a session tells its application: how blocks ended, what changed, what remained.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use punctual_proto::{BlockId, CloseReason, Delta, DropReason, Outcome, PathEvent, PathId};
use tokio::sync::{broadcast, oneshot};

use crate::route::RouteEvent;

/// A block that was accepted; await it to learn its [`Outcome`].
///
/// Dropping it does not cancel the block: that is [`Session::cancel`](crate::Session::cancel).
///
/// ```
/// use punctual::{Block, Outcome, Session};
///
/// async fn send_frame(session: &Session, frame: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
///     let sent = session.send(Block::new(frame)).await?;
///     match sent.await {
///         Outcome::Delivered(delivery) => println!("there after {:?}", delivery.completion),
///         Outcome::Dropped { reason, .. } => println!("not there: {reason}"),
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct SentBlock {
    pub(crate) id: BlockId,
    pub(crate) outcome: oneshot::Receiver<Outcome>,
}

impl SentBlock {
    /// The block's name: to update or cancel it, or to make others depend on it.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Waits for the block to end; the same as awaiting the handle.
    pub async fn outcome(self) -> Outcome {
        self.await
    }
}

impl Future for SentBlock {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        // The books tell every outcome; only if they went without a word was the session lost.
        let lost = Outcome::Dropped { reason: DropReason::SessionClosed, good_bytes: 0 };
        Pin::new(&mut self.outcome).poll(cx).map(|outcome| outcome.unwrap_or(lost))
    }
}

/// Something to watch in a session, beside its blocks' outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A path changed.
    Path {
        /// Which.
        id: PathId,
        /// How.
        event: PathEvent,
    },
    /// Something happened to one of the session's [routes](crate::Paths).
    Route(RouteEvent),
    /// No path is usable any more: all have fallen silent or are gone. Blocks wait; the session ends when that lasts for the
    /// [idle time](crate::SessionConfig::idle_timeout). See also [`Session::stranded`](crate::Session::stranded).
    Stranded,
    /// A path is usable again.
    Resumed,
    /// The peer dropped a block: it will never be complete here.
    PeerDropped {
        /// The sender's name for it.
        id: BlockId,
        /// Why.
        reason: DropReason,
        /// Bytes of it that had arrived.
        received_bytes: u64,
    },
    /// A block was not whole when what follows it in its channel was due by the [latency](crate::Session::set_latency): it was refused, and will not come.
    Skipped {
        /// The sender's name for it.
        id: BlockId,
        /// Bytes of it that had arrived.
        received_bytes: u64,
    },
    /// The peer's application said how far a block's completion was from what it expected.
    Expected {
        /// Our block.
        id: BlockId,
        /// Actual minus expected.
        delta: Delta,
    },
    /// This listener was too slow (see [`Config::event_backlog`](crate::Config::event_backlog)) and has missed events.
    Lagged {
        /// How many.
        missed: u64,
    },
}

/// A session's events, from the call to [`Session::events`](crate::Session::events) on.
#[derive(Debug)]
pub struct Events(pub(crate) broadcast::Receiver<SessionEvent>);

impl Events {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(SessionEvent::Lagged { missed }),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// What [`Session::finish`](crate::Session::finish) could not deliver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undelivered {
    /// The blocks that were live when it was called and have not been delivered, in the order in which they were handed over.
    pub blocks: Vec<(BlockId, DropReason)>,
    /// Whether the peer's application has taken all blocks that were delivered. `false` also if there was no time left to hear of it.
    pub taken: bool,
    /// Why the session ended; [`CloseReason::Local`] unless something else came first.
    pub reason: Option<CloseReason>,
}

impl Undelivered {
    /// Whether everything was delivered.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}
