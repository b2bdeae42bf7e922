//! Blocks, as drawn.

use super::dice::{Dice, rounded};

/// A source of blocks, or several alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// As results call it.
    pub name: &'static str,
    /// So many alike.
    pub copies: u32,
    /// Of its blocks.
    pub priority: Priority,
    /// Of each block, milliseconds.
    pub deadline_ms: f64,
    /// What it sends.
    pub traffic: Traffic,
}

/// Priorities of a source's blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Priority {
    /// All alike.
    Same(u8),
    /// One block of each from 0 up to, but not, this at every instant.
    Each(u8),
    /// Of I frames, and of P frames.
    Frames(u8, u8),
}

/// What a source sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    /// Messages.
    Messages {
        /// Bytes of each, on average.
        size: u32,
        /// Deviation of the size's logarithm; without, all are alike.
        sigma: Option<f64>,
        /// Milliseconds from one to the next.
        every_ms: f64,
    },
    /// A video.
    Video {
        /// Bits per second.
        bit_rate: f64,
        /// Frames per second.
        fps: u32,
        /// Frames from one I frame to the next.
        gop: u32,
        /// How much larger I frames are than P frames.
        ratio: f64,
        /// Deviation of the sizes' logarithm.
        variation: f64,
        /// Whether P frames refer to the frame before.
        depends: bool,
    },
}

/// What an application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Application {
    /// Messages of one source.
    Messages,
    /// A video whose frames count one by one.
    Frames,
    /// A video whose frames refer to each other.
    Video,
    /// Voices, cameras, a shared screen.
    Conference,
    /// Many sources of small messages.
    Sensors,
}

impl Application {
    /// All of them, equally likely.
    pub const ALL: [Self; 5] = [Self::Messages, Self::Frames, Self::Video, Self::Conference, Self::Sensors];
}

/// What a path has for blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Bits per second on average.
    pub(super) rate: f64,
    /// One way, milliseconds.
    pub(super) delay: f64,
    /// What jitter adds at most, but for one packet in a hundred.
    pub(super) jitter: f64,
}

/// What the network of a cell has room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) ways: &'a [Way],
    /// Bits per second of all together, which is less than their sum if they share a link.
    pub(super) capacity: f64,
}

impl Room<'_> {
    fn least_delay(&self) -> f64 {
        self.ways.iter().map(|way| way.delay).fold(f64::INFINITY, f64::min)
    }

    /// From where to where deadlines are drawn.
    fn deadlines(&self) -> (f64, f64) {
        // What nobody can meet is no deadline: a few packets have to get through.
        let few_packets = |way: &Way| way.delay + way.jitter + FEW_PACKETS / way.rate * 1e3;
        let soonest = self.ways.iter().map(few_packets).fold(f64::INFINITY, f64::min);
        let limited = |ms: f64| rounded(ms.clamp(DEADLINE_LIMITS.0, DEADLINE_LIMITS.1));
        let least = limited((DEADLINES.0 * self.least_delay()).max(soonest));
        (least, limited((DEADLINES.1 * self.least_delay()).max(2.0 * least)))
    }

    /// Bits per second of the paths on which a block can be there in so many milliseconds.
    fn within(&self, deadline: f64) -> f64 {
        let usable = self.ways.iter().filter(|way| way.delay * NOT_IN_TIME < deadline);
        usable.map(|way| way.rate).sum::<f64>().min(self.capacity)
    }

    /// Bits that can be there in so many milliseconds, if all paths have nothing else to do.
    fn burst(&self, deadline: f64) -> f64 {
        let sum: f64 = self.ways.iter().map(|way| way.rate * (deadline - way.delay).max(0.0) / 1e3).sum();
        sum.min(self.capacity * (deadline - self.least_delay()).max(0.0) / 1e3)
    }
}

/// A path whose delay times this exceeds the deadline is of no use for it.
const NOT_IN_TIME: f64 = 1.05;

/// Deadlines as multiples of the least one-way delay, and within what limits, milliseconds.
const DEADLINES: (f64, f64) = (1.1, 12.0);
pub(super) const DEADLINE_LIMITS: (f64, f64) = (20.0, 2000.0);

