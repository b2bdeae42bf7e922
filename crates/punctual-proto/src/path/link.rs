//! The station with its controller over one link in virtual time, for tests: what leaves, arrives, is acknowledged and is reported is
//! told as a session tells it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::congestion::{Controller, ControllerFactory};

use super::{Path, Reported};
use crate::{
    Redundancy,
    base::PathId,
    clock::{Unwrapper, wire},
    congestion::{
        self,
        steering::{Panel, SteeredFactory, Steering},
    },
    frame::Arrival,
    limits::Limits,
    network::{LocalId, NetworkPath},
    receive::feedback::Feedback,
    redundancy, schedule,
    send::store::Store,
};

const MTU: u16 = 1_200;
const INITIAL_WINDOW: u64 = 12_000;
/// Packets sent so much later than this one and acknowledged tell that it is lost (RFC 9002).
const REORDERING: u64 = 3;
/// How often QUIC's timer looks, and how long ago a packet must have left to be given up, though none behind it has been acknowledged.
const PATIENCE: Duration = Duration::from_secs(1);
/// The receiver's clock is ahead by so much, microseconds.
const AHEAD: u64 = 3 * 3_600_000_000;

/// One link: what it is made of may be changed while it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes a second.
    pub(super) rate: f64,
    pub(super) rtt: Duration,
    /// Bytes.
    pub(super) queue: f64,
    /// Packets are later by up to so much on their way there, answers on their way back; both stay in order.
    pub(super) jitter: (Duration, Duration),
    /// Of a hundred packets so many are lost by chance.
    pub(super) loss_percent: u64,
    /// Bytes a second, and at once, that a policer lets through.
    pub(super) policer: Option<(f64, f64)>,
    /// Seconds of queue from which packets are marked.
    pub(super) mark_above: Option<f64>,
}

impl Link {
    /// 20 Mbit/s, 40 ms, two bandwidth-delay products of queue.
    pub(super) const PLAIN: Self = Self {
        rate: 2.5e6,
        rtt: Duration::from_millis(40),
        queue: 200e3,
        jitter: (Duration::ZERO, Duration::ZERO),
        loss_percent: 0,
        policer: None,
        mark_above: None,
    };
}

/// What an application hands over: so many packets every so often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supply {
    pub(super) packets: u64,
    pub(super) every: Duration,
}

/// A sender, and its receiver.
struct Flow {
    path: Path,
    /// QUIC's controller, which does no more than count.
    quic: Box<dyn Controller>,
    steering: Arc<Steering>,
    store: Store,
    from: Duration,
    supply: Option<Supply>,
    /// Packets that wait to be sent.
    waiting: u64,
    next_pn: u64,
    open: VecDeque<(u64, Duration)>,
    in_flight: u64,
    delivered: u64,
    sent: u64,
    lost: u64,
    receiver: Feedback,
    reported: Unwrapper,
}

/// What happens to a flow.
enum Happening {
    Supply,
    Arrival {
        pn: u64,
        sent: Duration,
        arrival: Arrival,
    },
    ReportDue,
    Acked {
        pn: u64,
        sent: Duration,
    },
    Report(Vec<Arrival>),
    /// Of what left so long ago nothing will be heard.
    Timer,
}

/// Flows and the link they share.
pub(super) struct Bottleneck {
    pub(super) link: Link,
    start: Instant,
    now: Duration,
    /// When the link has sent all that it was given.
    free: Duration,
    tokens: (f64, Duration),
    /// When the last packet came there, and the last answer came back.
    came: (Duration, Duration),
    chance: u64,
    flows: Vec<Flow>,
    /// What is to come, and in which order of what comes at once.
    coming: BTreeMap<(Duration, u64), (usize, Happening)>,
    happenings: u64,
    /// The queues, seconds, that packets found.
    waits: Vec<f64>,
    /// What receivers make of their reports.
    lie: Option<fn(&mut Vec<Arrival>)>,
}

impl Bottleneck {
    /// Flows without end that begin at these seconds.
    pub(super) fn new(link: Link, from: &[f64]) -> Self {
        let start = Instant::now();
        Self {
            link,
            start,
            now: Duration::ZERO,
            free: Duration::ZERO,
            tokens: (f64::MAX, Duration::ZERO),
            came: (Duration::ZERO, Duration::ZERO),
            chance: 7,
            flows: from.iter().map(|from| Flow::new(start, Duration::from_secs_f64(*from), &link)).collect(),
            coming: BTreeMap::new(),
            happenings: 0,
            waits: Vec::new(),
            lie: None,
        }
    }

    /// The same, with receivers that report what they like.
    pub(super) fn lying(link: Link, from: &[f64], lie: fn(&mut Vec<Arrival>)) -> Self {
        Self { lie: Some(lie), ..Self::new(link, from) }
    }

    /// One flow that sends what it is given.
    pub(super) fn supplied(link: Link, supply: Supply) -> Self {
        let mut bottleneck = Self::new(link, &[0.0]);
        bottleneck.supply(supply);
        bottleneck.comes(Duration::ZERO, 0, Happening::Supply);
        bottleneck.comes(PATIENCE, 0, Happening::Timer);
        bottleneck
    }

