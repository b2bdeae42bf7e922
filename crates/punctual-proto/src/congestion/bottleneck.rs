//! Our controllers over one bottleneck in virtual time, for tests.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::{Duration, Instant},
};

use noq_proto::congestion::Controller;

use super::steady::Steady;

const MTU: u16 = 1_200;
const INITIAL_WINDOW: u64 = 12_000;
/// Packets sent so much later than this one and acknowledged tell that it is lost (RFC 9002).
const REORDERING: u64 = 3;

/// One link: what it is made of may be changed while it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// Bytes a second.
    pub(super) rate: f64,
    pub(super) rtt: Duration,
    /// Bytes.
    pub(super) queue: f64,
    /// Of a hundred packets so many are lost by chance.
    pub(super) loss_percent: u64,
    /// Bytes a second, and at once, that a policer lets through.
    pub(super) policer: Option<(f64, f64)>,
    /// Seconds of queue from which packets are marked.
    pub(super) mark_above: Option<f64>,
}

impl Path {
    /// 20 Mbit/s, 40 ms, two bandwidth-delay products of queue.
    pub(super) const PLAIN: Self = Self {
        rate: 2.5e6,
        rtt: Duration::from_millis(40),
        queue: 200e3,
        loss_percent: 0,
        policer: None,
        mark_above: None,
    };
}

/// A sender that always has data.
struct Flow {
    steady: Steady,
    from: Duration,
    next_send: Duration,
    next_pn: u64,
    in_flight: u64,
    open: VecDeque<(u64, Duration)>,
    delivered: u64,
    sent: u64,
    lost: u64,
}

/// When an acknowledgement arrives, its flow, packet, when that was sent, and whether it was marked.
type Answer = (Duration, usize, u64, Duration, bool);

/// Flows and the link they share.
pub(super) struct Bottleneck {
    pub(super) path: Path,
    start: Instant,
    now: Duration,
    /// When the link has sent all that it was given.
    free: Duration,
    tokens: (f64, Duration),
    chance: u64,
    flows: Vec<Flow>,
    /// Acknowledgements on their way.
    answers: BinaryHeap<Reverse<Answer>>,
    /// The queues, seconds, that packets found.
    pub(super) waits: Vec<f64>,
}

impl Bottleneck {
    /// Flows that begin at these seconds.
    pub(super) fn new(path: Path, from: &[f64]) -> Self {
        let start = Instant::now();
        let flow = |from: &f64| Flow {
            steady: Steady::new(INITIAL_WINDOW, MTU, start),
            from: Duration::from_secs_f64(*from),
            next_send: Duration::from_secs_f64(*from),
            next_pn: 0,
            in_flight: 0,
            open: VecDeque::new(),
            delivered: 0,
            sent: 0,
            lost: 0,
        };
        Self {
            path,
            start,
            now: Duration::ZERO,
            free: Duration::ZERO,
            tokens: (f64::MAX, Duration::ZERO),
            chance: 7,
            flows: from.iter().map(flow).collect(),
            answers: BinaryHeap::new(),
            waits: Vec::new(),
        }
    }

    /// Runs for so many seconds; what each flow delivered meanwhile, bytes a second.
    pub(super) fn run(&mut self, seconds: f64) -> Vec<f64> {
        let until = self.now + Duration::from_secs_f64(seconds);
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        self.waits.clear();
        self.flows.iter_mut().for_each(|flow| (flow.sent, flow.lost) = (0, 0));
        loop {
            let answer = self.answers.peek().map(|answer| answer.0.0);
            let room = |flow: &Flow| flow.in_flight + u64::from(MTU) <= flow.steady.window();
            let send = (0..self.flows.len())
                .filter(|&index| room(&self.flows[index]))
                .map(|index| (self.flows[index].next_send.max(self.now).max(self.flows[index].from), index))
                .min();
            match (answer, send) {
                (Some(at), send) if send.is_none_or(|(send, _)| at <= send) && at <= until => self.answer(),
                (_, Some((at, index))) if at <= until => self.send(at, index),
                _ => break,
            }
        }
        self.now = until;
        self.flows.iter().zip(before).map(|(flow, before)| (flow.delivered - before) as f64 / seconds).collect()
    }

    /// The share of packets that all flows lost in the last run.
    pub(super) fn lost(&self) -> f64 {
        let (sent, lost) = self.flows.iter().fold((0, 0), |(sent, lost), flow| (sent + flow.sent, lost + flow.lost));
        lost as f64 / sent.max(1) as f64
    }

    /// The 95th percentile of the waits in the last run, seconds.
    pub(super) fn wait_p95(&mut self) -> f64 {
        self.waits.sort_unstable_by(f64::total_cmp);
        self.waits[self.waits.len() * 95 / 100]
    }

    fn send(&mut self, at: Duration, index: usize) {
        self.now = at;
        let flow = &mut self.flows[index];
        let (pn, bytes) = (flow.next_pn, f64::from(MTU));
        flow.steady.on_packet_sent(self.start + at, MTU, pn);
        flow.next_pn += 1;
        flow.sent += 1;
        flow.in_flight += u64::from(MTU);
        flow.open.push_back((pn, at));
        let rate = flow.steady.metrics().pacing_rate.map_or(f64::MAX, |rate| rate as f64);
        flow.next_send = flow.next_send.max(at.saturating_sub(Duration::from_millis(2)))
            + Duration::from_secs_f64((bytes / rate).min(1.0));
        let wait = self.free.saturating_sub(at).as_secs_f64();
        // An LCG: the same every time.
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if !self.passes_policer(at, bytes) || wait * self.path.rate + bytes > self.path.queue {
            return;
        }
        self.waits.push(wait);
        self.free = self.free.max(at) + Duration::from_secs_f64(bytes / self.path.rate);
        if (self.chance >> 33) % 100 >= self.path.loss_percent {
            let marked = self.path.mark_above.is_some_and(|above| wait > above);
            self.answers.push(Reverse((self.free + self.path.rtt, index, pn, at, marked)));
        }
    }

    fn passes_policer(&mut self, at: Duration, bytes: f64) -> bool {
        let Some((rate, burst)) = self.path.policer else { return true };
        let (tokens, since) = self.tokens;
        let tokens = (tokens + rate * at.saturating_sub(since).as_secs_f64()).min(burst);
        let passes = tokens >= bytes;
        self.tokens = (if passes { tokens - bytes } else { tokens }, at);
        passes
    }

    fn answer(&mut self) {
        let Some(Reverse((at, index, pn, sent, marked))) = self.answers.pop() else { return };
        self.now = at;
        let (now, flow) = (self.start + at, &mut self.flows[index]);
        // A path that has become shorter lets packets overtake; one that was given up may come after all.
        let Some(position) = flow.open.iter().position(|&(open, _)| open == pn) else { return };
        flow.open.remove(position);
        flow.in_flight -= u64::from(MTU);
        flow.delivered += u64::from(MTU);
        flow.steady.acked(now, self.start + sent, u64::from(MTU), pn, false);
        while let Some((lost, _)) = flow.open.front().copied().filter(|(open, _)| open + REORDERING <= pn) {
            flow.open.pop_front();
            flow.in_flight -= u64::from(MTU);
            flow.lost += 1;
            flow.steady.on_packet_lost(MTU, lost, now);
        }
        if marked {
            flow.steady.on_congestion_event(now, self.start + sent, false, true, 0, pn);
        }
        flow.steady.on_end_acks(now, flow.in_flight, false, Some(pn));
    }
}
