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

/// What the network of a cell has room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    /// Of each path: bits per second on average, and milliseconds one way.
    pub(super) paths: &'a [(f64, f64)],
    /// Bits per second of all together, which is less than their sum if they share a link.
    pub(super) capacity: f64,
}

impl Room<'_> {
    fn least_delay(&self) -> f64 {
        self.paths.iter().map(|path| path.1).fold(f64::INFINITY, f64::min)
    }

    /// Bits per second of the paths on which a block can be there in so many milliseconds.
    fn within(&self, deadline: f64) -> f64 {
        let usable = self.paths.iter().filter(|path| path.1 * NOT_IN_TIME < deadline);
        usable.map(|path| path.0).sum::<f64>().min(self.capacity)
    }

    /// Bits that can be there in so many milliseconds, if all paths have nothing else to do.
    fn burst(&self, deadline: f64) -> f64 {
        let sum: f64 = self.paths.iter().map(|(rate, delay)| rate * (deadline - delay).max(0.0) / 1e3).sum();
        sum.min(self.capacity * (deadline - self.least_delay()).max(0.0) / 1e3)
    }
}

/// A path whose delay times this exceeds the deadline is of no use for it.
const NOT_IN_TIME: f64 = 1.05;

/// Deadlines as multiples of the least one-way delay, and within what limits, milliseconds.
const DEADLINES: (f64, f64) = (1.1, 12.0);
pub(super) const DEADLINE_LIMITS: (f64, f64) = (20.0, 2000.0);

/// Of what the paths carry on average.
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

/// Of the bits of a conference.
const MOST_VOICE: f64 = 0.3;

/// Of each group of sensors.
const MOST_SENSORS: u32 = 200;
/// Messages a second of all of them: each may be a packet of its own.
const MOST_READINGS: f64 = 12_000.0;

/// What a cell's application hands over.
pub(super) fn draw(dice: &mut Dice, room: Room<'_>) -> (Application, Vec<Source>) {
    let least = room.least_delay();
    let limited = |factor: f64| (factor * least).clamp(DEADLINE_LIMITS.0, DEADLINE_LIMITS.1);
    let deadline = dice.log_uniform((limited(DEADLINES.0), limited(DEADLINES.1)));
    let bits = rounded(dice.uniform(LOADS) * room.within(deadline));
    let wanted = dice.pick(&Application::ALL);
    let sources = match wanted {
        Application::Messages => None,
        Application::Frames => video(dice, room, deadline, bits, false).map(|video| vec![video]),
        Application::Video => video(dice, room, deadline, bits, true).map(|video| vec![video]),
        Application::Conference => conference(dice, room, deadline, bits),
        Application::Sensors => Some(sensors(dice, room, deadline, bits)),
    };
    // What cannot be in time in frames can in smaller pieces.
    sources.map_or_else(|| (Application::Messages, vec![messages(dice, room, deadline, bits)]), |sources| (wanted, sources))
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

/// A video; `None` if its I frames could not be in time.
fn video(dice: &mut Dice, room: Room<'_>, deadline_ms: f64, bits: f64, depends: bool) -> Option<Source> {
    let gop = dice.whole(15, 120);
    let ratio = dice.uniform((3.0, 10.0));
    let fps = dice.pick(&[15, 24, 25, 30, 50, 60]);
    let variation = if dice.chance(0.3) { 0.0 } else { dice.uniform((0.05, 0.4)) };
    let priority = if dice.chance(0.5) { Priority::Same(0) } else { Priority::Frames(0, 1) };
    // More, and more equal, frames where they have to be smaller.
    let tries = [(fps, ratio), (60, ratio), (60, 3.0), (120, 3.0)];
    let most = |(fps, ratio): (u32, f64)| {
        let of_mean = ratio * f64::from(gop) / (f64::from(gop) - 1.0 + ratio);
        MOST_AT_ONCE * room.burst(deadline_ms) * f64::from(fps) / of_mean
    };
    let (fps, ratio) = tries.into_iter().find(|one| most(*one) >= bits).unwrap_or(tries[3]);
    let bit_rate = rounded(bits.min(most((fps, ratio))));
    let enough = bit_rate >= LOADS.0 * room.within(deadline_ms);
    let traffic = Traffic::Video { bit_rate, fps, gop, ratio, variation, depends };
    enough.then_some(Source { name: "video", copies: 1, priority, deadline_ms, traffic })
}

/// Three or four priorities; `None` if its videos cannot be.
fn conference(dice: &mut Dice, room: Room<'_>, deadline_ms: f64, bits: f64) -> Option<Vec<Source>> {
    let people = dice.whole(1, 4);
    let later = |factor: f64| rounded((deadline_ms * factor).min(DEADLINE_LIMITS.1));
    let every_ms = dice.pick(&[10.0, 20.0, 40.0]);
    let voice_bits = (dice.log_uniform((24e3, 128e3)) * f64::from(people)).min(bits * MOST_VOICE);
    let size = (voice_bits / f64::from(people) * every_ms / 8e3).max(LEAST_SIZE / 2.0).round() as u32;
    let voice = Source {
        name: "voice",
        copies: people,
        priority: Priority::Same(0),
        deadline_ms,
        traffic: Traffic::Messages { size, sigma: None, every_ms },
    };
    let rest = bits - voice.bit_rate();
    let for_cameras = rest * dice.uniform((0.5, 0.85));
    let depends = dice.chance(0.5);
    let camera_deadline = later(dice.uniform((1.0, 1.5)));
    // Cameras are not in step, but two I frames may meet.
    let camera = video(dice, room, camera_deadline, for_cameras, depends)?;
    let Traffic::Video { bit_rate, fps, gop, ratio, variation, depends } = camera.traffic else { return None };
    let bit_rate = rounded(bit_rate / f64::from(people));
    let traffic = Traffic::Video { bit_rate, fps, gop, ratio, variation, depends };
    let (priority, last) =
        if dice.chance(0.5) { (Priority::Frames(1, 2), 3) } else { (Priority::Same(1), 2) };
    let cameras = Source { name: "camera", copies: people, priority, traffic, ..camera };
    let screen_deadline = later(dice.uniform((1.5, 4.0)));
    let sigma = Some(dice.uniform((0.3, 0.8)));
    let traffic = message_traffic(dice, room, screen_deadline, rest - for_cameras, sigma, (50.0, 500.0), 1);
    let screen =
        Source { name: "screen", copies: 1, priority: Priority::Same(last), deadline_ms: screen_deadline, traffic };
    Some(vec![voice, cameras, screen])
}

/// Two to four groups, of which the first is the most important.
fn sensors(dice: &mut Dice, room: Room<'_>, deadline_ms: f64, bits: f64) -> Vec<Source> {
    const NAMES: [&str; 4] = ["alarms", "control", "readings", "logs"];
    let groups = dice.whole(2, 4);
    let of = |group: u32| {
        let hz = dice.log_uniform((10.0, 200.0));
        let deadline_ms = rounded((deadline_ms * dice.uniform((1.0, 3.0))).min(DEADLINE_LIMITS.1));
        let most = MOST_AT_ONCE * room.burst(deadline_ms) / 8.0;
        let size = dice.log_uniform((LEAST_SIZE, 1000.0)).min(most).max(LEAST_SIZE).round();
        let wanted = bits / f64::from(groups) / (size * 8.0 * hz);
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
            Traffic::Messages { size, every_ms, .. } => {
                f64::from(*size) * f64::from(self.at_once()) * 8e3 / every_ms
            }
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
