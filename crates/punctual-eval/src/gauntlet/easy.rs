//! Which cells are easy: nothing in them excuses who does not come near the bound.
//!
//! The bound knows the future, ignores losses and congestion control, and asks nothing of the way back, so that far from it may mean
//! much or nothing. In an easy cell it means something: there is room for everything, time to send again what is lost, and a queue
//! that holds what has to wait. That is judged from the cell as drawn, before anything is run.

use std::time::Duration;

use punctual_sim::{Rate as BuiltRate, trace::Opportunities};

use super::{
    cell::Cell,
    path::{Path, Rate},
    source::{Source, Traffic},
};
use crate::network::Network;

/// Bytes that a packet and a block cost beside the blocks' own: IP, UDP, QUIC and ours; and what is said of each block.
const PER_PACKET: f64 = 60.0;
const PER_BLOCK: f64 = 20.0;

/// Blocks share a packet if they come within this part of their deadline.
const PACKED_WITHIN: f64 = 1.0 / 3.0;

/// Of the capacity at its lowest, what may be asked of it: on the whole, and for a burst within its deadline.
const MOST_LOAD: f64 = 0.7;
const MOST_OF_BURST: f64 = 0.7;

/// Time to send again what was lost, in round trips; or so little is lost that it need not be.
const ROUND_TRIPS: f64 = 2.5;
const HARDLY_ANY_LOSS: f64 = 0.001;

/// When the first sending of something arrives, and how much later each further one, in round trips.
const FIRST_TRY: f64 = 0.5;
const NEXT_TRY: f64 = 1.25;

/// The most blocks that may be of no use because one they depend on was lost for good.
const MOST_BROKEN: f64 = 0.05;

/// What a queue holds at least, packets and milliseconds.
const LEAST_QUEUE: (f64, f64) = (8.0, 10.0);

/// Of the capacity, what may not die.
const MOST_DYING: f64 = 0.5;

/// Of the windows of a recording as long as a deadline, those that carry less are left to bad luck.
const LOWEST_WINDOWS: f64 = 0.05;

/// 99 % quantile of the standard normal distribution.
const Z99: f64 = 2.326;

/// Why a cell is not easy; nothing if it is. `network` is the cell's as built, of which only recordings are looked at.
pub(super) fn hard(cell: &Cell, network: &Network) -> Vec<String> {
    let trace = |path: usize| match network.paths.get(path).map(|path| &path.forward.rate) {
        Some(BuiltRate::Trace(trace)) => Some(trace),
        _ => None,
    };
    let needs: Vec<Need> = cell.sources.iter().map(|source| Need::new(cell, source, &trace)).collect();
    let mut why: Vec<String> = needs.iter().flat_map(|need| need.hard(cell)).collect();
    for need in &needs {
        // Who can use no other paths than these shares them.
        let within = |other: &&Need| other.lanes.iter().all(|lane| need.lanes.iter().any(|own| own.path == lane.path));
        let bits: f64 = needs.iter().filter(within).map(|other| other.bits).sum();
        let room = together(cell, need.lanes.iter().map(|lane| (lane.path, lane.floor)), 1.0);
        let load = bits / room.max(1.0);
        if !need.lanes.is_empty() && load > MOST_LOAD {
            why.push(format!("{}: load {load:.2} of what is there at the lowest", need.name));
        }
    }
    let capacity = cell.capacity();
    let dying = |path: &&Path| path.dies.is_some() && path.mean_rate() > MOST_DYING * capacity;
    if cell.paths.iter().any(|path| dying(&path)) {
        why.push("the path with most of the capacity dies".into());
    }
    why.sort();
    why.dedup();
    why
}

/// A path that is of use to a source.
struct Lane {
    path: usize,
    /// Bits per second at its lowest.
    floor: f64,
    /// One way at its longest, milliseconds; and a round trip.
    delay: f64,
    round_trip: f64,
    /// Of packets.
    loss: f64,
    /// What its queue holds, bytes and milliseconds.
    queue: (f64, f64),
}

