//! Copies near the end of a message, and only there.

use std::time::{Duration, Instant};

use super::{FragmentView, Outstanding, PathChoice, PathHealth, PathId, PathScheduler, PathSet, PathView};

/// The NineTails scheduler of the MAppLE paper (section IV).
///
/// A loss in the middle of a message is made good while the rest of it is sent; one near its end costs the message a recovery. So each
/// fragment takes the path with the lowest round-trip time, until what is left of its block takes less time to send than a loss to recover from.
/// From there on, this is its *tail*, everything is sent on every path.
///
/// The paper and its authors' program differ. With `hi` the path of the highest rate, `rate` and `rtt` its own, `left` what has yet to be sent
/// of the block, of those before it and of those behind:
///
/// | | paper (eq. 1, algorithm 1) | program |
/// | --- | --- | --- |
/// | tail | `left / rate < min(3/2 rtt, rto_min + rtt/2)` | `left / rate < rtt + (least rtt of all)/2` |
/// | leads in the tail | `hi` | the lowest round-trip time with room |
/// | only another than `hi` has room | it takes the lead | waits for `hi`, if that has room within half of the least rtt |
///
/// Equation 1 prints the rate where it means the round-trip time: else it compares seconds with bytes per second. Messages are blocks here, and `left`
/// is what waits of all that are no less important, as what waits in the paper's one stream is. So where throughput falls and messages queue up, copies cease (V-B). With several
/// streams the paper's program takes any one's.
pub(super) struct NineTails {
    variant: Variant,
}

/// Which of the two that go by the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Paper,
    Code,
}

/// The least retransmission timeout that the paper reckons with (II-B).
const RTO_MIN: Duration = Duration::from_millis(200);

impl NineTails {
    pub(super) fn new(variant: Variant) -> Self {
        Self { variant }
    }

    /// Whether `left` bytes are so few that a loss among them delays the whole.
    fn is_tail(&self, left: u64, paths: &[PathView]) -> bool {
        let Some(hi) = highest_rate(paths.iter()) else { return false };
        let recovery = match self.variant {
            Variant::Paper => (hi.rtt * 3 / 2).min(RTO_MIN + hi.rtt / 2),
            Variant::Code => hi.rtt + least_rtt(paths) / 2,
        };
        (left as f64) < hi.rate * recovery.as_secs_f64()
    }

    /// The path for something new of a tail.
    fn lead(&self, paths: &[PathView], now: Instant) -> Option<PathId> {
        let ready = || paths.iter().filter(|path| path.ready);
        if self.variant == Variant::Paper {
            return highest_rate(ready()).map(|path| path.id);
        }
        let lo = ready().min_by_key(|path| (path.rtt, path.id))?;
        let hi = highest_rate(paths.iter()).filter(|hi| !hi.ready);
        let waits = hi.and_then(|hi| room_in(hi, now)).is_some_and(|wait| wait < least_rtt(paths) / 2);
        (!waits).then_some(lo.id)
    }
}

impl PathScheduler for NineTails {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Paper => "nine-tails-paper",
            Variant::Code => "nine-tails",
        }
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let path = match self.is_tail(left(fragment), paths) {
            true => self.lead(paths, now),
            false => paths.iter().filter(|path| path.ready).min_by_key(|path| (path.rtt, path.id)).map(|path| path.id),
        };
        path.map_or(PathChoice::Wait, |path| PathChoice::Send(PathSet::one(path)))
    }

    fn makes_copies(&self) -> bool {
        true
    }

    /// In a tail, and when a path would be idle: of blocks that are in theirs.
    fn copy(
        &mut self,
        packet: &Outstanding,
        _: &PathView,
        next: Option<&FragmentView>,
        paths: &[PathView],
        _: Instant,
    ) -> bool {
        next.is_none_or(|next| self.is_tail(left(next), paths)) && self.is_tail(packet.block.unsent, paths)
    }
}

fn left(fragment: &FragmentView) -> u64 {
    fragment.ahead + fragment.block.unsent + fragment.behind
}

fn highest_rate<'a>(paths: impl Iterator<Item = &'a PathView>) -> Option<&'a PathView> {
    let healthy = paths.filter(|path| path.ready || path.health == PathHealth::Active);
    healthy.max_by(|a, b| a.rate.total_cmp(&b.rate).then(b.id.cmp(&a.id)))
}

fn least_rtt(paths: &[PathView]) -> Duration {
    let healthy = paths.iter().filter(|path| path.ready || path.health == PathHealth::Active);
    healthy.map(|path| path.rtt).min().unwrap_or_default()
}

