//! Tunnels over Punctual, for programs that know nothing of it.
//!
//! Two gateways carry between them, in one session over any number of network paths, what programs beside them send and receive: an encoder's
//! UDP stream, a game's datagrams, a TCP connection. Each datagram is a block with the deadline, priority and protection of its [`class`].
//!
//! ```text
//!   program ──UDP, TCP──▶ gateway ══ one session, several paths ══▶ gateway ──UDP, TCP──▶ program
//!           ◀── answers ──        ◀════════════════════════════════         ◀── answers ──
//! ```
//!
//! - [`tunnel`] has ports: one gateway [listens](tunnel::Listen) for what it calls `camera`, the other [forwards](tunnel::Forward) it to where it
//!   is wanted. It needs no privilege.
//! - [`vpn`] has a network device: what the system routes there comes out at the other side. It needs the right to make one.
//!
//! This crate opens no sessions: whoever does hands them to [`Tunnel::call`](tunnel::Tunnel::call) or [`Tunnel::answer`](tunnel::Tunnel::answer), and of a VPN
//! to [`Vpn::call`](vpn::Vpn::call) or [`Vpn::answer`](vpn::Vpn::answer).

use std::time::Duration;

use punctual::{CloseReason, Redundancy, Session};

pub mod class;
pub mod media;
mod metrics;
mod number;
mod rate;
pub mod tunnel;
pub mod vpn;

/// Why a session has ended that takes nothing any more. That it has may be known a moment before the reason is.
pub(crate) async fn why_closed(session: &Session) -> CloseReason {
    const MOMENT: Duration = Duration::from_secs(1);
    tokio::time::timeout(MOMENT, session.closed()).await.unwrap_or(CloseReason::Local)
}

/// How that is protected without which nothing goes on: as settings say, unless a packet that is lost would be lost for good.
pub(crate) fn surely(session: &Session, said: Option<Redundancy>) -> Redundancy {
    match said.unwrap_or_else(|| session.redundancy(None)) {
        Redundancy::None => Redundancy::Retransmit,
        Redundancy::Fec => Redundancy::Both,
        sure => sure,
    }
}
