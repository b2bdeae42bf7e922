//! What befalls hosts: they sleep, and a NAT before them gives them another address.

use std::time::Duration;

use punctual_proto::NetworkPath;

use crate::world::{HostId, PathHandle, World};

/// What a host's clock does while the host sleeps: which of the two it is differs between systems, and between clocks of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepClock {
    /// It goes on, as for a process that was stopped.
    GoesOn,
    /// It stands, as Linux's monotonic clock does for a computer that was suspended.
    Stands,
}

impl World {
    /// Puts a host to sleep for so long: it does nothing, what comes for it is lost, and its application's timers are late.
    ///
    /// One that sleeps already is not disturbed.
    pub fn sleep(&mut self, host: HostId, for_: Duration, clock: SleepClock) {
        let sleeper = &mut self.hosts[host.0 as usize];
        if sleeper.asleep_until.is_some() {
            return;
        }
        let until = self.now + for_;
        sleeper.asleep_until = Some(until);
        self.at(until, move |world| {
            let sleeper = &mut world.hosts[host.0 as usize];
            sleeper.asleep_until = None;
            if clock == SleepClock::Stands {
                sleeper.clock.stood(for_);
            }
            world.drive(host);
        });
    }

    /// Gives `host` another address on a path, as a NAT before it does that has forgotten it: the other end sees what comes from a new port, and what it
    /// still sends to the old one is lost. The host knows nothing of it.
    ///
    /// # Panics
    /// If the path does not end at the host.
    pub fn rebind(&mut self, path: PathHandle, host: HostId) {
        let own = usize::from(self.path_ends(path).0 != host);
        let before = self.network_path(path, self.paths[path.0 as usize].ends[1 - own].host);
        let [from, to] = [own, 1 - own].map(|end| self.paths[path.0 as usize].ends[end]);
        assert_eq!(from.host, host, "the path does not end there");
        let mut address = from.address;
        address.set_port(if address.port() < u16::MAX { address.port() + 1 } else { 1_024 });
        self.paths[path.0 as usize].ends[own].address = address;
        let peer = &mut self.hosts[to.host.0 as usize].routes;
        if let Some(back) = peer.remove(&before) {
            peer.insert(NetworkPath { local: to.local, remote: address }, back);
        }
        let there = NetworkPath { local: from.local, remote: to.address };
        if let Some(&route) = self.hosts[host.0 as usize].routes.get(&there) {
            self.routes[route].arrival.remote = address;
        }
    }
}
