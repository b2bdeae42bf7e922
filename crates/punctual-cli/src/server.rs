//! The side that is called: who it is, where it listens, whom it lets in.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use punctual::{Config, Endpoint, Identity, ServerBuilder, Token, Trust};

use crate::{
    activation,
    cli::{DoorArgs, Listen},
    exit::Failure,
    identity,
    say::say,
};

/// Where to listen, if nothing is said of it.
const DEFAULT_PORT: u16 = 4433;

/// What an endpoint is to be.
pub(crate) struct Server<'a> {
    pub(crate) listen: &'a [Listen],
    pub(crate) door: &'a DoorArgs,
    /// Whom to let in, if that is not for `door` to say.
    pub(crate) clients: Option<Trust>,
    pub(crate) config: Config,
}

/// Who we are.
pub(crate) fn identity(door: &DoorArgs) -> Result<Identity, Failure> {
    match &door.identity {
        Some(path) => Ok(identity::load_or_make(path, &door.name)?.identity),
        None => identity::make(&door.name),
    }
}

/// Where an endpoint is to be that is told to listen there, if no sockets are handed over to it.
pub(crate) fn addresses(listen: &[Listen]) -> Vec<SocketAddr> {
    let by_default = [Listen::Port(DEFAULT_PORT)];
    let listen = if listen.is_empty() { &by_default[..] } else { listen };
    let all = listen.iter().map(|listen| match *listen {
        Listen::Port(port) => vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()],
        Listen::Address(address) => vec![address],
    });
    all.flatten().collect()
}

/// Opens the endpoint, and says how to reach it.
pub(crate) fn listen(
    server: Server<'_>,
    identity: Identity,
    tokens: Vec<Token>,
    quiet: bool,
) -> Result<Endpoint, Failure> {
    let Server { listen, door, clients, config } = server;
    let fingerprint = identity.fingerprint();
    let mut builder = Endpoint::server(identity).config(config);
    if let Some(clients) = clients {
        builder = builder.client_ca(clients);
    } else if let Some(path) = &door.client_ca {
        builder = builder.client_ca(identity::authorities(path)?);
    } else if !door.client_fingerprint.is_empty() {
        builder = builder.client_ca(Trust::fingerprints(door.client_fingerprint.iter().copied()));
    }
    builder = tokens.into_iter().fold(builder, ServerBuilder::token);
    let sockets = activation::sockets()?;
    let by_default = [Listen::Port(DEFAULT_PORT)];
    let listen = if listen.is_empty() && sockets.is_empty() { &by_default[..] } else { listen };
    builder = sockets.into_iter().fold(builder, ServerBuilder::socket);
    for listen in listen {
        builder = match *listen {
            Listen::Port(port) => builder.port(port),
            Listen::Address(address) => builder.bind(address.into()),
        };
    }
    let endpoint = builder.build()?;
    if !quiet {
        for local in endpoint.locals() {
            say!("listening on {}", local.address);
        }
        say!("fingerprint {fingerprint}");
    }
    Ok(endpoint)
}