/// Bits of three full packets.
const FEW_PACKETS: f64 = 3.0 * 1500.0 * 8.0;

/// Of what the paths that can be in time carry on average.
pub(super) const LOADS: (f64, f64) = (0.2, 1.4);

/// Of the bits that can be there in time, how many a burst has at most: what takes longer alone than its deadline is no test.
const MOST_AT_ONCE: f64 = 0.6;
/// The same where sizes are drawn, so that larger ones also fit.
const MOST_AT_ONCE_DRAWN: f64 = 0.3;

/// Time from message to message, milliseconds.
const INTERVALS: (f64, f64) = (5.0, 500.0);
const LEAST_INTERVAL: f64 = 2.0;

/// Bytes of a message.
const LEAST_SIZE: f64 = 20.0;
const GREATEST_SIZE: f64 = 2e6;

/// Of the bits of a conference that are no camera's.
const MOST_VOICE: f64 = 0.7;

/// Time from change to change of a shared screen, milliseconds.
const SCREEN_INTERVALS: (f64, f64) = (50.0, 500.0);

/// Deadlines that are looked at for a camera, in equal factors.
const DEADLINE_STEPS: u32 = 50;

/// Of each group of sensors.
const MOST_SENSORS: u32 = 200;
/// Bytes that each costs beside its own.
const PER_READING: f64 = 20.0;
/// Messages a second of all of them: each may be a packet of its own.
const MOST_READINGS: f64 = 12_000.0;

/// What a cell's application hands over.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Workload {
    pub(super) application: Application,
    pub(super) sources: Vec<Source>,
    /// Bits per second that were meant, which may be more than sources can have.
    pub(super) wanted: f64,
}

/// Draws it.
pub(super) fn draw(dice: &mut Dice, room: Room<'_>) -> Workload {
    let (application, load) = (dice.pick(&Application::ALL), dice.uniform(LOADS));
    let drawn = match application {
        Application::Messages | Application::Sensors => None,
        Application::Frames => video(dice, room, load, false),
        Application::Video => video(dice, room, load, true),
        Application::Conference => conference(dice, room, load),
    };
    if let Some((sources, wanted)) = drawn {
        return Workload { application, sources, wanted };
    }
    let deadline = dice.log_uniform(room.deadlines());
    let wanted = rounded(load * room.within(deadline));
    match application {
        Application::Sensors => Workload { application, sources: sensors(dice, room, deadline, wanted), wanted },
        // What cannot be in time in frames can in smaller pieces.
        _ => {
            let sources = vec![messages(dice, room, deadline, wanted)];
            Workload { application: Application::Messages, sources, wanted }
        }
    }
}

fn messages(dice: &mut Dice, room: Room<'_>, deadline_ms: f64, bits: f64) -> Source {
    let sigma = dice.chance(0.5).then(|| dice.uniform((0.2, 0.8)));
    let priorities = if dice.chance(0.5) { 1 } else { dice.whole(2, 3) as u8 };
    let traffic = message_traffic(dice, room, deadline_ms, bits, sigma, INTERVALS, priorities);
    let priority = if priorities == 1 { Priority::Same(0) } else { Priority::Each(priorities) };
    Source { name: "messages", copies: 1, priority, deadline_ms, traffic }
}

fn message_traffic(
    dice: &mut Dice,
    room: Room<'_>,
    deadline_ms: f64,
    bits: f64,
    sigma: Option<f64>,
    intervals: (f64, f64),
    at_once: u8,
) -> Traffic {
    let most = if sigma.is_some() { MOST_AT_ONCE_DRAWN } else { MOST_AT_ONCE };
    // The bits of a burst, and from them the time from one to the next.
    let most = (most * room.burst(deadline_ms)).min(GREATEST_SIZE * 8.0);
    let longest = (most / bits * 1e3).min(intervals.1);
    let every_ms = if longest > intervals.0 { dice.log_uniform((intervals.0, longest)) } else { longest };
    // Too little time even for what comes that often: then it is less.
    let every_ms = rounded(every_ms).max(LEAST_INTERVAL);
    let burst = (bits * every_ms / 1e3).min(most) / 8.0;
    let size = (burst / f64::from(at_once)).max(LEAST_SIZE).round() as u32;
    Traffic::Messages { size, sigma, every_ms }
}

