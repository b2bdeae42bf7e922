//! QUIC frames that no QUIC stack would send.
//!
//! noq has no way to send a frame of the caller's own. But it takes its cryptography from outside, and that sees each packet in the clear just
//! before it leaves. So frames go to noq as a datagram that begins with a mark, and on their way into the true keys the datagram's head and the
//! mark are made PADDING: what was its content are frames now.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::BytesMut;
use noq_proto::{
    ConnectError, ConnectionId, PathId, Side, TransportError,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
        rustls::QuicClientConfig,
    },
    transport_parameters::TransportParameters,
};

/// No other datagram begins like this.
const MARK: &[u8; 12] = b"\x7fframes here";

/// The datagram by which these frames are sent, in one packet.
pub(crate) fn smuggled(frames: &[u8]) -> Vec<u8> {
    [MARK, frames].concat()
}

/// TLS of a client that sends such frames.
pub(crate) fn client(inner: QuicClientConfig) -> Arc<dyn ClientConfig> {
    counting(inner, Arc::default())
}

/// The same, and counts in `renewals` how often the next keys have been asked for.
pub(crate) fn counting(inner: QuicClientConfig, renewals: Arc<AtomicUsize>) -> Arc<dyn ClientConfig> {
    Arc::new(Config(inner, renewals))
}

/// Makes datagrams with the mark the frames they hold.
fn unpack(payload: &mut [u8]) {
    while let Some(at) = payload.windows(MARK.len()).position(|bytes| bytes == MARK) {
        // The head is a type with a length of two bytes or one, or without.
        let head = match payload[..at] {
            [.., 0x31, high, _] if high >> 6 == 1 => 3,
            [.., 0x31, _] => 2,
            _ => 1,
        };
        payload[at - head..at + MARK.len()].fill(0);
    }
}

struct Config(QuicClientConfig, Arc<AtomicUsize>);

impl ClientConfig for Config {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(Wrapped(self.0.start_session(version, server_name, params)?, self.1.clone())))
    }
}

struct Wrapped(Box<dyn Session>, Arc<AtomicUsize>);

impl Session for Wrapped {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.0.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.0.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.0.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.0.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.0.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.0.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.0.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.0.write_handshake(buf)?;
        Some(Keys { header, packet: KeyPair { local: Box::new(Key(packet.local)), remote: packet.remote } })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.1.fetch_add(1, Relaxed);
        let KeyPair { local, remote } = self.0.next_1rtt_keys()?;
        Some(KeyPair { local: Box::new(Key(local)), remote })
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.0.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.0.export_keying_material(output, label, context)
    }
}

struct Key(Box<dyn PacketKey>);

impl PacketKey for Key {
    fn encrypt(&self, path: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.0.tag_len();
        unpack(&mut buf[header_len..end]);
        self.0.encrypt(path, packet, buf, header_len);
    }

    fn decrypt(&self, path: PathId, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.0.decrypt(path, packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}
