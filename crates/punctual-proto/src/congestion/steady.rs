//! Our own controller: drives a path at the rate at which it serves us, and keeps its queue short.
//!
//! A queue in the network is one no scheduler can reach into: a new urgent block waits behind it. All that this controller knows comes
//! from the path's model, and so from the receiver's times: the queue that packets found, and the pace at which it is served.
//!
//! What was weighed, and measured, is in `docs/congestion.md`.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use super::{
    Driver, Loss, PathState as Path, Report,
    contest::{self, Contest},
    dropping::{self, Dropping, Verdict},
    holding::Holding,
    losses::Losses,
    pacing::QUANTUM,
    round::{Round, Since},
    shallow::Shallow,
    standing::{Queue, Seen, Standing},
};
use crate::{least::Least, rate::Rate};

/// How much faster than the path is known to be start-up goes, for what it has shown so far doubles each round.
const STARTUP_GAIN: f64 = 2.0;
/// And than what is known, while a queue grows: twice as much until the round ends would be one of a round trip.
const STARTUP_QUEUE_GAIN: f64 = 1.25;
/// What schedulers may reckon with in start-up, which is to be much faster before long.
const FORECAST: f64 = 4.0;
/// So many rounds on end in which a busy path does not deliver a quarter more end start-up.
const FLAT_ROUNDS: u32 = 2;
/// Of fewer packets than this the least delayed one may be late by chance.
const FEW: u64 = 16;
/// In start-up a round is looked at in so many parts.
const PARTS: u32 = 8;
/// What took this share of the time to leave in which it came is no train.
const EVEN: f64 = 0.75;
/// How far beyond what is known the pace of a queue is believed in a round: at first, and then the less the more often a queue stood
/// within [`CAUSE`] rounds of having been believed. Alone on a path it is true at once; beside others, a train of packets
/// tells what the link does and not what is left of it.
const BELIEF: [f64; 5] = [8.0, 2.0, 1.4, 1.2, 1.1];
const CAUSE: u32 = 4;
/// A rate that grew by more than this in a round grew by much.
const GROWTH: f64 = 1.15;
/// Rounds without a queue after which more is believed again.
const CALM: u32 = 8;
/// Where a queue stands, a round lasts no longer than so many round trips of the empty path, answered or not.
const PATIENCE: u32 = 3;
/// How much faster than the path is known to be we go, round by round, as long as nothing shows that it is full.
const CLIMB: [f64; 4] = [1.1, 1.25, 1.6, 2.0];
/// Rounds that each lasts: one until it is answered.
const CLIMB_ROUNDS: usize = 2;
/// Where the climb begins if the path has carried more than twice as much of late, and was that fast when last seen.
const CLIMB_BACK: usize = 3 * CLIMB_ROUNDS;
/// Who is starved goes faster once no queue has been seen for so many rounds.
const UNCONFIRMED: u32 = 4;
/// A pace so many times what was known is that of a path which is back from a fade: no flow beside us has left so much free.
const RETURN: f64 = 4.0;
/// So long it is known what the path carried at best, or up to twice as long.
const BEST_MEMORY: Duration = Duration::from_secs(10);
/// Beside others, packets more in each round trip: what each adds is the same for all, so that they come to share alike.
const ADDED: u64 = 2;
/// But no more than this share of the rate: on a slow path two packets are many.
const MOST_ADDED: f64 = 0.5;
/// How much faster what an application hands over in bursts may leave.
const BURST_GAIN: f64 = 1.25;
/// How much slower while a queue stands.
const DRAIN_GAIN: f64 = 0.9;
/// What stands and is not worth speaking of goes within so many round trips.
const DRAIN_ROUNDS: u32 = 8;
/// Beside others that fill the queue the window says what we send, and the pace only spreads it: by so much it is faster.
const SHARED_GAIN: f64 = 1.1;
/// The window, in bandwidth-delay products: the pace is what limits; the window is for paths that stand still. On a path that is shorter than
/// pacing is fine, it has room for what pacing lets go at once: hosts answer by turns, and a window of a few packets would make of each turn
/// one of a few packets, which costs a fast host most of what it could carry.
const WINDOW_GAIN: f64 = 2.0;
/// Packets more than the empty path holds that may be under way while we make room.
const ROOM_PACKETS: u64 = 4;
/// A queue is worth speaking of from this on, or from so many of our packets (beside others: so that who has little of the path gets
/// more), and beyond what packets vary by anyway.
const SHORT: Duration = Duration::from_millis(2);
const SHORT_PACKETS: (u64, u64) = (1, 2);
/// With more jitter than this, what looks like a queue need not be one.
const GRAIN: Duration = Duration::from_millis(1);
/// What packets that come by fits and starts differ by in so many rounds at least is there whatever we send; the queue of a link that now stands and
/// now runs is not.
const SPREAD_ROUNDS: usize = 3;
/// The window was used if this share of it was.
const USED: f64 = 0.8;
/// The most loss that we make up for by sending more.
const MOST_MADE_UP_FOR: f64 = 0.4;
/// What is left of the rate after congestion that loss has told.
const LOSS_BACKOFF: f64 = 0.85;
/// How much a round's share of marked packets counts in that over rounds, half of which is taken off the rate in each round with marks (RFC 8257).
const MARKED_GAIN: f64 = 1.0 / 16.0;
/// A first window is held open no longer once it is known to last longer than this: at 0.3 Mbit/s it is a queue of 0.4 s.
const FIRST_WINDOW_LASTS: Duration = Duration::from_millis(100);
/// The smallest window, packets.
const LEAST_WINDOW: u64 = 4;
/// However little was delivered, a packet may leave each round trip, and so often for a round trip that is shorter. Who sends less learns nothing of the path: a round in which all but a few words
/// was lost leaves a rate of some bytes a second, at which a packet leaves every ten seconds, and is a round by itself. (RFC 9002 has two packets a round trip as the least.)
const LEAST_OFTEN: Duration = Duration::from_millis(100);

