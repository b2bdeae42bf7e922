//! Sessions between two hosts of a world, and their handshakes.

use std::{collections::HashMap, time::Duration};

use punctual_proto::{ClientConfig, CloseReason, ConnectError, Event, PathError, PathEvent, PathId, SessionId};
use thiserror::Error;

use crate::{
    cross::CrossSource,
    host::Host,
    node::Node,
    queue::Target,
    stuck::Stuck,
    tls::SERVER_NAME,
    world::{HostId, LinkId, PathHandle, World},
};

/// Names a session of a world, both of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Why a world could not be made ready.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// A session ended instead.
    #[error("connection {0:?} closed: {1}")]
    Closed(ConnectionId, CloseReason),
    /// A further path was refused.
    #[error("connection {0:?}: {1}")]
    Path(ConnectionId, PathError),
    /// A further path closed instead of opening.
    #[error("connection {0:?}: {1} closed")]
    PathClosed(ConnectionId, PathId),
    /// It took more than [`World::HANDSHAKE_LIMIT`].
    #[error("no end of the handshake in sight")]
    TimedOut,
    /// Time does not pass.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// The sessions of a world.
#[derive(Default)]
pub(crate) struct Connections {
    all: Vec<Connection>,
    /// Both ends of each. Looked up only, never iterated.
    by_end: HashMap<(HostId, SessionId), usize>,
    /// What applications will hear when the measured run begins.
    held: Option<Vec<(HostId, SessionId, Event)>>,
}

struct Connection {
    client: (HostId, SessionId),
    server: HostId,
    server_session: Option<SessionId>,
    paths: Vec<PathHandle>,
    client_connected: bool,
    server_connected: bool,
    /// Paths on their way.
    opening: Vec<PathId>,
    failure: Option<HandshakeError>,
}

impl Connections {
    /// Keeps an event back if the handshake is going on.
    pub(crate) fn hold(&mut self, host: HostId, session: SessionId, event: Event) -> Option<Event> {
        match &mut self.held {
            Some(held) => {
                held.push((host, session, event));
                None
            }
            None => Some(event),
        }
    }

    fn failure(&self) -> Option<&HandshakeError> {
        self.all.iter().find_map(|connection| connection.failure.as_ref())
    }

    fn ready(&self) -> bool {
        self.all.iter().all(|one| one.client_connected && one.server_connected && one.opening.is_empty())
    }
}

impl World {
    /// The most virtual time a handshake may take.
    pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(60);

    /// Time between the end of the handshake and the measured run, at least: for the last acknowledgements, and for MTU
    /// discovery.
    pub const SETTLING: Duration = Duration::from_secs(1);

    /// Starts a session from `client` to the host at the other end of `paths`, under the name of the [test
    /// certificate](crate::tls). The first path carries the handshake; the others are opened as soon as it is done.
    ///
    /// The first datagram leaves when the world next runs; so a [`handshake`](Self::handshake) that follows is over
    /// ideal links.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`](punctual_proto::Endpoint::connect).
    ///
    /// # Panics
    /// If there is no path, or they do not all join the same hosts, or the client is a [node](Self::add_node).
    pub fn connect(
        &mut self,
        client: HostId,
        config: &ClientConfig,
        paths: &[PathHandle],
    ) -> Result<ConnectionId, ConnectError> {
        let peer = |path: PathHandle| match self.path_ends(path) {
            (a, b) if a == client => b,
            (a, b) if b == client => a,
            _ => panic!("path {} does not end at the client", path.0),
        };
        let server = peer(paths[0]);
        assert!(paths.iter().all(|path| peer(*path) == server), "the paths end at different hosts");
        let (now, first) = (self.now, self.network_path(paths[0], client));
        let host = &mut self.hosts[client.0 as usize];
        let instant = host.clock.instant(now);
        let punctual = host.punctual_mut().expect("the client runs Punctual");
        let session = punctual.endpoint.connect(instant, config, first, SERVER_NAME)?;
        punctual.sessions.insert(session);
        self.queue.push(now, Target::Kick(client));
        self.connections.by_end.insert((client, session), self.connections.all.len());
        self.connections.all.push(Connection {
            client: (client, session),
            server,
            server_session: None,
            paths: paths.to_vec(),
            client_connected: false,
            server_connected: false,
            opening: Vec::new(),
            failure: None,
        });
        Ok(ConnectionId(self.connections.all.len() as u32 - 1))
    }

