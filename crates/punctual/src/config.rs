//! Settings of an endpoint.

use std::{path::PathBuf, time::Duration};

use punctual_proto::SessionConfig;

/// How an endpoint and its sessions behave. The default is what most want.
///
/// ```
/// use std::time::Duration;
/// use punctual::{Config, Redundancy, redundancy};
///
/// let mut config = Config::default().connect_timeout(Duration::from_secs(3)).qlog_dir("/tmp/qlog");
/// config.session.idle_timeout = Duration::from_secs(10);
/// // Repair fragments for every block, and more of them than by default.
/// config.session.redundancy = Redundancy::Both;
/// config.session.redundancy_policy = redundancy::by_name("risk:target=0.0001")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// What the protocol does: schedulers, congestion control, redundancy, limits, timeouts.
    pub session: SessionConfig,
    /// How long a connection attempt, or the opening of a path, may take. Default 10 s.
    pub connect_timeout: Duration,
    /// Where to write two qlog files for each session: QUIC's own events, and those of the blocks
    /// (`docs/qlog.md`). The directory is made if need be. Default: nowhere.
    pub qlog_dir: Option<PathBuf>,
    /// Events that [`Session::events`](crate::Session::events) keeps for a listener that lags behind before it
    /// loses the oldest. Default 256.
    pub event_backlog: usize,
    /// Bytes of arrived datagrams the system is asked to hold for each socket (`SO_RCVBUF`); it may grant less.
    /// Default 2 MiB.
    pub receive_buffer: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            connect_timeout: Duration::from_secs(10),
            qlog_dir: None,
            event_backlog: 256,
            receive_buffer: 2 << 20,
        }
    }
}

impl Config {
    /// Replaces the protocol's settings.
    pub fn session(mut self, session: SessionConfig) -> Self {
        self.session = session;
        self
    }

    /// Sets [`connect_timeout`](Self::connect_timeout).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets [`qlog_dir`](Self::qlog_dir).
    pub fn qlog_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.qlog_dir = Some(dir.into());
        self
    }
}
