//! What waits to go into a session: a queue for each flow, taken in turns, none of which grows long (FQ-CoDel, RFC 8290).
//!
//! Blocks are handed over only when the session has nearly sent those before, so that packets wait here, where flows do not wait for each other, and where a sender that
//! is too fast hears of it: a packet of a queue that has been too long is marked (ECN) or dropped. A flow that sends little is *thin*: it does not wait for room at all.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use punctual::Channel;
use slab::Slab;

use super::{
    codel::Codel,
    config::{Classes, Treatment, Within},
    packet::{self, Packet, mark_ce},
    segment::Rest,
    wire,
};

/// Bytes that a flow may send before the next has its turn (RFC 8290, section 4.1.2).
const QUANTUM: i64 = 1_514;

/// After so long without a packet a flow is forgotten: it begins anew if another comes. As NATs have it at least for UDP, of which most flows end sooner.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// After so long without a packet a flow is no longer in turn: CoDel's interval. So many flows may begin in that time as there may be.
const SILENT_AFTER: Duration = Duration::from_millis(100);
/// Flows that are forgotten at most when a packet comes: more than can begin.
const FORGOTTEN_AT_ONCE: usize = 2;

/// What packets of one flow have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
    /// Marks say how a packet is to be carried, so a flow has one.
    dscp: u8,
}

impl Key {
    fn of(packet: &Packet) -> Self {
        let Packet { source, destination, protocol, dscp, .. } = *packet;
        // Fragments have no ports but the first, and are to stay together.
        let ports = packet.ports.filter(|_| !packet.is_fragment);
        Self { source, destination, protocol, ports, dscp }
    }
}

/// The flows of one session, and what waits of each.
#[derive(Debug)]
pub(super) struct Flows {
    known: HashMap<Key, usize>,
    all: Slab<Flow>,
    /// By priority, the highest first: those that have something to send.
    tiers: BTreeMap<u8, Tier>,
    /// Flows that have sent nothing lately, in the order in which they fell silent: by [`Flow::silent`]. Whoever opens flows without end must not have us look through all of them.
    idle: BTreeMap<u64, usize>,
    /// Times that a flow fell silent.
    silences: u64,
    /// When it was last looked for flows that have been silent for a while.
    settled: Option<Instant>,
    channels: Channels,
    /// Bytes that wait.
    waiting: usize,
    packets: usize,
    /// The flow with the longest queue, when it was last looked for, and half of what it had: what has more than that is dropped from without another look
    /// (RFC 8290, section 4.1, lets half of it go at once for the same reason).
    longest: (usize, usize),
    /// Flows that there may be,
    most_flows: usize,
    /// and bytes that may wait.
    most_bytes: usize,
}

#[derive(Debug)]
struct Flow {
    /// The headers of the packet that it began with.
    packet: Packet,
    treatment: Arc<Treatment>,
    /// Where its order is kept, if it is.
    channel: Option<Channel>,
    queue: VecDeque<Queued>,
    bytes: usize,
    /// Bytes that it may send in this turn; negative if it has sent more.
    credit: i64,
    turn: Turn,
    codel: Codel,
    used: Instant,
    /// Its place among those that are idle.
    silent: u64,
}

/// Where a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It has sent nothing lately.
    Idle,
    /// Among those that have sent less than a quantum since they were idle,
    Thin,
    /// or among the others.
    Thick,
}

#[derive(Debug, Default)]
struct Tier {
    thin: VecDeque<usize>,
    thick: VecDeque<usize>,
}

#[derive(Debug)]
struct Queued {
    /// A word,
    word: BytesMut,
    /// and where in it the packet begins.
    at: usize,
    came: Instant,
}

/// What may be, by what the paths are like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// How long a packet of TCP may take.
    pub(super) patience: Duration,
    /// How long packets of one flow may wait all the time.
    pub(super) target: Duration,
}

/// A packet whose turn it is.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) word: BytesMut,
    /// Where in the word the packet begins.
    pub(super) at: usize,
    pub(super) treatment: Arc<Treatment>,
    pub(super) channel: Option<Channel>,
    pub(super) came: Instant,
    pub(super) within: Option<Duration>,
    /// Whether it is of a flow that sends little.
    pub(super) thin: bool,
    /// Whether it has been marked.
    pub(super) marked: bool,
}

/// Why a packet did not get its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dropped {
    /// To tell its sender to send less.
    Congestion,
    /// More waits than may.
    Overflow,
    /// It has waited for longer than it may take.
    Expired,
    /// There are as many flows as there may be, and all of them have something to send.
    Flows,
}

impl Dropped {
    /// For metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Congestion => "congestion",
            Self::Overflow => "queue",
            Self::Expired => "expired",
            Self::Flows => "too_many_flows",
        }
    }
}

