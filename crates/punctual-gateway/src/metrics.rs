//! What a gateway has carried, for Prometheus.
//!
//! Classes and causes are counted as they come; sessions and paths are read when somebody asks, so that nothing of a gateway that is gone is kept.

use std::sync::{Arc, Weak};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text::encode},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};
use punctual::{DropReason, Outcome, PathStats, SessionStats, multipath::PathHealth};

/// Upper bounds of the delay histogram's buckets, seconds: dense where deadlines of games and video are.
const DELAYS: [f64; 14] = [0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0];

/// Counters of a gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    datagrams: Family<Ended, Counter>,
    bytes: Family<OfClass, Counter>,
    delay: Family<OfClass, Histogram>,
    refused: Family<Because, Counter>,
    received: Counter,
    marked: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    class: Arc<str>,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    class: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Because {
    reason: &'static str,
}

/// A far gateway as it is now.
pub(crate) struct Snapshot {
    /// What it is called in logs.
    pub(crate) gateway: String,
    pub(crate) flows: usize,
    /// Its session, if it has one.
    pub(crate) session: Option<punctual::Snapshot>,
}

/// Where snapshots come from.
pub(crate) trait Gateways: std::fmt::Debug + Send + Sync + 'static {
    fn snapshots(&self) -> Vec<Snapshot>;
}

impl Metrics {
    /// Of a tunnel, which carries datagrams.
    pub(crate) fn of_tunnel<G: Gateways>(gateways: Weak<G>) -> Self {
        Self::new("punctual_tunnel", "datagrams", gateways)
    }

    /// Of a VPN, which carries packets.
    pub(crate) fn of_vpn<G: Gateways>(gateways: Weak<G>) -> Self {
        let mut metrics = Self::new("punctual_vpn", "packets", gateways);
        let about = "Packets that were marked (ECN CE) as their queue was too long";
        metrics.registry.register("marked_packets", about, metrics.marked.clone());
        metrics
    }

    /// `what` is carried; several of them may have come in one piece.
    fn new<G: Gateways>(prefix: &str, what: &str, gateways: Weak<G>) -> Self {
        let mut registry = Registry::with_prefix(prefix);
        let datagrams = Family::<Ended, Counter>::default();
        let bytes = Family::<OfClass, Counter>::default();
        let delay = Family::<OfClass, Histogram>::new_with_constructor(|| Histogram::new(DELAYS));
        let refused = Family::<Because, Counter>::default();
        let received = Counter::default();
        let marked = Counter::default();
        let about = "What programs of this side sent, by class and by what became of it";
        registry.register(what, about, datagrams.clone());
        registry.register_with_unit("sent", "Bytes of them, by class", Unit::Bytes, bytes.clone());
        let about = "From its coming in here to its being delivered, by class";
        registry.register_with_unit("delay", about, Unit::Seconds, delay.clone());
        let about = "What was dropped here, before it was a block or after it had come, by cause";
        registry.register(format!("refused_{what}"), about, refused.clone());
        registry.register(format!("received_{what}"), "What came from far gateways", received.clone());
        registry.register_collector(Box::new(Scrape(gateways)));
        Self { registry, datagrams, bytes, delay, refused, received, marked }
    }

    /// A datagram was handed over.
    pub(crate) fn sent(&self, class: &Arc<str>, bytes: usize) {
        self.bytes.get_or_create(&OfClass { class: class.clone() }).inc_by(bytes as u64);
    }

