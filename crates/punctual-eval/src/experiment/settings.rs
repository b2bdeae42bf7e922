//! Settings of transports: the tables `[session]` and `[quic]`.

use std::time::Duration;

use punctual_proto::SessionConfig;
use serde::Deserialize;

use crate::{
    quic::PACKET,
    units::{Mode, Probes, Size, Time},
};

/// The least first window, bytes: controllers go no lower either (RFC 9002, section 7.2).
const LEAST_WINDOW: u64 = 2 * PACKET;
/// Of ACK delays between these, noq tells its peer just that: the granularity of its timers, and what it may ask for on the shortest of paths.
const LEAST_ACK_DELAY: Duration = Duration::from_millis(1);
const MOST_ACK_DELAY: Duration = Duration::from_millis(25);

/// Settings of our session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SessionSpec {
    /// Which block goes next.
    pub scheduler: String,
    /// Which path it takes.
    pub path_scheduler: String,
    /// How fast each path is driven.
    pub congestion: String,
    /// How blocks are protected against loss whose source does not say it.
    pub redundancy: Mode,
    /// How many repair fragments there are, where there are any.
    pub redundancy_policy: String,
    /// Whether paths that carry nothing are pinged.
    pub probing: Probes,
    /// The most bytes of live blocks the transport takes.
    pub send_buffer: Option<Size>,
    /// The first congestion window of a path; the session takes whole packets of 1,200 bytes.
    pub initial_window: Size,
}

impl Default for SessionSpec {
    fn default() -> Self {
        let first = |mut names: Box<dyn Iterator<Item = &'static str>>| names.next().unwrap_or_default().to_owned();
        Self {
            scheduler: first(Box::new(punctual_proto::schedule::names())),
            path_scheduler: first(Box::new(punctual_proto::multipath::names())),
            congestion: punctual_proto::congestion::REGISTRY[0].name.to_owned(),
            redundancy: Mode::default(),
            redundancy_policy: first(Box::new(punctual_proto::redundancy::names())),
            probing: Probes::default(),
            send_buffer: None,
            initial_window: Size(u64::from(SessionConfig::default().initial_window_packets) * PACKET),
        }
    }
}

impl SessionSpec {
    /// The first window in packets.
    pub(crate) fn initial_window_packets(&self) -> u32 {
        u32::try_from(self.initial_window.0 / PACKET).unwrap_or(u32::MAX)
    }

    /// Refuses what QUIC would not keep to.
    pub(super) fn check(&self) -> Result<(), String> {
        check_window("session", self.initial_window)
    }
}

/// A `[quic]` table: settings of plain QUIC. What it leaves open is as our session has it, so that nothing but the protocol tells them apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct QuicSpec {
    /// The first congestion window of a path.
    pub initial_window: Option<Size>,
    /// How long the peer may hold back an ACK.
    pub max_ack_delay: Option<Time>,
    /// An ACK at least for every so many packets.
    pub ack_every: Option<u32>,
}

impl QuicSpec {
    /// Refuses what QUIC would not keep to.
    pub(super) fn check(&self) -> Result<(), String> {
        self.initial_window.map_or(Ok(()), |window| check_window("quic", window))?;
        if self.max_ack_delay.is_some_and(|delay| !(LEAST_ACK_DELAY..=MOST_ACK_DELAY).contains(&delay.0)) {
            return Err("[quic] max-ack-delay: noq keeps to it from 1 ms to 25 ms".into());
        }
        if self.ack_every == Some(0) {
            return Err("[quic] ack-every: at least 1, an ACK for every packet".into());
        }
        Ok(())
    }
}

fn check_window(table: &str, window: Size) -> Result<(), String> {
    match window.0 {
        LEAST_WINDOW.. => Ok(()),
        _ => Err(format!("[{table}] initial-window: at least two packets of {PACKET} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unless_told_otherwise_windows_are_the_session_s() {
        let spec = SessionSpec::default();
        assert_eq!(spec.initial_window_packets(), SessionConfig::default().initial_window_packets);
        let spec = SessionSpec { initial_window: Size(5_999), ..spec };
        assert_eq!((spec.initial_window_packets(), spec.check()), (4, Ok(())));
    }

    #[test]
    fn what_quic_would_not_keep_to_is_refused() {
        let wrong = |text: &str| toml::from_str::<QuicSpec>(text).unwrap().check().unwrap_err();
        assert!(wrong("initial-window = '2 KB'").contains("two packets"));
        assert!(wrong("max-ack-delay = '0.9ms'").contains("1 ms"));
        assert!(wrong("max-ack-delay = '26ms'").contains("25 ms"));
        assert!(wrong("ack-every = 0").contains("at least 1"));
        let right = "initial-window = '12 KB'\nmax-ack-delay = '25ms'\nack-every = 10";
        assert_eq!(toml::from_str::<QuicSpec>(right).unwrap().check(), Ok(()));
        let narrow: SessionSpec = toml::from_str("initial-window = 2399").unwrap();
        assert!(narrow.check().unwrap_err().starts_with("[session]"));
    }
}
