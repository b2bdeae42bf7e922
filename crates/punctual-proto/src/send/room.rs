//! How many bytes of ours find room in a queue at once.
//!
//! A queue of a packet or two loses all but the first of what leaves together, and a packet lost there found next to no queue: what tells is not how long
//! the queue was that others found, but how much of ours was on its way to it. So of each packet it is noted how full the queue was to be of what we had sent, itself
//! included, and from which fill on packets are lost:
//!
//! ```text
//! Λ = Σ ln L(loss p₁ up to a fill, p₂ beyond it) − ln L(one p for all)    for the fill for which that is most; Σ: over packets behind one that arrived,
//!                                                                          and behind one that was lost
//! ```
//!
//! A path that loses packets by itself, be it in bursts, does so whatever its fill, given what became of the one before. What leaves no faster than the link
//! passes it on waits nowhere: to keep to the limit costs nothing but the packets that would have been lost.

use std::time::{Duration, Instant};

use crate::rate::Rate;

/// The first bin ends here, bytes, and each of the others an eighth of an octave further.
const FIRST: f64 = 512.0;
/// Up to 64 KB. More than that is no matter of what leaves at once.
const BINS: usize = 57;
/// Packets after which an old one counts for 1/e.
const MEMORY: f64 = 512.0;
/// Weights are brought back to this scale before they overflow.
const LARGE: f64 = 1e12;
/// So much must Λ be.
const SURE: f64 = 10.0;
/// And so many packets must have been lost beyond the limit, and so large a share of what was sent beyond it, more than within.
const LEAST: (f64, f64) = (4.0, 0.2);
/// A limit that nothing has met for so long is tried.
const HOLD: Duration = Duration::from_secs(30);

/// What became of packets, the past fading.
#[derive(Debug, Clone, Copy, Default)]
struct Fates {
    arrived: f64,
    lost: f64,
}

/// The same of those that met the same fill: by what became of the one before, which arrived or was lost.
type Bin = [Fates; 2];

impl Fates {
    fn plus(self, other: Self) -> Self {
        Self { arrived: self.arrived + other.arrived, lost: self.lost + other.lost }
    }

    fn minus(self, other: Self) -> Self {
        Self { arrived: (self.arrived - other.arrived).max(0.0), lost: (self.lost - other.lost).max(0.0) }
    }

    fn over(self, scale: f64) -> Self {
        Self { arrived: self.arrived / scale, lost: self.lost / scale }
    }

    fn share(self) -> f64 {
        self.lost / (self.arrived + self.lost).max(1e-9)
    }

    /// ln L with the best p.
    fn likelihood(self) -> f64 {
        let p = self.share().clamp(1e-9, 1.0 - 1e-9);
        self.lost * p.ln() + self.arrived * (1.0 - p).ln()
    }
}

/// Finds out from which fill on a queue loses packets.
#[derive(Debug)]
pub(crate) struct Room {
    bins: [Bin; BINS],
    /// What the next packet weighs: as old ones are to fade, new ones weigh more.
    next: f64,
    /// The first bin beyond the limit, and when the last packet left that was lost there.
    limit: Option<(usize, Instant)>,
    /// Losses that were put down to chance, the past fading: those that are known for others later.
    unsure: f64,
    /// Bytes of ours in the queue when the latest packet had left.
    level: f64,
    /// The largest packet: an empty queue has room for it.
    largest: u16,
    /// Whether the latest packet was lost.
    lost: bool,
    at: Option<Instant>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bins: [Bin::default(); BINS],
            next: 1.0,
            limit: None,
            unsure: 0.0,
            level: 0.0,
            largest: 0,
            lost: false,
            at: None,
        }
    }
}

impl Room {
    fn step(&mut self) -> f64 {
        let weight = self.next;
        self.unsure /= 1.0 + 1.0 / MEMORY;
        self.next *= 1.0 + 1.0 / MEMORY;
        if self.next > LARGE {
            for bin in &mut self.bins {
                *bin = bin.map(|fates| fates.over(LARGE));
            }
            self.next /= LARGE;
            return weight / LARGE;
        }
        weight
    }

