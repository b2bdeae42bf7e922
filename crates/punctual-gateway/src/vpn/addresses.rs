//! Which client has which addresses.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use ipnet::IpNet;
use punctual::Fingerprint;

/// How many addresses of a pool may be given to clients that have none of their own, at most: of IPv6 there are more than can be counted.
const MOST: usize = 65_536;

/// Gives addresses to clients that have none by the settings: to each by its place in the list of them, so that a server that is started anew gives the same whoever comes
/// first. Whose place is taken, as the list was another when that was given, has the next that is free. A client that comes again has what it had, unless others needed
/// it meanwhile.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The networks to give from, with the server's own address in each.
    pools: Vec<IpNet>,
    /// What settings give to one client each.
    reserved: HashSet<IpAddr>,
    /// What each client is given if nobody has it: one of each pool.
    places: HashMap<Fingerprint, Vec<IpNet>>,
    leases: HashMap<Fingerprint, Lease>,
    taken: HashMap<IpAddr, Fingerprint>,
    /// Leases that have been given: later ones have higher numbers.
    given: u64,
}

#[derive(Debug)]
struct Lease {
    /// One of each pool.
    addresses: Vec<IpNet>,
    number: u64,
}

impl Addresses {
    /// Gives from these pools from now on, to these clients, in their order, and never what is reserved. Leases that are outside, or reserved for somebody now, end.
    pub(super) fn replace(
        &mut self,
        pools: &[IpNet],
        reserved: impl Iterator<Item = IpAddr>,
        clients: impl Iterator<Item = Fingerprint>,
    ) {
        self.pools = pools.to_vec();
        self.reserved = reserved.collect();
        let (pools, reserved) = (&self.pools, &self.reserved);
        let stays = |address: &IpNet| {
            let pool = pools.iter().find(|pool| pool.contains(&address.addr()));
            pool.is_some_and(|pool| pool.addr() != address.addr() && pool.prefix_len() == address.prefix_len())
                && !reserved.contains(&address.addr())
        };
        self.leases.retain(|_, lease| lease.addresses.len() == pools.len() && lease.addresses.iter().all(stays));
        self.taken = self
            .leases
            .iter()
            .flat_map(|(client, lease)| lease.addresses.iter().map(|address| (address.addr(), *client)))
            .collect();
        let mut free: Vec<_> = self.pools.iter().map(|pool| self.to_give(pool)).collect();
        // Those for whom a pool has no room have no place.
        let place = |client| Some((client, free.iter_mut().map(Iterator::next).collect::<Option<_>>()?));
        let places = clients.map_while(place).collect();
        drop(free);
        self.places = places;
    }

    /// An address of each pool for a client; `None` if there are none left. `is_here` says whether a client that has some is connected: else they may be
    /// given to another when there are no others.
    pub(super) fn lease(&mut self, client: Fingerprint, is_here: impl Fn(&Fingerprint) -> bool) -> Option<Vec<IpNet>> {
        self.given += 1;
        if let Some(lease) = self.leases.get_mut(&client) {
            lease.number = self.given;
            return Some(lease.addresses.clone());
        }
        let place =
            self.places.get(&client).filter(|place| place.iter().all(|at| !self.taken.contains_key(&at.addr())));
        let addresses = match place.cloned().or_else(|| self.free()) {
            Some(addresses) => addresses,
            None => {
                let idle = self.leases.iter().filter(|(client, _)| !is_here(client));
                let oldest = *idle.min_by_key(|(_, lease)| lease.number)?.0;
                self.end(&oldest);
                self.free()?
            }
        };
        self.taken.extend(addresses.iter().map(|address| (address.addr(), client)));
        self.leases.insert(client, Lease { addresses: addresses.clone(), number: self.given });
        Some(addresses)
    }

    fn end(&mut self, client: &Fingerprint) {
        if let Some(lease) = self.leases.remove(client) {
            for address in lease.addresses {
                self.taken.remove(&address.addr());
            }
        }
    }

    /// One of each pool that nobody has.
    fn free(&self) -> Option<Vec<IpNet>> {
        let free = |pool| self.to_give(pool).find(|address| !self.taken.contains_key(&address.addr()));
        self.pools.iter().map(free).collect()
    }

