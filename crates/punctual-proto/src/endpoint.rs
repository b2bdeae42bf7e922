//! Many sessions behind one or more sockets.

use std::{net::SocketAddr, time::Instant};

use bytes::BytesMut;
use noq_proto::EcnCodepoint;
use thiserror::Error;

use crate::{
    config::{ClientConfig, ServerConfig},
    event::Event,
    session::Session,
};

/// Names a session of an endpoint. Never used twice by the same endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A handle of the caller's for one of its own ends: a socket, an interface, a local address.
///
/// Only compared for equality; what it means is the caller's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u32);

/// Where a datagram comes from or goes to.
///
/// `remote` is an address as QUIC is shown it. For paths that are not plain UDP the caller
/// makes one up and keeps the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkPath {
    /// Our end.
    pub local: LocalId,
    /// The peer's end.
    pub remote: SocketAddr,
}

/// One UDP datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub path: NetworkPath,
    /// Bytes of it, in the buffer given to [`Endpoint::poll_transmit`].
    pub size: usize,
    /// The ECN mark to put on it.
    pub ecn: Option<EcnCodepoint>,
}

/// What an endpoint is made of.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Seeds connection ids, packet-number gaps and the like, for runs that repeat; `None` draws from the system.
    pub seed: Option<[u8; 32]>,
    /// The zero of the clock that goes on the wire: any fixed moment not after the endpoint's first use.
    pub epoch: Instant,
}

/// Why a session could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// Neither a DNS name nor an IP address.
    #[error("{0:?} is not a valid server name")]
    ServerName(String),
    /// Port 0, or an unspecified address.
    #[error("{0} is not an address one can connect to")]
    RemoteAddress(SocketAddr),
    /// No room for another session.
    #[error("the endpoint has no room for another session")]
    Full,
}

/// Many sessions behind one or more sockets. See [the contract](crate#the-contract).
pub struct Endpoint {}

impl Endpoint {
    /// An endpoint; with `server`, one that accepts sessions.
    pub fn new(config: EndpointConfig, server: Option<ServerConfig>) -> Self {
        let _ = (config, server);
        todo!()
    }

    /// Starts a session with the server at `path`. [`Event::Connected`] or [`Event::Closed`] follows.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        path: NetworkPath,
        server_name: &str,
    ) -> Result<SessionId, ConnectError> {
        let _ = (now, config, path, server_name);
        todo!()
    }

    /// Stops (or resumes, with `Some`) accepting new sessions.
    pub fn set_server(&mut self, server: Option<ServerConfig>) {
        let _ = server;
        todo!()
    }

    /// Takes in one UDP datagram.
    pub fn handle_datagram(&mut self, now: Instant, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        let _ = (now, path, ecn, data);
        todo!()
    }

    /// Writes the next datagram to send into `buf`, which must be empty.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let _ = (now, buf);
        todo!()
    }

    /// The next event of any session. An id not seen before is a session that a client has opened.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        todo!()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
        todo!()
    }

    /// A session, for as long as it lives: until some time after its [`Event::Closed`].
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        let _ = id;
        todo!()
    }

    /// Sessions that have not been forgotten yet, those closing included.
    pub fn sessions(&self) -> usize {
        todo!()
    }
}
