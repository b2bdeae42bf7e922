//! Two hosts and paths between them, as the estimator's tests need them, and how far off it is.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::clock::*;

pub(super) const MS: f64 = 1_000.0;
pub(super) const SECOND: u64 = 1_000_000;
pub(super) const HOURS_3: u64 = 3 * 3_600 * SECOND;

/// Steele, Lea, Flood: SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    There,
    Back,
}

/// The delay in µs of a datagram sent at a time (µs of the world), on a path, in one direction.
pub(super) type Delay = fn(path: u32, way: Way, at: u64, random: &mut Random) -> f64;

/// Who falls silent.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Who {
    /// Both, and their clocks run on.
    Idle,
    /// A host that sleeps, and its clock with it: what comes to it meanwhile is lost.
    Ours,
    Peer,
    /// Nobody: the peer's clock is set, ahead by the length.
    Step,
}

pub(super) struct World {
    pub(super) seed: u64,
    /// Time of the world, µs.
    pub(super) length: u64,
    /// From when on errors count, µs.
    pub(super) settled: u64,
    pub(super) ours_ppm: f64,
    pub(super) peer_ppm: f64,
    pub(super) ours_start: u64,
    pub(super) peer_start: u64,
    /// Paths, each open from … to.
    pub(super) paths: Vec<(u32, u64, u64)>,
    /// Between timestamped datagrams there and back, µs.
    pub(super) intervals: [u64; 2],
    pub(super) echo_loss: f64,
    /// Whether the peer echoes the least delayed datagram since its last echo, or the latest.
    pub(super) echo_least: bool,
    pub(super) delay: Delay,
    /// From when to when. Errors do not count until two seconds later.
    pub(super) pauses: Vec<(Who, u64, u64)>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            seed: 1,
            length: 600 * SECOND,
            settled: SECOND,
            ours_ppm: 100.0,
            peer_ppm: -100.0,
            ours_start: HOURS_3 + 5,
            peer_start: 77,
            paths: vec![(0, 0, u64::MAX)],
            intervals: [10_000, 10_000],
            echo_loss: 0.2,
            echo_least: false,
            delay: |_, _, _, _| 40.0 * MS,
            pauses: Vec::new(),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    SendThere { path: u32 },
    SendBack { path: u32 },
    Echo { path: u32 },
    ArriveThere { path: u32, our_sent: u64 },
    ArriveBack { path: u32, peer_sent: u64 },
    ArriveEcho { path: u32, our_sent: u64, peer_received: u64 },
    Close { path: u32 },
    Look,
}

/// Errors of `to_ours`, µs.
#[derive(Debug)]
pub(super) struct Errors {
    pub(super) worst: f64,
    pub(super) mean: f64,
    /// The same for a textbook estimator: half the difference of each second's minima, path 0 only.
    pub(super) textbook_worst: f64,
    /// Worst error of the idle one-way delay of path 0 at the end, µs.
    pub(super) delay: f64,
    pub(super) skew_ppm: f64,
}

/// NTP's minimum filter and nothing else.
pub(super) struct Textbook {
    pub(super) since: u64,
    pub(super) least: [f64; 2],
    pub(super) offset: Option<f64>,
}

impl Textbook {
    fn add(&mut self, way: usize, difference: f64, now: u64) {
        if now > self.since + SECOND {
            let offset = (self.least[0] - self.least[1]) / 2.0;
            self.offset = Some(offset).filter(|offset| offset.is_finite()).or(self.offset);
            *self = Self { since: now, least: [f64::INFINITY; 2], offset: self.offset };
        }
        self.least[way] = self.least[way].min(difference);
    }
}

impl World {
    fn ours(&self, at: u64) -> u64 {
        let at = at - self.stood(Who::Ours, at);
        self.ours_start + (at as f64 * (1.0 + self.ours_ppm * 1e-6)).round() as u64
    }

