//! The peers that QUIC is shown by another address than theirs.

use std::{
    collections::{BTreeSet, VecDeque},
    net::SocketAddr,
};

use crate::noq;

/// The most of them. The oldest goes first, and to QUIC moves once more; so many peers have hardly moved lately, and where much is lost.
const MOST: usize = 4_096;

/// Addresses whose [alias](noq::alias) QUIC is shown.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    all: BTreeSet<SocketAddr>,
    by_age: VecDeque<SocketAddr>,
}

impl Aliases {
    /// The address to show for one from which a datagram came.
    pub(super) fn show(&self, remote: SocketAddr) -> SocketAddr {
        if !self.all.is_empty() && self.all.contains(&remote) { noq::alias(remote) } else { remote }
    }

    /// Another one is to be shown from now on.
    pub(super) fn change(&mut self, remote: SocketAddr) {
        if self.all.remove(&remote) {
            self.by_age.retain(|other| *other != remote);
            return;
        }
        if self.all.len() == MOST
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.all.insert(remote);
        self.by_age.push_back(remote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_another_and_back() {
        let mut aliases = Aliases::default();
        for remote in ["192.0.2.1:4000", "[2001:db8::1]:4000", "[::1]:1"].map(|text| text.parse().unwrap()) {
            assert_eq!(aliases.show(remote), remote);
            aliases.change(remote);
            let shown = aliases.show(remote);
            assert!(shown != remote && shown.port() == remote.port());
            assert_eq!(noq::alias(remote), shown);
            aliases.change(remote);
            assert_eq!(aliases.show(remote), remote);
        }
        assert!(aliases.by_age.is_empty());
    }

    #[test]
    fn there_are_only_so_many() {
        let mut aliases = Aliases::default();
        let peer = |n: usize| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1));
        (0..MOST + 10).for_each(|n| aliases.change(peer(n)));
        assert_eq!((aliases.all.len(), aliases.by_age.len()), (MOST, MOST));
        assert_eq!(aliases.show(peer(9)), peer(9));
        assert_ne!(aliases.show(peer(10)), peer(10));
    }
}
