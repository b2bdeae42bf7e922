//! An endpoint's own ends: its sockets, and for a socket on all addresses each of our addresses behind it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use punctual_proto::LocalId;

use crate::{
    error::BuildError,
    local::{Bind, Local},
    socket::Socket,
};

/// Ends in use besides the sockets themselves, at most. A host has few addresses; a routed prefix that is all local
/// (an "any-IP" set-up) has as many as a stranger cares to send to.
const MAX_BY_ADDRESS: usize = 4_096;

/// Which [`LocalId`] is which socket and, for a socket on all addresses, which of our addresses.
///
/// Ids are given once: QUIC knows a path by its ends, so an id that named another socket later would make a new path look like an old one.
/// A socket is named by its own id, here and in the driver.
#[derive(Default)]
pub(crate) struct Ends {
    sockets: BTreeMap<LocalId, Arc<Socket>>,
    /// Every end that is one address: its socket, and the address.
    addresses: BTreeMap<LocalId, (LocalId, IpAddr)>,
    by_address: HashMap<(LocalId, IpAddr), LocalId>,
    next: u32,
    changes: u64,
}

impl Ends {
    /// Takes a socket in. `by_address` makes each of our addresses an end of its own, if it is bound to all of them.
    ///
    /// # Errors
    /// When four thousand million ends have come and gone.
    pub(crate) fn add(&mut self, mut socket: Socket, by_address: bool) -> Result<Local, BuildError> {
        socket.local = self.new_id().ok_or(BuildError::TooManyEnds)?;
        socket.by_address = by_address && socket.address.ip().is_unspecified();
        let local = socket.describe();
        self.sockets.insert(socket.local, Arc::new(socket));
        self.changes += 1;
        Ok(local)
    }

    /// Takes a socket out, with every end that it is. What ids they had; none if there is no such socket.
    pub(crate) fn remove(&mut self, socket: LocalId) -> Option<(Arc<Socket>, BTreeSet<LocalId>)> {
        let removed = self.sockets.remove(&socket)?;
        let mut ids = BTreeSet::from([socket]);
        ids.extend(self.addresses.iter().filter(|(_, (of, _))| *of == socket).map(|(id, _)| *id));
        self.addresses.retain(|id, _| !ids.contains(id));
        self.by_address.retain(|_, id| !ids.contains(id));
        self.changes += 1;
        Some((removed, ids))
    }

    /// The end that is one address of a socket on many. `None` when there are too many.
    pub(crate) fn of_address(&mut self, socket: LocalId, ip: IpAddr) -> Option<LocalId> {
        if let Some(&id) = self.by_address.get(&(socket, ip)) {
            return Some(id);
        }
        if self.by_address.len() >= MAX_BY_ADDRESS || !self.sockets.contains_key(&socket) {
            return None;
        }
        let id = self.new_id()?;
        self.addresses.insert(id, (socket, ip));
        self.by_address.insert((socket, ip), id);
        Some(id)
    }

    /// The socket's name, and the address to send from if it is not for the system to choose.
    pub(crate) fn resolve(&self, id: LocalId) -> Option<(LocalId, Option<IpAddr>)> {
        match self.addresses.get(&id) {
            Some(&(socket, ip)) => Some((socket, Some(ip))),
            None => self.sockets.contains_key(&id).then_some((id, None)),
        }
    }

    /// The socket behind an end.
    pub(crate) fn socket_of(&self, id: LocalId) -> Option<&Arc<Socket>> {
        self.sockets.get(&self.resolve(id)?.0)
    }

    /// The first socket that was bound as `bind` and can reach `remote`, as far as its IP version goes.
    pub(crate) fn bound_as(&self, bind: &Bind, remote: SocketAddr) -> Option<LocalId> {
        let fits = |socket: &&Arc<Socket>| socket.bind == *bind && socket.address.is_ipv4() == remote.is_ipv4();
        self.sockets().find(fits).map(|socket| socket.local)
    }

    /// Sockets in the order in which they were bound.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Arc<Socket>> {
        self.sockets.values()
    }

    /// Grows whenever a socket comes or goes.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn new_id(&mut self) -> Option<LocalId> {
        let id = LocalId(self.next);
        self.next = self.next.checked_add(1)?;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> Socket {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        Socket::open(any, None, any.into(), 1 << 16).expect("a port")
    }

    #[tokio::test]
    async fn each_address_is_one_end_and_their_number_is_bounded() {
        let mut ends = Ends::default();
        let socket = ends.add(socket(), true).expect("an id").id;
        let first = ends.of_address(socket, [10, 0, 0, 1].into()).expect("room");
        assert_ne!(socket, first);
        assert_eq!(ends.of_address(socket, [10, 0, 0, 1].into()), Some(first));
        assert_eq!(ends.resolve(first), Some((socket, Some([10, 0, 0, 1].into()))));
        assert_eq!(ends.resolve(socket), Some((socket, None)));
        for n in 0..2 * MAX_BY_ADDRESS as u32 {
            ends.of_address(socket, IpAddr::from(n.to_be_bytes()));
        }
        assert_eq!(ends.addresses.len(), MAX_BY_ADDRESS);
        assert_eq!(ends.of_address(socket, [10, 0, 0, 1].into()), Some(first));
        assert_eq!(ends.resolve(LocalId(u32::MAX)), None);
    }

    #[tokio::test]
    async fn a_socket_goes_with_all_that_it_was_and_leaves_no_id_behind() {
        let mut ends = Ends::default();
        let (first, second) =
            (ends.add(socket(), true).expect("an id").id, ends.add(socket(), true).expect("an id").id);
        let ours = [10, 0, 0, 1].into();
        let (of_first, of_second) = (ends.of_address(first, ours), ends.of_address(second, ours));
        let before = ends.changes();
        let (_, gone) = ends.remove(first).expect("it was there");
        assert_eq!(gone.into_iter().map(Some).collect::<Vec<_>>(), [Some(first), of_first]);
        assert!(ends.changes() > before);
        assert_eq!((ends.resolve(first), ends.of_address(first, ours)), (None, None));
        assert!(ends.remove(first).is_none());
        // What is left stays what it was, and what comes is new.
        assert_eq!(ends.of_address(second, ours), of_second);
        let third = ends.add(socket(), true).expect("an id").id;
        assert!(third > second && Some(third) > of_second);
        assert_eq!(ends.sockets().map(|socket| socket.local).collect::<Vec<_>>(), [second, third]);
    }
}
