//! What waits to leave through a socket, joined to what one system call can carry.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use punctual_proto::EcnCodepoint;
use tracing::warn;

use crate::socket::{Sending, Socket};

/// The largest UDP payload over IPv4; more cannot be handed over in one call, however it is segmented.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// What every path carries (RFC 9000, section 14).
const MIN_MTU: usize = 1_200;

/// Bytes that wait for a socket whose send buffer is full; what comes on top is lost, as in any queue that is full. Two of Linux's
/// default send buffers: data that waits here can no longer be overtaken by a more urgent block.
const MAX_BACKLOG: usize = 512 << 10;

/// How long to wait when a queue below the socket is full (ENOBUFS): at 100 Mbit/s it has room for ten packets then. Each time in a row it is twice as
/// long, 16 ms at most.
const SHORT_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: u32 = 4;

/// How often in a row that may be before what waits is lost, one after the other, after 31 ms: a queue that stands still carries nothing in time.
/// Some systems say so of an interface without carrier.
const MOST_REFUSALS: u32 = 5;

/// Datagrams of one size (the last may be shorter) that leave in one call.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) remote: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// Bytes of each datagram but the last.
    pub(crate) segment: usize,
    pub(crate) count: usize,
    pub(crate) data: Vec<u8>,
}

impl Batch {
    /// Whether the datagram could join.
    fn takes(&self, datagram: &Datagram<'_>, max_segments: usize) -> bool {
        self.is_to(datagram)
            && self.ecn == datagram.ecn
            && self.count < max_segments
            && (datagram.data.len() == self.segment || self.is_of_proven_size() && datagram.data.len() < self.segment)
            && self.data.len() == self.segment * self.count
            && self.data.len() + datagram.data.len() <= MAX_UDP_PAYLOAD
    }

    /// Whether this cannot be a probe for a larger MTU: those are alone of their size. Were one joined by another datagram and too
    /// large for the interface, both would be lost, and older kernels would answer as if segmentation as such were not
    /// supported.
    fn is_of_proven_size(&self) -> bool {
        self.count > 1 || self.segment <= MIN_MTU
    }

    fn is_to(&self, datagram: &Datagram<'_>) -> bool {
        self.remote == datagram.remote && self.source == datagram.source
    }
}

/// A datagram on its way to a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: &'a [u8],
}

/// What waits to leave through one socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    batches: VecDeque<Batch>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    bytes: usize,
    blocked: Blocked,
    /// How often in a row the system had no room for the first.
    refused: u32,
    overflowed: u64,
}

/// What is waited for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    #[default]
    Nothing,
    /// The socket's send buffer is full.
    Room,
    /// A queue below the socket is full, of which nobody tells when it has room.
    Until(Instant),
}

impl Outbox {
    /// Puts a datagram behind the others, joined to the last one that goes the same way if the two can leave together.
    pub(crate) fn push(&mut self, datagram: Datagram<'_>, max_segments: usize) {
        if self.bytes + datagram.data.len() > MAX_BACKLOG {
            self.overflowed += 1;
            if self.overflowed.is_power_of_two() {
                warn!(remote = %datagram.remote, lost = self.overflowed, "the socket does not keep up; datagrams are lost");
            }
            return;
        }
        self.bytes += datagram.data.len();
        // Paths take turns packet by packet; looking past the other paths' batches keeps each path's packets together, in order.
        let last = self.batches.iter_mut().rev().take(16).find(|batch| batch.is_to(&datagram));
        if let Some(batch) = last.filter(|batch| batch.takes(&datagram, max_segments)) {
            batch.data.extend_from_slice(datagram.data);
            batch.count += 1;
            return;
        }
        let mut data = self.spare.pop().unwrap_or_default();
        data.extend_from_slice(datagram.data);
        let Datagram { remote, source, ecn, .. } = datagram;
        self.batches.push_back(Batch { remote, source, ecn, segment: data.len(), count: 1, data });
    }

    /// Sends what there is room for.
    pub(crate) fn flush(&mut self, socket: &Socket) {
        self.flush_by(Instant::now(), |batch| socket.send(batch));
    }

    fn flush_by(&mut self, now: Instant, mut send: impl FnMut(&Batch) -> Sending) {
        if matches!(self.blocked, Blocked::Until(end) if now < end) {
            return;
        }
        self.blocked = Blocked::Nothing;
        while let Some(batch) = self.batches.front() {
            match send(batch) {
                Sending::Done => self.refused = 0,
                Sending::Full => {
                    self.blocked = Blocked::Room;
                    return;
                }
                Sending::Short => {
                    self.blocked = Blocked::Until(now + SHORT_WAIT * (1 << self.refused.min(LONGEST_WAIT)));
                    self.refused = self.refused.saturating_add(1);
                    if self.refused <= MOST_REFUSALS {
                        return;
                    }
                }
            }
            self.drop_first();
            if self.blocked != Blocked::Nothing {
                return;
            }
        }
    }

    fn drop_first(&mut self) {
        let Some(Batch { mut data, .. }) = self.batches.pop_front() else { return };
        self.bytes -= data.len();
        data.clear();
        if self.spare.len() < 16 {
            self.spare.push(data);
        }
    }

