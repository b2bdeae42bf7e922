//! Idle paths are pinged, if the settings ask for it: the glue of [`Prober`](crate::path::probing::Prober).

use std::time::Instant;

use super::{Phase, Session};
use crate::probing::Probing;

impl Session {
    /// Whether idle paths are pinged, and if so, whether those that cost something are, too.
    fn probing(&self) -> Option<bool> {
        let can = self.phase == Phase::Open && self.punctual == Some(true);
        match self.config.probing {
            Probing::Off => None,
            Probing::Free => can.then_some(false),
            Probing::All => can.then_some(true),
        }
    }

    /// When [`probe_idle_paths`](Self::probe_idle_paths) has something to do.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.probing().and_then(|metered| self.prober.next_timeout(&self.paths, metered))
    }

    /// Pings paths that carry nothing.
    pub(super) fn probe_idle_paths(&mut self, now: Instant) {
        let Some(metered) = self.probing() else { return };
        for id in self.prober.due(now, &mut self.paths, metered) {
            if let Some(path) = self.paths.get(id) {
                let _ = self.conn.ping_path(path.quic);
            }
        }
    }
}
