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
        if self.packets == 0 {
            self.settle();
            return None;
        }
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

    /// Nothing waits, so all flows are silent: a scheduler that is asked once more finds all queues empty (RFC 8290, section 4.2). Else those that sent one packet each would have their turn
    /// for ever, and there would be room for no others.
    fn settle(&mut self) {
        let tiers = std::mem::take(&mut self.tiers);
        for index in tiers.into_values().flat_map(|tier| tier.thin.into_iter().chain(tier.thick)) {
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
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_millis(200);
    const TIMES: Times = Times { patience: PATIENCE, target: Duration::from_millis(5) };

    fn tcp(port: u16, size: usize, ect: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let packet = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(port, 80, 0, 0);
        packet.write(&mut bytes, &vec![0; size - 60]).unwrap();
        if ect {
            bytes[1] |= 0x20;
        }
        bytes
    }

    fn udp(port: u16, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(port, 80).write(&mut bytes, &vec![0; size - 48]).unwrap();
        bytes
    }

    impl Flows {
        /// All that is kept twice is the same.
        fn check(&self) {
            let queued = |of: fn(&Flow) -> usize| self.all.iter().map(|(_, flow)| of(flow)).sum::<usize>();
            assert_eq!((self.waiting, self.packets), (queued(|flow| flow.bytes), queued(|flow| flow.queue.len())));
            assert!(self.waiting <= self.most_bytes && self.all.len() <= self.most_flows);
            let silent = self.all.iter().filter(|(_, flow)| flow.turn == Turn::Idle);
            let silent: BTreeMap<_, _> = silent.map(|(index, flow)| (flow.silent, index)).collect();
            assert_eq!(silent, self.idle);
            let taken = self.all.iter().filter(|(_, flow)| flow.channel.is_some()).count();
            assert_eq!(taken + self.channels.free.len(), self.channels.used as usize);
            assert_eq!(self.known.len(), self.all.len());
        }
    }

    struct Test {
        flows: Flows,
        classes: Classes,
        now: Instant,
        dropped: Vec<Dropped>,
    }

    impl Test {
        fn new() -> Self {
            let (flows, classes) = (Flows::new(100, 1 << 20), Classes::default());
            Self { flows, classes, now: Instant::now(), dropped: Vec::new() }
        }

        fn push(&mut self, bytes: &[u8]) {
            let packet = Packet::parse(bytes).unwrap();
            let Self { flows, classes, now, dropped } = self;
            flows.push(&packet, bytes, Rest::Nothing, classes, *now, |why| dropped.push(why));
        }

        /// The port and the size of what comes next.
        fn pop(&mut self, room: bool) -> Option<(u16, Next)> {
            let Self { flows, now, dropped, .. } = self;
            let next = flows.pop(room, TIMES, *now, |_, why| dropped.push(why))?;
            let packet = Packet::parse(&next.word[next.at..]).unwrap();
            Some((packet.ports.unwrap().0, next))
        }

        fn ports(&mut self, room: bool) -> Vec<u16> {
            std::iter::from_fn(|| self.pop(room).map(|(port, _)| port)).collect()
        }
    }

    #[test]
    fn flows_take_turns_and_each_keeps_its_order() {
        let mut test = Test::new();
        for size in 0..4 {
            test.push(&tcp(1, 1_500 - size, false));
        }
        test.push(&tcp(2, 1_000, false));
        test.push(&tcp(3, 100, false));
        let mut sizes = Vec::new();
        let order: Vec<u16> = std::iter::from_fn(|| {
            let (port, next) = test.pop(true)?;
            sizes.extend((port == 1).then_some(next.word.len() - next.at));
            Some(port)
        })
        .collect();
        assert_eq!(sizes, [1_500, 1_499, 1_498, 1_497]);
        let last_of_1 = order.iter().rposition(|port| *port == 1).unwrap();
        assert_eq!((order.len(), last_of_1), (6, 5), "{order:?}: others do not wait for a long queue");
        assert!(test.flows.is_idle() && test.flows.waiting == 0);
    }

    #[test]
    fn each_tcp_flow_has_a_channel_and_datagrams_have_none() {
        let mut test = Test::new();
        for packet in [tcp(1, 100, false), tcp(2, 100, false), tcp(1, 100, false), udp(3, 100)] {
            test.push(&packet);
        }
        let mut channels = HashMap::<u16, Vec<_>>::new();
        while let Some((port, next)) = test.pop(true) {
            channels.entry(port).or_default().push(next.channel);
        }
        assert_eq!(channels[&1].len(), 2);
        assert!(channels[&1][0].is_some() && channels[&1][0] == channels[&1][1] && channels[&1] != channels[&2]);
        assert_eq!(channels[&3], [None]);
    }

    #[test]
    fn who_sends_little_does_not_wait_for_room() {
        let mut test = Test::new();
        for _ in 0..20 {
            test.push(&tcp(1, 1_500, false));
        }
        assert_eq!(test.ports(false), [1, 1], "what a new flow has before it is known for what it is");
        test.push(&udp(2, 84));
        assert_eq!(test.ports(false), [2]);
        test.push(&tcp(3, 30_000, false));
        assert_eq!(test.ports(false), Vec::<u16>::new(), "a large packet is no little");
        assert_eq!(test.ports(true).len(), 19);
    }

    #[test]
    fn a_queue_that_stands_is_told_of_by_marks_where_they_are_known_and_by_losses_elsewhere() {
        let run = |ect| {
            let mut test = Test::new();
            let (mut marked, mut came) = (0, 0);
            for _ in 0..20 {
                test.push(&tcp(1, 1_500, ect));
            }
            for _ in 0..1_000 {
                test.push(&tcp(1, 1_500, ect));
                test.now += MS;
                if let Some((_, next)) = test.pop(true) {
                    marked += usize::from(next.marked);
                    came += 1;
                }
            }
            (marked, test.dropped.iter().filter(|why| **why == Dropped::Congestion).count(), came)
        };
        let (marked, lost, _) = run(true);
        assert!(marked > 10 && lost == 0, "{marked}, {lost}");
        let (marked, lost, came) = run(false);
        assert!(marked == 0 && lost >= 5 && came > 900, "{marked}, {lost}, {came}");
    }

    #[test]
    fn what_waited_for_too_long_is_dropped_and_so_is_what_is_too_much() {
        let mut test = Test::new();
        test.push(&tcp(1, 1_500, true));
        test.now += PATIENCE;
        assert!(test.pop(true).is_none());
        assert_eq!(test.dropped, [Dropped::Expired]);
        test.flows.limit(2, 10_000);
        test.dropped.clear();
        for _ in 0..9 {
            test.push(&tcp(1, 1_500, false));
        }
        test.push(&udp(2, 1_500));
        assert_eq!(test.dropped, [Dropped::Overflow; 4], "of the longest queue");
        test.push(&udp(3, 100));
        assert_eq!(test.dropped[4..], [Dropped::Flows], "two there are, and both are busy");
        assert_eq!(test.ports(true).iter().filter(|port| **port == 2).count(), 1);
        test.push(&udp(3, 100));
        assert_eq!((test.ports(true), test.flows.len()), (vec![3], 2), "in the place of one that is idle");
    }

    #[test]
    fn silent_flows_are_forgotten_and_their_channels_used_again() {
        let mut test = Test::new();
        for port in 1..=5 {
            test.push(&tcp(port, 100, false));
            test.ports(true);
            test.now += FORGOTTEN_AFTER / 10;
        }
        // The first is heard of again, and so is not the oldest.
        test.push(&tcp(1, 100, false));
        test.ports(true);
        test.now += FORGOTTEN_AFTER * 9 / 10;
        test.push(&tcp(6, 100, false));
        let (_, next) = test.pop(true).unwrap();
        assert_eq!((test.flows.len(), next.channel), (4, Some(Channel(3))), "two are forgotten at once");
        test.push(&tcp(6, 100, false));
        assert_eq!((test.flows.len(), test.flows.channels.used), (2, 5), "but for the first and the last");
        test.flows.check();
    }

    #[test]
    fn the_books_are_right_whatever_comes() {
        let mut test = Test::new();
        test.flows.limit(20, 20_000);
        let mut draw = 1u32;
        for _ in 0..20_000 {
            // Numerical Recipes' generator: what comes when is arbitrary, and always the same.
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [what, port, size, _] = draw.to_be_bytes();
            match what % 8 {
                0..4 => test.push(&tcp(u16::from(port % 32), 100 + 8 * usize::from(size), what > 127)),
                4 | 5 => test.push(&udp(u16::from(port % 64), 60 + usize::from(size))),
                6 => drop(test.pop(size > 20)),
                _ => test.now += MS * u32::from(size),
            }
            test.flows.check();
        }
        test.now += FORGOTTEN_AFTER;
        while !test.flows.is_idle() {
            test.pop(true);
        }
        assert!(test.pop(false).is_none());
        test.flows.check();
        assert_eq!((test.flows.waiting, test.flows.idle.len()), (0, test.flows.len()));
    }

    #[test]
    fn higher_priorities_go_first() {
        let mut test = Test::new();
        let config = super::super::Config {
            classes: [("first".to_owned(), toml::from_str("priority = 1").unwrap())].into(),
            rules: vec![toml::from_str("class = 'first'\nport = 9").unwrap()],
            ..Default::default()
        };
        test.classes = Classes::of(&config);
        for port in [1, 1, 1, 9, 9, 9] {
            test.push(&udp(port, 1_500));
        }
        assert_eq!(test.ports(true), [9, 9, 9, 1, 1, 1]);
    }
}
