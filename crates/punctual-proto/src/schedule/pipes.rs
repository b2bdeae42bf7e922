//! What several paths of different length carry together until a block is due.

use super::SendContext;

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
        self.pipes.extend(
            cx.usable().map(|path| (path.rate, (path.one_way_delay + path.spread.mul_f64(0.22)).as_secs_f64())),
        );
        let least = self.pipes.iter().map(|pipe| pipe.1).fold(f64::INFINITY, f64::min);
        self.pipes.iter_mut().for_each(|pipe| pipe.1 -= least);
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