/// What a source asks for.
struct Need {
    name: &'static str,
    deadline: f64,
    /// Bits per second on the wire.
    bits: f64,
    /// Bits that come at once, at most.
    burst: f64,
    /// Packets of a block, and how many blocks are lost with one.
    packets: f64,
    chain: f64,
    lanes: Vec<Lane>,
}

impl Need {
    fn new<'a>(cell: &Cell, source: &Source, trace: &impl Fn(usize) -> Option<&'a Opportunities>) -> Self {
        let (mean, largest, chain) = sizes(source);
        let mtu = cell.paths.iter().map(|path| f64::from(path.mtu)).fold(f64::INFINITY, f64::min);
        let payload = mtu - PER_PACKET;
        let wire = |bytes: f64| bytes + PER_BLOCK + ((bytes + PER_BLOCK) / payload).ceil() * PER_PACKET;
        let largest_bits = wire(largest) * 8.0;
        let window = Duration::from_secs_f64(source.deadline_ms / 1e3);
        let lanes = cell.paths.iter().enumerate().map(|(index, path)| {
            let floor = trace(index).map_or_else(|| lowest_rate(path), |trace| lowest_of(trace, window, cell.seconds));
            let policed = path.policer.map_or(f64::INFINITY, |(rate, _)| rate);
            lane(cell, index, floor.min(policed) - path.cross.map_or(0.0, |cross| cross.rate))
        });
        let in_time = |lane: &Lane| lane.delay + largest_bits / lane.floor.max(1.0) * 1e3 <= source.deadline_ms;
        Self {
            name: source.name,
            deadline: source.deadline_ms,
            bits: source.blocks_per_second() * (mean + PER_BLOCK) * 8.0
                + packets_per_second(source, mean + PER_BLOCK, payload) * PER_PACKET * 8.0,
            burst: largest_bits * f64::from(source.at_once()),
            packets: ((mean + PER_BLOCK) / payload).ceil(),
            chain,
            lanes: lanes.filter(in_time).collect(),
        }
    }

    /// Why this source is not easy to serve, whatever others there are.
    fn hard(&self, cell: &Cell) -> Vec<String> {
        let (name, mut why) = (self.name, Vec::new());
        if self.lanes.is_empty() {
            return vec![format!("{name}: no path is in time at its lowest")];
        }
        let time = |lane: &Lane| (self.deadline - lane.delay) / 1e3;
        // A link that is shared has as long as the path to it that is shortest leaves it.
        let longest = self.lanes.iter().map(time).fold(0.0, f64::max);
        let room = together(cell, self.lanes.iter().map(|lane| (lane.path, lane.floor * time(lane))), longest);
        if self.burst > MOST_OF_BURST * room {
            why.push(format!("{name}: a burst takes too long"));
        }
        let short = |lane: &Lane| self.deadline < ROUND_TRIPS * lane.round_trip && lane.loss > HARDLY_ANY_LOSS;
        if self.lanes.iter().any(short) {
            why.push(format!("{name}: no time to send again what is lost"));
        }
        let broken = self.lanes.iter().map(|lane| self.lost_for_good(lane)).fold(0.0, f64::max) * self.chain;
        if self.chain > 1.0 && broken > MOST_BROKEN {
            why.push(format!("{name}: {:.0} % of chains break", broken.min(1.0) * 100.0));
        }
        let (packets, ms) = LEAST_QUEUE;
        if self.lanes.iter().any(|lane| lane.queue.0 < packets * 1500.0 || lane.queue.1 < ms) {
            why.push(format!("{name}: a queue holds too little"));
        }
        why
    }

    /// How likely a block is not to come through on a path, however often what is lost is sent again in time.
    fn lost_for_good(&self, lane: &Lane) -> f64 {
        let tries = 1.0 + ((self.deadline / lane.round_trip - FIRST_TRY) / NEXT_TRY).floor().max(0.0);
        (self.packets * lane.loss.powf(tries)).min(1.0)
    }
}