    /// Addresses of a pool that may be given.
    fn to_give<'a>(&'a self, pool: &'a IpNet) -> impl Iterator<Item = IpNet> + 'a {
        // The first of an IPv6 network is the anycast address of its routers (RFC 4291, 2.6.1); of IPv4, hosts() leaves it out.
        let may = |address: &IpAddr| {
            *address != pool.addr() && *address != pool.network() && !self.reserved.contains(address)
        };
        pool.hosts().take(MOST).filter(may).filter_map(|address| IpNet::new(address, pool.prefix_len()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Fingerprint {
        Fingerprint([number; 32])
    }

    fn addresses(pools: &[&str], reserved: &[&str]) -> Addresses {
        let pools: Vec<IpNet> = pools.iter().map(|pool| pool.parse().unwrap()).collect();
        let mut addresses = Addresses::default();
        addresses.replace(&pools, reserved.iter().map(|address| address.parse().unwrap()), std::iter::empty());
        addresses
    }

    fn text(given: Option<Vec<IpNet>>) -> Vec<String> {
        given.unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_has_its_own_and_the_same_when_it_comes_again() {
        let mut all = addresses(&["10.9.0.1/24", "fd09::1/64"], &["10.9.0.2"]);
        assert_eq!(text(all.lease(client(1), |_| true)), ["10.9.0.3/24", "fd09::2/64"]);
        assert_eq!(text(all.lease(client(2), |_| true)), ["10.9.0.4/24", "fd09::3/64"]);
        assert_eq!(text(all.lease(client(1), |_| true)), ["10.9.0.3/24", "fd09::2/64"]);
    }

    #[test]
    fn who_is_away_for_longest_makes_room_and_who_is_here_does_not() {
        // Room for 5, of which one is the server's.
        let mut all = addresses(&["10.9.0.1/29"], &[]);
        for number in 1..=5 {
            assert!(all.lease(client(number), |_| true).is_some());
        }
        assert_eq!(all.lease(client(6), |_| true), None, "all are here");
        let second = text(all.lease(client(2), |_| true));
        all.lease(client(1), |_| true);
        // The first was seen last.
        assert_eq!(text(all.lease(client(6), |who| ![client(1), client(2)].contains(who))), second);
        assert_eq!(all.lease(client(7), |who| *who != client(9)), None);
    }

    #[test]
    fn what_settings_take_away_is_given_anew() {
        let mut all = addresses(&["10.9.0.1/24"], &[]);
        assert_eq!(text(all.lease(client(1), |_| true)), ["10.9.0.2/24"]);
        all.replace(&["10.9.0.1/24".parse().unwrap()], ["10.9.0.2".parse().unwrap()].into_iter(), std::iter::empty());
        assert_eq!(text(all.lease(client(1), |_| true)), ["10.9.0.3/24"]);
        all.replace(&["10.8.0.1/24".parse().unwrap()], std::iter::empty(), std::iter::empty());
        assert_eq!(text(all.lease(client(1), |_| true)), ["10.8.0.2/24"]);
    }

    #[test]
    fn whose_place_is_taken_has_another_and_who_has_none_can_come() {
        let mut all = addresses(&["10.9.0.1/29"], &["10.9.0.3"]);
        let of = |all: &mut Addresses, clients: &[u8]| {
            all.replace(
                &["10.9.0.1/29".parse().unwrap()],
                ["10.9.0.3".parse().unwrap()].into_iter(),
                clients.iter().map(|number| client(*number)),
            );
        };
        of(&mut all, &[1, 2]);
        assert_eq!(text(all.lease(client(2), |_| true)), ["10.9.0.4/29"]);
        of(&mut all, &[3, 1, 2, 4, 5, 6]);
        assert_eq!(text(all.lease(client(2), |_| true)), ["10.9.0.4/29"], "what it has, it keeps");
        assert_eq!(text(all.lease(client(1), |_| true)), ["10.9.0.2/29"], "the second is taken");
        assert_eq!(text(all.lease(client(4), |_| true)), ["10.9.0.6/29"]);
        assert_eq!(text(all.lease(client(6), |_| true)), ["10.9.0.5/29"], "there is no sixth");
        assert_eq!(all.lease(client(3), |_| true), None);
    }
}
