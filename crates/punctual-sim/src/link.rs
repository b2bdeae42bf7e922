//! One direction of a network: a queue, a wire, and what can go wrong on both.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use bytes::BytesMut;
use punctual_proto::EcnCodepoint;
use rand::RngExt;

use crate::{
    log::{DropCause, LinkEvent},
    loss::{LossState, chance},
    policer::Bucket,
    rate::{Rate, Serializer},
    rng::{Purpose, Random, generator},
    spec::{CorruptionSite, LinkSpec},
};

/// A datagram on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// The UDP payload.
    pub data: BytesMut,
    /// The ECN mark it carries.
    pub ecn: Option<EcnCodepoint>,
    /// Whatever the caller wants to find again when it is delivered.
    pub tag: u64,
}

/// What a link has done so far. Bytes are those of UDP payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets handed to the link.
    pub offered: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that came out, damaged ones and copies included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Copies the link made.
    pub duplicated: u64,
    /// Packets delivered with flipped bits.
    pub damaged: u64,
    /// Packets held back so that others overtook them.
    pub reordered: u64,
    /// Packets marked with ECN CE.
    pub marked: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets that a policer dropped.
    pub policed: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets larger than the MTU.
    pub oversized: u64,
    /// Packets that met a dead link, or were on it when it died.
    pub died: u64,
    /// Most bytes (headers included) that were ever queued, cross traffic's among them.
    pub queue_max: u64,
    /// What others sent over the link; counted nowhere else.
    pub cross: CrossCounters,
}

/// What cross traffic has done to a link so far. Bytes include headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrossCounters {
    /// Packets that came to the link.
    pub offered: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets the link carried.
    pub carried: u64,
    /// Their bytes.
    pub carried_bytes: u64,
    /// Packets that were lost, for whatever reason.
    pub dropped: u64,
}

impl LinkCounters {
    /// Packets that did not come out, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.lost + self.policed + self.overflowed + self.oversized + self.died
    }
}

/// One direction of a network, as a state machine: datagrams and the time go in, datagrams come out when they have
/// arrived.
///
/// ```
/// # use std::time::Duration;
/// use punctual_sim::{Datagram, Link, LinkSpec};
///
/// let ms = Duration::from_millis;
/// let mut link = Link::new(LinkSpec::new(1.0, ms(20)), 42);
/// link.offer(ms(0), Datagram { data: [0; 1222][..].into(), ecn: None, tag: 0 });
/// assert_eq!(link.poll_timeout(), Some(ms(10))); // 1,250 bytes with headers take 10 ms at 1 Mbit/s,
/// assert!(link.poll(ms(29)).is_none());
/// assert!(link.poll(ms(30)).is_some()); // and 20 ms to get there.
/// ```
///
/// A packet passes, in this order: death, MTU, policer, ECN mark and room in the queue as it is offered; serialisation; then
/// loss, duplication, corruption, jitter and reordering as it goes onto the wire (a packet lost on the air has had its
/// share of the capacity); and the wire's delay.
///
/// A packet of [cross traffic](Self::offer_cross) passes as far as the loss. The wire carries any number of packets at
/// once, so what becomes of it there concerns nobody.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    random: Random,
    loss: LossState,
    alive: bool,
    /// Delay and MTU only.
    ideal: bool,
    /// The time from which schedules and traces count.
    origin: Duration,
    bucket: Bucket,
    serializer: Serializer,
    queue: VecDeque<Packet>,
    queue_bytes: u64,
    queue_limit: u64,
    flight: BinaryHeap<Reverse<Flight>>,
    sequence: u64,
    last_arrival: Duration,
    counters: LinkCounters,
    records: Option<Vec<(Duration, LinkEvent, u32)>>,
}

impl Link {
    /// A live link, shaped from time zero on.
    pub fn new(spec: LinkSpec, seed: u64) -> Self {
        Self::with_random(spec, generator(seed, Purpose::Link, 0))
    }

