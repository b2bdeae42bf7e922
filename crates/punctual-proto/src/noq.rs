//! The contract with noq: everything this crate relies on that noq's documentation does not promise.
//!
//! noq-proto is used unmodified, through its public interface. But a few of the things a datagram sender needs are not part of that
//! interface, and are had by knowing how noq behaves. Each is a row below: what is assumed, and what would break. What is a constant or a
//! few lines is here, so that it can be tested by itself; where it is more, the row leads there. `tests/noq_contract.rs` asks noq itself
//! about each of them, without any of our own code between, and says which row it was when an answer has changed.
//!
//! The dependency is on `~1.4`: a patch release is taken as it comes, a minor one only after these tests have passed with it.
//!
//! | assumed of noq | relied on by | if it changed |
//! | --- | --- | --- |
//! | A window of [`SHUT`] keeps datagrams and stream data off a path; loss probes pass it, and acknowledgements if no data waits. | [`Gate`](crate::congestion::steering::Gate) | packets leave on paths that the sender did not choose |
//! | A window of [`WIDE_OPEN`] overflows no sum, whatever is in flight. | [`Gate::Only`](crate::congestion::steering::Gate::Only) | the path that was chosen is closed, or noq panics |
//! | A congestion window of [`UNPACED`] or more in a controller's metrics turns noq's pacer off. | `Steered::metrics` | datagrams wait in noq's queue, where nothing urgent can overtake them |
//! | A pacing rate comes before that window; the pacer's bucket then holds at least a packet, holds back acknowledgements when it is short of one, and is not charged for them. | [`trickle`], [`SILENCED`] | ACKs of a session that merely receives go out on a dead path |
//! | A controller hears of each packet (`on_packet_sent`) before `poll_transmit` returns it, of acknowledged ones before `on_end_acks`, of lost ones before `on_congestion_event`. | [`Fate`](crate::congestion::steering::Fate) | contents are tied to the wrong packets |
//! | `on_end_acks` tells the bytes in flight as noq counts them. | [`PathReading`](crate::congestion::steering::PathReading) | windows fill up with what noq has forgotten |
//! | A packet larger than the MTU that the controller was told is an MTU probe. | [`Fate::Sent`](crate::congestion::steering::Fate::Sent) | a lost probe counts as loss |
//! | `congestion_state` gives the controller that the factory made, and a clone of it can be taken apart. | [`Panel::of`](crate::congestion::steering::Panel::of) | no path can be opened |
//! | A path whose peer has moved gets a new controller from the factory, or, if nothing but its port is another (of IPv4), a clone of the one before. Either way nothing is in flight on it, and what was is never heard of again. | `Session::follow_moves`, [`nothing_in_flight`] | what becomes of packets is put down to the wrong ones; the path is full for ever |
//! | A path whose peer moves is challenged; if two challenges are lost, it is not again until the peer moves once more, and then from any other address of the peer that it is shown. | `Session::needs_validation`, [`alias`] | paths that move where much is lost are as good as dead |
//! | The queue of outgoing datagrams has [`empty_queue`] bytes of room exactly when it is empty. | `Session::note_departure` | datagrams are thought to have left, or never to leave |
//! | A datagram that waits stays in the queue though it fits no path any more. One that is sent with leave to drop others, and does not fit beside it, takes its place. | `Session::clear_queue` | one datagram that is too long stops a session for good |
//! | `poll_transmit` asked for one datagram makes one packet, once the handshake is done. | `Session::poll_quic` | two queued datagrams share a fate that only one is told |
//! | The datagrams of a packet can be received as soon as it has been handed in. | `Session::handle_datagram` | arrivals are put down to the wrong path |
//! | The number of a path on the wire is its `PathId` as text, and both sides count alike. | [`path_number`] | reports of arrivals name the wrong path |
//! | The local address of a path may be of another family than the remote one, and comes back as it was given. | [`LocalId`](crate::LocalId) | paths cannot be told apart by the socket they use |
//! | A datagram may be as long as the narrowest path allows. | `Session::queue_next` | datagrams that fit nowhere are queued |
//! | A path's statistics count a packet's STREAM frames as soon as the packet is made. | `Session::note_words` | words of the control stream are not said again when their path dies |
//! | What a path's peer said of it last is what `remote_path_status` tells. | `Session::take_path_event` | a path is distrusted for an old word |
//! | Of a reason to close, [`MOST_REASON`] bytes fit CONNECTION_CLOSE with any code. A longer one overruns noq's packet (1.4), which panics. | [`told_of`] | closing a session ends every session of the endpoint |
//! | CONNECTION_CLOSE is said at each level of encryption that there are keys of, in one call of `poll_transmit` if that may make as many datagrams; asked for one, it begins anew at each call. | `Session::poll_parting` | a client that closes with its first answer floods the network |
//! | CONNECTION_CLOSE leaves on the first path that is not being abandoned. | `Session::part` | a farewell over a dead path |
//! | `paths` has abandoned paths, too, until noq has forgotten them, and none when there is none left. | [`has_no_path`] | noq panics when it is asked for a packet without any path (1.4, with an ACK frequency configured) |
//! | The id of a path is granted anew when both sides have abandoned it, and a peer does that only of a path that it has heard of (n0-computer/noq#804). | `Session::knock_elsewhere` | a way that is dead uses up the ids that other paths need; or there is no need to tell the peer of it |
//! | noq renews a connection's keys early, once, and not again for very many packets after [`renew_keys`]. | `Session::renew_keys` | what is under way on a longer path is lost when keys change |
//! | A receiver bears a stream in [`MOST_PIECES`] pieces, and ends the connection at more. | `session::control` | a lossy way back ends the session |

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    time::Instant,
};