    /// What became of it.
    pub(crate) fn ended(&self, class: &Arc<str>, outcome: &Outcome) {
        let words = match outcome {
            Outcome::Delivered(delivery) if delivery.on_time() => "on_time",
            Outcome::Delivered(_) => "late",
            Outcome::Dropped { reason, .. } => match reason {
                DropReason::Expired => "expired",
                DropReason::Cancelled => "cancelled",
                DropReason::DependencyDropped => "dependency_dropped",
                DropReason::Refused => "refused",
                DropReason::SessionClosed => "session_closed",
                DropReason::Lost => "lost",
                _ => "dropped",
            },
        };
        self.datagrams.get_or_create(&Ended { class: class.clone(), outcome: words }).inc();
        if let Outcome::Delivered(delivery) = outcome {
            let delay = self.delay.get_or_create(&OfClass { class: class.clone() });
            delay.observe(delivery.completion.as_secs_f64());
        }
    }

    /// A datagram was dropped before it was a block, or after it had come.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&Because { reason }).inc();
    }

    /// A datagram came from a far gateway.
    pub(crate) fn received(&self) {
        self.received.inc();
    }

    /// A packet was marked.
    pub(crate) fn marked(&self) {
        self.marked.inc();
    }

    /// All of it, in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // A string takes whatever is written to it.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Reads sessions and paths.
#[derive(Debug)]
struct Scrape<G>(Weak<G>);

type Counts<T> = [(&'static str, &'static str, fn(&T) -> u64)];
type Gauges<T> = [(&'static str, &'static str, fn(&T) -> f64)];

const OF_SESSION: &Counts<SessionStats> = &[
    ("session_blocks_on_time", "Blocks delivered by their deadline, or without one", |stats| stats.blocks_on_time),
    ("session_blocks_late", "Blocks delivered late", |stats| stats.blocks_late),
    ("session_blocks_dropped", "Blocks dropped", |stats| stats.blocks_dropped),
    ("session_blocks_received", "Blocks that came", |stats| stats.blocks_received),
    ("session_source_bytes", "Bytes of blocks, sent for the first time", |stats| stats.source_bytes),
    ("session_resent_bytes", "Bytes of blocks, sent again", |stats| stats.resent_bytes),
    ("session_copied_bytes", "Bytes of blocks, sent as copies of what is under way elsewhere", |stats| {
        stats.copied_bytes
    }),
    ("session_repair_bytes", "Bytes of repair fragments", |stats| stats.repair_bytes),
    ("session_restored_bytes", "Bytes that were lost and restored by repair", |stats| stats.restored_bytes),
];

const OF_PATH: &Counts<PathStats> = &[
    ("path_sent_bytes", "UDP bytes sent over a path", |path| path.bytes_sent),
    ("path_received_bytes", "UDP bytes received over a path", |path| path.bytes_received),
    ("path_sent_packets", "Packets sent over a path", |path| path.packets_sent),
    ("path_lost_packets", "Packets lost on a path", |path| path.packets_lost),
    ("path_suspected", "Times that a path fell silent", |path| path.suspected),
];

const OF_PATH_NOW: &Gauges<PathStats> = &[
    ("path_rtt_seconds", "Smoothed round-trip time of a path", |path| path.rtt.as_secs_f64()),
    ("path_one_way_delay_seconds", "Estimated delay to the far side", |path| path.one_way_delay.as_secs_f64()),
    ("path_rate_bytes_per_second", "What a path would carry", |path| path.rate),
    ("path_loss_ratio", "Recent share of packets lost", |path| path.loss),
];

