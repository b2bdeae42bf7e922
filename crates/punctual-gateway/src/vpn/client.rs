//! The side that calls: what it is given, and what it takes of it.

use std::{convert::Infallible, net::IpAddr};

use punctual::Session;
use tracing::{info, warn};

use super::{
    Attached, Device, Ended, GREET_WITHIN, Shared, Violation, lock,
    peer::{self, Places},
    routes::{Named, Refused, Surroundings, judge, sources},
    wire::{self, Welcome, Word},
};

/// What a client goes by.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// What the server gave last.
    given: Option<Welcome>,
    /// Its addresses that the system's routes lead to.
    servers: Vec<IpAddr>,
    /// What was refused of it, as it was told.
    refused: Refused,
}

impl<D: Device> Shared<D> {
    /// Serves a session with a server.
    pub(super) async fn call(&self, session: &Session) -> Result<Infallible, Ended> {
        let Some(server) = lock(&self.table).server.clone() else { return Err(Violation::Greeting.into()) };
        let (attached, follow) = Attached::new(&server, session);
        if peer::say(session, &Word::Hello(wire::VERSION)).await.is_err() {
            return Err(Ended::Closed(crate::why_closed(session).await));
        }
        let welcome = tokio::time::timeout(GREET_WITHIN, welcome(session)).await.map_err(|_| Ended::NoGreeting)??;
        self.take(welcome).await?;
        server.replan(&self.plan(), self.plan().limits.rate);
        server.open(attached.generation);
        let hear = async {
            loop {
                let block = session.recv().await.map_err(Ended::Closed)?;
                match Word::decode(block.data).map_err(Violation::from)? {
                    Some(Word::Packet { packet, rest }) => self.deliver(&server, &packet, rest, &self.plan()),
                    Some(Word::Welcome(welcome)) => self.take(welcome).await?,
                    Some(Word::Hello(_)) => return Err(Violation::Greeting.into()),
                    None => {}
                }
            }
        };
        tokio::select! {
            ended = hear => ended,
            never = server.drive(follow, &self.metrics) => never,
        }
    }

    /// Makes the device what the server says, as far as settings let it.
    async fn take(&self, welcome: Welcome) -> Result<(), Ended> {
        let mut taken = self.taken.lock().await;
        if taken.given.as_ref() != Some(&welcome) {
            let Welcome { addresses, routes, mtu, .. } = &welcome;
            info!(?addresses, ?routes, mtu, "the server gives");
        }
        taken.given = Some(welcome);
        self.take_again(&mut taken).await
    }

    /// The same, of what was said before: settings are others, or addresses of the server's.
    async fn take_again(&self, taken: &mut Taken) -> Result<(), Ended> {
        let Some(given) = &taken.given else { return Ok(()) };
        let device = |error: std::io::Error| Ended::Device(error.to_string());
        let beside = self.device.beside().await.map_err(device)?;
        let around = Surroundings { beside: &beside, servers: &taken.servers };
        let plan = self.plan();
        let (setup, refused) = judge(given, &plan.accept_routes, &around);
        if !refused.is_empty() && refused != taken.refused {
            warn!("not taken from the server: {}", Named(&refused));
        }
        taken.refused = refused;
        if setup.addresses.is_empty() {
            // A device without an address would send from those of others.
            return Err(Ended::NotAccepted(Named(&taken.refused).to_string()));
        }
        if let Some(server) = &lock(&self.table).server {
            let networks = sources(&plan.accept_routes, &setup.addresses);
            server.place(Places { addresses: Vec::new(), networks });
        }
        self.device.set_up(&setup).await.map_err(device)
    }

    /// Goes by other settings.
    pub(super) async fn accept_again(&self) -> Result<(), Ended> {
        let mut taken = self.taken.lock().await;
        self.take_again(&mut taken).await
    }

    /// The server has these addresses.
    pub(super) async fn lead_around(&self, servers: &[IpAddr]) -> Result<(), Ended> {
        let mut taken = self.taken.lock().await;
        if taken.servers == servers {
            return Ok(());
        }
        taken.servers = servers.to_vec();
        self.take_again(&mut taken).await
    }
}

/// The server's greeting. Packets may come before it, and are of no use yet.
async fn welcome(session: &Session) -> Result<Welcome, Ended> {
    loop {
        let block = session.recv().await.map_err(Ended::Closed)?;
        match Word::decode(block.data) {
            Ok(Some(Word::Welcome(welcome))) => return Ok(welcome),
            Ok(Some(Word::Packet { .. })) => {}
            _ => return Err(Ended::NoGreeting),
        }
    }
}