    fn peer(&self, at: u64) -> u64 {
        let at = at - self.stood(Who::Peer, at) + self.stood(Who::Step, at);
        self.peer_start + (at as f64 * (1.0 + self.peer_ppm * 1e-6)).round() as u64
    }

    /// How long it was up to then.
    fn stood(&self, who: Who, at: u64) -> u64 {
        let past = self.pauses.iter().filter(|pause| pause.0 == who);
        past.map(
            |(who, from, to)| {
                if *who == Who::Step { (at >= *from) as u64 * (to - from) } else { at.clamp(*from, *to) - from }
            },
        )
        .sum()
    }

    /// Until when one of these is silent.
    fn silent(&self, who: &[Who], at: u64) -> Option<u64> {
        self.pauses
            .iter()
            .find(|(which, from, to)| who.contains(which) && (*from..*to).contains(&at))
            .map(|pause| pause.2)
    }

    pub(super) fn run(&self) -> Errors {
        let mut random = Random(self.seed);
        let mut clocks = Clocks::new();
        let mut unwrapper = Unwrapper::default();
        let mut textbook = Textbook { since: 0, least: [f64::INFINITY; 2], offset: None };
        // To compare with, the same shift as the unwrapper's.
        let unwrapped = (1u64 << 32).wrapping_sub(self.peer_start >> 32 << 32);
        let mut received: [Option<(u64, u64)>; 8] = [None; 8];
        let mut events = BinaryHeap::new();
        for &(path, from, to) in &self.paths {
            events.push(Reverse((from, What::SendThere { path })));
            events.push(Reverse((from, What::SendBack { path })));
            events.push(Reverse((from + 100_000, What::Echo { path })));
            if to < self.length {
                events.push(Reverse((to + SECOND, What::Close { path })));
            }
        }
        events.push(Reverse((self.settled, What::Look)));
        let open = |path: u32, at: u64| self.paths.iter().any(|&(id, from, to)| id == path && (from..to).contains(&at));
        let mut errors = Errors { worst: 0.0, mean: 0.0, textbook_worst: 0.0, delay: 0.0, skew_ppm: 0.0 };
        let mut looks = 0.0;
        // Sent `received` gets the unwrapped peer time of a true one.
        let mut peer_time = |time: u64, now: u64| unwrapper.extend(wire(time), now);

        while let Some(Reverse((at, what))) = events.pop() {
            if at > self.length {
                break;
            }
            let silent = match what {
                What::SendThere { .. } | What::ArriveBack { .. } | What::ArriveEcho { .. } => {
                    self.silent(&[Who::Idle, Who::Ours], at)
                }
                What::SendBack { .. } | What::Echo { .. } | What::ArriveThere { .. } => {
                    self.silent(&[Who::Idle, Who::Peer], at)
                }
                _ => None,
            };
            if let Some(until) = silent {
                if matches!(what, What::SendThere { .. } | What::SendBack { .. } | What::Echo { .. }) {
                    events.push(Reverse((until, what)));
                }
                continue;
            }
            match what {
                What::SendThere { path } if open(path, at) => {
                    let delay = (self.delay)(path, Way::There, at, &mut random) as u64;
                    events.push(Reverse((at + delay, What::ArriveThere { path, our_sent: self.ours(at) })));
                    events.push(Reverse((at + self.intervals[0], What::SendThere { path })));
                }
                What::SendBack { path } if open(path, at) => {
                    let delay = (self.delay)(path, Way::Back, at, &mut random) as u64;
                    events.push(Reverse((at + delay, What::ArriveBack { path, peer_sent: self.peer(at) })));
                    events.push(Reverse((at + self.intervals[1], What::SendBack { path })));
                }
                What::Echo { path } if open(path, at) => {
                    if let Some((our_sent, peer_received)) = received[path as usize].take() {
                        let delay = (self.delay)(path, Way::Back, at, &mut random) as u64;
                        if random.unit() >= self.echo_loss {
                            events.push(Reverse((at + delay, What::ArriveEcho { path, our_sent, peer_received })));
                        }
                    }
                    events.push(Reverse((at + 100_000, What::Echo { path })));
                }
                What::ArriveThere { path, our_sent } => {
                    let new = (our_sent, self.peer(at));
                    let held = &mut received[path as usize];
                    let delay = |(sent, received): (u64, u64)| received as i64 - sent as i64;
                    if !self.echo_least || held.is_none_or(|held| delay(new) <= delay(held)) {
                        *held = Some(new);
                    }
                }
                What::ArriveBack { path, peer_sent } => {
                    let now = self.ours(at);
                    clocks.on_arrival(PathId(path), peer_time(peer_sent, now), now);
                    if path == 0 {
                        textbook.add(1, now as f64 - peer_sent as f64, at);
                    }
                }
                What::ArriveEcho { path, our_sent, peer_received } => {
                    let now = self.ours(at);
                    clocks.on_reported(PathId(path), our_sent, peer_time(peer_received, now), now);
                    if path == 0 {
                        textbook.add(0, peer_received as f64 - our_sent as f64, at);
                    }
                }
                What::Close { path } => clocks.path_closed(PathId(path)),
                What::Look => {
                    events.push(Reverse((at + 10_000, What::Look)));
                    if self.pauses.iter().any(|(who, from, to)| {
                        (*from..if *who == Who::Step { *from } else { *to } + 2 * SECOND).contains(&at)
                    }) {
                        continue;
                    }
                    let ours = clocks.to_ours(self.peer(at).wrapping_add(unwrapped)).expect("settled");
                    let error = ours.abs_diff(self.ours(at)) as f64;
                    errors.worst = errors.worst.max(error);
                    errors.mean += error;
                    looks += 1.0;
                    if let Some(offset) = textbook.offset {
                        let truth = self.peer(at) as f64 - self.ours(at) as f64;
                        errors.textbook_worst = errors.textbook_worst.max((offset - truth).abs());
                    }
                }
                What::SendThere { .. } | What::SendBack { .. } | What::Echo { .. } => {}
            }
        }
        errors.mean /= looks;
        errors.skew_ppm = clocks.estimate().expect("settled").skew_ppm;
        if let Some(level) = clocks.paths.iter().find(|path| path.id == PathId(0)).and_then(|path| path.level) {
            let mut still = Random(0);
            let truth =
                (0..200).map(|_| (self.delay)(0, Way::There, self.length - 1, &mut still)).fold(f64::MAX, f64::min);
            errors.delay = (level.rtt / 2.0 + level.asymmetry - truth).abs();
        }
        errors
    }

    /// Runs with several seeds; all must keep to `worst` µs.
    pub(super) fn check(self, name: &str, worst: f64) -> Vec<Errors> {
        (1..=8)
            .map(|seed| {
                let errors =
                    Self { seed, paths: self.paths.clone(), pauses: self.pauses.clone(), ..self }.run_named(name);
                assert!(errors.worst <= worst, "{name}, seed {seed}: {errors:?}");
                errors
            })
            .collect()
    }

    pub(super) fn run_named(self, name: &str) -> Errors {
        let errors = self.run();
        println!("{name:32} seed {} {errors:.1?}", self.seed);
        errors
    }
}

/// Exponential with this mean, as scheduling and access jitter is.
pub(super) fn jitter(mean: f64, random: &mut Random) -> f64 {
    -mean * (1.0 - random.unit()).ln()
}

/// A queue that fills to 50 ms and drains every few seconds, there and back at different times.
pub(super) fn queue(way: Way, at: u64, random: &mut Random) -> f64 {
    let period = if way == Way::There { 1_700_000 } else { 2_300_000 };
    let phase = (at % period) as f64 / period as f64;
    if phase < 0.7 { random.unit() * 50.0 * MS * (phase / 0.7) } else { 0.0 }
}
