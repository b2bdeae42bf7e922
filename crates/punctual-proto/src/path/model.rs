//! What a path is like: the one owner of it, fed by what leaves, by the receiver's reports of what came, and by QUIC's ACKs.

use std::time::{Duration, Instant};

use super::{
    backlog::Backlog,
    floor::Floor,
    law::Law,
    level::{Level, Step},
    log::{Fate, Place, Sent, SentLog},
    overflow::Overflow,
    service::{Arrived, Found, Service},
    sharing::Delays,
};
use crate::{base::Awaited, congestion::Report, least::Least, rate::Rate};

/// How long the shortest way back is believed, or up to twice as long. Nothing but timers hangs on it.
const WAY_BACK_MEMORY: Duration = Duration::from_millis(500);
/// The pace of a queue is that of the last so much of service, and of a round trip at least.
const SERVICE_MEMORY: Duration = Duration::from_millis(50);
/// Packets are remembered for this long, and four round trips: their neighbours' fates may be asked for.
const LOG_MEMORY: Duration = Duration::from_millis(100);
/// The latest time on a receiver's clock that is told from later ones, microseconds: differences of any two fit in 64 bits.
const FARTHEST: u64 = 1 << 62;
/// The share of packets that arrive no later than the forecast and [`spread`](Model::spread).
const SPREAD: f64 = 0.95;
/// The share of answers that come within [`answer`](Model::answer).
const ANSWERED: f64 = 0.99;
/// With fewer answers than this, more than they have shown must be expected.
const FEW: u64 = 16;
/// What is in flight on a path of which nothing is known is not missed before it would be there at this pace, bytes a second. Of 150 starts on slow links twice that mends half as many.
const SLOWEST: u64 = 30_000;
/// Of a path with more packets behind one that is acknowledged reports tell sooner, and better.
const MOST_BEHIND: usize = 128;

/// A packet's arrival, as the receiver reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported {
    pub(crate) stamp: u32,
    /// On the receiver's clock, microseconds.
    pub(crate) at: u64,
    pub(crate) ce: bool,
}

/// What a path is like.
#[derive(Debug)]
pub(crate) struct Model {
    /// Session's clock: what stamps count from.
    epoch: Instant,
    log: SentLog,
    /// By how many microseconds the last report's packets were off their forecast at least, and the last of them to arrive.
    error: Option<(i64, u64)>,
    floor: Floor,
    service: Service,
    level: Level,
    backlog: Backlog,
    overflow: Overflow,
    met: Delays,
    /// The shortest queue that packets of the last report found, and when that came.
    found: Option<(Duration, Instant)>,
    /// Arrivals later than forecast.
    lateness: Law,
    /// Answers later than forecast.
    delays: Law,
    /// The round trip but for the queue on the way there.
    base: Least<Duration>,
    /// The same on average.
    usual: Option<Duration>,
    initial_rtt: Duration,
    /// Smoothed round trip, and its mean deviation.
    rtt: Option<(Duration, Duration)>,
    /// When packets were last acknowledged, the least of their round trips, and the packet it is of.
    answer: Option<(Instant, Duration, u64)>,
}

impl Model {
    pub(crate) fn new(now: Instant, epoch: Instant, initial_rtt: Duration) -> Self {
        Self {
            epoch,
            log: SentLog::default(),
            error: None,
            floor: Floor::default(),
            service: Service::default(),
            level: Level::default(),
            backlog: Backlog::new(now),
            overflow: Overflow::default(),
            met: Delays::default(),
            found: None,
            lateness: Law::of(SPREAD),
            delays: Law::of(ANSWERED),
            base: Least::over(WAY_BACK_MEMORY),
            usual: None,
            initial_rtt,
            rtt: None,
            answer: None,
        }
    }

    /// A packet leaves, on a path that carries `rate`. Returns how long it is expected to wait.
    pub(crate) fn on_sent(&mut self, pn: u64, bytes: u16, at: Instant, rate: Rate) -> Duration {
        let (wait, rested) = self.backlog.on_sent(at, bytes, rate);
        // Before anything is known of the path's rate, only an answer tells that nothing waits.
        let clean = rested && (self.service.rate().is_some() || self.log.is_settled());
        self.log.push(Sent::new(pn, at, bytes, wait, clean));
        wait
    }

    /// That packet had a stamp.
    pub(crate) fn on_stamped(&mut self, pn: u64, stamp: u32) {
        self.log.set_stamp(pn, stamp);
    }

