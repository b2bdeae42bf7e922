//! What several paths of different length carry together until a block is due.

use super::SendContext;
use crate::base::PathView;

/// How much of its spread beyond what half of the packets are late by a path is held to take longer than these for one packet: three in ten are later.
const SPREAD: f64 = 0.22;
/// Bytes of a packet.
pub(super) const PACKET: f64 = 1200.0;

/// The usable paths as pipes: what each carries, and how much longer it takes than the shortest.
///
/// Until a moment `lead` ahead of the shortest path's delay, path p carries `rate_p · (lead − extra_p)` bytes, or nothing if it takes
/// longer than that. A block is there when the last of its packets is, so the more of them a path is to carry the more of its spread it is held to take: once
/// the spread for each ten times as many, as one packet in ten is as much later. All together they carry no more than one pipe with their rates' sum and the shortest delay would: what that
/// would have to do without is the [`lag`](Self::lag). A slow path beside a fast one so counts for those blocks that it can serve.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    pipes: Vec<Pipe>,
    rate: f64,
}

#[derive(Debug)]
struct Pipe {
    /// Bytes per second.
    rate: f64,
    /// Seconds that a packet takes longer than on the shortest.
    extra: f64,
    /// Seconds by which one packet in twenty takes longer than half of them.
    spread: f64,
}

impl Pipes {
    pub(super) fn follow(&mut self, cx: &SendContext<'_>) {
        self.pipes.clear();
        let doubt = |path: &PathView| path.late_by + path.spread_beyond().mul_f64(SPREAD);
        let Some(least) = cx.usable().min_by_key(|path| path.one_way_delay + doubt(path)) else { return };
        // Doubt that all share is none: as much as is doubted of the path which brings the most surely soonest.
        let doubted = |path: &PathView| doubt(path).saturating_sub(doubt(least));
        let extra = |path: &PathView| (path.one_way_delay + doubted(path)).saturating_sub(cx.one_way_delay);
        let pipe = |path: &PathView| Pipe {
            rate: path.rate,
            extra: extra(path).as_secs_f64(),
            spread: path.spread_beyond().as_secs_f64(),
        };
        self.pipes.extend(cx.usable().map(pipe));
        self.rate = self.pipes.iter().map(|pipe| pipe.rate).sum::<f64>().max(1.0);
    }

    /// How many seconds before a moment `lead` seconds ahead of the shortest path's delay a block's last `unsent` bytes must be sent that would be there
    /// by then, if all went at the sum of the rates.
    ///
    /// While time passes this falls by less than that: a block that is in time with the lag it had before is in time.
    pub(super) fn lag(&self, lead: f64, unsent: u64) -> f64 {
        if self.pipes.len() < 2 || lead <= 0.0 {
            return 0.0;
        }
        let packets = |pipe: &Pipe| (unsent as f64 / PACKET * pipe.rate / self.rate).max(1.0);
        let extra = |pipe: &Pipe| pipe.extra + pipe.spread * packets(pipe).log10();
        let bytes: f64 = self.pipes.iter().map(|pipe| pipe.rate * (lead - extra(pipe)).max(0.0)).sum();
        (lead - bytes / self.rate).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::multipath::tests::path;

    const MS: Duration = Duration::from_millis(1);

    /// Of paths of so many milliseconds, doubted by so many, and of so many bytes a second.
    fn lag(paths: &[(u32, u32, f64)], lead: f64) -> f64 {
        lag_of(1, paths, lead)
    }

    fn lag_of(unsent: u64, paths: &[(u32, u32, f64)], lead: f64) -> f64 {
        let path = |(id, &(delay, spread, rate)): (usize, &(u32, u32, f64))| PathView {
            one_way_delay: MS * delay,
            spread: MS * spread,
            rate,
            ..path(id as u32)
        };
        let paths: Vec<_> = paths.iter().enumerate().map(path).collect();
        let mut pipes = Pipes::default();
        pipes.follow(&SendContext::new(Instant::now(), &paths));
        pipes.lag(lead, unsent)
    }

    #[test]
    fn what_a_slower_path_cannot_carry_until_then_is_missing() {
        assert_eq!(lag(&[(20, 5, 1e6)], 0.1), 0.0);
        assert_eq!(lag(&[(20, 5, 1e6), (20, 5, 1e6)], 0.1), 0.0);
        assert!((lag(&[(20, 5, 1e6), (50, 5, 1e6)], 0.1) - 0.015).abs() < 1e-9, "30 ms of half the rate");
        assert!((lag(&[(20, 5, 1e6), (90, 5, 1e6)], 0.05) - 0.025).abs() < 1e-9, "all of half the rate");
    }

    #[test]
    fn the_shortest_path_is_where_it_is_though_it_be_in_doubt() {
        // 5 ms that may be 25 carry next to nothing: of 36 ms until then 13 are lost on the way.
        let lag = lag(&[(5, 90, 1.0), (18, 2, 6e6)], 0.036);
        assert!((lag - 0.013).abs() < 1e-4, "{lag}");
    }

    #[test]
    fn doubt_about_the_shortest_path_makes_no_other_shorter() {
        // 60 ms from now on the second brings what leaves in the next 20, though the first may be 22 ms late.
        let lag = lag(&[(10, 100, 1e6), (50, 0, 9e6)], 0.06);
        assert!((lag - 0.036).abs() < 1e-6, "{lag}");
    }

    #[test]
    fn the_more_packets_the_later_the_last() {
        let paths = [(20, 10, 1e6), (20, 0, 1e6)];
        // The first carries half of them.
        for (packets, later) in [(1, 0.0), (2, 0.0), (20, 0.010), (200, 0.020)] {
            let lag = lag_of(packets * 1_200, &paths, 0.1);
            let single = lag_of(1, &paths, 0.1);
            assert!((lag - single - later / 2.0).abs() < 1e-9, "{packets}: {lag}");
        }
    }

    #[test]
    fn a_path_is_longer_by_what_half_of_its_packets_are_late_by() {
        let clean = path(0);
        let held_up = PathView { spread: MS * 60, late_by: MS * 60, ..path(1) };
        let paths = [PathView { rate: 1e6, ..clean }, PathView { rate: 1e6, ..held_up }];
        let mut pipes = Pipes::default();
        pipes.follow(&SendContext::new(Instant::now(), &paths));
        assert!((pipes.lag(0.1, 1) - 0.03).abs() < 1e-9, "60 ms of half the rate: {}", pipes.lag(0.1, 1));
    }
}
