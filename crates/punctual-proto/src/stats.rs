//! Counters and gauges, for people and for reports.

use std::time::Duration;

use crate::{
    base::{PathHealth, PathId},
    clock::ClockEstimate,
    network::NetworkPath,
    role::PathRole,
};

/// Totals of a session since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Blocks `send` accepted.
    pub blocks_sent: u64,
    /// Blocks that ended delivered by their deadline, or had none.
    pub blocks_on_time: u64,
    /// Blocks that ended delivered late.
    pub blocks_late: u64,
    /// Blocks that ended dropped.
    pub blocks_dropped: u64,
    /// Blocks completed here.
    pub blocks_received: u64,
    /// Blocks the peer dropped.
    pub blocks_peer_dropped: u64,
    /// Blocks of the peer's that were passed over, for what followed them in their channel was due ([`Session::set_latency`](crate::Session::set_latency)).
    pub blocks_skipped: u64,
    /// Block bytes put on the wire for the first time.
    pub source_bytes: u64,
    /// Block bytes put on the wire again.
    pub resent_bytes: u64,
    /// Block bytes put on the wire as copies of a fragment in flight elsewhere.
    pub copied_bytes: u64,
    /// Bytes of repair fragments put on the wire.
    pub repair_bytes: u64,
    /// Block bytes sent of blocks that were of no use in the end: dropped, or late. Each counted once.
    pub wasted_bytes: u64,
    /// Block bytes that were lost and restored by repair fragments, as far as acknowledgements tell.
    pub restored_bytes: u64,
    /// Block bytes that were lost and came through when sent again.
    pub resend_regained_bytes: u64,
    /// Block bytes that were lost and came through as a copy.
    pub copy_regained_bytes: u64,
    /// Block bytes that were lost and never came through.
    pub never_regained_bytes: u64,
    /// Block bytes that arrived and were new.
    pub received_bytes: u64,
    /// Block bytes that had arrived before.
    pub duplicate_bytes: u64,
    /// Block bytes among `received_bytes` that did not arrive but were restored from redundancy.
    pub recovered_bytes: u64,
    /// Bytes of repairs that arrived.
    pub repair_bytes_received: u64,
    /// Those of them that restored nothing: all they were for had arrived, or too much of it was missing.
    pub wasted_repair_bytes: u64,
    /// Live blocks at this sender.
    pub live_out: u64,
    /// Bytes of live blocks at this sender.
    pub live_out_bytes: u64,
    /// Blocks begun but not consumed at this receiver.
    pub live_in: u64,
    /// Bytes held for them.
    pub live_in_bytes: u64,
    /// The comparison of the two hosts' clocks, once there is one.
    pub clock: Option<ClockEstimate>,
    /// The largest block that the peer takes, bytes, once it has said so.
    pub peer_max_block_size: Option<u64>,
}

/// A path's state and totals.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PathStats {
    /// Its name.
    pub id: PathId,
    /// Its ends.
    pub network: NetworkPath,
    /// How far it is trusted.
    pub health: PathHealth,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Duration,
    /// Estimated one-way delay towards the peer.
    pub one_way_delay: Duration,
    /// What the congestion controller would let it carry, bytes per second.
    pub rate: f64,
    /// Congestion window, bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Recent share of packets lost.
    pub loss: f64,
    /// How many packets are lost on end, on average.
    pub loss_burst: f64,
    /// Block bytes sent on it for the first time.
    pub source_bytes: u64,
    /// Block bytes sent on it again.
    pub resent_bytes: u64,
    /// Block bytes sent on it as copies.
    pub copied_bytes: u64,
    /// Bytes of repair fragments sent on it.
    pub repair_bytes: u64,
    /// Bytes that left in reports of when the peer's datagrams came over it.
    pub report_bytes: u64,
    /// UDP bytes sent.
    pub bytes_sent: u64,
    /// UDP bytes received.
    pub bytes_received: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// QUIC packets lost.
    pub packets_lost: u64,
    /// Largest UDP payload that fits.
    pub mtu: u16,
    /// Times it was suspected.
    pub suspected: u64,
    /// Cost of a byte, as set with [`Session::set_path_cost`](crate::Session::set_path_cost), here or by the peer.
    pub cost: f64,
    /// What it is for, as set with [`Session::set_path_role`](crate::Session::set_path_role), here or by the peer.
    pub role: PathRole,
    /// The first of the paths with which it was found to share a bottleneck, or itself, if it is the first of several; none, if it is not
    /// known to share one. Paths with the same one are delayed, and lose, together.
    pub bottleneck: Option<PathId>,
}

impl PathStats {
    /// Of two paths one after the other: the totals of both, and all else as it was on this one.
    #[must_use]
    pub fn after(&self, earlier: &Self) -> Self {
        Self {
            source_bytes: self.source_bytes + earlier.source_bytes,
            resent_bytes: self.resent_bytes + earlier.resent_bytes,
            copied_bytes: self.copied_bytes + earlier.copied_bytes,
            repair_bytes: self.repair_bytes + earlier.repair_bytes,
            report_bytes: self.report_bytes + earlier.report_bytes,
            bytes_sent: self.bytes_sent + earlier.bytes_sent,
            bytes_received: self.bytes_received + earlier.bytes_received,
            packets_sent: self.packets_sent + earlier.packets_sent,
            packets_lost: self.packets_lost + earlier.packets_lost,
            suspected: self.suspected + earlier.suspected,
            ..*self
        }
    }
}
