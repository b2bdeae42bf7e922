//! Who is put off by the scheduler since it cannot be in time, and is needed by others.
//!
//! A scheduler that sees a block's own deadline puts it behind all that can be in time, and behind what has no deadline. What it is worth to others ([`late`](super::late)) is
//! asked at its deadline, or when the next of them is handed over; until then a transfer would go before it, and make those late, too.

use std::time::{Duration, Instant};

use super::{live::LiveBlock, store::Store};
use crate::block::BlockId;

/// How many of those due soonest are looked at, at most; and after how long again for each of them, so that it takes a few per cent of the time however many
/// they are.
const MOST: usize = 256;
const EACH: Duration = Duration::from_micros(5);

impl Store {
    /// The scheduler has chosen a block. Those due sooner that cannot be in time, and that others need, have the deadline of these from now on. Whether there were any.
    pub(super) fn serve_those_put_off(&mut self, now: Instant, chosen: BlockId) -> bool {
        if !self.drops_stale || self.look_put_off_at.is_some_and(|at| now < at) {
            return false;
        }
        let due = self.blocks.get(&chosen).and_then(LiveBlock::serving_due);
        let sooner = self.due.iter().take(MOST).take_while(|&&(at, _)| due.is_none_or(|due| at < due));
        let (mut looked, mut put_off) = (0, Vec::new());
        for &(_, id) in sooner {
            looked += 1;
            let competes = id != chosen && !self.late.contains(&id) && !self.held.contains(&id);
            if competes && self.is_late(now, id) && self.is_sendable(id) && self.has_followers(now, id) {
                put_off.push(id);
            }
        }
        self.look_put_off_at = Some(now + EACH * looked);
        for &id in &put_off {
            self.on_late(now, id);
        }
        !put_off.is_empty()
    }
}