/// The controller.
#[derive(Debug, Clone)]
pub(crate) struct Steady {
    initial_window: u64,
    rate: Option<Rate>,
    /// What was delivered in the last round, and at best of late.
    delivered: Option<Rate>,
    best: Least<Reverse<Rate>>,
    startup: bool,
    /// The path's own pace has shown, or there was always something to send.
    seen: bool,
    /// Start-up has ended for losses alone, before the path had held anything up.
    unproven: bool,
    /// The pace of a queue has been seen.
    paced: bool,
    /// Rounds on end in which a busy path has not delivered more.
    flat: u32,
    /// How much is believed: an index of [`BELIEF`].
    doubt: usize,
    /// The rate when the round began, and rounds since it grew by much.
    began_at: Rate,
    since_growth: u32,
    climb: Option<usize>,
    /// Rounds since a queue, or its pace, was seen.
    unconfirmed: u32,
    standing: Standing,
    /// What the packets of the last rounds differed by, where they came by fits and starts.
    spreads: [Duration; SPREAD_ROUNDS],
    contest: Option<Contest>,
    losses: Losses,
    shallow: Shallow,
    /// Packets that found no room, before this round; and the share that did, over rounds.
    no_room: u64,
    crowded: f64,
    round: Round,
    /// Since when packets count to this round, and to this part of it.
    since: Option<Since>,
    part: Option<Since>,
    /// The last packet of the last report.
    reported: Option<Since>,
    /// What has come in this part, what was delivered in the last, and the queues found at the ends of the last two.
    part_bytes: u64,
    part_delivered: Rate,
    part_queues: [Duration; 2],
    /// A queue has grown from part to part.
    queue_grows: bool,
    /// The most that was under way in a round before we last made room.
    held: u64,
    /// The share of packets that are marked, over rounds.
    marked: f64,
    dropping: Dropping,
    holding: Holding,
}