/// How long until a path has room: until pacing lets it go, or a full window opens at the path's rate.
fn room_in(path: &PathView, now: Instant) -> Option<Duration> {
    match path.ready_at {
        Some(at) => Some(at.saturating_duration_since(now)),
        None if path.in_flight > 0 => {
            let over = (path.in_flight + FULL_PACKET).saturating_sub(path.window);
            Some(Duration::from_secs_f64(over as f64 / path.rate.max(1.0)))
        }
        None => None,
    }
}

/// Bytes of a packet, near enough.
const FULL_PACKET: u64 = 1_400;

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fragment, path},
        *,
    };
    use crate::schedule::BlockView;

    const MS: Duration = Duration::from_millis(1);

    /// The paper's pair: wide and long, narrow and short.
    fn pair() -> [PathView; 2] {
        let with = |id, rate, rtt: u32| PathView { rate, rtt: MS * rtt, ..path(id) };
        [with(0, 6e6, 100), with(1, 250e3, 4)]
    }

    fn of(left: u64) -> FragmentView {
        FragmentView { block: BlockView { size: left.max(1), unsent: left, ..fragment().block }, ..fragment() }
    }

    fn send(id: u32) -> PathChoice {
        PathChoice::Send(PathSet::one(PathId(id)))
    }

    #[test]
    fn the_tail_is_what_takes_less_time_than_a_recovery() {
        // The paper's: min(150, 250) ms of 6 MB/s. The program's: 102 ms.
        for (variant, edge) in [(Variant::Paper, 900_000), (Variant::Code, 612_000)] {
            let scheduler = NineTails::new(variant);
            assert!(
                scheduler.is_tail(edge - 1_000, &pair()) && !scheduler.is_tail(edge + 1_000, &pair()),
                "{variant:?}"
            );
        }
        let slow = pair().map(|path| PathView { rtt: MS * 400, ..path });
        assert!(
            NineTails::new(Variant::Paper).is_tail(2_390_000, &slow),
            "the timeout is 200 ms, and half of 400 more"
        );
        assert!(!NineTails::new(Variant::Paper).is_tail(2_410_000, &slow));
    }

    #[test]
    fn what_waits_in_front_and_behind_counts() {
        let mut code = NineTails::new(Variant::Code);
        let now = Instant::now();
        let packet = Outstanding::new(BlockView { unsent: 0, ..fragment().block }, now, PathId(0));
        let behind = FragmentView { ahead: 700_000, ..of(20_000) };
        let before = FragmentView { behind: 700_000, ..of(20_000) };
        let cases = [
            (Some(of(20_000)), true),
            (Some(behind), false),
            (Some(before), false),
            (Some(of(700_000)), false),
            (None, true),
        ];
        for (next, copies) in cases {
            assert_eq!(code.copy(&packet, &pair()[1], next.as_ref(), &pair(), now), copies, "{next:?}");
        }
        let head = Outstanding::new(BlockView { unsent: 700_000, ..fragment().block }, now, PathId(0));
        assert!(!code.copy(&head, &pair()[1], None, &pair(), now), "not of a block's head");
    }

    #[test]
    fn who_leads() {
        let now = Instant::now();
        let (mut paper, mut code) = (NineTails::new(Variant::Paper), NineTails::new(Variant::Code));
        // In the head the lowest round-trip time, in the tail the highest rate or the lowest round-trip time.
        assert_eq!([&mut paper, &mut code].map(|one| one.choose(&of(2_000_000), &pair(), now)), [send(1), send(1)]);
        assert_eq!([&mut paper, &mut code].map(|one| one.choose(&of(20_000), &pair(), now)), [send(0), send(1)]);
        // Only the narrow one has room: the program waits 2 ms for the other, and no longer.
        for (wait, expected) in [(1, PathChoice::Wait), (3, send(1))] {
            let [wide, narrow] = pair();
            let paths = [PathView { ready: false, ready_at: Some(now + MS * wait), ..wide }, narrow];
            assert_eq!(code.choose(&of(20_000), &paths, now), expected, "{wait}");
            assert_eq!(paper.choose(&of(20_000), &paths, now), send(1));
        }
        // A window that is full opens at 6 MB/s.
        for (in_flight, expected) in [(107_000, PathChoice::Wait), (115_000, send(1))] {
            let [wide, narrow] = pair();
            let paths = [PathView { ready: false, ready_at: None, in_flight, window: 100_000, ..wide }, narrow];
            assert_eq!(code.choose(&of(20_000), &paths, now), expected, "{in_flight}");
        }
    }
}
