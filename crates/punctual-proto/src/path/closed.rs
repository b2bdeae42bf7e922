//! What paths that are no more have carried.

use crate::{base::PathHealth, stats::PathStats};

/// So many are told apart.
const MOST_CLOSED: usize = 64;

/// The totals of paths that are closed, the one that was closed last at the end.
///
/// A modem that comes and goes makes a path each time. Beyond [`MOST_CLOSED`] of them the two that have been closed longest become one: nothing that was carried is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Closed(Vec<PathStats>);

impl Closed {
    /// A path that was open is no more.
    pub(crate) fn add(&mut self, last: PathStats) {
        self.0.push(PathStats { health: PathHealth::Closed, in_flight: 0, ..last });
        if self.0.len() > MOST_CLOSED {
            let oldest = self.0.remove(0);
            self.0[0] = self.0[0].after(&oldest);
        }
    }

    pub(crate) fn all(&self) -> &[PathStats] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        base::PathId,
        network::{LocalId, NetworkPath},
        role::PathRole,
    };

    fn carried(id: u32, source_bytes: u64) -> PathStats {
        let remote = "192.0.2.1:4433".parse().expect("an address");
        PathStats {
            id: PathId(id),
            network: NetworkPath { local: LocalId(id), remote },
            health: PathHealth::Active,
            rtt: Duration::from_millis(id.into()),
            min_rtt: Duration::ZERO,
            one_way_delay: Duration::ZERO,
            rate: 0.0,
            window: 0,
            in_flight: 1,
            loss: 0.0,
            loss_burst: 0.0,
            source_bytes,
            resent_bytes: 1,
            copied_bytes: 2,
            repair_bytes: 3,
            report_bytes: 4,
            bytes_sent: 5,
            bytes_received: 6,
            packets_sent: 7,
            packets_lost: 8,
            mtu: 1_200,
            suspected: 9,
            cost: 0.0,
            role: PathRole::Normal,
            bottleneck: None,
        }
    }

    #[test]
    fn what_was_carried_is_kept_though_the_list_is_bounded() {
        let mut closed = Closed::default();
        for id in 0..1_000 {
            closed.add(carried(id, 1));
        }
        let [oldest, .., latest] = closed.all() else { panic!("several: {closed:?}") };
        assert_eq!((closed.all().len(), oldest.id, latest.id), (MOST_CLOSED, PathId(936), PathId(999)));
        assert_eq!((oldest.rtt, oldest.in_flight), (Duration::from_millis(936), 0));
        assert!(closed.all().iter().all(|path| path.health == PathHealth::Closed));
        let total = |count: fn(&PathStats) -> u64| closed.all().iter().map(count).sum::<u64>();
        assert_eq!(total(|path| path.source_bytes), 1_000);
        assert_eq!([total(|path| path.resent_bytes), total(|path| path.copied_bytes)], [1_000, 2_000]);
        assert_eq!([total(|path| path.repair_bytes), total(|path| path.report_bytes)], [3_000, 4_000]);
        assert_eq!([total(|path| path.bytes_sent), total(|path| path.bytes_received)], [5_000, 6_000]);
        assert_eq!([total(|path| path.packets_sent), total(|path| path.packets_lost)], [7_000, 8_000]);
        assert_eq!(total(|path| path.suspected), 9_000);
    }
}
