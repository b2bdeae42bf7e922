//! A TUN device of Linux that takes large packets, so that a flow's bytes pass in pieces of up to 64 KB.

use std::{
    io::{self, IoSlice},
    net::IpAddr,
    ops::Range,
};

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder, packet_route::route::RouteScope};
use tokio::sync::Mutex;
use tun_rs::{AsyncDevice, DeviceBuilder, VIRTIO_NET_HDR_LEN, VirtioNetHdr};

use super::{
    device::{Device, Setup},
    packet::{Packet, Transport},
    segment::{Rest, checksum_offset, finish},
};

/// Packets that the system holds for us: at 1 Gbit/s in the smallest pieces, 12 ms.
const QUEUE: u32 = 1_000;

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
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let done = change(&handle, &self.name, &before, setup).await;
        connection.abort();
        *before = setup.clone();
        done.map_err(|error| match error {
            rtnetlink::Error::NetlinkError(error) => error.to_io(),
            error => io::Error::other(error.to_string()),
        })
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

/// Makes a device what it is to be. Goes on where something fails; the first failure is told.
async fn change(handle: &Handle, name: &str, before: &Setup, setup: &Setup) -> Result<(), rtnetlink::Error> {
    let mut links = handle.link().get().match_name(name).execute();
    let index = links.try_next().await?.ok_or(rtnetlink::Error::RequestFailed)?.header.index;
    let link = LinkUnspec::new_with_index(index).mtu(u32::from(setup.mtu)).up().build();
    let mut done = handle.link().set(link).execute().await;
    let mut also = |other| done = std::mem::replace(&mut done, Ok(())).and(other);
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
    for address in &setup.addresses {
        let mut adding = handle.address().add(index, address.addr(), address.prefix_len()).replace();
        if address.addr().is_ipv6() {
            // Nobody else is on this link: there is no duplicate to look for, which would take a second.
            adding.message_mut().header.flags |= rtnetlink::packet_route::address::AddressHeaderFlags::Nodad;
        }
        also(adding.execute().await);
    }
    for route in &setup.routes {
        also(handle.route().add(leading(*route, index)).replace().execute().await);
    }
    done
}

/// A route by the device.
fn leading(network: IpNet, index: u32) -> rtnetlink::packet_route::route::RouteMessage {
    match network.trunc().addr() {
        IpAddr::V4(address) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix(address, network.prefix_len())
            .output_interface(index)
            .scope(RouteScope::Link)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
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