    /// The receiver reports arrivals, in their order. What follows from the report for what the path is taken to carry is
    /// to be told by [`correct`](Self::correct).
    pub(crate) fn on_report(&mut self, now: Instant, list: &[Reported]) -> Option<Report> {
        let memory = SERVICE_MEMORY.max(self.base_rtt());
        let mut report: Option<Report> = None;
        // The least error of the forecast: what jitter adds to most packets, it does not add to all.
        let mut error: Option<(i64, u64)> = None;
        for reported in list {
            let Some(place) = self.log.find(reported.stamp) else { continue };
            let Some(&sent) = self.log.get(place) else { continue };
            let left = self.micros(sent.at);
            // A receiver may say any time. Beyond this, which is in 146,000 years, its clock stands still.
            let at = (reported.at.min(FARTHEST)).cast_signed();
            let delay = at - left;
            // Nothing waits longer than it has been under way, nor saves more than a round trip: a clock has jumped, or one of the hosts has slept.
            let (under_way, rtt) = (now.saturating_duration_since(sent.at), self.base_rtt());
            let possible = -(rtt.as_micros() as i64)..=under_way.as_micros() as i64;
            if self.floor.of(sent.bytes).is_some_and(|floor| !possible.contains(&(delay - floor))) {
                self.floor.clear();
                self.service.clear();
                self.level = Level::default();
            }
            let empty = left + self.floor.of(sent.bytes).unwrap_or(delay);
            let arrived = Arrived { at, empty, bytes: sent.bytes };
            let found = self.service.on_arrival(arrived, self.floor.jitter(), memory);
            // The forecast may be wrong; but a link that was idle had no queue.
            let clean = sent.clean && found == Found::Idle;
            let (queue, longer) = self.floor.add(sent.bytes, delay, clean, now);
            if longer {
                // The round trip has become as much longer.
                let before = Duration::from_micros((arrived.at - empty).max(0).cast_unsigned());
                self.lengthen(before.saturating_sub(queue), now);
            }
            let step = Step { sent: sent.at, before: sent.before, queue, marked: reported.ce };
            let queue = match self.level.on_arrival(step, &mut self.service) {
                None => queue,
                Some(by) => {
                    self.raise_floor(by, now);
                    queue.saturating_sub(by)
                }
            };
            let served = found == Found::Queue;
            self.lateness.add(queue.saturating_sub(sent.wait));
            self.overflow.on_arrived(queue, now);
            self.met.add(left.cast_unsigned(), queue, sent.wait);
            if let Some(sent) = self.log.get_mut(place) {
                sent.fate = Fate::Arrived(queue);
            }
            if let Some(rtt) = sent.answered {
                self.note_way_back(rtt.saturating_sub(queue), now);
            }
            let off = queue.as_micros() as i64 - sent.wait.as_micros() as i64;
            // What was in the queue tells its length; of the others only the least delayed.
            let least = error.map_or(off, |(least, _): (i64, u64)| least.min(off));
            error = Some((if served { off } else { least }, place));
            let report = report.get_or_insert(Report {
                now,
                packets: 0,
                bytes: 0,
                marked: 0,
                sent: sent.at,
                arrived: (reported.at, reported.at),
                queue,
                longest: queue,
                service: None,
                swift: Rate::ZERO,
                served: false,
                uneven: false,
            });
            report.packets += 1;
            report.bytes += u64::from(sent.bytes);
            report.marked += u64::from(reported.ce);
            report.sent = report.sent.max(sent.at);
            report.arrived = (report.arrived.0.min(reported.at), report.arrived.1.max(reported.at));
            report.queue = report.queue.min(queue);
            report.longest = report.longest.max(queue);
            report.served |= served;
        }
        self.error = error;
        self.found = report.as_ref().map(|report| (report.queue, now)).or(self.found);
        report.map(|report| Report {
            service: self.service.rate(),
            swift: self.service.take_swift(),
            uneven: self.service.is_uneven(),
            ..report
        })
    }

    /// The last packet to arrive was off its forecast, and those behind it are, too. `rate` is what the path is taken to carry now.
    pub(crate) fn correct(&mut self, rate: Rate) {
        let Some((off, last)) = self.error.take() else { return };
        let Some(&sent) = self.log.get(last) else { return };
        let wait = (sent.wait.as_micros() as i64 + off).max(0).cast_unsigned();
        let left = sent.at + Duration::from_micros(wait) + rate.time_for(sent.bytes.into());
        self.backlog.replay(left, self.log.behind(last), rate);
    }