/// What a path is to a source at its worst; a shared link behind it counted.
fn lane(cell: &Cell, index: usize, floor: f64) -> Lane {
    let path = &cell.paths[index];
    let shared = cell.shared.filter(|shared| shared.paths.contains(&index));
    let longest = path.delay.iter().map(|step| step.1).fold(0.0, f64::max) + shared.map_or(0.0, |shared| shared.delay);
    let jitter = path.jitter.map_or(0.0, |jitter| jitter.most_ms());
    let held_back = path.reordering.map_or(0.0, |(_, ms)| ms);
    let back = path.back.jitter.map_or(jitter, |jitter| jitter.most_ms());
    let fastest = match &path.rate {
        Rate::Steps(steps) => steps.iter().map(|step| step.1).fold(0.0, f64::max),
        Rate::Recorded(recorded) => recorded.rate(),
    };
    // A policer's burst is all the queue that it has.
    let policed = path.policer.map(|(rate, burst)| (burst as f64, burst as f64 * 8e3 / rate));
    let behind = shared.map(|shared| (shared.queue.bytes as f64, shared.queue.bytes as f64 * 8e3 / shared.rate));
    let own = (path.queue.bytes as f64, path.queue.bytes as f64 * 8e3 / fastest);
    let queue =
        policed.into_iter().chain(behind).fold(own, |least, queue| (queue.0.min(least.0), queue.1.min(least.1)));
    Lane {
        path: index,
        floor: floor.max(0.0),
        delay: longest + jitter + held_back,
        round_trip: (2.0 * longest + jitter + back + held_back).max(1e-3),
        loss: path.loss.mean(),
        queue,
    }
}

/// Bits per second at its lowest step; nothing if it stalls.
fn lowest_rate(path: &Path) -> f64 {
    let Rate::Steps(steps) = &path.rate else { return 0.0 };
    let lowest = steps.iter().map(|step| step.1).fold(f64::INFINITY, f64::min);
    if path.stalls.is_empty() { lowest } else { 0.0 }
}

/// Bits per second that all but a few of the windows of a recording carry.
fn lowest_of(trace: &Opportunities, window: Duration, seconds: f64) -> f64 {
    // Four windows begin in the time of one.
    let step = window.as_secs_f64() / 4.0;
    let begins =
        (0..).map(|n| f64::from(n) * step).take_while(|begin| begin + window.as_secs_f64() <= seconds.max(step * 4.0));
    let times = trace.times();
    let by = |time: f64| times.partition_point(|at| at.as_secs_f64() < time) as f64;
    let mut carried: Vec<f64> = begins.map(|begin| by(begin + window.as_secs_f64()) - by(begin)).collect();
    carried.sort_by(f64::total_cmp);
    let lowest = carried.get((carried.len() as f64 * LOWEST_WINDOWS) as usize).copied().unwrap_or(0.0);
    lowest * f64::from(Opportunities::BYTES) * 8.0 / window.as_secs_f64()
}

/// What paths carry together, given what each does: those that share a link no more than that does in so many seconds.
fn together(cell: &Cell, amounts: impl Iterator<Item = (usize, f64)>, seconds: f64) -> f64 {
    let (mut own, mut behind) = (0.0, 0.0);
    for (path, amount) in amounts {
        match cell.shared {
            Some(shared) if shared.paths.contains(&path) => behind += amount,
            _ => own += amount,
        }
    }
    own + cell.shared.map_or(0.0, |shared| behind.min(shared.rate * seconds))
}

/// Packets that a source's blocks need, of `bytes` each.
fn packets_per_second(source: &Source, bytes: f64, payload: f64) -> f64 {
    let alone = source.blocks_per_second() * (bytes / payload).ceil();
    let window = source.deadline_ms / 1e3 * PACKED_WITHIN;
    let in_window = source.blocks_per_second() * window;
    alone.min((in_window.max(1.0) * bytes / payload).ceil() / window)
}