impl Steady {
    pub(crate) fn new(initial_window: u64) -> Self {
        Self {
            initial_window,
            rate: None,
            delivered: None,
            best: Least::over(BEST_MEMORY),
            startup: true,
            seen: false,
            unproven: false,
            paced: false,
            flat: 0,
            doubt: 0,
            began_at: Rate::ZERO,
            since_growth: u32::MAX,
            climb: None,
            unconfirmed: 0,
            standing: Standing::default(),
            spreads: [Duration::ZERO; SPREAD_ROUNDS],
            contest: None,
            losses: Losses::default(),
            shallow: Shallow::default(),
            no_room: 0,
            crowded: 0.0,
            round: Round::default(),
            since: None,
            part: None,
            part_bytes: 0,
            reported: None,
            part_delivered: Rate::ZERO,
            part_queues: [Duration::ZERO; 2],
            queue_grows: false,
            held: 0,
            marked: 0.0,
            dropping: Dropping::default(),
            holding: Holding::default(),
        }
    }

    /// What we hold on to of our rate though others fill the queue.
    fn held(&self) -> Rate {
        self.rate.unwrap_or_default().min(self.holding.rate())
    }

    /// A queue longer than this is worth speaking of. Of one that is full before it stands that is half, where that can be told from jitter and from
    /// packets of our own.
    fn short(&self, path: &Path) -> Duration {
        let packets = if self.is_wary() { SHORT_PACKETS.1 } else { SHORT_PACKETS.0 };
        let ours = self.rate.unwrap_or(Rate::LEAST).time_for(packets * u64::from(path.packet));
        let worth = self.worth(path).max(ours + self.jitter(path));
        match self.shallow(path) {
            Some(full) if full / 2 > ours.max(self.jitter(path)) => worth.min(full / 2),
            _ => worth,
        }
    }

    /// The same, whatever our packets take, and though it may never become so long.
    fn worth(&self, path: &Path) -> Duration {
        SHORT + self.jitter(path)
    }

    /// How long the queue is when it is full, where it is full before it stands. A policer has none, whatever is found on the way to it.
    fn shallow(&self, path: &Path) -> Option<Duration> {
        self.shallow.full(self.worth(path), path.base).filter(|_| path.policed.is_none())
    }

    /// What packets vary by though nothing of ours is in their way, as far as is known; or may vary by, as they come by fits and starts.
    fn jitter(&self, path: &Path) -> Duration {
        path.jitter.max(self.spreads.into_iter().min().unwrap_or_default())
    }

    /// Others may be there.
    fn is_wary(&self) -> bool {
        self.doubt > 1
    }

    /// How much slower, so that the little that stood in the last round is gone before long.
    fn drain(&self, path: &Path) -> f64 {
        let stood = self.standing.last().saturating_sub(self.jitter(path));
        (1.0 - stood.as_secs_f64() / (path.base * DRAIN_ROUNDS).as_secs_f64().max(1e-3)).max(DRAIN_GAIN)
    }

    /// How much faster we go beside others.
    fn added(rate: Rate, path: &Path) -> Rate {
        Rate::of(ADDED * u64::from(path.packet), path.base.max(Duration::from_millis(1))).min(rate * MOST_ADDED)
    }

    /// The pace at which it climbs from a rate.
    fn climbing(&self, rate: Rate, path: &Path) -> Rate {
        match self.climb {
            None => rate,
            Some(_) if self.is_wary() => rate + Self::added(rate, path),
            Some(rounds) => rate * CLIMB[(rounds / CLIMB_ROUNDS).min(CLIMB.len() - 1)],
        }
    }

    /// The queue is served at this pace, and was at least this long.
    fn follow(&mut self, service: Rate, queue: Duration, path: &Path) {
        // Packets that come late by chance come as from a queue, but none that stands.
        let stood = self.round.queue.unwrap_or_default().max(self.standing.last());
        let certain = queue.min(stood) > self.short(path);
        let slower = self.rate.is_some_and(|rate| service < rate);
        // While all make room, each has more than its share.
        let room = self.is_wary() && self.standing.queue() == Queue::Stands;
        if slower && !certain || !slower && (self.is_held(path) || room) {
            return;
        }
        let known = self.began_at.max(self.delivered.unwrap_or_default());
        let believed = (known * BELIEF[self.doubt]).max(known + Self::added(known, path));
        let most = match self.best.get() {
            Some(Reverse(best)) if !self.is_wary() && service > known * RETURN => believed.max(best),
            _ => believed,
        };
        let rate = if self.began_at == Rate::ZERO { service } else { service.min(most) };
        self.rate = Some(Self::let_pass(rate.max(self.held()), path));
    }

