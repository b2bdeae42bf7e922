//! What gateways say themselves: greetings, and that a flow is not carried.

use std::{collections::BTreeMap, convert::Infallible, sync::Mutex};

use punctual::{Block, Channel, SendError, SentBlock, Session};
use tokio::sync::Notify;

use super::{
    flows::CHANNELS,
    lock,
    wire::{FlowId, Hello, StopReason, Word},
};
use crate::surely;

/// The channel of greetings: a later one replaces the one before.
const GREETINGS: Channel = Channel(0);
/// What the gateways themselves say is small, and nothing goes without it.
const OWN_PRIORITY: u8 = 0;

/// A block of the gateway's own.
pub(super) fn own(session: &Session, word: Word) -> Block {
    Block::new(word.encode()).priority(OWN_PRIORITY).redundancy(surely(session, None))
}

/// Greets.
pub(super) async fn greet(session: &Session, hello: Hello) -> Result<SentBlock, SendError> {
    session.send(own(session, Word::Hello(hello)).channel(GREETINGS)).await
}

/// Says that a flow of datagrams is not carried.
pub(super) fn stop(session: &Session, flow: FlowId, reason: StopReason) {
    let word = Word::Stop { flow, reason };
    // It is said again with the next datagram.
    let _ = session.try_send(own(session, word).deadline(crate::class::DEFAULT_DEADLINE));
}

/// Connections that are not carried, of which the far side is yet to be told. It may wait for our word and say nothing more itself, so each is told of surely.
///
/// A far side has no more connections at once than channels, and each until it hears that it has ended; so none is left out here but of one that does not listen.
#[derive(Debug, Default)]
pub(super) struct Stops {
    waiting: Mutex<BTreeMap<FlowId, StopReason>>,
    more: Notify,
}

impl Stops {
    const MOST: usize = CHANNELS as usize;

    /// Has it said that a connection is not carried.
    pub(super) fn add(&self, flow: FlowId, reason: StopReason) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < Self::MOST {
            waiting.entry(flow).or_insert(reason);
            self.more.notify_one();
        }
    }

    /// Says all that there is to be said, each as soon as the session has room for it, and never returns.
    pub(super) async fn say_all(&self, session: &Session) -> Infallible {
        loop {
            let next = lock(&self.waiting).pop_first();
            match next {
                Some((flow, reason)) => {
                    // If the session has ended, whoever receives from it hears of that.
                    let _ = session.send(own(session, Word::Stop { flow, reason })).await;
                }
                None => self.more.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_far_side_can_make_wait_is_bounded_and_each_connection_is_told_of_once() {
        let stops = Stops::default();
        stops.add(FlowId(0), StopReason::NoSuchPort);
        for flow in 0..2 * Stops::MOST as u64 {
            stops.add(FlowId(flow), StopReason::Unknown);
        }
        let waiting = lock(&stops.waiting);
        assert_eq!(waiting.len(), Stops::MOST);
        assert_eq!(waiting.get(&FlowId(0)), Some(&StopReason::NoSuchPort), "why it was refused first");
    }
}