    /// QUIC has an acknowledgement. Of packets acknowledged together only the latest tells how long its answer took; the others may have
    /// been answered before, in an ACK that was lost.
    pub(crate) fn on_acked(&mut self, pn: u64, sent: Instant, now: Instant) {
        let rtt = now.saturating_duration_since(sent);
        match &mut self.answer {
            Some((at, least, of)) if *at == now => {
                if rtt < *least {
                    (*least, *of) = (rtt, pn);
                }
            }
            answer => *answer = Some((now, rtt, pn)),
        }
    }

    /// All that was acknowledged at this moment has been told. `rate` is what the path is taken to carry.
    pub(crate) fn end_acks(&mut self, now: Instant, rate: Rate) {
        let Some((_, rtt, pn)) = self.answer.filter(|(at, ..)| *at == now) else { return };
        let place = self.log.by_number(pn);
        match place.and_then(|place| self.log.get_mut(place)) {
            // Who reports nothing cannot tell a queue from the way back.
            None => self.note_way_back(rtt, now),
            Some(sent) => match sent.fate {
                Fate::Arrived(queue) => self.note_way_back(rtt.saturating_sub(queue), now),
                Fate::Open | Fate::Lost => sent.answered = Some(rtt),
            },
        }
        if let Some(place) = place {
            self.pass(place, now, rate);
        }
        self.rtt = Some(match self.rtt {
            None => (rtt, rtt / 2),
            Some((smoothed, var)) => ((smoothed * 7 + rtt) / 8, (var * 3 + smoothed.abs_diff(rtt)) / 4),
        });
        let keep = LOG_MEMORY + self.rtt() * 4;
        if let Some(since) = now.checked_sub(keep) {
            self.log.forget(since);
        }
    }

    /// That packet has been acknowledged, so neither it nor what left before it waits any more. The receiver reports none but those with a stamp: on a path that
    /// carries nothing else (because nothing else could be in time there, as it seems) nothing else would ever put the forecast right.
    fn pass(&mut self, place: Place, now: Instant, rate: Rate) {
        let Some((sent, way)) = self.log.get(place).zip(self.base.get()) else { return };
        let behind = self.log.behind(place);
        if behind.len() > MOST_BEHIND {
            return;
        }
        let left = now.checked_sub(way).map_or(sent.at, |left| left.max(sent.at)) + rate.time_for(sent.bytes.into());
        self.backlog.relieve(left, behind, rate, way);
    }

    /// An answer took so long, but for the queue on the way there.
    fn note_way_back(&mut self, empty: Duration, now: Instant) {
        self.base.add(empty, now);
        self.usual = Some(self.usual.map_or(empty, |usual| (usual * 7 + empty) / 8));
        self.delays.add(empty.saturating_sub(self.base_rtt()));
    }

    /// QUIC gave a packet up. Returns the queue that its neighbours found, and whether it was lost to congestion, as far as one can tell:
    /// then how many were before it, though they had not been known to be.
    pub(crate) fn on_lost(&mut self, pn: u64) -> (Duration, Option<u32>) {
        let Some(place) = self.log.by_number(pn) else { return (Duration::ZERO, None) };
        let queue = self.log.queue_beside(place, self.service.rate()).unwrap_or_default();
        match self.log.get_mut(place) {
            Some(sent) if sent.fate == Fate::Open => sent.fate = Fate::Lost,
            _ => return (queue, None),
        }
        (queue, self.overflow.on_lost(queue))
    }

    /// The longest queue that a packet has found lately.
    pub(crate) fn longest_queue(&self) -> Duration {
        self.overflow.longest()
    }

    /// What its packets met lately, to be compared with other paths'.
    pub(crate) fn met(&self) -> &Delays {
        &self.met
    }

    /// Until an ACK has measured it.
    pub(crate) fn set_initial_rtt(&mut self, rtt: Duration) {
        self.initial_rtt = rtt;
    }

    /// The controller has found out that the path has become so much longer.
    pub(crate) fn raise_floor(&mut self, by: Duration, now: Instant) {
        self.floor.raise(by.as_micros() as i64, now);
        self.lengthen(by, now);
    }

    fn lengthen(&mut self, by: Duration, now: Instant) {
        if let Some(base) = self.base.get() {
            self.base.set(base + by, now);
            self.usual = self.usual.map(|usual| usual + by);
        }
    }

