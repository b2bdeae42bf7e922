//! What can go wrong outside the protocol, as enums to match on. Each message says what to do next, if anything can be done.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use punctual_proto::{CloseReason, LocalId, PathError, TransportError, duration::spoken};
use thiserror::Error;

use crate::{
    local::Bind,
    route::{Route, RouteError},
    tls::Fingerprint,
};

/// Why an endpoint could not be built, or a socket not added to it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The system did not let us have that address.
    #[error("cannot bind {bind}: {source}")]
    Bind {
        /// What was asked for.
        bind: Bind,
        /// The system's answer.
        source: io::Error,
    },
    /// No interface of that name has an address.
    #[error("no interface {name:?} with an address; there are: {}", known.join(", "))]
    Interface {
        /// What was asked for.
        name: String,
        /// Those that have addresses.
        known: Vec<String>,
    },
    /// The list of interfaces could not be had.
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(io::Error),
    /// A certificate, key or root of trust is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A socket that was handed over cannot be used.
    #[error("the socket {address} that was handed over cannot be used: {reason}")]
    Socket {
        /// What it is bound to.
        address: SocketAddr,
        /// Why not.
        reason: String,
    },
    /// The directory for qlog files could not be made.
    #[error("cannot make the qlog directory {}: {source}", dir.display())]
    Qlog {
        /// What was asked for.
        dir: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No session could do its work with these settings.
    #[error(transparent)]
    Config(#[from] punctual_proto::ConfigError),
    /// Sockets need tokio's reactor: build the endpoint inside a tokio runtime.
    #[error("an endpoint must be built inside a tokio runtime")]
    NoRuntime,
    /// More sockets have come and gone than there are names for; build another endpoint.
    #[error("the endpoint has no names left for sockets; build another")]
    TooManyEnds,
    /// The endpoint has been closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// What is wrong with a certificate, a key or a root of trust.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Not PEM, or cut short.
    #[error("cannot read the PEM of {what}: {reason}")]
    Pem {
        /// Which input: "a certificate", "a private key", …
        what: &'static str,
        /// The parser's words.
        reason: String,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The input holds no certificate.
    #[error("there is no certificate in the input; a PEM certificate begins with \"-----BEGIN CERTIFICATE-----\"")]
    NoCertificate,
    /// The input holds no private key, or one of a kind that is not supported.
    #[error("there is no private key in the input; PKCS#8, PKCS#1 and SEC1 keys are understood")]
    NoKey,
    /// The certificate and the key do not go together, or the key is of a kind that is not supported.
    #[error("the certificate or its key cannot be used: {0}")]
    Identity(rustls::Error),
    /// A certificate given as certificate authority cannot be one.
    #[error("the certificate authority cannot be used: {0}")]
    Authority(String),
    /// A self-signed certificate could not be made.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(String),
    /// The system has no root certificates: install them, or name a CA or a fingerprint to trust.
    #[error(
        "no certificates to trust were found on this system ({0}); install them (ca-certificates), or name a CA or a fingerprint to trust"
    )]
    NoSystemRoots(rustls::Error),
    /// TLS 1.3 could not be set up.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Why `connect` gave no session.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Neither a DNS name nor an IP address.
    #[error("{0:?} is not a valid server name")]
    ServerName(String),
    /// Port 0, or an unspecified address.
    #[error("{0} is not an address one can connect to")]
    RemoteAddress(SocketAddr),
    /// None of the endpoint's sockets speaks that version of IP: bind one that does.
    #[error("no local socket can reach {0}: bind an address of the same IP version")]
    NoLocal(SocketAddr),
    /// The endpoint has no such local end.
    #[error("there is no local end {}", .0.0)]
    UnknownLocal(LocalId),
    /// No session could do its work with these settings.
    #[error(transparent)]
    Config(#[from] punctual_proto::ConfigError),
    /// The endpoint was built to accept sessions only.
    #[error("a server endpoint does not connect; build another with Endpoint::client()")]
    NotClient,
    /// No room for another session: close one.
    #[error("the endpoint has no room for another session")]
    Full,
    /// No answer: wrong address or port, a firewall, or no server there.
    #[error("no answer from {remote} within {}{}", spoken(*after), cause.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
    TimedOut {
        /// Who did not answer.
        remote: SocketAddr,
        /// How long we waited.
        after: Duration,
        /// What the system said when we sent, if it said anything.
        cause: Option<String>,
    },
    /// The host has said that no program listens there (ICMP "port unreachable"): start the server, or look at the port. It comes at once, however long the attempt might have
    /// taken: who calls again waits a little before that.
    #[error("no answer from {remote}: its host says that nobody listens at that port")]
    NobodyListens {
        /// Who was called.
        remote: SocketAddr,
    },
    /// None of the routes led to a session.
    #[error("no route led to a session within {}{}", spoken(*after), failures.iter().map(|(route, why)| format!("; {route}: {why}")).collect::<String>())]
    NoRoute {
        /// How long we tried.
        after: Duration,
        /// Each route, and what went wrong last.
        failures: Vec<(Route, RouteError)>,
    },
    /// The server's certificate is not the one that was pinned.
    #[error(
        "the server's certificate has fingerprint {presented}, which is not the one expected: do not go on unless its owner confirms it"
    )]
    Fingerprint {
        /// What it has instead.
        presented: Fingerprint,
    },
    /// The server's certificate does not check.
    #[error("the server's certificate is not trusted: {0}")]
    Certificate(String),
    /// The server would not have us: it wants a (different) client certificate, or is full, or speaks no common protocol.
    #[error("the server refused the session: {0}")]
    Refused(String),
    /// The session ended before it began, for another reason.
    #[error("the session could not be started: {0}")]
    Failed(CloseReason),
    /// The endpoint has been closed.
    #[error("the endpoint is closed")]
    EndpointClosed,
}

