//! Where packets of the system come from and go to.

use std::{convert::Infallible, fmt, io, ops::Range};

use ipnet::IpNet;
use thiserror::Error;

use super::{packet::Packet, segment::Rest};

/// Bytes of space that [`Device::recv`] is to be given: the largest packet, and room for what a system puts in front of it.
pub const SPACE: usize = super::packet::LARGEST + 64;

/// A network device of layer 3: a TUN device, or what stands in for one.
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// Waits for a packet that the system sends by it: where in `space` it is, and what is left to be done with it. May be cancelled.
    ///
    /// # Errors
    /// What the system says. The device is asked again.
    fn recv(&self, space: &mut [u8]) -> impl Future<Output = io::Result<(Range<usize>, Rest)>> + Send;

    /// Gives the system a packet, whose headers are `packet`, and of which `rest` is left to be done. Does not wait.
    ///
    /// # Errors
    /// If the system does not take it. It is lost then, as on any network.
    fn send(&self, bytes: &[u8], packet: &Packet, rest: Rest) -> io::Result<()>;

    /// Has these addresses, leads to these networks, and carries packets of so many bytes from now on; what was said before and is not any more goes.
    ///
    /// # Errors
    /// What the system says, if it can have none of its addresses, or does not carry packets. What else could not be done is logged.
    fn set_up(&self, setup: &Setup) -> impl Future<Output = io::Result<()>> + Send;

    /// Makes it what it was [made](Self::set_up) last whenever the system has forgotten some of that, as it does of a device that is taken down and up again; and never returns. May be
    /// cancelled. A device of which nothing is forgotten has nothing to do.
    fn keep_up(&self) -> impl Future<Output = Infallible> + Send {
        std::future::pending()
    }

    /// The networks of the system's other interfaces, each with the system's address in it.
    ///
    /// # Errors
    /// What the system says.
    fn beside(&self) -> impl Future<Output = io::Result<Vec<IpNet>>> + Send;
}

/// The longest name that Linux gives a device, bytes: IFNAMSIZ, less the byte that ends it.
const LONGEST_NAME: usize = 15;

/// A device cannot be called that.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no name of a device: it has 1 to 15 bytes, no space, no `/` and no `:`, and `%` only as `%d`, for a number that is free"
)]
pub struct DeviceNameError(String);

/// Whether Linux lets a device have this name.
///
/// # Errors
/// If not.
pub fn check_device_name(name: &str) -> Result<(), DeviceNameError> {
    let counted = name.replacen("%d", "", 1);
    let forbidden = |c: char| matches!(c, '/' | ':' | '%' | '\0') || c.is_ascii_whitespace() || c == '\x0b';
    let fits = (1..=LONGEST_NAME).contains(&name.len()) && name != "." && name != ".." && !counted.contains(forbidden);
    if fits { Ok(()) } else { Err(DeviceNameError(name.to_owned())) }
}

/// What a device is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Its addresses, with the networks that they are in.
    pub addresses: Vec<IpNet>,
    /// Networks that it leads to, beyond those of its addresses.
    pub routes: Vec<IpNet>,
    /// Bytes of its largest packet.
    pub mtu: u16,
}
