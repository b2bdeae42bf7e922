//! What several paths of different length carry together until a block is due.

use super::SendContext;
use crate::base::PathView;

/// How much of its spread a path is held to take longer than its delay.
const SPREAD: f64 = 0.22;

/// The usable paths as pipes: what each carries, and how much longer it takes than the shortest.
///
/// Until a moment `lead` ahead of the shortest path's delay, path p carries `rate_p · (lead − extra_p)` bytes, or nothing if it takes
/// longer than that. All together they carry no more than one pipe with their rates' sum and the shortest delay would: what that
/// would have to do without is the [`lag`](Self::lag). A slow path beside a fast one so counts for those blocks that it can serve.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    /// Bytes per second, and seconds.
    pipes: Vec<(f64, f64)>,
    rate: f64,
}

impl Pipes {
    pub(super) fn follow(&mut self, cx: &SendContext<'_>) {
        self.pipes.clear();
        let doubt = |path: &PathView| path.spread.mul_f64(SPREAD);
        let Some(least) = cx.usable().min_by_key(|path| path.one_way_delay + doubt(path)) else { return };
        // Doubt that they share is none: it is that of the path which brings the most surely soonest.
        let zero = cx.one_way_delay + doubt(least);
        let extra = |path: &PathView| (path.one_way_delay + doubt(path)).saturating_sub(zero).as_secs_f64();
        self.pipes.extend(cx.usable().map(|path| (path.rate, extra(path))));
        self.rate = self.pipes.iter().map(|pipe| pipe.0).sum::<f64>().max(1.0);
    }

    /// How many seconds before a moment `lead` seconds ahead of the shortest path's delay all must be sent that would be there by then, if
    /// it went at the sum of the rates.
    ///
    /// While time passes this falls by less than that: a block that is in time with the lag it had before is in time.
    pub(super) fn lag(&self, lead: f64) -> f64 {
        if self.pipes.len() < 2 || lead <= 0.0 {
            return 0.0;
        }
        let bytes: f64 = self.pipes.iter().map(|&(rate, extra)| rate * (lead - extra).max(0.0)).sum();
        (lead - bytes / self.rate).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::multipath::tests::path;

    const MS: Duration = Duration::from_millis(1);

    fn lag(paths: &[(u32, u32, f64)], lead: f64) -> f64 {
        let path = |(id, &(delay, spread, rate)): (usize, &(u32, u32, f64))| PathView {
            one_way_delay: MS * delay,
            spread: MS * spread,
            rate,
            ..path(id as u32)
        };
        let paths: Vec<_> = paths.iter().enumerate().map(path).collect();
        let mut pipes = Pipes::default();
        pipes.follow(&SendContext::new(Instant::now(), &paths));
        pipes.lag(lead)
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
}