/// Numbers of channels. A receiver keeps a channel's state for as long as the session lives, so those that are free are used again.
#[derive(Debug, Default)]
struct Channels {
    used: u32,
    free: Vec<Channel>,
}

impl Channels {
    /// One that no flow has; there are as many as flows.
    fn take(&mut self) -> Channel {
        self.free.pop().unwrap_or_else(|| {
            // Channel 0 is the greeting's.
            self.used += 1;
            Channel(self.used)
        })
    }
}

impl Flows {
    pub(super) fn new(most_flows: usize, most_bytes: usize) -> Self {
        Self {
            known: HashMap::new(),
            all: Slab::new(),
            tiers: BTreeMap::new(),
            idle: BTreeMap::new(),
            silences: 0,
            settled: None,
            channels: Channels::default(),
            waiting: 0,
            packets: 0,
            longest: (0, usize::MAX),
            most_flows,
            most_bytes,
        }
    }

    /// Flows that are known.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.packets == 0
    }

    /// Other bounds from now on.
    pub(super) fn limit(&mut self, most_flows: usize, most_bytes: usize) {
        (self.most_flows, self.most_bytes) = (most_flows, most_bytes);
    }

    /// Carries all flows by other classes from now on.
    pub(super) fn reclassify(&mut self, classes: &Classes) {
        self.tiers.clear();
        for (index, flow) in &mut self.all {
            flow.treatment = classes.classify(&flow.packet).clone();
            if flow.treatment.ordered && flow.channel.is_none() {
                flow.channel = Some(self.channels.take());
            }
            let tier = self.tiers.entry(flow.treatment.priority).or_default();
            match flow.turn {
                Turn::Idle => {}
                Turn::Thin => tier.thin.push_back(index),
                Turn::Thick => tier.thick.push_back(index),
            }
        }
    }

    /// Takes a packet in. What had to be dropped for it is told.
    pub(super) fn push(
        &mut self,
        packet: &Packet,
        bytes: &[u8],
        rest: Rest,
        classes: &Classes,
        now: Instant,
        mut dropped: impl FnMut(Dropped),
    ) {
        self.settle(now);
        self.forget_old(now);
        let key = Key::of(packet);
        let Some(index) = self.known.get(&key).copied().or_else(|| self.begin(key, packet, classes, now)) else {
            return dropped(Dropped::Flows);
        };
        let (word, at) = wire::encode(bytes, rest);
        let flow = &mut self.all[index];
        flow.used = now;
        flow.bytes += bytes.len();
        flow.queue.push_back(Queued { word, at, came: now });
        self.waiting += bytes.len();
        self.packets += 1;
        if flow.turn == Turn::Idle {
            self.idle.remove(&flow.silent);
            (flow.turn, flow.credit) = (Turn::Thin, QUANTUM);
            self.tiers.entry(flow.treatment.priority).or_default().thin.push_back(index);
        }
        while self.waiting > self.most_bytes && self.drop_of_longest() {
            dropped(Dropped::Overflow);
        }
    }

    /// Begins a flow, if need be in the place of one that is idle.
    fn begin(&mut self, key: Key, packet: &Packet, classes: &Classes, now: Instant) -> Option<usize> {
        if self.all.len() >= self.most_flows {
            let (_, oldest) = self.idle.pop_first()?;
            self.forget(oldest);
        }
        let treatment = classes.classify(packet).clone();
        let channel = treatment.ordered.then(|| self.channels.take());
        let index = self.all.insert(Flow {
            packet: *packet,
            treatment,
            channel,
            queue: VecDeque::new(),
            bytes: 0,
            credit: 0,
            turn: Turn::Idle,
            codel: Codel::default(),
            used: now,
            silent: 0,
        });
        self.known.insert(key, index);
        self.falls_silent(index);
        Some(index)
    }

    /// A flow has nothing to send.
    fn falls_silent(&mut self, index: usize) {
        self.silences += 1;
        (self.all[index].turn, self.all[index].silent) = (Turn::Idle, self.silences);
        self.idle.insert(self.silences, index);
    }

    /// Forgets flows that have been idle for long.
    fn forget_old(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some((_, index)) = self.idle.first_key_value() else { return };
            if now.saturating_duration_since(self.all[*index].used) < FORGOTTEN_AFTER {
                return;
            }
            if let Some((_, index)) = self.idle.pop_first() {
                self.forget(index);
            }
        }
    }

    /// Forgets a flow, which is no longer among those that are idle.
    fn forget(&mut self, index: usize) {
        let gone = self.all.remove(index);
        self.known.remove(&Key::of(&gone.packet));
        self.channels.free.extend(gone.channel);
    }

    /// Drops a packet of the longest queue, or of one that is more than half as long. `false` if nothing waits.
    fn drop_of_longest(&mut self) -> bool {
        let (index, half) = self.longest;
        if self.all.get(index).is_none_or(|flow| flow.bytes <= half) {
            let longest = self.all.iter().max_by_key(|(_, flow)| flow.bytes);
            self.longest = longest.map_or((0, usize::MAX), |(index, flow)| (index, flow.bytes / 2));
        }
        let Some(flow) = self.all.get_mut(self.longest.0) else { return false };
        let Some(queued) = flow.queue.pop_front() else { return false };
        let size = queued.word.len() - queued.at;
        flow.bytes -= size;
        self.waiting -= size;
        self.packets -= 1;
        true
    }

    /// The packet whose turn it is. If there is no `room`, only of flows that send little. What is dropped meanwhile is told.
    pub(super) fn pop(
        &mut self,
        room: bool,
        Times { patience, target }: Times,
        now: Instant,
        mut dropped: impl FnMut(&Treatment, Dropped),
    ) -> Option<Next> {
        loop {
            let (index, thin) = self.turn(room)?;
            let flow = &mut self.all[index];
            let Some(Queued { mut word, at, came }) = flow.queue.pop_front() else {
                self.rest(index, thin);
                continue;
            };
            let size = word.len() - at;
            flow.bytes -= size;
            self.waiting -= size;
            self.packets -= 1;
            let waited = now.saturating_duration_since(came);
            let within = match flow.treatment.within {
                Within::Whenever => None,
                Within::Time(time) => Some(time),
                Within::Patience => Some(patience),
            };
            if within.is_some_and(|within| waited >= within) {
                dropped(&flow.treatment, Dropped::Expired);
                continue;
            }
            let mut marked = false;
            if flow.codel.tells(waited, flow.bytes, target, now) {
                marked = mark_ce(&mut word[at..]);
                if !marked {
                    dropped(&flow.treatment, Dropped::Congestion);
                    continue;
                }
            }
            flow.credit -= size as i64;
            let treatment = flow.treatment.clone();
            let channel = flow.channel.filter(|_| treatment.ordered);
            return Some(Next { word, at, treatment, channel, came, within, thin, marked });
        }
    }

    /// The flow whose turn it is, and whether it is thin. Those that have used up their turn have had it.
    fn turn(&mut self, room: bool) -> Option<(usize, bool)> {
        for tier in self.tiers.values_mut() {
            while let Some(&index) = tier.thin.front() {
                let flow = &mut self.all[index];
                if flow.credit > 0 {
                    let size = flow.queue.front().map_or(0, |queued| queued.word.len() - queued.at);
                    // What is large is not let pass for little.
                    if size as i64 <= QUANTUM {
                        return Some((index, true));
                    }
                } else {
                    flow.credit += QUANTUM;
                }
                flow.turn = Turn::Thick;
                tier.thin.pop_front();
                tier.thick.push_back(index);
            }
            if !room {
                continue;
            }
            while let Some(&index) = tier.thick.front() {
                let flow = &mut self.all[index];
                if flow.credit > 0 {
                    return Some((index, false));
                }
                flow.credit += QUANTUM;
                tier.thick.rotate_left(1);
            }
        }
        None
    }

    /// Has flows fall silent that have nothing to send, and have had nothing for a while. While something waits, [`rest`](Self::rest) does so in turn; but who asks for packets stops when nothing
    /// waits any more, and those that sent the last would have their turn for ever, and leave room for no others. Not at once: a bulk flow whose queue is empty for a moment would be thin again.
    fn settle(&mut self, now: Instant) {
        if self.settled.is_some_and(|settled| now.saturating_duration_since(settled) < SILENT_AFTER / 10) {
            return;
        }
        self.settled = Some(now);
        let (all, mut silent) = (&self.all, Vec::new());
        for tier in self.tiers.values_mut() {
            for turns in [&mut tier.thin, &mut tier.thick] {
                turns.retain(|index| {
                    let flow = &all[*index];
                    let stays = !flow.queue.is_empty() || now.saturating_duration_since(flow.used) < SILENT_AFTER;
                    if !stays {
                        silent.push(*index);
                    }
                    stays
                });
            }
        }
        for index in silent {
            self.falls_silent(index);
        }
    }

    /// A flow whose turn it is has nothing to send. One that was thin waits for the others once, lest who sends a packet at a time would always go first.
    fn rest(&mut self, index: usize, thin: bool) {
        let flow = &mut self.all[index];
        let Some(tier) = self.tiers.get_mut(&flow.treatment.priority) else { return };
        if thin {
            tier.thin.pop_front();
            flow.turn = Turn::Thick;
            tier.thick.push_back(index);
        } else {
            tier.thick.pop_front();
            self.falls_silent(index);
        }
    }
}

/// The largest word of a packet, bytes.
pub(super) const LARGEST_WORD: u64 = packet::LARGEST as u64 + 5;

#[cfg(test)]
mod tests;
