//! What a link has done, for people and for programs.

use serde::Serialize;

use super::{
    lateness::LatenessFigures,
    wires::{Way, WayCounters, Wires},
};

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Since the first packet.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    /// Clients there were, and datagrams of clients for whom there was no room; null between devices.
    pub(crate) clients: Option<u64>,
    pub(crate) turned_away: Option<u64>,
    /// Packets lost because the links held too many.
    pub(crate) refused: u64,
    pub(crate) paths: Vec<PathReport>,
    /// How much later than their time packets left; null if none did.
    pub(crate) late: Option<LatenessFigures>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PathReport {
    pub(crate) name: String,
    pub(crate) there: WayReport,
    pub(crate) back: WayReport,
}

/// One direction of a path. Bytes are UDP payload, or whole packets between devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct WayReport {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// What came out at the end, of paths that share a link with that of the others.
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) lost: u64,
    pub(crate) overflowed: u64,
    pub(crate) policed: u64,
    pub(crate) oversized: u64,
    pub(crate) died: u64,
    pub(crate) duplicated: u64,
    pub(crate) damaged: u64,
    pub(crate) queue_max_bytes: u64,
}

impl From<WayCounters> for WayReport {
    fn from(WayCounters { packets, bytes, links }: WayCounters) -> Self {
        Self {
            packets,
            bytes,
            delivered: links.delivered,
            delivered_bytes: links.delivered_bytes,
            lost: links.lost,
            overflowed: links.overflowed,
            policed: links.policed,
            oversized: links.oversized,
            died: links.died,
            duplicated: links.duplicated,
            damaged: links.damaged,
            queue_max_bytes: links.queue_max,
        }
    }
}

impl WayReport {
    fn line(&self, seconds: f64) -> String {
        let rate = self.bytes as f64 * 8.0 / 1e6 / seconds.max(1e-3);
        let dropped = self.overflowed + self.policed + self.oversized;
        let mut line = format!("{} packets ({rate:.2} Mbit/s), {} lost, {dropped} dropped", self.packets, self.lost);
        if self.died > 0 {
            line += &format!(", {} died", self.died);
        }
        line
    }
}

impl PathReport {
    pub(crate) fn all(wires: &Wires) -> Vec<Self> {
        let way = |path, way| WayReport::from(wires.counters(path, way));
        let path = |(path, name): (usize, &str)| Self {
            name: name.into(),
            there: way(path, Way::There),
            back: way(path, Way::Back),
        };
        wires.names().enumerate().map(path).collect()
    }
}

impl Report {
    /// Lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { seconds, .. } = self;
        let mut lines: Vec<_> = self
            .paths
            .iter()
            .map(|path| {
                format!(
                    "{seconds:.1} s, {}: there {}; back {}",
                    path.name,
                    path.there.line(*seconds),
                    path.back.line(*seconds)
                )
            })
            .collect();
        if let Some(late) = &self.late {
            let LatenessFigures { p50_ms, p99_ms, max_ms, over_1ms, .. } = late;
            let share = over_1ms * 100.0;
            lines.push(format!(
                "late by itself: p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, at most {max_ms:.1} ms, {share:.2} % by more than 1 ms"
            ));
        }
        if let Some(turned_away) = self.turned_away.filter(|datagrams| *datagrams > 0) {
            lines.push(format!("{turned_away} datagrams were turned away: there were too many clients"));
        }
        if self.refused > 0 {
            lines.push(format!("{} packets were lost because the links held too many", self.refused));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_found_no_room_is_told_in_words() {
        let report = |turned_away| Report {
            seconds: 1.0,
            seed: 1,
            clients: Some(256),
            turned_away,
            refused: 0,
            paths: Vec::new(),
            late: None,
        };
        assert_eq!(report(Some(7)).lines(), ["7 datagrams were turned away: there were too many clients"]);
        assert!(report(Some(0)).lines().is_empty() && report(None).lines().is_empty());
    }
}