    pub(crate) fn with_random(spec: LinkSpec, random: Random) -> Self {
        Self {
            queue_limit: spec.queue_limit(),
            spec,
            random,
            loss: LossState::default(),
            alive: true,
            ideal: false,
            origin: Duration::ZERO,
            bucket: Bucket::default(),
            serializer: Serializer::default(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            flight: BinaryHeap::new(),
            sequence: 0,
            last_arrival: Duration::ZERO,
            counters: LinkCounters::default(),
            records: None,
        }
    }

    /// A live link with the draws that link `index` of a world with this seed has.
    pub fn numbered(spec: LinkSpec, seed: u64, index: u64) -> Self {
        Self::with_random(spec, generator(seed, Purpose::Link, index))
    }

    /// Delay and MTU only, until it is [shaped](Self::shape): for handshakes, which are no part of what is measured.
    pub fn make_ideal(&mut self) {
        self.ideal = true;
    }

    /// From now on all of the specification holds; schedules, traces and counters begin here.
    pub fn shape(&mut self, now: Duration) {
        self.advance(now);
        self.ideal = false;
        self.origin = now;
        self.bucket = Bucket::default();
        self.serializer = Serializer::default();
        self.counters = LinkCounters { offered: self.inside(), ..LinkCounters::default() };
    }

    /// Takes in a datagram.
    pub fn offer(&mut self, now: Duration, datagram: Datagram) {
        self.advance(now);
        self.counters.offered += 1;
        self.counters.offered_bytes += datagram.data.len() as u64;
        self.record(now, LinkEvent::Offered, &datagram);
        self.enter(now, Packet::Own(datagram));
    }

    /// Takes in a packet of others: so many bytes, headers included. It takes its place in the queue and its time, and
    /// is never seen again.
    pub fn offer_cross(&mut self, now: Duration, bytes: u32) {
        self.advance(now);
        self.counters.cross.offered += 1;
        self.counters.cross.offered_bytes += u64::from(bytes);
        self.enter(now, Packet::Cross(bytes));
    }

    fn enter(&mut self, now: Duration, mut packet: Packet) {
        let size = self.wire_size(&packet);
        if !self.alive {
            return self.dropped(now, DropCause::Death, &packet);
        }
        if size > self.spec.mtu {
            return self.dropped(now, DropCause::Mtu, &packet);
        }
        if let Some(policer) = self.spec.policer.filter(|_| !self.ideal)
            && !self.bucket.passes(&policer, now, size)
        {
            return self.dropped(now, DropCause::Policer, &packet);
        }
        if self.ideal || self.spec.rate == Rate::Unlimited {
            return self.launch(now, packet);
        }
        if let Packet::Own(datagram) = &mut packet
            && self.spec.ecn_threshold.is_some_and(|threshold| self.queue_bytes > threshold)
            && matches!(datagram.ecn, Some(EcnCodepoint::Ect0 | EcnCodepoint::Ect1))
        {
            datagram.ecn = Some(EcnCodepoint::Ce);
            self.counters.marked += 1;
            self.record(now, LinkEvent::Marked, datagram);
        }
        // An empty queue takes any packet, or a small queue would shut the link.
        if self.queue_bytes + u64::from(size) > self.queue_limit && !self.queue.is_empty() {
            return self.dropped(now, DropCause::Queue, &packet);
        }
        self.queue_bytes += u64::from(size);
        self.counters.queue_max = self.counters.queue_max.max(self.queue_bytes);
        self.queue.push_back(packet);
        self.serve(now);
    }

    /// The next datagram that has arrived by `now`, in the order of arrival.
    pub fn poll(&mut self, now: Duration) -> Option<Datagram> {
        self.poll_timed(now).map(|(_, datagram)| datagram)
    }

    /// The same, with the time at which it arrived: for links in real time, which are looked at late.
    pub fn poll_timed(&mut self, now: Duration) -> Option<(Duration, Datagram)> {
        self.advance(now);
        if self.flight.peek()?.0.arrival > now {
            return None;
        }
        let Reverse(flight) = self.flight.pop()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += flight.datagram.data.len() as u64;
        let event = if flight.damaged { LinkEvent::Damaged } else { LinkEvent::Delivered };
        self.record(flight.arrival, event, &flight.datagram);
        Some((flight.arrival, flight.datagram))
    }

    /// When [`poll`](Self::poll) should be called next, if anything is under way.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let departure = self.serializer.done_at().map(|done| self.origin + done);
        let arrival = self.flight.peek().map(|flight| flight.0.arrival);
        departure.into_iter().chain(arrival).min()
    }

    /// Changes the link while it runs. Times in the specification still count from the link's beginning.
    pub fn update(&mut self, now: Duration, change: impl FnOnce(&mut LinkSpec)) {
        self.advance(now);
        let old = self.spec.rate.clone();
        change(&mut self.spec);
        self.queue_limit = self.spec.queue_limit();
        self.serializer.change(&old, &self.spec.rate, now.saturating_sub(self.origin));
        self.advance(now);
    }

    /// The link dies: what is queued or under way is lost, and what is offered, until it is [revived](Self::revive).
    pub fn kill(&mut self, now: Duration) {
        self.advance(now);
        self.alive = false;
        self.serializer.abort();
        self.queue_bytes = 0;
        for packet in std::mem::take(&mut self.queue) {
            self.dropped(now, DropCause::Death, &packet);
        }
        // In the order of arrival, which a heap does not iterate in.
        while let Some(Reverse(flight)) = self.flight.pop() {
            self.dropped(now, DropCause::Death, &Packet::Own(flight.datagram));
        }
    }

    /// A dead link lives again.
    pub fn revive(&mut self) {
        self.alive = true;
    }

    /// Whether it lives.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// What the link is made of.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// What it has done since it was shaped.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Packets queued or under way, cross traffic's not among them. At any time, packets offered and duplicated are
    /// those delivered, dropped and inside.
    pub fn inside(&self) -> u64 {
        let queued = self.queue.iter().filter(|packet| matches!(packet, Packet::Own(_))).count();
        (queued + self.flight.len()) as u64
    }