/// A camera, before it is known how much it sends.
struct Camera {
    fps: u32,
    gop: u32,
    ratio: f64,
    variation: f64,
    /// A deadline for which its I frames are small enough.
    deadline_ms: f64,
}

impl Camera {
    /// Draws one that makes so much of what can be in time; `None` if its I frames could not be.
    fn draw(dice: &mut Dice, room: Room<'_>, load: f64) -> Option<Self> {
        let gop = dice.whole(15, 120);
        let ratio = dice.uniform((3.0, 10.0));
        let fps = dice.pick(&[15, 24, 25, 30, 50, 60]);
        let variation = if dice.chance(0.3) { 0.0 } else { dice.uniform((0.05, 0.4)) };
        let fits = |fps: u32, ratio: f64, deadline: f64| {
            let of_mean = ratio * f64::from(gop) / (f64::from(gop) - 1.0 + ratio);
            load * room.within(deadline) / f64::from(fps) * of_mean <= MOST_AT_ONCE * room.burst(deadline)
        };
        // More, and more equal, frames only where no deadline will do.
        let tries = [(fps, ratio), (60, ratio), (60, 3.0), (120, 3.0)];
        let (low, high) = room.deadlines();
        let grid: Vec<f64> = (0..=DEADLINE_STEPS)
            .map(|n| rounded(low * (high / low).powf(f64::from(n) / f64::from(DEADLINE_STEPS))))
            .collect();
        tries.into_iter().find_map(|(fps, ratio)| {
            let fit: Vec<f64> = grid.iter().copied().filter(|deadline| fits(fps, ratio, *deadline)).collect();
            let deadline_ms = if fit.is_empty() { return None } else { dice.pick(&fit) };
            Some(Self { fps, gop, ratio, variation, deadline_ms })
        })
    }

    fn source(&self, name: &'static str, copies: u32, bits: f64, priority: Priority, depends: bool) -> Source {
        let Self { fps, gop, ratio, variation, deadline_ms } = *self;
        let bit_rate = rounded(bits / f64::from(copies));
        let traffic = Traffic::Video { bit_rate, fps, gop, ratio, variation, depends };
        Source { name, copies, priority, deadline_ms, traffic }
    }
}

fn video(dice: &mut Dice, room: Room<'_>, load: f64, depends: bool) -> Option<(Vec<Source>, f64)> {
    let camera = Camera::draw(dice, room, load)?;
    let bits = load * room.within(camera.deadline_ms);
    let priority = if dice.chance(0.5) { Priority::Same(0) } else { Priority::Frames(0, 1) };
    Some((vec![camera.source("video", 1, bits, priority, depends)], bits))
}

/// Three or four priorities.
fn conference(dice: &mut Dice, room: Room<'_>, load: f64) -> Option<(Vec<Source>, f64)> {
    let people = dice.whole(1, 4);
    let of_cameras = dice.uniform((0.5, 0.85));
    // Cameras are not in step, but two I frames may meet.
    let camera = Camera::draw(dice, room, load * of_cameras)?;
    let bits = load * room.within(camera.deadline_ms);
    let least = room.deadlines().0;
    let voice_deadline = rounded((camera.deadline_ms / dice.uniform((1.0, 1.5))).max(least));
    let every_ms = dice.pick(&[10.0, 20.0, 40.0]);
    let voice_bits = (dice.log_uniform((24e3, 128e3)) * f64::from(people)).min(bits * MOST_VOICE * (1.0 - of_cameras));
    let size = (voice_bits / f64::from(people) * every_ms / 8e3).max(LEAST_SIZE / 2.0).round() as u32;
    let voice = Source {
        name: "voice",
        copies: people,
        priority: Priority::Same(0),
        deadline_ms: voice_deadline,
        traffic: Traffic::Messages { size, sigma: None, every_ms },
    };
    let (priority, last) = if dice.chance(0.5) { (Priority::Frames(1, 2), 3) } else { (Priority::Same(1), 2) };
    let depends = dice.chance(0.5);
    let cameras = camera.source("camera", people, bits * of_cameras, priority, depends);
    let deadline_ms = rounded((camera.deadline_ms * dice.uniform((1.0, 3.0))).min(DEADLINE_LIMITS.1));
    let rest = (bits - cameras.bit_rate() - voice.bit_rate()).max(bits * 0.05);
    let sigma = Some(dice.uniform((0.3, 0.8)));
    let traffic = message_traffic(dice, room, deadline_ms, rest, sigma, SCREEN_INTERVALS, 1);
    let screen = Source { name: "screen", copies: 1, priority: Priority::Same(last), deadline_ms, traffic };
    Some((vec![voice, cameras, screen], bits))
}

