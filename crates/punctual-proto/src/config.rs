//! Settings of sessions and endpoints.

use std::{fmt, sync::Arc, time::Duration};

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::rustls;
use thiserror::Error;

use crate::{
    block::Redundancy,
    congestion::{self, Congestion},
    limits::{LARGEST_BLOCK, LONGEST_LATENCY, Limits},
    multipath::{self, PathSchedulerFactory},
    observe::ObserverFactory,
    probing::Probing,
    qlog::Qlog,
    redundancy::{self, PolicyFactory},
    schedule::{self, SchedulerFactory},
    token::Token,
};

/// The application protocol name under which Punctual is negotiated.
pub const ALPN: &[u8] = b"punctual/1";

/// QUIC has no words for more than 16 s.
const LONGEST_ACK_DELAY: Duration = Duration::from_secs(10);

/// How a session behaves. The default is what most want.
///
/// A session sends blocks and receives them. Each setting says whether it matters to the *sender*, for the blocks that we hand over, to the *receiver*, for those of
/// the peer, or to *both*. The two ends of a session need not agree.
///
/// ```
/// use punctual_proto::{Limits, Redundancy, SessionConfig, congestion, schedule};
///
/// let config = SessionConfig {
///     scheduler: schedule::by_name("ads:alpha=0.3")?,
///     congestion: congestion::cubic(),
///     redundancy: Redundancy::Both,
///     limits: Limits::default().send_bytes(8 << 20),
///     ..SessionConfig::default()
/// };
/// config.check()?;
/// assert!(format!("{config:?}").contains("scheduler: ads"), "what is in force can be read");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SessionConfig {
    /// *Sender*: which block goes next.
    pub scheduler: SchedulerFactory,
    /// *Sender*: which path it takes.
    pub path_scheduler: PathSchedulerFactory,
    /// *Sender*: how fast each path is driven.
    pub congestion: Congestion,
    /// *Sender*: how blocks are protected against loss that do not say it themselves, nor their channel.
    pub redundancy: Redundancy,
    /// *Sender*: how many repair fragments there are, where there are any.
    pub redundancy_policy: PolicyFactory,
    /// *Receiver*: how long after its hand-over at the peer a block is given to our application, unless [its channel](crate::Session::set_latency) has another latency. Default `None`: as it comes or in
    /// its channel's order, or as the peer wishes. At most 10 minutes.
    pub latency: Option<Duration>,
    /// *Both*: bounds, each of which says whose it is.
    pub limits: Limits,
    /// *Sender*: how long the peer may hold back an ACK, as we ask it. Short, for the tail of a block waits for it. Default 2 ms.
    pub max_ack_delay: Duration,
    /// *Both*: how often an otherwise idle path sends something, so that it stays open in NATs and its death is noticed.
    /// Default 5 s; more than a day means not at all.
    pub keep_alive: Duration,
    /// *Both*: a session none of whose paths has carried anything for this long is dead. Default 30 s.
    ///
    /// Of a block that the peer has acknowledged, or that was dropped here, it owes a word. A block without one ends at the latest when it has been owed for three times as
    /// long (at least 15 s); a peer that says nothing at all meanwhile ends the session ([`ProtocolError::Silent`](crate::ProtocolError::Silent)).
    pub idle_timeout: Duration,
    /// *Sender*: first congestion window of a path, packets of 1,200 bytes. Default 12, which is what RFC 9002 (7.2) allows.
    pub initial_window_packets: u32,
    /// *Sender*: whether to search for a larger MTU than 1,200 bytes. Default yes.
    pub mtu_discovery: bool,
    /// *Sender*: whether paths that carry nothing are pinged, so that it is known how long they take. Default no: they are heard of each [`keep_alive`](Self::keep_alive).
    pub probing: Probing,
    /// *Both*: writes what QUIC does in each session: packets, losses, paths.
    pub qlog: Option<Qlog>,
    /// *Both*: makes an observer for each session. Default none, which costs next to nothing.
    pub observer: Option<ObserverFactory>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            scheduler: schedule::default_factory(),
            path_scheduler: multipath::default_factory(),
            congestion: congestion::default_congestion(),
            redundancy: Redundancy::default(),
            redundancy_policy: redundancy::default_factory(),
            latency: None,
            limits: Limits::default(),
            max_ack_delay: Duration::from_millis(2),
            keep_alive: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            initial_window_packets: 12,
            mtu_discovery: true,
            probing: Probing::default(),
            qlog: None,
            observer: None,
        }
    }
}

/// A setting with which no session could do its work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} is {value}; it must be {wanted}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting.
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// What would do.
    pub wanted: &'static str,
}