    /// Whether something waits for the socket to have room, of which the system tells.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked == Blocked::Room
    }

    /// When to try again what waits for room of which the system does not tell.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.blocked {
            Blocked::Until(end) => Some(end),
            Blocked::Nothing | Blocked::Room => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{local::Bind, socket::ReceiveBuffers};

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn batches(outbox: &Outbox) -> Vec<(u16, usize, usize)> {
        outbox.batches.iter().map(|b| (b.remote.port(), b.count, b.data.len())).collect()
    }

    fn push(outbox: &mut Outbox, port: u16, len: usize, max_segments: usize) {
        let data = vec![0; len];
        outbox.push(Datagram { remote: address(port), source: None, ecn: None, data: &data }, max_segments);
    }

    #[test]
    fn equal_datagrams_of_a_path_leave_together() {
        let mut outbox = Outbox::default();
        // Two paths that take turns; a shorter datagram ends a batch, a longer one begins the next.
        for (port, len) in [(1, 1200), (2, 1200), (1, 1200), (2, 1200), (1, 700), (1, 700), (2, 1300), (1, 600)] {
            push(&mut outbox, port, len, 64);
        }
        assert_eq!(batches(&outbox), [(1, 3, 3100), (2, 2, 2400), (1, 2, 1300), (2, 1, 1300)]);
    }

    #[test]
    fn marks_and_limits_part_batches() {
        let mut outbox = Outbox::default();
        push(&mut outbox, 1, 100, 2);
        push(&mut outbox, 1, 100, 2);
        push(&mut outbox, 1, 100, 2);
        let marked = Datagram { remote: address(1), source: None, ecn: Some(EcnCodepoint::Ect0), data: &[0; 100] };
        outbox.push(marked, 2);
        assert_eq!(batches(&outbox), [(1, 2, 200), (1, 1, 100), (1, 1, 100)]);
        let mut outbox = Outbox::default();
        for _ in 0..64 {
            push(&mut outbox, 1, 1472, 64);
        }
        assert_eq!(batches(&outbox), [(1, 44, 44 * 1472), (1, 20, 20 * 1472)]);
    }

    #[test]
    fn a_probe_for_the_mtu_leaves_alone() {
        let mut outbox = Outbox::default();
        for len in [1300, 1300, 700, 1452, 1300, 1300] {
            push(&mut outbox, 1, len, 64);
        }
        assert_eq!(batches(&outbox), [(1, 3, 3300), (1, 1, 1452), (1, 2, 2600)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut outbox = Outbox::default();
        for _ in 0..10_000 {
            push(&mut outbox, 1, 1200, 64);
        }
        assert!(outbox.bytes <= MAX_BACKLOG && outbox.overflowed > 0);
    }

    #[test]
    fn a_queue_that_is_full_is_waited_for_and_one_that_stands_still_is_not() {
        let (mut outbox, start) = (Outbox::default(), Instant::now());
        push(&mut outbox, 1, 100, 1);
        push(&mut outbox, 2, 100, 1);
        // It has room again after a while; nothing is lost, nor tried before its time.
        outbox.flush_by(start, |_| Sending::Short);
        assert_eq!((outbox.due(), outbox.is_blocked()), (Some(start + SHORT_WAIT), false));
        outbox.flush_by(start, |_| panic!("too early"));
        outbox.flush_by(start + SHORT_WAIT, |_| Sending::Short);
        assert_eq!(outbox.due(), Some(start + 3 * SHORT_WAIT));
        let mut sent = 0;
        outbox.flush_by(start + 3 * SHORT_WAIT, |_| {
            sent += 1;
            Sending::Done
        });
        assert_eq!((sent, outbox.is_empty(), outbox.due()), (2, true, None));

        // It never has: a few calls for each datagram, one for those that follow.
        let (mut now, mut calls) = (start, 0);
        for _ in 0..20 {
            push(&mut outbox, 1, 100, 1);
        }
        while !outbox.is_empty() {
            outbox.flush_by(now, |_| {
                calls += 1;
                Sending::Short
            });
            let due = outbox.due().expect("a time");
            assert!(due > now && due <= now + SHORT_WAIT * (1 << LONGEST_WAIT));
            now = due;
        }
        assert_eq!(calls, MOST_REFUSALS + 20);
        assert_eq!(outbox.bytes, 0);
    }

    #[tokio::test]
    async fn a_batch_arrives_datagram_by_datagram() {
        let open = || Socket::open(address(0), None, Bind::Address(address(0)), 1 << 20).expect("loopback");
        let (from, to) = (open(), open());
        let mut outbox = Outbox::default();
        for n in 0..10u8 {
            let data = vec![n; if n == 9 { 50 } else { 1000 }];
            let datagram = Datagram { remote: to.address, source: None, ecn: Some(EcnCodepoint::Ect0), data: &data };
            outbox.push(datagram, from.max_segments());
        }
        let (mut buffers, mut seen) = (ReceiveBuffers::new(), Vec::new());
        while seen.len() < 10 {
            outbox.flush(&from);
            if outbox.is_blocked() {
                std::future::poll_fn(|cx| from.poll_writable(cx)).await;
                continue;
            }
            std::future::poll_fn(|cx| to.poll_readable(cx)).await;
            let Ok(n) = to.receive(&mut buffers, false) else { continue };
            for received in buffers.received(n) {
                assert_eq!(received.remote, from.address);
                assert_eq!(received.ecn, Some(EcnCodepoint::Ect0));
                seen.extend(received.datagrams.map(|d| (d[0], d.len())));
            }
        }
        assert_eq!(seen, (0..10).map(|n| (n, if n == 9 { 50 } else { 1000 })).collect::<Vec<_>>());
    }
}
