//! A TUN device of Linux that takes large packets, so that a flow's bytes pass in pieces of up to 64 KB.

use std::{
    collections::HashSet,
    convert::Infallible,
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
    time::Duration,
};

use futures_util::{StreamExt as _, TryStreamExt as _};
use ipnet::IpNet;
use rtnetlink::{
    Handle, LinkUnspec, MulticastGroup, RouteMessageBuilder,
    packet_core::NetlinkPayload,
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressHeaderFlags},
        link::LinkFlags,
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope},
    },
};
use tokio::sync::Mutex;
use tracing::{info, warn};
use tun_rs::{AsyncDevice, DeviceBuilder, VIRTIO_NET_HDR_LEN, VirtioNetHdr};

use super::{
    Task,
    device::{Device, Setup},
    packet::{Packet, Transport},
    segment::{Rest, checksum_offset, finish},
};

/// Packets that the system holds for us: at 1 Gbit/s in the smallest pieces, 12 ms.
const QUEUE: u32 = 1_000;
/// How long to wait before the system is asked anew to tell of changes, when it does not or has left some out.
const ASK_AGAIN: Duration = Duration::from_secs(1);

// linux/virtio_net.h; the others are known to the library.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// A TUN device. It goes when this is dropped.
pub struct Tun {
    device: AsyncDevice,
    name: String,
    /// Whether the system takes several datagrams in one piece (Linux 6.2).
    takes_datagrams: bool,
    /// What it was made last.
    setup: Mutex<Setup>,
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tun").field(&self.name).finish()
    }
}

impl Tun {
    /// Makes a device of that name. It has no address yet, and is down. Takes `CAP_NET_ADMIN`, and a runtime of tokio's.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(name: &str) -> io::Result<Self> {
        let device = DeviceBuilder::new().name(name).offload(true).enable(false).build_async()?;
        let _ = device.set_tx_queue_len(QUEUE);
        let takes_datagrams = device.udp_gso();
        Ok(Self { name: device.name()?, device, takes_datagrams, setup: Mutex::default() })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn write(&self, header: &VirtioNetHdr, bytes: &[u8]) -> io::Result<()> {
        let mut head = [0; VIRTIO_NET_HDR_LEN];
        header.encode(&mut head)?;
        self.device.try_send_vectored(&[IoSlice::new(&head), IoSlice::new(bytes)]).map(drop)
    }
}

impl Device for Tun {
    async fn recv(&self, space: &mut [u8]) -> io::Result<(Range<usize>, Rest)> {
        let length = self.device.recv(space).await?;
        let header = VirtioNetHdr::decode(&space[..length])?;
        Ok((VIRTIO_NET_HDR_LEN..length, rest(&header)))
    }

    fn send(&self, bytes: &[u8], packet: &Packet, rest: Rest) -> io::Result<()> {
        match header(bytes.len(), packet, rest) {
            Some(header) if header.gso_type != GSO_UDP || self.takes_datagrams => self.write(&header, bytes),
            _ => {
                let mut done = Ok(());
                finish(bytes, packet, rest, |one| {
                    let written = self.write(&VirtioNetHdr::default(), &one);
                    done = std::mem::replace(&mut done, Ok(())).and(written);
                });
                done
            }
        }
    }

    async fn set_up(&self, setup: &Setup) -> io::Result<()> {
        let mut before = self.setup.lock().await;
        let done = self.ask(async |handle| change(&handle, &self.name, &before, setup).await).await;
        *before = setup.clone();
        done
    }

    async fn keep_up(&self) -> Infallible {
        loop {
            if let Err(error) = self.follow().await {
                warn!(device = self.name, %error, "whether the device is taken down and up again is not known");
            }
            tokio::time::sleep(ASK_AGAIN).await;
            // What happened meanwhile is not known.
            self.restore().await;
        }
    }

    async fn beside(&self) -> io::Result<Vec<IpNet>> {
        self.ask(async |handle| beside(&handle, index(&handle, &self.name).await?).await).await
    }
}

