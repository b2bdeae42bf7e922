//! What QUIC is told for a session: its windows, and whom it obeys.

use std::{sync::Arc, time::Duration};

use noq_proto::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::{
    config::SessionConfig,
    congestion::steering::{SteeredFactory, Steering},
    limits::{DATAGRAM_QUEUE, RECEIVE_WINDOW},
    network::BASE_PACKET,
};

/// An interval longer than this means none.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(24 * 3_600);

/// Room in QUIC's queue for incoming datagrams; it is drained after every packet.
const DATAGRAM_INBOX: usize = 256 << 10;
/// Bytes of one stream that a peer may send ahead of our reading.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same of a session that nobody has accepted yet: what its control stream may have to say.
const HELD_WINDOW: u32 = 64 << 10;
/// Streams a peer may have open. Punctual needs one; a fallback peer one for each block.
const STREAMS: u32 = 256;
/// An ACK at least for every so many packets, plus one.
const ACK_THRESHOLD: u32 = 1;

/// QUIC's settings for a session.
pub(super) fn transport_config(config: &SessionConfig, steering: &Arc<Steering>, is_held: bool) -> TransportConfig {
    let window = u64::from(config.initial_window_packets) * BASE_PACKET;
    let controllers = SteeredFactory::new((config.congestion.quic())(window), steering.clone());
    let mut ack_frequency = AckFrequencyConfig::default();
    ack_frequency.ack_eliciting_threshold(VarInt::from_u32(ACK_THRESHOLD)).max_ack_delay(Some(config.max_ack_delay));
    // QUIC adds it to the time of each packet.
    let keep_alive = Some(config.keep_alive).filter(|interval| *interval <= LONGEST_KEEP_ALIVE);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(if is_held { HELD_WINDOW } else { RECEIVE_WINDOW }))
        .datagram_receive_buffer_size(Some(DATAGRAM_INBOX))
        .datagram_send_buffer_size(DATAGRAM_QUEUE)
        .max_concurrent_multipath_paths(config.limits.paths.min(crate::limits::MAX_PATHS as u32))
        .ack_frequency_config(Some(ack_frequency))
        .mtu_discovery_config(config.mtu_discovery.then(MtuDiscoveryConfig::default))
        .keep_alive_interval(keep_alive)
        .default_path_keep_alive_interval(keep_alive)
        .max_idle_timeout(IdleTimeout::try_from(config.idle_timeout).ok())
        .congestion_controller_factory(Arc::new(controllers));
    if let Some(qlog) = &config.qlog {
        transport.qlog_factory(qlog.factory());
    }
    transport
}