    /// Changes what the flow is given from now on.
    pub(super) fn supply(&mut self, supply: Supply) {
        self.flows[0].supply = Some(supply);
        self.flows[0].waiting = 0;
    }

    /// Others hand over so many bytes now, as far as there is room for them.
    pub(super) fn others(&mut self, bytes: f64) {
        let waits = self.free.saturating_sub(self.now).as_secs_f64() * self.link.rate;
        let bytes = bytes.min(self.link.queue - waits).max(0.0);
        self.free = self.free.max(self.now) + Duration::from_secs_f64(bytes / self.link.rate);
    }

    /// What the path of the first flow is taken to carry, bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.flows[0].path.rate.bytes_per_second()
    }

    /// How fast the first flow may send.
    pub(super) fn pace(&self) -> f64 {
        let path = &self.flows[0].path;
        let state = path.state(&path.reading());
        path.driver.as_ref().map_or(0.0, |driver| driver.pace(self.start + self.now, &state).bytes_per_second())
    }

    /// Runs for so many seconds; what each flow delivered meanwhile, bytes a second.
    pub(super) fn run(&mut self, seconds: f64) -> Vec<f64> {
        let until = self.now + Duration::from_secs_f64(seconds);
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        self.waits.clear();
        self.flows.iter_mut().for_each(|flow| (flow.sent, flow.lost) = (0, 0));
        loop {
            let next = self.coming.first_key_value().map(|(&(at, _), _)| at);
            let ready = |(index, flow): (usize, &Flow)| Some((flow.ready_at(self.start, self.now)?, index));
            let send = self.flows.iter().enumerate().filter_map(ready).min();
            match (next, send) {
                (Some(at), send) if send.is_none_or(|(send, _)| at <= send) && at <= until => self.happen(),
                (_, Some((at, index))) if at <= until => self.send(at, index),
                _ => break,
            }
        }
        self.now = until;
        self.flows.iter().zip(before).map(|(flow, before)| (flow.delivered - before) as f64 / seconds).collect()
    }

    /// What the first flow has sent in the last run, of so many seconds, bytes a second.
    pub(super) fn sent(&self, seconds: f64) -> f64 {
        (self.flows[0].sent * u64::from(MTU)) as f64 / seconds
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

    /// Their mean.
    pub(super) fn mean_wait(&self) -> f64 {
        self.waits.iter().sum::<f64>() / self.waits.len() as f64
    }

    fn comes(&mut self, at: Duration, index: usize, happening: Happening) {
        self.happenings += 1;
        self.coming.insert((at, self.happenings), (index, happening));
    }

    fn send(&mut self, at: Duration, index: usize) {
        self.now = at;
        let (now, bytes) = (self.start + at, f64::from(MTU));
        let (pn, stamp) = self.flows[index].send(now, at);
        let wait = self.free.saturating_sub(at).as_secs_f64();
        let chance = self.chance();
        if !self.passes_policer(at, bytes) || wait * self.link.rate + bytes > self.link.queue {
            return;
        }
        self.waits.push(wait);
        self.free = self.free.max(at) + Duration::from_secs_f64(bytes / self.link.rate);
        if chance % 100 >= self.link.loss_percent {
            let late = self.late(self.link.jitter.0);
            let came = (self.free + self.link.rtt / 2 + late).max(self.came.0);
            self.came.0 = came;
            let ce = self.link.mark_above.is_some_and(|above| wait > above);
            let arrival = Arrival { stamp, received: wire(came.as_micros() as u64 + AHEAD), ce };
            self.comes(came, index, Happening::Arrival { pn, sent: at, arrival });
        }
    }

    /// By an LCG: the same every time.
    fn chance(&mut self) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.chance >> 33
    }

    /// Anything up to so much.
    fn late(&mut self, most: Duration) -> Duration {
        if most.is_zero() { most } else { most.mul_f64((self.chance() % 1_000) as f64 / 1e3) }
    }

    fn passes_policer(&mut self, at: Duration, bytes: f64) -> bool {
        let Some((rate, burst)) = self.link.policer else { return true };
        let (tokens, since) = self.tokens;
        let tokens = (tokens + rate * at.saturating_sub(since).as_secs_f64()).min(burst);
        let passes = tokens >= bytes;
        self.tokens = (if passes { tokens - bytes } else { tokens }, at);
        passes
    }

    fn happen(&mut self) {
        let Some(((at, _), (index, happening))) = self.coming.pop_first() else { return };
        self.now = at;
        let back = at + self.link.rtt / 2 + self.late(self.link.jitter.1);
        let back = back.max(self.came.1);
        let (now, flow) = (self.start + at, &mut self.flows[index]);
        match happening {
            Happening::Supply => {
                let Some(supply) = flow.supply else { return };
                flow.waiting += supply.packets;
                self.comes(at + supply.every, index, Happening::Supply);
            }
            Happening::Arrival { pn, sent, arrival } => {
                flow.receiver.on_arrival(now, arrival, MTU.into(), true);
                let due = flow.receiver.due(self.link.rtt).unwrap_or(now);
                self.came.1 = back;
                self.comes(back, index, Happening::Acked { pn, sent });
                self.comes(due.saturating_duration_since(self.start).max(at), index, Happening::ReportDue);
            }
            Happening::ReportDue => {
                if flow.receiver.due(self.link.rtt).is_some_and(|due| due <= now) {
                    let mut list = flow.receiver.arrivals().to_vec();
                    flow.receiver.on_reported(now, list.len(), 0);
                    if let Some(lie) = self.lie {
                        lie(&mut list);
                    }
                    self.came.1 = back;
                    self.comes(back, index, Happening::Report(list));
                }
            }
            Happening::Timer => {
                flow.on_timer(now, at);
                self.comes(at + PATIENCE, index, Happening::Timer);
            }
            Happening::Acked { pn, sent } => flow.on_acked(now, self.start, pn, sent),
            Happening::Report(list) => flow.on_report(now, at, &list),
        }
    }
}