impl SessionConfig {
    /// Whether a session could do its work with these settings. [`Endpoint::connect`](crate::Endpoint::connect) asks that itself; of a server's
    /// settings it is to be asked before they are used.
    ///
    /// # Errors
    /// The first setting with which none could.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Limits { max_block_size, receive_bytes, receive_blocks, send_bytes, send_blocks, .. } = self.limits;
        let Limits { paths, events, sessions, .. } = self.limits;
        let counts = [
            ("limits.receive_blocks", receive_blocks),
            ("limits.send_bytes", send_bytes),
            ("limits.send_blocks", send_blocks as u64),
            ("limits.paths", paths.into()),
            ("limits.events", events as u64),
            ("limits.sessions", sessions as u64),
            ("initial_window_packets", self.initial_window_packets.into()),
        ];
        let none = counts.iter().find(|(_, count)| *count == 0);
        none.map_or(Ok(()), |(name, count)| Err(ConfigError::new(name, count, "at least 1")))?;
        if !(1..=LARGEST_BLOCK).contains(&max_block_size) {
            return Err(ConfigError::new("limits.max_block_size", &max_block_size, "1 byte to 1 GiB"));
        }
        if receive_bytes < max_block_size {
            return Err(ConfigError::new("limits.receive_bytes", &receive_bytes, "at least limits.max_block_size"));
        }
        if self.limits.endpoint_bytes < receive_bytes {
            let bytes = self.limits.endpoint_bytes;
            return Err(ConfigError::new("limits.endpoint_bytes", &bytes, "at least limits.receive_bytes"));
        }
        if let Some(latency) = self.latency.filter(|latency| *latency > LONGEST_LATENCY) {
            return Err(ConfigError::new("latency", &format_args!("{latency:?}"), "at most 10 minutes"));
        }
        if self.max_ack_delay > LONGEST_ACK_DELAY {
            let delay = self.max_ack_delay;
            return Err(ConfigError::new("max_ack_delay", &format_args!("{delay:?}"), "at most 10 s"));
        }
        if self.idle_timeout.is_zero() {
            return Err(ConfigError::new("idle_timeout", &"0", "longer than nothing"));
        }
        Ok(())
    }
}

impl ConfigError {
    fn new(name: &'static str, value: &dyn fmt::Display, wanted: &'static str) -> Self {
        Self { name, value: value.to_string(), wanted }
    }
}

impl fmt::Debug for SessionConfig {
    /// What is in force: factories are shown by the names of what they make.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scheduler,
            path_scheduler,
            congestion,
            redundancy,
            redundancy_policy,
            latency,
            limits,
            max_ack_delay,
            keep_alive,
            idle_timeout,
            initial_window_packets,
            mtu_discovery,
            probing,
            qlog,
            observer,
        } = self;
        f.debug_struct("SessionConfig")
            .field("scheduler", &format_args!("{}", scheduler().name()))
            .field("path_scheduler", &format_args!("{}", path_scheduler().name()))
            .field("congestion", congestion)
            .field("redundancy", redundancy)
            .field("redundancy_policy", &format_args!("{}", redundancy_policy().name()))
            .field("latency", latency)
            .field("limits", limits)
            .field("max_ack_delay", max_ack_delay)
            .field("keep_alive", keep_alive)
            .field("idle_timeout", idle_timeout)
            .field("initial_window_packets", initial_window_packets)
            .field("mtu_discovery", mtu_discovery)
            .field("probing", probing)
            .field("qlog", &qlog.is_some())
            .field("observer", &observer.is_some())
            .finish()
    }
}

/// TLS lacks what QUIC cannot do without: TLS 1.3 with AES-128-GCM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("TLS lacks what QUIC's first packets need: TLS 1.3 with the cipher suite TLS13_AES_128_GCM_SHA256")]
pub struct NoCipherSuite;

/// What a client needs to start a session.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) crypto: Arc<QuicClientConfig>,
    pub(crate) token: Option<Token>,
    /// The session's settings.
    pub session: SessionConfig,
}

impl ClientConfig {
    /// From a TLS configuration.
    ///
    /// `punctual/1` is offered first; whatever `tls.alpn_protocols` held is offered behind it, for servers that do
    /// not speak Punctual (see the crate's text on fallback).
    ///
    /// # Errors
    /// If `tls` lacks TLS 1.3 with AES-128-GCM, which QUIC cannot do without.
    pub fn new(mut tls: rustls::ClientConfig) -> Result<Self, NoCipherSuite> {
        offer_punctual(&mut tls.alpn_protocols);
        let crypto = Arc::new(tls.try_into().map_err(|_| NoCipherSuite)?);
        Ok(Self { crypto, token: None, session: SessionConfig::default() })
    }

    /// Shows each server this token, for one that [wants it](ServerConfig::tokens): once TLS has made sure of the server.
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Replaces the session's settings.
    pub fn session(mut self, session: SessionConfig) -> Self {
        self.session = session;
        self
    }
}