    /// Bytes queued, headers and cross traffic included.
    pub fn queued_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Starts (or stops) noting every event; [`take_records`](Self::take_records) must be called after every other
    /// call.
    pub fn set_recording(&mut self, recording: bool) {
        self.records = recording.then(Vec::new);
    }

    /// The events since the last call: when, what, and the UDP payload's bytes.
    pub fn take_records(&mut self) -> impl Iterator<Item = (Duration, LinkEvent, u32)> + '_ {
        self.records.iter_mut().flat_map(|records| records.drain(..))
    }

    /// Moves packets whose serialisation is done by `now` onto the wire.
    fn advance(&mut self, now: Duration) {
        while let Some(done) = self.serializer.done_at().map(|done| self.origin + done) {
            if done > now {
                break;
            }
            self.serializer.finish();
            if let Some(packet) = self.queue.pop_front() {
                self.queue_bytes -= u64::from(self.wire_size(&packet));
                self.launch(done, packet);
            }
            self.serve(done);
        }
    }

    /// Begins to send the head of the queue, if nothing is being sent.
    fn serve(&mut self, now: Duration) {
        if let (true, Some(head)) = (self.serializer.is_idle(), self.queue.front()) {
            let size = self.wire_size(head);
            self.serializer.start(&self.spec.rate, now.saturating_sub(self.origin), size);
        }
    }

    /// Puts a packet on the wire.
    fn launch(&mut self, now: Duration, packet: Packet) {
        let phase = now.saturating_sub(self.origin);
        if !self.ideal && self.loss.draw(self.spec.loss.at(phase), &mut self.random) {
            return self.dropped(now, DropCause::Loss, &packet);
        }
        let datagram = match packet {
            Packet::Own(datagram) => datagram,
            Packet::Cross(bytes) => {
                self.counters.cross.carried += 1;
                self.counters.cross.carried_bytes += u64::from(bytes);
                return;
            }
        };
        if self.ideal {
            return self.fly(now, datagram, false);
        }
        let copy = chance(self.spec.duplication, &mut self.random).then(|| datagram.clone());
        self.damage_and_fly(now, datagram);
        if let Some(copy) = copy {
            self.counters.duplicated += 1;
            self.record(now, LinkEvent::Duplicated, &copy);
            self.damage_and_fly(now, copy);
        }
    }

    fn damage_and_fly(&mut self, now: Duration, mut datagram: Datagram) {
        let corruption = self.spec.corruption;
        let damaged = chance(corruption.probability, &mut self.random) && !datagram.data.is_empty();
        if damaged {
            let first = match corruption.site {
                CorruptionSite::Tag => datagram.data.len().saturating_sub(16),
                CorruptionSite::Anywhere => 0,
            };
            let bit = self.random.random_range(first * 8..datagram.data.len() * 8);
            datagram.data[bit / 8] ^= 1 << (bit % 8);
            self.counters.damaged += 1;
        }
        self.fly(now, datagram, damaged);
    }

    /// The wire's delay; packets keep their order unless they are singled out for reordering.
    fn fly(&mut self, now: Duration, datagram: Datagram, damaged: bool) {
        let mut arrival = now + *self.spec.delay.at(now.saturating_sub(self.origin));
        if !self.ideal {
            arrival += self.spec.jitter.draw(&mut self.random);
        }
        if !self.ideal && chance(self.spec.reordering.probability, &mut self.random) {
            arrival = arrival.max(self.last_arrival) + self.spec.reordering.delay;
            self.counters.reordered += 1;
        } else {
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        self.sequence += 1;
        self.flight.push(Reverse(Flight { arrival, sequence: self.sequence, damaged, datagram }));
    }

    fn dropped(&mut self, now: Duration, cause: DropCause, packet: &Packet) {
        let Packet::Own(datagram) = packet else {
            self.counters.cross.dropped += 1;
            return;
        };
        *match cause {
            DropCause::Loss => &mut self.counters.lost,
            DropCause::Policer => &mut self.counters.policed,
            DropCause::Queue => &mut self.counters.overflowed,
            DropCause::Mtu => &mut self.counters.oversized,
            DropCause::Death => &mut self.counters.died,
        } += 1;
        self.record(now, LinkEvent::Dropped(cause), datagram);
    }

    fn record(&mut self, now: Duration, event: LinkEvent, datagram: &Datagram) {
        if let Some(records) = &mut self.records {
            records.push((now, event, datagram.data.len() as u32));
        }
    }

    fn wire_size(&self, packet: &Packet) -> u32 {
        match packet {
            Packet::Own(datagram) => datagram.data.len() as u32 + self.spec.overhead,
            Packet::Cross(bytes) => *bytes,
        }
    }
}

/// What can wait for a link.
#[derive(Debug)]
enum Packet {
    /// It has somewhere to go.
    Own(Datagram),
    /// Cross traffic: so many bytes, headers included.
    Cross(u32),
}

/// A packet on the wire.
#[derive(Debug)]
struct Flight {
    arrival: Duration,
    sequence: u64,
    damaged: bool,
    datagram: Datagram,
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Flight {}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival, self.sequence).cmp(&(other.arrival, other.sequence))
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