/// Two to four groups, of which the first is the most important.
fn sensors(dice: &mut Dice, room: Room<'_>, deadline_ms: f64, bits: f64) -> Vec<Source> {
    const NAMES: [&str; 4] = ["alarms", "control", "readings", "logs"];
    let groups = dice.whole(2, 4);
    let of = |group: u32| {
        let hz = dice.log_uniform((10.0, 200.0));
        let deadline_ms = rounded((deadline_ms * dice.uniform((1.0, 3.0))).min(DEADLINE_LIMITS.1));
        let most = MOST_AT_ONCE * room.burst(deadline_ms) / 8.0;
        let share = bits / f64::from(groups);
        // One sensor alone must not be too much: rather smaller than rarer.
        let size = dice.log_uniform((LEAST_SIZE, 1000.0)).min(most).min(share / hz / 8.0).max(LEAST_SIZE).round();
        // What has to be said of each reading counts, where that is hardly less than the reading.
        let bits = (size + PER_READING) * 8.0;
        let hz = hz.min(share / bits);
        let wanted = share / (bits * hz);
        let copies = wanted.min(MOST_READINGS / f64::from(groups) / hz).round().clamp(1.0, MOST_SENSORS.into());
        let traffic = Traffic::Messages { size: size as u32, sigma: None, every_ms: rounded(1e3 / hz) };
        Source {
            name: NAMES[group as usize],
            copies: copies as u32,
            priority: Priority::Same(group as u8),
            deadline_ms,
            traffic,
        }
    };
    (0..groups).map(of).collect()
}

impl Source {
    /// Bits per second of all copies.
    pub fn bit_rate(&self) -> f64 {
        let one = match &self.traffic {
            Traffic::Messages { size, every_ms, .. } => f64::from(*size) * f64::from(self.at_once()) * 8e3 / every_ms,
            Traffic::Video { bit_rate, .. } => *bit_rate,
        };
        one * f64::from(self.copies)
    }

    /// Blocks handed over at one instant.
    pub fn at_once(&self) -> u8 {
        if let Priority::Each(priorities) = self.priority { priorities } else { 1 }
    }

    /// Blocks a second of all copies.
    pub fn blocks_per_second(&self) -> f64 {
        let one = match &self.traffic {
            Traffic::Messages { every_ms, .. } => f64::from(self.at_once()) * 1e3 / every_ms,
            Traffic::Video { fps, .. } => f64::from(*fps),
        };
        one * f64::from(self.copies)
    }

    /// Packets a second of all copies, if each block has packets of its own.
    pub(super) fn packets_per_second(&self) -> f64 {
        let packets = (self.bit_rate() / self.blocks_per_second() / 8.0 / PAYLOAD).ceil();
        self.blocks_per_second() * packets
    }

    /// The same with so much less to send, at least in packets: fewer copies, and less of each where that is not enough.
    pub(super) fn lighter(mut self, factor: f64) -> Self {
        let copies = (f64::from(self.copies) * factor).floor().max(1.0);
        let factor = factor * f64::from(self.copies) / copies;
        self.copies = copies as u32;
        match &mut self.traffic {
            Traffic::Messages { every_ms, .. } => *every_ms = rounded(*every_ms / factor.min(1.0)),
            Traffic::Video { bit_rate, .. } => *bit_rate = rounded(*bit_rate * factor.min(1.0)),
        }
        self
    }
}

/// Bytes of a packet that are a block's, about.
pub(super) const PAYLOAD: f64 = 1200.0;