    /// The path is another: nothing that was seen of it counts.
    pub(crate) fn clear(&mut self, now: Instant) {
        *self = Self::new(now, self.epoch, self.rtt());
    }

    fn micros(&self, at: Instant) -> i64 {
        at.saturating_duration_since(self.epoch).as_micros() as i64
    }

    /// How long a packet that leaves now waits at the narrowest link.
    pub(crate) fn backlog(&self, now: Instant) -> Duration {
        self.backlog.wait(now)
    }

    /// The queue there was by the last report, beyond what packets vary by, if that is news.
    pub(crate) fn queue(&self, now: Instant) -> Duration {
        let is_news = |(queue, at): &(Duration, Instant)| now.saturating_duration_since(*at) < *queue + self.rtt();
        self.found.filter(is_news).map_or(Duration::ZERO, |(queue, _)| queue.saturating_sub(self.jitter()))
    }

    /// The shortest delay to the peer, as the difference of the clocks is `offset` microseconds.
    pub(crate) fn one_way_delay(&self, offset: f64) -> Option<Duration> {
        let delay = self.floor.of(u16::MAX)? as f64 - offset;
        Some(Duration::from_micros(delay.max(0.0) as u64).min(self.base_rtt()))
    }

    /// Whether the receiver has reported anything.
    pub(crate) fn is_known(&self) -> bool {
        self.floor.of(u16::MAX).is_some()
    }

    /// The round trip when nothing of ours waits.
    pub(crate) fn base_rtt(&self) -> Duration {
        self.base.get().unwrap_or(self.initial_rtt)
    }

    /// The round trip when nothing of ours waits, on average.
    pub(crate) fn usual_rtt(&self) -> Duration {
        self.usual.map_or(self.initial_rtt, |usual| usual.max(self.base_rtt()))
    }

    /// Smoothed round trip.
    pub(crate) fn rtt(&self) -> Duration {
        self.rtt.map_or(self.initial_rtt, |(rtt, _)| rtt)
    }

    /// Its mean deviation.
    pub(crate) fn rtt_var(&self) -> Duration {
        self.rtt.map_or(self.initial_rtt / 2, |(_, var)| var)
    }

    /// How much later than forecast packets arrive: all but one in twenty no later than that.
    pub(crate) fn spread(&self) -> Duration {
        self.lateness.quantile().unwrap_or_default()
    }

    /// How much later than forecast half of the packets arrive, at the least.
    pub(crate) fn late_by(&self) -> Duration {
        self.lateness.median().unwrap_or_default().min(self.spread())
    }

    /// How long the answer to a packet takes that does not wait, nor is late on its way there: all but one in a hundred come sooner.
    ///
    /// The first ones may have come by a shorter path than later ones will, so while there are few, as long is allowed as it took when the path was opened.
    pub(crate) fn answer(&self) -> Duration {
        let seen = self.delays.quantile().unwrap_or_default();
        let longer = self.initial_rtt.saturating_sub(self.base_rtt());
        let guess = if self.delays.count() < FEW { longer.max(self.base_rtt() / 4) } else { Duration::ZERO };
        self.base_rtt() + seen.max(guess)
    }

    /// How long after a packet has left, and waited as long as was expected, its answer is overdue.
    ///
    /// Of what the way there adds to the forecast, all but one in twenty are allowed for. Without that, the jitter of a path without losses
    /// had one byte in 25 sent again (gauntlet 8041: 49 % of the bound; 79 with it).
    pub(crate) fn overdue(&self) -> Duration {
        self.answer() + self.spread()
    }

    /// How long a packet with bytes of blocks may have waited that has left, by what is known now. What is in flight began with packet `oldest`.
    ///
    /// What a path carries nobody knows when the first packets leave, so that none of them seems to wait, and small ones have measured its round trip. On a link of 0.15 Mbit/s and 8 ms the first was taken for lost,
    /// and the path for silent, before it had arrived; all was sent again, and half a second of queue stood. So while few answers have come a round trip more is allowed (QUIC's first probe comes after three: RFC 9002, 6.2.1), and
    /// while few arrivals have been reported the time that it takes at the pace of the queue, or at [`SLOWEST`] if that is not known either, from the latest to have arrived.
    pub(crate) fn may_have_waited(&self, packet: &Awaited, oldest: u64) -> Duration {
        let unknown = if self.delays.count() < FEW { self.base_rtt() } else { Duration::ZERO };
        let behind = (self.lateness.count() < FEW).then(|| self.behind_the_latest(packet, oldest)).flatten();
        packet.wait.max(behind.unwrap_or_default()) + unknown
    }