impl Tun {
    /// Restores the device whenever it comes up after it was down, for as long as the kernel tells of that.
    async fn follow(&self) -> io::Result<()> {
        let (connection, handle, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
        let _connection = Task(tokio::spawn(connection).abort_handle());
        let index = index(&handle, &self.name).await.map_err(in_words)?;
        let mut was_down = false;
        while let Some((message, _)) = messages.next().await {
            let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = message.payload else { continue };
            if link.header.index != index {
                continue;
            }
            let is_down = !link.header.flags.contains(LinkFlags::Up);
            if std::mem::replace(&mut was_down, is_down) && !is_down {
                info!(device = self.name, "the device was down and is up again");
                self.restore().await;
            }
        }
        Ok(())
    }

    /// Makes the device what it was made last, if it was made anything.
    async fn restore(&self) {
        let setup = self.setup.lock().await;
        if *setup == Setup::default() {
            return;
        }
        if let Err(error) = self.ask(async |handle| change(&handle, &self.name, &setup, &setup).await).await {
            warn!(device = self.name, %error, "the device is not as it should be");
        }
    }

    /// Asks the kernel something.
    async fn ask<R>(&self, what: impl AsyncFnOnce(Handle) -> Result<R, rtnetlink::Error>) -> io::Result<R> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let said = what(handle).await;
        connection.abort();
        said.map_err(in_words)
    }
}

fn in_words(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(error) => error.to_io(),
        error => io::Error::other(error.to_string()),
    }
}

/// What the kernel has left to be done.
fn rest(header: &VirtioNetHdr) -> Rest {
    match header.gso_type & !GSO_ECN {
        GSO_NONE if header.flags & NEEDS_CHECKSUM != 0 => Rest::Checksum,
        GSO_NONE => Rest::Nothing,
        _ => Rest::Segments(header.gso_size),
    }
}

/// The same for the kernel: made of what the packet's own headers say, not of what somebody far away does. `None` if the kernel cannot be asked to do that.
fn header(length: usize, packet: &Packet, rest: Rest) -> Option<VirtioNetHdr> {
    let short = |value: usize| u16::try_from(value).ok();
    let size = match rest {
        Rest::Nothing => return Some(VirtioNetHdr::default()),
        Rest::Checksum => None,
        Rest::Segments(size) => Some(size),
    };
    // A last segment alone is a packet like any other, but for its checksum.
    let size = size.filter(|size| length > packet.payload_at() + usize::from(*size));
    let gso_type = match packet.transport {
        _ if size.is_none() => GSO_NONE,
        Transport::Tcp { .. } if packet.source.is_ipv4() => GSO_TCP4,
        Transport::Tcp { .. } => GSO_TCP6,
        Transport::Udp => GSO_UDP,
        Transport::Icmp | Transport::Other => return None,
    };
    Some(VirtioNetHdr {
        flags: NEEDS_CHECKSUM,
        gso_type,
        hdr_len: short(packet.payload_at())?,
        gso_size: size.unwrap_or(0),
        csum_start: short(packet.transport_at)?,
        csum_offset: short(checksum_offset(packet.transport)?)?,
    })
}

/// The number that a device has now.
async fn index(handle: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    let mut links = handle.link().get().match_name(name).execute();
    Ok(links.try_next().await?.ok_or(rtnetlink::Error::RequestFailed)?.header.index)
}