    /// Learns from a round how much to believe.
    fn judge_belief(&mut self) {
        let rate = self.rate.unwrap_or_default();
        self.since_growth = if rate > self.began_at * GROWTH { 0 } else { self.since_growth.saturating_add(1) };
        self.began_at = rate;
        if self.standing.calm() == 0 && self.since_growth <= CAUSE {
            self.doubt = (self.doubt + 1).min(BELIEF.len() - 1);
            self.since_growth = u32::MAX;
        } else if self.doubt > 1 && self.standing.calm() % CALM == CALM - 1 {
            self.doubt -= 1;
        }
        if !self.startup {
            self.doubt = self.doubt.max(1);
        }
    }

    fn end_round(&mut self, report: &Report, path: &Path) -> Option<Duration> {
        let round = std::mem::replace(&mut self.round, Round { began: Some(report.now), ..Round::default() });
        let since = self.since.replace(Since::of(report))?;
        // What came in a round that ended unanswered may have come all at once.
        let delivered = Rate::of(round.bytes, since.until(report).max(path.base));
        // Who is starved is not slow for want of something to send, though it is not there any more; where no queue has said lately that this is the path's pace.
        let starved = round.starved && self.unconfirmed >= UNCONFIRMED;
        let dry = round.dry && !starved;
        if !dry && self.unproven {
            // Losses that were none of ours have not made the path as slow as that.
            let unseen = self.unseen(path);
            self.rate = self.rate.map(|rate| rate.max(unseen));
        }
        self.seen |= !dry;
        let grew = self.delivered.is_none_or(|before| delivered >= before * 1.25);
        self.delivered = Some(delivered);
        self.best.add(Reverse(delivered), report.now);
        self.holding.end_round(report.now, delivered, round.dry, round.starved);
        if self.rate.is_none_or(|rate| rate < delivered) {
            self.rate = Some(delivered);
        }
        let rises = round.queue.unwrap_or_default().saturating_sub(self.standing.last());
        let stood = self.standing.queue() == Queue::Stands;
        let differ = round.longest.saturating_sub(round.queue.unwrap_or_default());
        self.spreads.rotate_right(1);
        self.spreads[0] = if report.uneven { differ } else { Duration::ZERO };
        let longer = self.judge_queue(&round, report.now, path);
        self.judge_belief();
        let empty = self.standing.queue() == Queue::Empty;
        let faster = self.rate.unwrap_or_default() * 2.0;
        let was_faster = self.best.get().is_some_and(|Reverse(best)| best > faster)
            && (starved || report.service.is_some_and(|service| service > faster));
        // What is served of a queue that stood before is no sign that the path is full.
        let jitter = self.jitter(path);
        let fills =
            rises > SHORT + jitter || round.served && !(stood && was_faster) && (rises > SHORT || jitter <= GRAIN);
        let overflows = self.shallow.end_round(round.packets) && self.shallow(path).is_some();
        let no_room = path.no_room.saturating_sub(std::mem::replace(&mut self.no_room, path.no_room));
        let full = dry || !empty || round.marked > 0 || fills || overflows || no_room > 0;
        if self.startup {
            // What one round delivers is what left in the one before, which may have been as slow as that before it.
            self.flat = if dry || grew || !full { 0 } else { self.flat + 1 };
            self.startup = empty && self.flat < FLAT_ROUNDS;
        }
        self.unconfirmed = if round.served || !empty { 0 } else { self.unconfirmed.saturating_add(1) };
        if round.dry && !full && !self.is_held(path) {
            // What was delivered is less than the pace at which it left, which met no queue.
            // But where all of it would leave at once, it is not the pace that it waits for.
            let most = Self::let_pass(Rate::of(round.bytes, QUANTUM), path);
            self.rate = self.rate.map(|rate| rate.max(self.climbing(rate, path).min(most)));
        }
        self.climb = match self.climb {
            _ if full || self.is_held(path) => None,
            Some(rounds) if !self.is_wary() => Some(rounds + 1),
            None if !self.is_wary() && was_faster => Some(CLIMB_BACK),
            _ => Some(0),
        };
        self.judge_drops(&Round { dry, ..round }, delivered);
        self.startup &= path.policed.is_none();
        self.losses.end_round(round.packets, round.lost);
        if self.losses.judge() {
            // Who has never had more to send than has left at once does not lose it for going too fast.
            self.unproven |= self.startup && !self.seen;
            self.rate = self.rate.map(|rate| rate * LOSS_BACKOFF);
            self.startup = false;
        }
        self.marked += (round.marked as f64 / round.packets.max(1) as f64 - self.marked) * MARKED_GAIN;
        self.crowded += (no_room as f64 / (round.packets + no_room).max(1) as f64 - self.crowded) * MARKED_GAIN;
        if no_room > 0 {
            // As by a mark, where there is no queue to say so.
            self.rate = self.rate.map(|rate| rate * (1.0 - self.crowded / 2.0));
        }
        if round.marked > 0 {
            self.rate = self.rate.map(|rate| rate * (1.0 - self.marked / 2.0));
            self.startup = false;
        }
        longer
    }

