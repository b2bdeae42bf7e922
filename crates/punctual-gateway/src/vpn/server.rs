//! The side that is called: whom it lets in, and what it tells each.

use std::{convert::Infallible, sync::Arc};

use punctual::{Fingerprint, Session};
use tokio::sync::watch;
use tracing::info;

use super::{
    Attached, Device, Ended, GREET_WITHIN, Shared, Violation, lock,
    peer::{self, Follow, Peer},
    wire::{Welcome, Word},
};

impl<D: Device> Shared<D> {
    /// Serves a session with a client.
    pub(super) async fn answer(&self, session: &Session) -> Result<Infallible, Ended> {
        // Nobody but those who are let in gets so far, unless the endpoint is not ours, or the settings have just changed.
        let fingerprint = session.peer_fingerprint().ok_or(Ended::Unknown)?;
        tokio::time::timeout(GREET_WITHIN, greeting(session)).await.map_err(|_| Ended::NoGreeting)??;
        let Welcomed { peer, welcome, generation, follow, told } = self.welcome(fingerprint, session)?;
        // In this order: who is here is looked at once the session is gone.
        let _present = Present { shared: self, fingerprint, peer: &peer };
        let attached = Attached { peer: &peer, generation };
        info!(client = %peer, address = ?session.remote_address(), addresses = ?welcome.addresses, "client connected");
        if peer::say(session, &Word::Welcome(welcome)).await.is_err() {
            return Err(Ended::Closed(crate::why_closed(session).await));
        }
        peer.open(attached.generation);
        let hear = async {
            loop {
                let block = session.recv().await.map_err(Ended::Closed)?;
                match Word::decode(block.data).map_err(Violation::from)? {
                    Some(Word::Packet { packet, rest }) => self.deliver(&peer, &packet, rest, &self.plan()),
                    Some(Word::Hello(_) | Word::Welcome(_)) => return Err(Violation::Greeting.into()),
                    None => {}
                }
            }
        };
        tokio::select! {
            ended = hear => ended,
            never = keep_telling(session, told) => never,
            never = peer.drive(follow, &self.metrics) => never,
        }
    }

    /// A client that has come, if it may, and what it is given. It has the session when it is in the table, lest one that ends meanwhile takes it out again.
    fn welcome(&self, fingerprint: Fingerprint, session: &Session) -> Result<Welcomed, Ended> {
        let mut table = lock(&self.table);
        let plan = self.plan();
        let client = plan.clients.get(&fingerprint).ok_or(Ended::Unknown)?;
        let known = table.clients.get(&fingerprint).cloned();
        if known.is_none() && table.clients.len() >= plan.limits.clients {
            return Err(Ended::Full);
        }
        let peer = known.unwrap_or_else(|| Arc::new(Peer::new(client.name(), &plan.limits)));
        peer.replan(&plan, plan.rate(client));
        let (welcome, _) = table.place(&plan, client, &peer).ok_or(Ended::NoAddress)?;
        table.clients.insert(fingerprint, peer.clone());
        let (generation, follow) = peer.attach(session);
        // From before it is told what it is given now, so that nothing else is missed.
        let told = peer.told();
        Ok(Welcomed { peer, welcome, generation, follow, told })
    }
}

/// The client's greeting, with which it begins.
async fn greeting(session: &Session) -> Result<(), Ended> {
    let block = session.recv().await.map_err(Ended::Closed)?;
    match Word::decode(block.data) {
        Ok(Some(Word::Hello(_))) => Ok(()),
        _ => Err(Ended::NoGreeting),
    }
}

/// A client that has come.
struct Welcomed {
    peer: Arc<Peer>,
    welcome: Welcome,
    generation: u64,
    follow: Follow,
    told: watch::Receiver<Option<Welcome>>,
}

/// Tells a client what it is given whenever that becomes something else, as soon as the session has room for it, and never returns.
async fn keep_telling<Never>(session: &Session, mut told: watch::Receiver<Option<Welcome>>) -> Never {
    while told.changed().await.is_ok() {
        let welcome = told.borrow_and_update().clone();
        if let Some(welcome) = welcome {
            // If the session has ended, whoever receives from it hears of that.
            let _ = peer::say(session, &Word::Welcome(welcome)).await;
        }
    }
    std::future::pending().await
}

/// A client that is here, until this is dropped; unless it has come again meanwhile.
struct Present<'a, D> {
    shared: &'a Shared<D>,
    fingerprint: Fingerprint,
    peer: &'a Arc<Peer>,
}

impl<D> Drop for Present<'_, D> {
    fn drop(&mut self) {
        let mut table = lock(&self.shared.table);
        if self.peer.session().is_none() {
            table.clients.remove(&self.fingerprint);
            table.forget(self.peer);
        }
    }
}