impl ConnectError {
    /// What the end of a session that never began means to the one who wanted it.
    pub(crate) fn from_reason(reason: CloseReason, remote: SocketAddr, after: Duration) -> Self {
        let error = match reason {
            CloseReason::Transport(error) => error,
            CloseReason::TimedOut => return Self::TimedOut { remote, after, cause: None },
            other => return Self::Failed(other),
        };
        match error.tls() {
            Some(rustls::Error::InvalidCertificate(bad)) => match Fingerprint::from_mismatch(bad) {
                Some(presented) => Self::Fingerprint { presented },
                None => Self::Certificate(bad.to_string()),
            },
            None if error.is_by_peer() && error.code().is_some() => Self::Refused(describe_close(&error)),
            _ => Self::Failed(CloseReason::Transport(error)),
        }
    }
}

/// The peer's CONNECTION_CLOSE in words, with TLS alerts by name.
fn describe_close(close: &TransportError) -> String {
    /// TLS alerts a server sends a client (RFC 8446, section 6; RFC 7301).
    const ALERTS: [(u8, &str); 8] = [
        (40, "handshake failure"),
        (42, "bad client certificate"),
        (45, "client certificate expired"),
        (46, "client certificate not acceptable"),
        (48, "client certificate of an unknown authority"),
        (112, "unknown server name"),
        (116, "a client certificate is required"),
        (120, "no common protocol"),
    ];
    match ALERTS.iter().find(|(alert, _)| close.alert() == Some(*alert)) {
        Some((_, words)) => (*words).to_owned(),
        None => close.to_string(),
    }
}

/// Why `open_path` gave no path.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenPathError {
    /// The session says no.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The endpoint has no such local end.
    #[error("there is no local end {}", .0.0)]
    UnknownLocal(LocalId),
    /// A socket was to be bound for it, and could not be.
    #[error(transparent)]
    Bind(#[from] BuildError),
    /// The local end speaks another version of IP than the remote address.
    #[error("the local end {local} cannot reach {remote}: they are of different IP versions")]
    Family {
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// Nothing came back over it within the time: the peer cannot be reached that way.
    #[error("the path to {remote} could not be validated within {}", spoken(*after))]
    TimedOut {
        /// The peer's end.
        remote: SocketAddr,
        /// How long we waited.
        after: Duration,
    },
    /// It was given up before it was validated.
    #[error("the path was given up before it was validated")]
    Abandoned,
}