    /// The next packet, in the order of sending, passed, over a link that carries `rate`.
    pub(crate) fn on_passed(&mut self, at: Instant, bytes: u16, rate: Rate) {
        let fill = self.fill(at, bytes, rate);
        self.level = fill;
        if self.limit.is_some_and(|(_, met)| at.saturating_duration_since(met) > HOLD) {
            self.limit = None;
        }
        let weight = self.step();
        self.bins[bin(fill)][usize::from(std::mem::take(&mut self.lost))].arrived += weight;
    }

    /// Such a packet was lost, where otherwise `most` may leave at once. How many losses were for want of room by what this one tells: this one and those
    /// before it.
    pub(crate) fn on_dropped(&mut self, at: Instant, bytes: u16, rate: Rate, most: u64) -> u32 {
        let fill = self.fill(at, bytes, rate);
        let weight = self.step();
        self.bins[bin(fill)][usize::from(std::mem::replace(&mut self.lost, true))].lost += weight;
        let before = self.limit;
        let found = self.look(most);
        let beyond = found.is_some_and(|limit| bin(fill) >= limit);
        self.limit = found.map(|limit| (limit, before.filter(|_| !beyond).map_or(at, |(_, met)| met)));
        match found {
            Some(limit) if before.is_none() => {
                let lost = self.bins[limit..].iter().flatten().map(|fates| fates.lost / self.next);
                let before = std::mem::take(&mut self.unsure).min(lost.sum::<f64>() - 1.0);
                1 + before.max(0.0).ceil() as u32
            }
            _ if beyond => 1,
            _ => {
                self.unsure += 1.0;
                0
            }
        }
    }

    /// How many bytes of ours are in the queue with a packet that leaves then.
    fn fill(&mut self, at: Instant, bytes: u16, rate: Rate) -> f64 {
        let served = self.at.map_or(f64::INFINITY, |before| rate.bytes_in(at.saturating_duration_since(before)));
        self.level = (self.level - served).max(0.0);
        self.at = Some(at);
        self.largest = self.largest.max(bytes);
        self.level + f64::from(bytes)
    }

    /// How many bytes may leave at once, if more are lost.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit.map(|(limit, _)| end(limit - 1) as u64)
    }

    /// The first bin beyond the limit, if there is one below `most`.
    fn look(&self, most: u64) -> Option<usize> {
        let add = |a: Bin, b: Bin| [a[0].plus(b[0]), a[1].plus(b[1])];
        let weigh = |bin: &Bin| bin.map(|fates| fates.over(self.next));
        let all = self.bins.iter().map(weigh).fold(Bin::default(), add);
        let any = all[0].plus(all[1]);
        let burst = any.lost / all[0].lost.max(1e-9);
        let mut within = Bin::default();
        let mut best = (0.0, 0);
        for limit in 1..bin(most as f64).max(1) {
            within = add(within, weigh(&self.bins[limit - 1]));
            let beyond = [all[0].minus(within[0]), all[1].minus(within[1])];
            let (inside, outside) = (within[0].plus(within[1]), beyond[0].plus(beyond[1]));
            let much = outside.lost >= LEAST.0 && outside.share() >= inside.share() + LEAST.1;
            // An empty queue has room for any packet.
            if !much || limit <= bin(self.largest.into()) {
                continue;
            }
            let gain =
                |within: Fates, beyond: Fates, all: Fates| within.likelihood() + beyond.likelihood() - all.likelihood();
            let given = gain(within[0], beyond[0], all[0]) + gain(within[1], beyond[1], all[1]);
            let gain = given.max(gain(inside, outside, any) / burst);
            // Of limits that are alike the least: where nothing was sent with so much, nothing is known.
            if gain > best.0 {
                best = (gain, limit);
            }
        }
        (best.0 >= SURE).then_some(best.1)
    }
}

/// Where a fill belongs.
fn bin(fill: f64) -> usize {
    ((fill.max(1.0) / FIRST).log2() * 8.0).ceil().clamp(0.0, (BINS - 1) as f64) as usize
}