impl<G: Gateways> Collector for Scrape<G> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(gateways) = self.0.upgrade() else { return Ok(()) };
        let all = gateways.snapshots();
        let with_session = || all.iter().filter_map(|one| Some((&one.gateway, one.session.as_ref()?)));
        let mut flows = encoder.encode_descriptor("flows", "Flows with a far gateway", None, MetricType::Gauge)?;
        for one in &all {
            let labels = [("gateway", one.gateway.as_str())];
            ConstGauge::new(one.flows as i64).encode(flows.encode_family(&labels)?)?;
        }
        let mut up = encoder.encode_descriptor("sessions", "Sessions there are", None, MetricType::Gauge)?;
        ConstGauge::new(with_session().count() as i64).encode(up.encode_family(&[("state", "open")])?)?;
        for (name, about, read) in OF_SESSION {
            let mut metric = encoder.encode_descriptor(name, about, None, MetricType::Counter)?;
            for (gateway, counted) in with_session() {
                let labels = [("gateway", gateway.as_str())];
                ConstCounter::new(read(&counted.session)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let paths =
            || with_session().flat_map(|(gateway, counted)| counted.paths.iter().map(move |path| (gateway, path)));
        for (name, about, read) in OF_PATH {
            let mut metric = encoder.encode_descriptor(name, about, None, MetricType::Counter)?;
            let mut tell = |gateway: &str, path: &str, count| {
                let labels = [("gateway", gateway), ("path", path)];
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)
            };
            for (gateway, path) in paths() {
                tell(gateway, &path.id.0.to_string(), read(path))?;
            }
            for (gateway, counted) in with_session().filter(|(_, counted)| !counted.closed_paths.is_empty()) {
                tell(gateway, PathHealth::Closed.name(), counted.closed_paths.iter().map(read).sum())?;
            }
        }
        for (name, about, read) in OF_PATH_NOW {
            let mut metric = encoder.encode_descriptor(name, about, None, MetricType::Gauge)?;
            for (gateway, path) in paths() {
                let labels = [("gateway", gateway.clone()), ("path", path.id.0.to_string())];
                ConstGauge::new(read(path)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut health =
            encoder.encode_descriptor("path_health", "1 for the state that a path is in", None, MetricType::Gauge)?;
        for (gateway, path) in paths() {
            let state = path.health.name().to_owned();
            let labels = [("gateway", gateway.clone()), ("path", path.id.0.to_string()), ("state", state)];
            ConstGauge::new(1i64).encode(health.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual::{Delivery, Delta};

    use super::*;

    #[derive(Debug)]
    struct Two;

    impl Gateways for Two {
        fn snapshots(&self) -> Vec<Snapshot> {
            let session = Some(punctual::Snapshot::default());
            vec![
                Snapshot { gateway: "aa".into(), flows: 3, session },
                Snapshot { gateway: "bb".into(), flows: 1, session: None },
            ]
        }
    }

    #[test]
    fn what_was_counted_is_told() {
        let two = Arc::new(Two);
        let metrics = Metrics::of_tunnel(Arc::downgrade(&two));
        let (class, ms) = ("game".into(), Duration::from_millis);
        metrics.sent(&class, 100);
        metrics.ended(&class, &Outcome::Delivered(Delivery::new(ms(30), Some(Delta::between(ms(50), ms(30))), 100)));
        metrics.ended(&class, &Outcome::Delivered(Delivery::new(ms(60), Some(Delta::between(ms(50), ms(60))), 0)));
        metrics.ended(&class, &Outcome::Dropped { reason: DropReason::Lost, good_bytes: 0 });
        metrics.refused("rate");
        let text = metrics.text();
        for line in [
            "punctual_tunnel_datagrams_total{class=\"game\",outcome=\"on_time\"} 1",
            "punctual_tunnel_datagrams_total{class=\"game\",outcome=\"late\"} 1",
            "punctual_tunnel_datagrams_total{class=\"game\",outcome=\"lost\"} 1",
            "punctual_tunnel_sent_bytes_total{class=\"game\"} 100",
            "punctual_tunnel_delay_seconds_count{class=\"game\"} 2",
            "punctual_tunnel_refused_datagrams_total{reason=\"rate\"} 1",
            "punctual_tunnel_flows{gateway=\"aa\"} 3",
            "punctual_tunnel_flows{gateway=\"bb\"} 1",
            "punctual_tunnel_sessions{state=\"open\"} 1",
            "punctual_tunnel_session_blocks_late_total{gateway=\"aa\"} 0",
            "punctual_tunnel_session_copied_bytes_total{gateway=\"aa\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} in {text}");
        }
    }
}