use noq_proto::{Connection, Datagram, PathId, congestion::Controller};

/// The window of a path that is to carry no data.
pub(crate) const SHUT: u64 = 0;

/// The window of the path that the sender chose. Window and pacing have been seen to before there was a datagram.
pub(crate) const WIDE_OPEN: u64 = u64::MAX;

/// A window so large that noq's pacer gives up pacing: it does so beyond 32 bits. (A large rate would not do: after
/// [`SILENCED`] the bucket is all but empty, and noq would wait for it, for less than a nanosecond, again and again.)
pub(crate) const UNPACED: u64 = 1 << 33;

/// A pacing rate that holds everything back on a path whose bucket is not full: noq's pacer knows no zero.
pub(crate) const SILENCED: u64 = 1;

/// The pacing rate at which noq's bucket (10 ms worth, at least a packet) holds just one packet of `mtu` bytes.
pub(crate) fn trickle(mtu: u16) -> u64 {
    u64::from(mtu) * 100
}

/// The room of a queue for outgoing datagrams of `size` bytes when it is empty.
pub(crate) const fn empty_queue(size: usize) -> usize {
    size - std::mem::size_of::<Datagram>()
}

/// The number of a path, as it goes on the wire. noq shows it only as text.
pub(crate) fn path_number(id: PathId) -> u64 {
    id.to_string().parse().unwrap_or(u64::MAX)
}

/// The most bytes of a reason to close that the peer is told.
pub(crate) const MOST_REASON: usize = 256;

/// What the peer is told of a reason to close: whole characters, no more than [`MOST_REASON`] bytes.
pub(crate) fn told_of(reason: &str) -> &str {
    let end = (0..=reason.len().min(MOST_REASON)).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
    &reason[..end]
}

/// Whether noq has no path at all, and is not to be asked for packets. A peer brings it about that abandons its last path; it
/// has a few seconds to open another, until noq ends the connection.
pub(crate) fn has_no_path(conn: &Connection) -> bool {
    conn.paths().is_empty()
}

/// Renews the keys now, which noq would otherwise do by itself after 10 to 1,000 packets: the next time is after millions.
pub(crate) fn renew_keys(conn: &mut Connection) {
    conn.force_key_update();
}

/// Tells a path's controller that nothing is in flight. One that is a clone of what a path had before its peer moved shares the count of that one's packets, of which noq says nothing
/// any more; it goes by noq's own count, which is told to any clone.
pub(crate) fn nothing_in_flight(controller: &dyn Controller, now: Instant) {
    controller.clone_box().on_end_acks(now, 0, true, None);
}

/// What an address and its alias differ by. It moves the addresses that are in use, which begin with the bits 000, 001 or 111, among those that are set apart for nobody, with
/// 011, 010 and 100 (RFC 4291, 2.4).
const ALIAS: u128 = 0x6b1c_93d2_5e07_a84f << 64;
/// An IPv4 address is taken for one in ::fffe:0:0/96, beside those that are mapped to IPv6.
const EMBEDDED: u128 = 0xfffe << 32;

/// Another address by which noq can be shown a peer: for a path to be validated again that noq has given up, the peer has to be seen to move. One that is of use on a certain
/// link only has none but itself.
pub(crate) fn alias(remote: SocketAddr) -> SocketAddr {
    let bits = match remote {
        SocketAddr::V4(v4) => EMBEDDED | u128::from(v4.ip().to_bits()),
        SocketAddr::V6(v6) if v6.scope_id() != 0 || is_alias(v6.ip().to_bits()) => return remote,
        SocketAddr::V6(v6) => v6.ip().to_bits(),
    };
    SocketAddrV6::new((bits ^ ALIAS).into(), remote.port(), 0, 0).into()
}

/// Where a peer is that noq was shown by `shown`.
pub(crate) fn real_address(shown: SocketAddr) -> SocketAddr {
    let IpAddr::V6(ip) = shown.ip() else { return shown };
    if !is_alias(ip.to_bits()) {
        return shown;
    }
    let bits = ip.to_bits() ^ ALIAS;
    let ip = if bits >> 32 == EMBEDDED >> 32 {
        Ipv4Addr::from_bits(bits as u32).into()
    } else {
        Ipv6Addr::from(bits).into()
    };
    SocketAddr::new(ip, shown.port())
}

fn is_alias(bits: u128) -> bool {
    matches!(bits >> 125, 0b010..=0b100)
}

/// Pieces of a stream, waiting for one that was lost, that noq's receiver bears. At more it ends the connection.
pub(crate) const MOST_PIECES: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_another_address_and_leads_back() {
        for text in
            ["192.0.2.1:4000", "[::ffff:192.0.2.1]:4000", "[2001:db8::1]:1", "[::1]:1", "[fd00::1]:1", "[100::7]:1"]
        {
            let real: SocketAddr = text.parse().unwrap();
            let shown = alias(real);
            assert_ne!(shown, real);
            assert_eq!((real_address(shown), real_address(real)), (real, real));
            assert_eq!(noq_proto::FourTuple::from_remote(shown).remote(), shown, "noq leaves it as it is");
        }
        let local: SocketAddr = "[fe80::1%3]:1".parse().unwrap();
        assert_eq!(alias(local), local);
    }

    #[test]
    fn reasons_are_cut_at_a_character() {
        assert_eq!(told_of("short"), "short");
        assert_eq!(told_of(&"x".repeat(3_000)).len(), MOST_REASON);
        let odd = "x".repeat(MOST_REASON - 1) + "é";
        assert_eq!(told_of(&odd).len(), MOST_REASON - 1);
    }
}