    /// In start-up each part of a round tells what it delivered: at its end that shows only what left in the round before.
    fn grow(&mut self, report: &Report, path: &Path) {
        let least = (path.base / PARTS).max(GRAIN);
        let end = self.reported.replace(Since::of(report));
        if let Some(delivered) = end.and_then(|end| self.before_pause(end, report, least)) {
            self.rate = Some(self.rate.unwrap_or_default().max(delivered));
            self.part_delivered = self.part_delivered.max(delivered);
            (self.part, self.part_bytes) = (Some(Since::of(report)), 0);
            return;
        }
        self.part_bytes += report.bytes;
        let time = self.part.map(|since| since.until(report));
        if time.is_some_and(|time| time < least) {
            return;
        }
        if let Some(time) = time {
            let delivered = Rate::of(self.part_bytes, time);
            self.rate = Some(self.rate.unwrap_or_default().max(delivered));
            // Where a queue grows it is all that the path carries: twice as much would only fill it until the round ends.
            let waits = report.queue > self.short(path);
            self.part_delivered = if waits { Rate::ZERO } else { delivered };
            // So does a queue of ours, of packets that come evenly; what is late by chance does not.
            let [before, first] = self.part_queues;
            self.queue_grows = waits && !report.uneven && report.queue > before && before > first;
            self.part_queues = [report.queue, before];
        }
        (self.part, self.part_bytes) = (Some(Since::of(report)), 0);
    }

    /// What was delivered of a part until its last report, if a pause came then: what leaves for a moment, and then waits for its window, would else seem to have been as slow as if it had left in all that time.
    /// Not what left faster than it came: such a train tells what the link does. Nor where a queue has told the pace already.
    fn before_pause(&self, end: Since, report: &Report, least: Duration) -> Option<Rate> {
        let (left, came) = self.part.filter(|_| !self.paced)?.spans(&end);
        let pauses = Duration::from_micros(report.arrived.0.saturating_sub(end.arrived)) >= least;
        let time = left.max(came);
        (pauses && time >= least / 2 && left >= came.mul_f64(EVEN)).then(|| Rate::of(self.part_bytes, time))
    }

    /// Whether what is lost is lost because we go too fast, though no queue tells: then what passes is all there is.
    fn judge_drops(&mut self, round: &Round, delivered: Rate) {
        // Who has nothing more to send in start-up has shown little yet.
        let tell = self.standing.queue() == Queue::Empty && !(round.dry && self.startup);
        let (own, rate) = (self.losses.by_itself(), self.rate.unwrap_or_default());
        match self.dropping.end_round(round, delivered, (own, rate), tell) {
            Some(Verdict::Slower(passes)) => {
                self.rate = Some(passes);
                // These losses, made up for, would bring more.
                self.losses = Losses::default();
                self.startup = false;
            }
            Some(Verdict::Faster(rate)) => self.rate = Some(rate),
            Some(Verdict::Innocent(before, share)) => {
                self.rate = Some(rate.max(before));
                self.losses.set_own(share);
            }
            None => {}
        }
    }

    /// Of a rate, what a policer on the path lets pass.
    fn let_pass(rate: Rate, path: &Path) -> Rate {
        path.policed.map_or(rate, |most| rate.min(most))
    }

