//! Sockets that a service manager has bound for us (`LISTEN_FDS`, as systemd's socket units have it): the port may be one that we could not bind
//! ourselves, what comes while we are started anew waits in it, and we need not run before somebody sends.

use std::net::UdpSocket;

use crate::exit::Failure;

/// The sockets that were handed over to this process.
#[cfg(unix)]
pub(crate) fn sockets() -> Result<Vec<UdpSocket>, Failure> {
    let mut handed_over = listenfd::ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..handed_over.len() {
        match handed_over.take_udp_socket(index) {
            Ok(socket) => sockets.extend(socket),
            Err(error) => {
                let what = format!(
                    "socket {index} of LISTEN_FDS is no UDP socket ({error}); a .socket unit gives one by ListenDatagram="
                );
                return Err(Failure::Usage(what));
            }
        }
    }
    Ok(sockets)
}

/// Whether there are any, as far as can be told without taking them.
pub(crate) fn are_there() -> bool {
    cfg!(unix) && std::env::var_os("LISTEN_FDS").is_some()
}

/// There are no such service managers.
#[cfg(not(unix))]
pub(crate) fn sockets() -> Result<Vec<UdpSocket>, Failure> {
    Ok(Vec::new())
}