    /// Shakes hands over ideal links, then shapes them; returns the moment at which the measured run begins.
    ///
    /// QUIC's handshake differs by some bytes from run to run (random greasing), and that would go on to shift
    /// everything after it. So until every session is connected and all its paths are open, and every
    /// [node](crate::Node) is ready, links have their delay and MTU only, and there is no cross traffic. Then, at the first whole second at least [`SETTLING`](Self::SETTLING) later, all links become what
    /// they were specified to be, their schedules and counters begin, the log is emptied, and applications hear what
    /// has happened ([`Event::Connected`] first). It is that second when this returns.
    ///
    /// # Errors
    /// If a session or a path does not come about, or a node does not become ready.
    ///
    /// # Panics
    /// If time has passed already.
    pub fn handshake(&mut self) -> Result<Duration, HandshakeError> {
        assert!(self.now.is_zero(), "the handshake comes first");
        self.links.iter_mut().for_each(|(link, _)| link.make_ideal());
        self.cross.iter_mut().for_each(CrossSource::pause);
        self.connections.held = Some(Vec::new());
        while !(self.connections.ready() && self.hosts.iter().filter_map(Host::node).all(Node::is_ready)) {
            if let Some(failure) = self.connections.failure() {
                return Err(failure.clone());
            }
            if self.now > Self::HANDSHAKE_LIMIT || !self.try_step()? {
                return Err(HandshakeError::TimedOut);
            }
        }
        let start = (self.now + Self::SETTLING).as_nanos().div_ceil(1_000_000_000) as u64;
        self.try_run_until(Duration::from_secs(start))?;
        if let Some(failure) = self.connections.failure() {
            return Err(failure.clone());
        }
        self.begin();
        Ok(self.now)
    }

    /// The measured run begins.
    fn begin(&mut self) {
        let now = self.now;
        for link in 0..self.links.len() as u32 {
            self.touch(LinkId(link), |link| link.shape(now));
        }
        self.log.clear();
        for (host, session, event) in self.connections.held.take().unwrap_or_default() {
            self.deliver(host, session, event);
            self.drive(host);
        }
        for index in 0..self.hosts.len() {
            let at = self.hosts[index].moment(now);
            if let Some(node) = self.hosts[index].node_mut() {
                node.begin(at);
                self.drive(HostId(index as u32));
            }
        }
        (0..self.cross.len()).for_each(|index| self.start_cross_traffic(index));
    }

    /// The client's host and its end of a session.
    pub fn client(&self, connection: ConnectionId) -> (HostId, SessionId) {
        self.connections.all[connection.0 as usize].client
    }

    /// The server's host and its end of a session, once the server has heard of it.
    ///
    /// A server's sessions are told apart by the client's address: of several sessions over the same first path, the
    /// one started first is taken to arrive first.
    pub fn server(&self, connection: ConnectionId) -> Option<(HostId, SessionId)> {
        let connection = &self.connections.all[connection.0 as usize];
        Some((connection.server, connection.server_session?))
    }

    /// Keeps the list of sessions true, and opens further paths.
    pub(crate) fn follow(&mut self, host: HostId, session: SessionId, event: &Event) {
        let punctual = self.hosts[host.0 as usize].punctual_mut();
        if punctual.is_some_and(|one| one.sessions.insert(session)) {
            self.adopt(host, session);
        }
        let Some(&index) = self.connections.by_end.get(&(host, session)) else { return };
        let id = ConnectionId(index as u32);
        let connection = &mut self.connections.all[index];
        let is_client = connection.client == (host, session);
        match event {
            Event::Connected { .. } if is_client => {
                connection.client_connected = true;
                self.open_paths(id);
            }
            Event::Connected { .. } => connection.server_connected = true,
            Event::Path { id: path, event } if is_client => {
                let Some(index) = connection.opening.iter().position(|other| other == path) else { return };
                match event {
                    PathEvent::Opened => drop(connection.opening.remove(index)),
                    PathEvent::Closed => connection.failure = Some(HandshakeError::PathClosed(id, *path)),
                    _ => (),
                }
            }
            Event::Closed(reason) => connection.failure = Some(HandshakeError::Closed(id, reason.clone())),
            _ => (),
        }
    }

    /// A server has a session that it did not have before: whose?
    fn adopt(&mut self, host: HostId, session: SessionId) {
        let punctual = self.hosts[host.0 as usize].punctual_mut();
        let Some(remote) = punctual.and_then(|one| one.endpoint.session(session)).map(|one| one.remote_address())
        else {
            return;
        };
        let matching = (0..self.connections.all.len()).find(|&index| {
            let one = &self.connections.all[index];
            one.server == host && one.server_session.is_none() && self.network_path(one.paths[0], host).remote == remote
        });
        if let Some(index) = matching {
            self.connections.all[index].server_session = Some(session);
            self.connections.by_end.insert((host, session), index);
        }
    }

    /// Opens a session's paths but the first.
    fn open_paths(&mut self, id: ConnectionId) {
        let (host, session) = self.connections.all[id.0 as usize].client;
        let paths = self.connections.all[id.0 as usize].paths.clone();
        for path in &paths[1..] {
            let network_path = self.network_path(*path, host);
            let one = &mut self.hosts[host.0 as usize];
            let now = one.clock.instant(self.now);
            let session = one.punctual_mut().and_then(|one| one.endpoint.session(session));
            let opened = session.ok_or(PathError::Closed).and_then(|session| session.open_path(now, network_path));
            let connection = &mut self.connections.all[id.0 as usize];
            match opened {
                Ok(path) => connection.opening.push(path),
                Err(error) => connection.failure = Some(HandshakeError::Path(id, error)),
            }
        }
    }
}