/// Where a bin ends.
fn end(bin: usize) -> f64 {
    FIRST * 2_f64.powf(bin as f64 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PACKET: u16 = 1_200;
    /// What may leave at once else.
    const MOST: u64 = 64_000;

    fn rate() -> Rate {
        Rate::of(u64::from(PACKET), MS * 10)
    }

    /// Sends frames of one to four packets at once, 30 ms apart, through what `passes`, by how many bytes a drop-tail queue then holds. What is told at the
    /// end, and how many losses were put down to want of room of how many.
    fn send(frames: u64, mut passes: impl FnMut(f64) -> bool) -> (Option<u64>, u32, u32) {
        let (start, mut room, mut chance, mut level) = (Instant::now(), Room::default(), 1u64, 0.0_f64);
        let (mut told, mut lost) = (0, 0);
        for frame in 0..frames {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = start + MS * 30 * frame as u32;
            level = (level - rate().bytes_in(MS * 30)).max(0.0);
            for _ in 0..1 + (chance >> 33) % 4 {
                if passes(level + f64::from(PACKET)) {
                    level += f64::from(PACKET);
                    room.on_passed(at, PACKET, rate());
                } else {
                    lost += 1;
                    told += room.on_dropped(at, PACKET, rate(), MOST);
                }
            }
        }
        (room.limit(), told, lost)
    }

    #[test]
    fn a_queue_has_room_for_what_it_has_room_for() {
        for limit in [1_300.0, 2_000.0, 2_500.0, 4_000.0] {
            let (found, told, lost) = send(300, |fill| fill <= limit);
            let found = found.expect("it is full each few frames") as f64;
            assert!(found <= limit && found + f64::from(PACKET) > limit, "{found} of {limit}");
            assert!(told * 10 >= lost * 9, "{told} of {lost}: the first ones, too");
        }
    }

    /// Of what is lost by chance, single and in bursts, fewer than one in a hundred are put down to want of room.
    #[test]
    fn what_is_lost_by_chance_found_room() {
        for (percent, burst) in [(1, 1), (5, 1), (20, 1), (5, 4), (20, 4)] {
            let (mut chance, mut bad) = (7u64, false);
            let mut random = || {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (chance >> 33) % 100_000
            };
            let mut passes = |_| {
                let turns = if bad { 100_000 / burst } else { 1_000 * percent / burst * 100 / (100 - percent) };
                bad ^= random() < turns;
                !bad
            };
            let (_, told, lost) = send(20_000, &mut passes);
            assert!(lost > 200 && told * 100 < lost, "{percent} %, {burst}: {told} of {lost}");
        }
    }

    #[test]
    fn what_has_more_room_again_is_known_for_it() {
        let mut sent = 0;
        let (found, _, lost) = send(3_000, |fill| {
            sent += 1;
            fill <= 1_300.0 || sent > 600 && sent % 50 > 0
        });
        assert!(lost > 100 && found.is_none(), "{found:?}");
    }

    /// A limit that is found again and again tells of each loss once.
    #[test]
    fn no_loss_is_told_of_twice() {
        let (start, mut room) = (Instant::now(), Room::default());
        let (mut told, mut lost, mut found) = (0, 0, 0);
        for i in 0..400 {
            let at = start + MS * 30 * i;
            room.on_passed(at, PACKET, rate());
            // By turns it is looked for, and not.
            let most = if i / 20 % 2 == 0 { MOST } else { 0 };
            let before = room.limit();
            told += room.on_dropped(at, PACKET, rate(), most);
            found += u32::from(before.is_none() && room.limit().is_some());
            lost += 1;
        }
        assert!(found > 5 && told <= lost, "{told} of {lost}, found {found} times");
    }

    #[test]
    fn a_limit_that_nothing_meets_is_tried_in_the_end() {
        let (start, mut room) = (Instant::now(), Room::default());
        let mut frame = |millis: u32| {
            room.on_passed(start + MS * millis, PACKET, rate());
            room.on_dropped(start + MS * millis, PACKET, rate(), MOST);
            room.limit()
        };
        let found = (0..40).filter_map(|i| frame(i * 30)).next();
        assert!(found.is_some_and(|limit| (1_200..2_400).contains(&limit)), "{found:?}");
        for i in 0..1_000 {
            room.on_passed(start + MS * (2_000 + i * 20), PACKET, rate());
            assert!(room.limit().is_some(), "{i}");
        }
        room.on_passed(start + MS * 40_000, PACKET, rate());
        assert_eq!(room.limit(), None);
    }

    #[test]
    fn all_that_is_in_time_is_no_matter() {
        let (start, mut room) = (Instant::now(), Room::default());
        for i in 0..1_000 {
            room.on_passed(start + MS * i, PACKET, rate());
        }
        assert_eq!(room.limit(), None);
        assert_eq!(room.on_dropped(start, u16::MAX, rate(), 0), 0, "whatever is asked");
    }
}