/// Makes a device what it is to be. Goes on where something fails: that is logged, unless nothing is left.
async fn change(handle: &Handle, name: &str, before: &Setup, setup: &Setup) -> Result<(), rtnetlink::Error> {
    let index = index(handle, name).await?;
    let link = LinkUnspec::new_with_index(index).mtu(u32::from(setup.mtu)).up().build();
    handle.link().set(link).execute().await?;
    let gone = |before: &[IpNet], now: &[IpNet]| -> Vec<IpNet> {
        before.iter().filter(|network| !now.contains(network)).copied().collect()
    };
    for route in gone(&before.routes, &setup.routes) {
        // It may be gone already.
        let _ = handle.route().del(leading(route, index)).execute().await;
    }
    for address in gone(&before.addresses, &setup.addresses) {
        let found = handle.address().get().set_link_index_filter(index).set_address_filter(address.addr()).execute();
        let mut found = std::pin::pin!(found);
        while let Ok(Some(message)) = found.try_next().await {
            let _ = handle.address().del(message).execute().await;
        }
    }
    let (mut has_one, mut first) = (setup.addresses.is_empty(), None);
    for address in &setup.addresses {
        let mut adding = handle.address().add(index, address.addr(), address.prefix_len()).replace();
        if address.addr().is_ipv6() {
            // Nobody else is on this link: there is no duplicate to look for, which would take a second.
            adding.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        match adding.execute().await {
            Ok(()) => has_one = true,
            Err(error) => {
                // A host without IPv6, most of all.
                warn!(%address, %error, "the device cannot have an address");
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first.filter(|_| !has_one) {
        return Err(error);
    }
    let there = leads(handle, index).await?;
    for route in setup.routes.iter().filter(|route| !there.contains(route)) {
        // Not in the place of another that is there: that would be gone with us.
        if let Err(error) = handle.route().add(leading(*route, index)).execute().await {
            match in_words(error) {
                error if error.kind() == io::ErrorKind::AlreadyExists => {
                    warn!(%route, "not set: another route leads there, by another interface");
                }
                error => warn!(%route, %error, "not set"),
            }
        }
    }
    Ok(())
}

/// Networks that a device leads to now.
async fn leads(handle: &Handle, index: u32) -> Result<HashSet<IpNet>, rtnetlink::Error> {
    let mut leads = HashSet::new();
    for all in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        let any: IpAddr = if all.header.address_family == AddressFamily::Inet {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let found = handle.route().get(all).execute();
        let mut found = std::pin::pin!(found);
        while let Some(route) = found.try_next().await? {
            if !route.attributes.contains(&RouteAttribute::Oif(index)) {
                continue;
            }
            let to = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(to)) => Some(IpAddr::from(*to)),
                RouteAttribute::Destination(RouteAddress::Inet6(to)) => Some(IpAddr::from(*to)),
                _ => None,
            });
            leads.extend(IpNet::new(to.unwrap_or(any), route.header.destination_prefix_length));
        }
    }
    Ok(leads)
}

/// The networks of other interfaces.
async fn beside(handle: &Handle, own: u32) -> Result<Vec<IpNet>, rtnetlink::Error> {
    let mut beside = Vec::new();
    let found = handle.address().get().execute();
    let mut found = std::pin::pin!(found);
    while let Some(message) = found.try_next().await? {
        if message.header.index == own {
            continue;
        }
        for attribute in &message.attributes {
            match attribute {
                // Of a point-to-point link the prefix is that of its other end, and our own address stands alone.
                AddressAttribute::Address(address) => beside.extend(IpNet::new(*address, message.header.prefix_len)),
                AddressAttribute::Local(address) => beside.push(IpNet::from(*address)),
                _ => {}
            }
        }
    }
    Ok(beside)
}

/// A route by the device.
fn leading(network: IpNet, index: u32) -> RouteMessage {
    match network.trunc().addr() {
        IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, network.prefix_len())
            .output_interface(index)
            .scope(RouteScope::Link)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, network.prefix_len())
            .output_interface(index)
            .build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpn::packet::Ecn;

    fn packet(source: [u8; 4], transport: Transport) -> Packet {
        Packet {
            source: source.into(),
            destination: source.into(),
            protocol: 6,
            transport,
            ports: None,
            dscp: 0,
            ecn: Ecn::NotEct,
            transport_at: 20,
            is_fragment: false,
        }
    }

    #[test]
    fn what_is_left_comes_back() {
        let tcp = packet([10, 9, 0, 1], Transport::Tcp { header: 32 });
        for left in [Rest::Nothing, Rest::Checksum, Rest::Segments(1_448)] {
            let header = header(10_000, &tcp, left).unwrap();
            assert_eq!(rest(&header), left);
        }
        let header = |length, transport| header(length, &packet([10, 9, 0, 1], transport), Rest::Segments(1_448));
        let large = header(10_000, Transport::Tcp { header: 32 }).unwrap();
        assert_eq!((large.hdr_len, large.csum_start, large.csum_offset, large.gso_type), (52, 20, 16, GSO_TCP4));
        assert_eq!(rest(&header(1_500, Transport::Tcp { header: 32 }).unwrap()), Rest::Checksum, "of one segment");
        assert_eq!(header(10_000, Transport::Udp).unwrap().csum_offset, 6);
        assert!(header(10_000, Transport::Icmp).is_none());
    }
}