    fn behind_the_latest(&self, packet: &Awaited, oldest: u64) -> Option<Duration> {
        let sent = self.log.get(self.log.by_number(packet.number)?)?;
        let slowest = Rate::of(SLOWEST, Duration::from_secs(1));
        let (served, bytes) = self.log.served_before(sent, oldest)?;
        let arrives = served + self.service.rate().unwrap_or(slowest).time_for(bytes + u64::from(sent.bytes));
        Some(arrives.saturating_duration_since(sent.at))
    }

    /// What clean packets vary by.
    pub(crate) fn jitter(&self) -> Duration {
        self.floor.jitter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_queue_that_was_found_long_ago_is_no_news() {
        let start = Instant::now();
        let rate = Rate::of(1_000_000, Duration::from_secs(1));
        let mut model = Model::new(start, start, MS * 40);
        for (pn, delay) in [(0, 20), (1, 25)] {
            let at = start + MS * 10 * pn;
            model.on_sent(pn.into(), 1_200, at, rate);
            model.on_stamped(pn.into(), pn * 10_000);
            let arrived = Reported { stamp: pn * 10_000, at: u64::from(pn * 10 + delay) * 1_000, ce: false };
            model.on_report(at + MS * 40, &[arrived]);
        }
        let told = start + MS * 50;
        assert_eq!(model.queue(told), MS * 5);
        assert_eq!(model.queue(told + MS * 44), MS * 5, "within a round trip and what it was itself");
        assert_eq!(model.queue(told + MS * 45), Duration::ZERO);
    }

    /// What a peer is told of blocks has no stamp. A path that was taken for slow carried nothing else, as nothing could be in time behind what seemed to wait, and that only grew.
    #[test]
    fn what_is_acknowledged_waits_no_more_though_nobody_reports_it() {
        let start = Instant::now();
        let rate = Rate::of(1, MS);
        let mut model = Model::new(start, start, MS * 40);
        let mut longest = Duration::ZERO;
        model.on_sent(0, 85, start, rate);
        model.on_stamped(0, 0);
        model.on_report(start + MS * 40, &[Reported { stamp: 0, at: 20_000, ce: false }]);
        model.on_acked(0, start, start + MS * 40);
        model.end_acks(start + MS * 40, rate);
        for pn in 1..1_000_u32 {
            let at = start + MS * 40 + MS * 20 * pn;
            model.on_sent(pn.into(), 85, at, rate);
            // The answer to the last but one.
            if pn > 2 {
                model.on_acked((pn - 2).into(), at - MS * 40, at);
                model.end_acks(at, rate);
            }
            longest = longest.max(model.backlog(at));
        }
        assert!(longest <= MS * 85 * 3 + MS * 40, "three under way, 85 ms each at this rate: {longest:?}");
        assert!(longest >= MS * 85, "nothing was forecast: {longest:?}");
    }

    /// Each frame is a train of packets, each of which finds a longer queue than the one before. The longer of its neighbours' queues would be that of
    /// the one behind.
    #[test]
    fn chance_that_strikes_trains_is_no_overflow() {
        let start = Instant::now();
        let rate = Rate::of(1_500, MS);
        let mut model = Model::new(start, start, MS * 40);
        let (mut losses, mut overflows) = (0, 0);
        for train in 0..5_000_u32 {
            let at = start + MS * 20 * train;
            let is_lost = |pn: u32| pn.wrapping_mul(2_654_435_761) >> 24 < 13;
            let numbers = train * 9..train * 9 + 9;
            for pn in numbers.clone() {
                model.on_sent(pn.into(), 1_500, at, rate);
                model.on_stamped(pn.into(), pn);
            }
            let arrives = |pn: u32| u64::from(train * 20 + 20 + (pn - train * 9)) * 1_000;
            let arrived = numbers.clone().filter(|&pn| !is_lost(pn));
            let list: Vec<_> = arrived.map(|pn| Reported { stamp: pn, at: arrives(pn), ce: false }).collect();
            model.on_report(at + MS * 50, &list);
            model.correct(rate);
            for pn in (train.saturating_sub(1) * 9..train * 9).filter(|&pn| is_lost(pn)) {
                let (_, congestion) = model.on_lost(pn.into());
                losses += 1;
                overflows += congestion.map_or(0, |before| before + 1);
            }
        }
        assert!(losses > 1_000 && overflows * 20 < losses, "{overflows} of {losses}");
    }
}
