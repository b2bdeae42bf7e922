//! Whether anybody listens there at all.
//!
//! A host at one of whose ports no program listens says so (ICMP "port unreachable"), but systems tell only a socket that is connected to that peer, and
//! ours are not. So while a connection attempt waits, another socket of the same end, connected, knocks with a datagram of no bytes, of which a QUIC
//! endpoint takes no notice.

use std::{io, net::SocketAddr, time::Duration};

use crate::{local::Bind, scope::OnLink, socket::Socket};

/// Between two knocks. Whoever listened when the attempt began may have gone since.
const AGAIN: Duration = Duration::from_millis(500);

/// Returns once the host of `remote` has said that nobody listens there, as seen from `bind`; never if it does not say so.
pub(crate) async fn nobody_listens(bind: Bind, remote: SocketAddr) {
    let bind = match bind {
        Bind::Address(mut address) => {
            address.set_port(0);
            Bind::Address(address)
        }
        Bind::OnLink(end) => Bind::OnLink(OnLink { port: 0, ..end }),
        interface @ Bind::Interface(_) => interface,
    };
    loop {
        // The interface may come up while we wait.
        if let Ok(socket) = Socket::open_towards(&bind, remote, 0)
            && socket.connect(remote).await.is_ok()
        {
            while let Ok(answer) = knock(&socket).await {
                if answer {
                    return;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Whether the answer is that nobody is there. Takes as long as it is to be until the next.
///
/// # Errors
/// That the socket cannot be used.
async fn knock(socket: &Socket) -> io::Result<bool> {
    let refused = |result: io::Result<usize>| match result {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        result => result.map(|_| false),
    };
    if refused(socket.send_to_peer(&[]).await)? {
        return Ok(true);
    }
    match tokio::time::timeout(AGAIN, socket.receive_from_peer(&mut [0; 1])).await {
        // Nobody answers a datagram of no bytes. If somebody does, that is an answer.
        Ok(Ok(_)) => std::future::pending().await,
        Ok(result) => refused(result),
        Err(_) => Ok(false),
    }
}