/// What a server needs to accept sessions.
#[derive(Clone)]
pub struct ServerConfig {
    pub(crate) crypto: Arc<QuicServerConfig>,
    pub(crate) holds: bool,
    pub(crate) tokens: Arc<[Token]>,
    /// The sessions' settings.
    pub session: SessionConfig,
}

impl ServerConfig {
    /// From a TLS configuration; ALPN as in [`ClientConfig::new`].
    ///
    /// # Errors
    /// If `tls` lacks TLS 1.3 with AES-128-GCM.
    pub fn new(mut tls: rustls::ServerConfig) -> Result<Self, NoCipherSuite> {
        offer_punctual(&mut tls.alpn_protocols);
        Ok(Self {
            crypto: Arc::new(tls.try_into().map_err(|_| NoCipherSuite)?),
            holds: false,
            tokens: Arc::default(),
            session: SessionConfig::default(),
        })
    }

    /// Has each session wait for [`Session::accept`](crate::Session::accept) before its client may send any block. For applications that may
    /// leave a session waiting, or refuse it: nothing is delivered to nobody, and what waits holds next to no memory.
    pub fn wait_for_acceptance(mut self) -> Self {
        self.holds = true;
        self
    }

    /// Lets in only clients that [show](ClientConfig::token) one of these tokens; with none, any. All that is heard of others is that their session is [closed](crate::Event::Closed), with
    /// [`ProtocolError::Token`](crate::ProtocolError::Token), before it begins, and so is that of a client that does not speak Punctual. A client hears of it after its [`Connected`](crate::Event::Connected).
    pub fn tokens(mut self, tokens: impl IntoIterator<Item = Token>) -> Self {
        self.tokens = tokens.into_iter().collect();
        self
    }

    /// Replaces the sessions' settings.
    pub fn session(mut self, session: SessionConfig) -> Self {
        self.session = session;
        self
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crypto: _, token, session } = self;
        f.debug_struct("ClientConfig")
            .field("token", &token.is_some())
            .field("session", session)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crypto: _, holds, tokens, session } = self;
        f.debug_struct("ServerConfig")
            .field("waits_for_acceptance", holds)
            .field("tokens", &tokens.len())
            .field("session", session)
            .finish_non_exhaustive()
    }
}

fn offer_punctual(protocols: &mut Vec<Vec<u8>>) {
    protocols.retain(|name| name != ALPN);
    protocols.insert(0, ALPN.to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_can_be_read() {
        let config = SessionConfig {
            scheduler: schedule::edf(),
            path_scheduler: multipath::single(),
            congestion: congestion::bbr3(),
            redundancy_policy: redundancy::dtp(),
            ..SessionConfig::default()
        };
        let shown = format!("{config:?}");
        for part in [
            "scheduler: edf",
            "path_scheduler: single",
            "congestion: Acks(Bbr3)",
            "redundancy: Auto",
            "redundancy_policy: dtp",
            "max_block_size: 16777216",
            "idle_timeout: 30s",
            "initial_window_packets: 12",
            "mtu_discovery: true",
            "probing: Off",
            "qlog: false",
            "observer: false",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(format!("{:?}", SessionConfig::default()).contains("congestion: Reports(Steady)"));
    }

    #[test]
    fn settings_with_which_nothing_could_be_done_are_refused() {
        let check = |change: fn(&mut SessionConfig)| {
            let mut config = SessionConfig::default();
            change(&mut config);
            config.check().map_err(|error| error.name)
        };
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|config| config.limits.events = 0), Err("limits.events"));
        assert_eq!(check(|config| config.limits.send_blocks = 0), Err("limits.send_blocks"));
        assert_eq!(check(|config| config.limits.receive_blocks = 0), Err("limits.receive_blocks"));
        assert_eq!(check(|config| config.limits.paths = 0), Err("limits.paths"));
        assert_eq!(check(|config| config.limits.max_block_size = 0), Err("limits.max_block_size"));
        assert_eq!(check(|config| config.limits.max_block_size = u64::MAX), Err("limits.max_block_size"));
        assert_eq!(check(|config| config.limits.receive_bytes = 1 << 20), Err("limits.receive_bytes"));
        assert_eq!(check(|config| config.limits.endpoint_bytes = 1 << 20), Err("limits.endpoint_bytes"));
        assert_eq!(check(|config| config.max_ack_delay = Duration::MAX), Err("max_ack_delay"));
        assert_eq!(check(|config| config.idle_timeout = Duration::ZERO), Err("idle_timeout"));
        assert_eq!(check(|config| config.latency = Some(Duration::from_secs(601))), Err("latency"));
        let error = SessionConfig { initial_window_packets: 0, ..SessionConfig::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "initial_window_packets is 0; it must be at least 1");
    }
}
