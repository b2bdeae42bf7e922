//! Paths whose peer gets another address, as a NAT brings about that forgets.
//!
//! QUIC notices it by itself, takes the path for another from then on, and makes sure that the peer is there (RFC 9000, 9): until then it may send no more
//! than three times what it gets. noq says so a second time if nothing comes back, and then never again: the path would stay as good as dead. So it is shown
//! [another address](crate::noq::alias) for the peer, as if that had moved once more.

use std::time::Instant;

use super::Session;
use crate::{
    base::{PathHealth, PathId},
    congestion::steering::Panel,
    event::Event,
    network::{LocalId, NetworkPath},
    noq, observe,
    path::validation::{Traffic, Validation},
};

impl Session {
    /// QUIC does not let go what is to leave on a path that has moved. Says whether that may be because it has yet to be validated.
    pub(super) fn doubt_validation(&mut self, now: Instant, id: PathId) -> bool {
        let Some(path) = self.paths.get_mut(id) else { return false };
        let Some(validation) = path.validation.as_mut() else { return false };
        validation.doubt(now, &Traffic::of(&mut self.conn, path.quic));
        true
    }

    /// A datagram came, from an address that was unknown or on a path that is being validated: QUIC may have taken that for a path whose peer has moved.
    /// It begins such a path's congestion control anew, and keeps what becomes of the packets sent before to itself.
    pub(super) fn follow_moves(&mut self, now: Instant) {
        let mut moved = Vec::new();
        for path in self.paths.iter_mut() {
            let Ok(tuple) = self.conn.network_path(path.quic) else { continue };
            let local = tuple.local_ip().and_then(LocalId::from_ip).unwrap_or(path.network.local);
            let shown = tuple.remote();
            if path.shown != shown {
                moved.push(path.id);
                path.shown = shown;
            }
            path.network = NetworkPath { local, remote: noq::real_address(shown) };
        }
        for id in moved {
            let driver = self.new_driver();
            let Some(path) = self.paths.get_mut(id) else { continue };
            let traffic = Traffic::of(&mut self.conn, path.quic);
            path.validation = Some(Validation::begin(now, &traffic, path.rtt(), path.validation.as_ref()));
            let controller = self.conn.congestion_state(path.quic);
            if let Some(controller) = controller {
                noq::nothing_in_flight(controller, now);
            }
            if let Some(panel) = controller.and_then(Panel::of) {
                tracing::debug!(path = %path.id, to = %path.network.remote, "moved");
                observe::forget(&mut self.observer, now, path.id, path.in_flight.iter());
                let event = path.on_moved(now, panel, driver, &mut self.store);
                self.events.push(Event::Path { id, event });
                self.paths.on_moved(id);
            }
        }
    }

    /// Whether the path to `network` is to be validated once more: what comes from there has to be shown to QUIC as from elsewhere.
    pub(super) fn needs_validation(&mut self, now: Instant, network: NetworkPath) -> bool {
        let Some(path) = self.paths.on_network(network) else { return false };
        let carries = path.health() == PathHealth::Active;
        let Some(validation) = path.validation.as_mut().filter(|validation| validation.is_curious(now)) else {
            return false;
        };
        validation.on_arrival(now, &Traffic::of(&mut self.conn, path.quic), carries)
    }

    /// Whether a path is being validated to which `network` leads.
    pub(super) fn is_validating(&mut self, network: NetworkPath) -> bool {
        self.paths
            .on_network(network)
            .is_some_and(|path| path.validation.is_some_and(|validation| validation.is_open()))
    }
}