    /// Nothing faster is to be tried. A policer is a limit like any other while the path carries less than it lets pass.
    fn is_held(&self, path: &Path) -> bool {
        self.dropping.is_careful() || path.policed.is_some_and(|most| self.rate.is_some_and(|rate| rate >= most))
    }

    /// Before anything is known: a window each round trip.
    fn start(&self, path: &Path) -> Rate {
        Rate::of(self.initial_window, path.base.max(Duration::from_millis(1)))
    }

    /// Who had little to send at first has shown what that was, not what the path carries: until the path has held something up, we go a
    /// window each round trip.
    fn unseen(&self, path: &Path) -> Rate {
        if (self.startup || self.unproven) && !self.seen { self.start(path) } else { Rate::ZERO }
    }

    fn judge_queue(&mut self, round: &Round, now: Instant, path: &Path) -> Option<Duration> {
        let rate = self.rate?;
        let short = self.short(path);
        let room = rate.bytes_in(path.usual) as u64 + ROOM_PACKETS * u64::from(path.packet);
        let before = self.standing.queue();
        if before == Queue::Empty {
            self.held = round.most;
        }
        let queue = round.queue.unwrap_or_default();
        // In start-up, where jitter is not known yet, the least of a few packets may be late by chance. A queue that stands is longer than what they differ by.
        let chance = self.startup && round.packets < FEW && queue < round.longest.saturating_sub(queue);
        let longer = self.standing.end_round(&Seen {
            queue: if chance { Duration::ZERO } else { queue },
            short,
            made_room: round.most <= room,
            marked: round.marked > 0,
        });
        match (self.standing.without_us(), &mut self.contest) {
            (None, contest) if !self.standing.lately_shared() => *contest = None,
            (Some(_), contest @ None) => *contest = Some(Contest::new(self.held)),
            (Some(without_us), Some(contest)) if before != Queue::Stands => contest.end_round(&contest::Round {
                now,
                used: round.most as f64 >= USED * contest.window() as f64,
                usual_loss: self.losses.by_itself(),
                held: rate.bytes_in(path.base + without_us),
                rtt: path.rtt,
                // As those beside us count, whose packets are full.
                mtu: u64::from(path.mtu),
            }),
            _ => {}
        }
        longer
    }
}

impl Driver for Steady {
    fn on_sent(&mut self, now: Instant, _: u64, in_flight: u64) {
        self.round.began.get_or_insert(now);
        self.round.most = self.round.most.max(in_flight);
    }

    fn on_dry(&mut self) {
        self.round.dry = true;
    }

    fn on_starved(&mut self) {
        self.round.starved = true;
    }

    fn on_lost(&mut self, loss: &Loss) {
        let &Loss { bytes, queue, overflow } = loss;
        self.round.lost += 1;
        if overflow {
            self.holding.on_overflow();
            self.shallow.on_overflow(queue);
        }
        if let (Some(contest), Some(without_us)) = (&mut self.contest, self.standing.without_us()) {
            contest.on_lost(queue, without_us, bytes);
        }
    }

    fn on_report(&mut self, report: &Report, path: &Path) -> Option<Duration> {
        self.holding.on_report(report);
        let round = &mut self.round;
        round.queue = Some(round.queue.map_or(report.queue, |queue| queue.min(report.queue)));
        round.longest = round.longest.max(report.longest);
        round.bytes += report.bytes;
        round.packets += report.packets;
        round.marked += report.marked;
        round.served |= report.served;
        if let Some(contest) = &mut self.contest {
            contest.on_ack(report.queue, report.bytes);
        }
        if self.startup {
            self.grow(report, path);
        }
        if let Some(service) = report.service.filter(|_| report.served) {
            let unseen = self.unseen(path).min(service);
            (self.seen, self.paced) = (true, true);
            self.follow(service, report.queue, path);
            // Until now we went a window each round trip. The path carries that, or what it serves.
            self.rate = self.rate.map(|rate| rate.max(unseen));
        }
        // Where a queue stands that is longer than the path, what leaves now is not answered soon enough to learn from.
        let stands = self.round.queue.is_some_and(|queue| queue > self.short(path));
        let late = |began: Instant| stands && report.now.saturating_duration_since(began) > path.base * PATIENCE;
        let unanswered = self.round.began.is_some_and(|began| report.sent < began);
        if unanswered && !self.round.began.is_some_and(late) {
            return None;
        }
        let longer = self.end_round(report, path);
        if unanswered {
            // What left before this round is still on its way in it.
            self.round.most = path.in_flight;
        }
        longer
    }

