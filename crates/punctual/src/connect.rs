//! Starting a session over one path.

use std::{
    future::{Future, IntoFuture},
    net::SocketAddr,
    pin::Pin,
    time::Duration,
};

use punctual_proto::{LocalId, NetworkPath};

use crate::{
    endpoint::{Endpoint, Owner},
    error::ConnectError,
    knock,
    qlog::Role,
    session::Session,
    shared::{Shared, State},
};

/// A connection attempt; await it to get the session.
#[must_use = "nothing happens until it is awaited"]
#[derive(Debug)]
pub struct Connect {
    endpoint: Endpoint,
    remote: SocketAddr,
    server_name: String,
    local: Option<LocalId>,
    timeout: Duration,
}

impl Connect {
    pub(crate) fn new(endpoint: Endpoint, remote: SocketAddr, server_name: &str) -> Self {
        let timeout = endpoint.0.config.connect_timeout;
        Self { endpoint, remote, server_name: server_name.to_owned(), local: None, timeout }
    }

    /// Chooses the local end of the first path.
    pub fn from(mut self, local: LocalId) -> Self {
        self.local = Some(local);
        self
    }

    /// Says how long the attempt may take, in place of [`Config::connect_timeout`](crate::Config::connect_timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn run(self) -> Result<Session, ConnectError> {
        let Self { endpoint, remote, server_name, local, timeout: after } = self;
        let local = match local {
            Some(local) => local,
            None => endpoint.0.shared.with(|state, _| first_local(state, remote))?,
        };
        let begun = begin(&endpoint.0, NetworkPath { local, remote }, &server_name, None)?;
        let session = begun.ok_or(ConnectError::EndpointClosed)?;
        // Should this future be dropped, so is the session's only handle, which closes it.
        let error = match tokio::time::timeout(after, answered(&session, local, remote, after)).await {
            Ok(Ok(())) => return Ok(session),
            Ok(Err(error)) => error,
            Err(_) => ConnectError::TimedOut { remote, after, cause: None },
        };
        Err(match error {
            ConnectError::TimedOut { remote, after, .. } => {
                ConnectError::TimedOut { remote, after, cause: last_error(&endpoint.0.shared, local, remote) }
            }
            other => other,
        })
    }
}

impl IntoFuture for Connect {
    type Output = Result<Session, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Begins a session over one path, without waiting for it to be connected. Of those of one `race`, the first that is connected closes the others. `None` if one
/// is connected already: it may have been so fast that whoever races has not heard of it.
pub(crate) fn begin(
    owner: &Owner,
    path: NetworkPath,
    server_name: &str,
    race: Option<u64>,
) -> Result<Option<Session>, ConnectError> {
    let Owner { shared, client, settings, .. } = owner;
    let client = client.as_ref().ok_or(ConnectError::NotClient)?;
    shared.drive(|state, now| {
        if state.dead || state.closing.is_some() {
            return Err(ConnectError::EndpointClosed);
        }
        if race.is_some_and(|race| state.is_won(race)) {
            return Ok(None);
        }
        let NetworkPath { local, remote } = path;
        let socket = state.ends.socket_of(local).ok_or(ConnectError::UnknownLocal(local))?;
        if socket.address.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::NoLocal(remote));
        }
        let id = state.core.connect(now, client, path, server_name).map_err(|error| match error {
            punctual_proto::ConnectError::ServerName(name) => ConnectError::ServerName(name),
            punctual_proto::ConnectError::RemoteAddress(address) => ConnectError::RemoteAddress(address),
            punctual_proto::ConnectError::Config(error) => ConnectError::Config(error),
            // Of the other kinds there is one today, and it says that there is no room.
            _ => ConnectError::Full,
        })?;
        let slot = state.open_slot(id, Role::Client);
        slot.held = true;
        slot.begins_at = Some(local);
        slot.race = race;
        Ok(Some(Session::new(shared.clone(), id, slot.signals.clone(), *settings)))
    })
}

/// Waits until the session has begun, or cannot.
pub(crate) async fn answered(
    session: &Session,
    local: LocalId,
    remote: SocketAddr,
    after: Duration,
) -> Result<(), ConnectError> {
    let nobody_listens = async {
        match session.link().shared.with(|state, _| state.ends.socket_of(local).map(|socket| socket.bind.clone())) {
            Some(bind) => knock::nobody_listens(bind, remote).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        connected = session.connected() => connected.map_err(|reason| ConnectError::from_reason(reason, remote, after)),
        () = nobody_listens => Err(ConnectError::NobodyListens { remote }),
    }
}

/// What the system last said against sending to `remote` from there.
pub(crate) fn last_error(shared: &Shared, local: LocalId, remote: SocketAddr) -> Option<String> {
    shared.with(|state, _| state.ends.socket_of(local)?.last_error(remote))
}

fn first_local(state: &State, remote: SocketAddr) -> Result<LocalId, ConnectError> {
    let mut sockets = state.ends.sockets();
    let socket = sockets.find(|socket| socket.address.is_ipv4() == remote.is_ipv4());
    Ok(socket.ok_or(ConnectError::NoLocal(remote))?.local)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Identity;

    #[tokio::test]
    async fn a_race_that_is_won_is_not_joined_any_more() {
        let identity = Identity::self_signed(["localhost"]).expect("a valid name");
        let fingerprint = identity.fingerprint();
        let server = Endpoint::server(identity).bind("127.0.0.1".parse().expect("valid")).build().expect("loopback");
        let client = Endpoint::client().trust(fingerprint).build().expect("a client");
        let remote = server.local_address();
        let local = client.0.shared.with(|state, _| first_local(state, remote)).expect("bound");
        let race = client.0.shared.with(|state, _| state.new_race());
        let begin = |race| begin(&client.0, NetworkPath { local, remote }, "localhost", Some(race)).expect("it can be");
        let session = begin(race).expect("the first");
        tokio::time::timeout(Duration::from_secs(60), session.connected()).await.expect("in time").expect("connected");
        assert!(begin(race).is_none(), "whoever comes late has lost");
        assert!(begin(race + 1).is_some(), "another race");
    }
}