/// Bytes of a block on average and at most, all but 1 % of them; and how many are lost with one that is.
fn sizes(source: &Source) -> (f64, f64, f64) {
    match &source.traffic {
        Traffic::Messages { size, sigma, .. } => {
            let (size, sigma) = (f64::from(*size), sigma.unwrap_or(0.0));
            (size, size * (Z99 * sigma - sigma * sigma / 2.0).exp(), 1.0)
        }
        Traffic::Video { bit_rate, fps, gop, ratio, variation, depends } => {
            let mean = bit_rate / f64::from(*fps) / 8.0;
            let length = f64::from(*gop);
            let first = mean * ratio * length / (length - 1.0 + ratio);
            let largest = first * (Z99 * variation - variation * variation / 2.0).exp();
            (mean, largest, if *depends { length } else { 1.0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            cell::{Cut, Shared},
            path::{Back, Jitter, Loss, Queue, QueueBy},
            source::{Application, Priority},
        },
        *,
    };
    use crate::network::Path as Built;

    /// 10 Mbit/s, 20 ms, all that is good.
    fn path() -> Path {
        Path {
            rate: Rate::Steps(vec![(0.0, 10e6)]),
            delay: vec![(0.0, 20.0)],
            queue: Queue { bytes: 60_000, by: QueueBy::Bytes },
            loss: Loss::None,
            loses_back: false,
            jitter: None,
            reordering: None,
            dies: None,
            stalls: Vec::new(),
            policer: None,
            mtu: 1500,
            ecn_threshold: None,
            cross: None,
            back: Back::default(),
        }
    }

    fn messages(size: u32, every_ms: f64) -> Source {
        let traffic = Traffic::Messages { size, sigma: None, every_ms };
        Source { name: "messages", copies: 1, priority: Priority::Same(0), deadline_ms: 120.0, traffic }
    }

    fn video(bit_rate: f64, depends: bool) -> Source {
        let traffic = Traffic::Video { bit_rate, fps: 30, gop: 30, ratio: 4.0, variation: 0.0, depends };
        Source { name: "video", traffic, ..messages(1, 1.0) }
    }

    /// 4 Mbit/s in messages over one good path.
    fn cell() -> Cell {
        Cell {
            number: 0,
            wide: false,
            seconds: 10.0,
            paths: vec![path()],
            shared: None,
            application: Application::Messages,
            sources: vec![messages(10_000, 20.0)],
            bulk: false,
            cut: Cut::default(),
        }
    }

    fn why(cell: &Cell) -> String {
        hard(cell, &Network::default()).join("; ")
    }

    #[track_caller]
    fn hard_for(word: &str, change: impl FnOnce(&mut Cell)) {
        let mut cell = cell();
        change(&mut cell);
        let why = why(&cell);
        assert!(why.contains(word), "{word}: {why}");
    }

    #[track_caller]
    fn still_easy(change: impl FnOnce(&mut Cell)) {
        let mut cell = cell();
        change(&mut cell);
        assert_eq!(why(&cell), "");
    }

    #[test]
    fn a_good_path_with_half_a_load_is_easy() {
        still_easy(|_| ());
        still_easy(|cell| cell.sources = vec![video(4e6, true)]);
        still_easy(|cell| cell.paths.push(Path { delay: vec![(0.0, 300.0)], loss: Loss::Random(0.1), ..path() }));
    }

    #[test]
    fn too_much_is_not() {
        hard_for("load 0.8", |cell| cell.sources = vec![messages(10_000, 10.5)]);
        hard_for("load", |cell| cell.sources.push(messages(10_000, 20.0)));
        hard_for("load", |cell| cell.paths[0].rate = Rate::Steps(vec![(0.0, 10e6), (0.5, 5e6)]));
        hard_for("load", |cell| cell.paths[0].policer = Some((5e6, 100_000)));
        hard_for("load", |cell| {
            cell.paths[0].cross = Some(super::super::Cross { rate: 5e6, pattern: super::super::Pattern::Poisson })
        });
        hard_for("no path is in time", |cell| cell.paths[0].stalls = vec![(0.5, 50.0)]);
    }

    #[test]
    fn two_paths_have_room_for_more_unless_they_share_it() {
        let two = |cell: &mut Cell| {
            cell.paths.push(path());
            cell.sources = vec![messages(10_000, 8.0)];
        };
        still_easy(two);
        let queue = Queue { bytes: 60_000, by: QueueBy::Bytes };
        let shared = |rate| Some(Shared { paths: [0, 1], rate, delay: 0.0, queue });
        hard_for("load", |cell| {
            two(cell);
            cell.shared = shared(10e6);
        });
        still_easy(|cell| {
            two(cell);
            cell.shared = shared(18e6);
        });
        // Who can only use the one path has it to share with who could use both.
        hard_for("messages: load", |cell| {
            two(cell);
            cell.paths[1].delay = vec![(0.0, 200.0)];
            cell.sources = vec![messages(10_000, 16.0), Source { deadline_ms: 700.0, ..messages(10_000, 16.0) }];
            cell.sources.push(messages(10_000, 32.0));
        });
    }

    #[test]
    fn small_messages_are_easy_if_they_can_share_packets() {
        let sensors = |copies, deadline_ms| {
            move |cell: &mut Cell| {
                cell.sources = vec![Source { copies, deadline_ms, ..messages(60, 10.0) }];
            }
        };
        still_easy(sensors(70, 120.0));
        // 8,000 blocks a second of 80 bytes: in packets of their own they are 9 Mbit/s, in packets of 18 they are 5.4.
        still_easy(sensors(80, 120.0));
        hard_for("load", |cell| {
            cell.sources = vec![Source { copies: 80, deadline_ms: 120.0, ..messages(60, 10.0) }; 2];
        });
    }

    #[test]
    fn what_comes_at_once_has_to_fit() {
        hard_for("no path is in time", |cell| cell.sources = vec![messages(130_000, 1000.0)]);
        hard_for("burst", |cell| {
            cell.sources = vec![Source { priority: Priority::Each(3), ..messages(40_000, 1000.0) }]
        });
        hard_for("no path is in time", |cell| cell.paths[0].jitter = Some(Jitter::Exponential(22.0)));
    }

    #[test]
    fn losses_need_time() {
        let lossy = |share, delay| {
            move |cell: &mut Cell| {
                cell.paths[0].loss = Loss::Random(share);
                cell.paths[0].delay = vec![(0.0, delay)];
            }
        };
        still_easy(lossy(0.05, 20.0));
        still_easy(lossy(0.0009, 25.0));
        hard_for("no time to send again", lossy(0.05, 25.0));
        hard_for("chains break", |cell| {
            lossy(0.08, 20.0)(cell);
            cell.sources = vec![video(3e6, true)];
        });
        still_easy(|cell| {
            lossy(0.08, 20.0)(cell);
            cell.sources = vec![video(3e6, false)];
        });
    }

    #[test]
    fn queues_have_to_hold_something_and_paths_to_live() {
        hard_for("queue", |cell| cell.paths[0].queue.bytes = 11_000);
        hard_for("queue", |cell| {
            cell.paths[0].rate = Rate::Steps(vec![(0.0, 100e6)]);
            cell.paths[0].queue.bytes = 100_000;
        });
        hard_for("dies", |cell| cell.paths[0].dies = Some((0.5, 1.0)));
        still_easy(|cell| {
            cell.paths.extend([path(), path()]);
            cell.paths[1].dies = Some((0.5, 1.0));
        });
    }

    #[test]
    fn of_a_recording_the_lowest_windows_count() {
        // A packet each millisecond, 12 Mbit/s, but for the fifth second, which has one in three.
        let trace: String = (1..=10_000).filter(|n| n / 1000 != 5 || n % 3 == 0).map(|n| format!("{n}\n")).collect();
        let trace = Opportunities::parse(&trace).unwrap();
        let lowest = lowest_of(&trace, Duration::from_millis(120), 10.0);
        assert!((3.9e6..4.2e6).contains(&lowest), "{lowest}");
        assert!(lowest_of(&trace, Duration::from_millis(120), 5.0) > 11.9e6);
        let mut cell = cell();
        let recorded = super::super::recorded::STRETCHES[0];
        cell.paths[0].rate = Rate::Recorded(recorded);
        let link = punctual_sim::LinkSpec { rate: BuiltRate::Trace(trace), ..punctual_sim::LinkSpec::default() };
        let built = Built { forward: link.clone(), back: link, ..Built::default() };
        let network = Network { paths: vec![built], links: Vec::new() };
        assert!(hard(&cell, &network).join("").contains("load"));
        cell.seconds = 4.0;
        assert!(hard(&cell, &network).is_empty());
    }
}