    fn rate(&self, _: Instant, path: &Path) -> Rate {
        self.rate.map_or_else(|| self.start(path) * FORECAST, |rate| rate.max(self.unseen(path)))
    }

    fn forecast(&self, now: Instant, path: &Path) -> Rate {
        // What start-up has shown doubles each round.
        let rate = self.rate(now, path);
        match self.rate {
            _ if !self.startup => rate,
            Some(shown) => rate.max(shown * FORECAST),
            None => rate * FORECAST,
        }
    }

    fn queue_of_others(&self) -> Duration {
        self.standing.without_us().unwrap_or_default()
    }

    fn is_growing(&self) -> bool {
        self.startup
    }

    fn pace(&self, _: Instant, path: &Path) -> Rate {
        let Some(rate) = self.rate else { return self.start(path) };
        let pace = match (self.standing.queue(), self.startup, self.climb) {
            (Queue::Shared(_), ..) => {
                let window = self.contest.as_ref().map_or(0, Contest::window);
                return rate.max(Rate::of(window, path.rtt)) * SHARED_GAIN;
            }
            (Queue::Stands, ..) => (rate * DRAIN_GAIN).max(self.held()),
            (Queue::Empty, true, _) => {
                let shown = self.delivered.unwrap_or_default().max(self.part_delivered) * STARTUP_GAIN;
                let most = if self.queue_grows { shown.min(rate * STARTUP_QUEUE_GAIN) } else { shown };
                rate.max(most).max(self.start(path))
            }
            (Queue::Empty, false, Some(_)) => self.climbing(rate, path),
            (Queue::Empty, false, None) => match self.drain(path) {
                drain if drain < 1.0 => rate * drain,
                _ if self.round.dry && self.shallow(path).is_none() && path.room.is_none() => rate * BURST_GAIN,
                _ => rate,
            },
        };
        let most = if self.dropping.is_careful() { dropping::MADE_UP_FOR } else { MOST_MADE_UP_FOR };
        let least = Rate::of(path.packet.into(), path.rtt.max(LEAST_OFTEN));
        // What found no room is not to be made up for by more.
        let own = path.room.map_or(f64::INFINITY, |_| path.chance).min(self.losses.by_itself());
        (pace * (1.0 / (1.0 - own.min(most)))).max(least)
    }

    fn burst(&self, _: &Path) -> Option<u64> {
        self.rate.is_none().then_some(self.initial_window)
    }

    fn window(&self, path: &Path) -> u64 {
        let Some(rate) = self.rate else { return self.initial_window };
        let packet = u64::from(path.packet);
        match self.standing.queue() {
            Queue::Stands => {
                let least = rate.bytes_in(path.base) as u64 + ROOM_PACKETS / 2 * packet;
                let held = match self.held() {
                    Rate::ZERO => 0,
                    held => held.bytes_in(path.rtt) as u64 + ROOM_PACKETS * packet,
                };
                least.max(rate.bytes_in(path.usual) as u64).max(held)
            }
            Queue::Shared(_) => self.contest.as_ref().map_or(0, Contest::window) + LEAST_WINDOW * packet,
            Queue::Empty => {
                let burst = rate.bytes_in(QUANTUM);
                let window = ((rate.bytes_in(path.usual + path.jitter) * WINDOW_GAIN).max(burst) as u64)
                    .saturating_add(LEAST_WINDOW * packet);
                // Who has little to send is not to be held up by how little it is.
                let most = if self.paced { rate.bytes_in(FIRST_WINDOW_LASTS) as u64 } else { u64::MAX };
                let first = self.initial_window.min(most);
                if self.startup || self.round.dry { window.max(first) } else { window }
            }
        }
    }
}

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;