impl Flow {
    fn new(start: Instant, from: Duration, link: &Link) -> Self {
        let steering = Steering::new();
        let inner = congestion::quic("cubic").expect("it is in the registry")(INITIAL_WINDOW);
        let quic = Arc::new(SteeredFactory::new(inner, steering.clone())).build(start, MTU);
        let panel = Panel::of(&*quic).expect("it is one of ours");
        let driver = congestion::default_congestion().driver(0, INITIAL_WINDOW);
        let network = NetworkPath { local: LocalId(0), remote: ([192, 0, 2, 1], 443).into() };
        let names = (PathId(0), noq_proto::PathId::ZERO);
        let mut path = Path::new(names, network, panel, driver, start, start, link.rtt);
        path.on_validated(start, None);
        let (scheduler, policy) = (schedule::default_factory()(), redundancy::default_factory()());
        Self {
            path,
            quic,
            steering,
            store: Store::new(Limits::default(), scheduler, Redundancy::Auto, policy),
            from,
            supply: None,
            waiting: u64::MAX,
            next_pn: 0,
            open: VecDeque::new(),
            in_flight: 0,
            delivered: 0,
            sent: 0,
            lost: 0,
            receiver: Feedback::default(),
            reported: Unwrapper::default(),
        }
    }

    /// When it can send the next packet, as things stand.
    fn ready_at(&self, start: Instant, now: Duration) -> Option<Duration> {
        if self.waiting == 0 {
            return None;
        }
        let at = now.max(self.from);
        let view = self.path.view(start + at, None, true);
        if view.ready { Some(at) } else { view.ready_at.map(|ready| ready - start) }
    }

    fn send(&mut self, now: Instant, at: Duration) -> (u64, u32) {
        let pn = self.next_pn;
        self.next_pn += 1;
        self.sent += 1;
        self.in_flight += u64::from(MTU);
        self.open.push_back((pn, at));
        self.quic.on_packet_sent(now, MTU, pn);
        self.steering.take_log(&mut Vec::new());
        self.path.on_sent(pn, MTU, now, false);
        let stamp = wire(self.path.stamp(at.as_micros() as u64));
        self.path.on_stamped(pn, stamp);
        if self.supply.is_some() {
            self.waiting -= 1;
            self.path.set_limited(self.waiting == 0, false);
        }
        (pn, stamp)
    }

    fn on_acked(&mut self, now: Instant, start: Instant, pn: u64, sent: Duration) {
        // A path that has become shorter lets packets overtake; one that was given up may come after all.
        let Some(position) = self.open.iter().position(|&(open, _)| open == pn) else { return };
        self.open.remove(position);
        self.in_flight -= u64::from(MTU);
        self.delivered += u64::from(MTU);
        self.quic.on_end_acks(now, self.in_flight, false, Some(pn));
        self.path.on_acked(pn, start + sent, now, &mut self.store);
        self.lose(now, |open, _| open + REORDERING <= pn);
        self.path.follow(now);
    }

    fn on_timer(&mut self, now: Instant, at: Duration) {
        self.lose(now, |_, sent| sent + PATIENCE <= at);
        self.path.follow(now);
    }

    fn lose(&mut self, now: Instant, is_lost: impl Fn(u64, Duration) -> bool) {
        while let Some((lost, _)) = self.open.front().copied().filter(|&(open, sent)| is_lost(open, sent)) {
            self.open.pop_front();
            self.in_flight -= u64::from(MTU);
            self.lost += 1;
            self.quic.on_packet_lost(MTU, lost, now);
            self.path.on_lost(lost, now, &mut self.store);
        }
    }

    fn on_report(&mut self, now: Instant, at: Duration, list: &[Arrival]) {
        let mut reported = |arrival: &Arrival| Reported {
            stamp: arrival.stamp,
            at: self.reported.extend(arrival.received, at.as_micros() as u64),
            ce: arrival.ce,
        };
        let list: Vec<_> = list.iter().map(&mut reported).collect();
        self.path.on_report(now, &list);
    }
}
