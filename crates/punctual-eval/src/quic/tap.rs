//! Which stream bytes leave when: read off the packets as they are encrypted.
//!
//! noq tells nobody when a stream's bytes go out, or how many have not yet. But it takes its cryptography from outside, and
//! that sees every packet in the clear just before it leaves. So the client's TLS is wrapped, and the STREAM frames of
//! each packet are noted on the way into the real keys.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Buf, BytesMut};
use noq_proto::{
    ConnectError, ConnectionId, PathId, Side, StreamId, TransportError, VarInt,
    coding::Decodable,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
        rustls::QuicClientConfig,
    },
    transport_parameters::TransportParameters,
};

/// A STREAM frame that was put into a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamFrame {
    pub(super) path: PathId,
    pub(super) stream: StreamId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The frames put into packets since they were last taken. (The lock is what noq's traits want; nothing contends.)
#[derive(Debug, Clone, Default)]
pub(super) struct Tap(Arc<Mutex<Vec<StreamFrame>>>);

impl Tap {
    /// A TLS configuration whose connections are listened to.
    pub(super) fn wrap(&self, config: QuicClientConfig) -> Arc<dyn ClientConfig> {
        Arc::new(TappedConfig { inner: config, tap: self.clone() })
    }

    /// Moves the frames since the last call into `frames`, which is cleared first.
    pub(super) fn take(&self, frames: &mut Vec<StreamFrame>) {
        frames.clear();
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), frames);
    }

    fn wrap_key(&self, key: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
        Box::new(TappedKey { inner: key, tap: self.clone() })
    }
}

struct TappedConfig {
    inner: QuicClientConfig,
    tap: Tap,
}

impl ClientConfig for TappedConfig {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.inner.start_session(version, server_name, params)?;
        Ok(Box::new(TappedSession { inner, tap: self.tap.clone() }))
    }
}

struct TappedSession {
    inner: Box<dyn Session>,
    tap: Tap,
}

impl Session for TappedSession {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.inner.write_handshake(buf)?;
        let packet = KeyPair { local: self.tap.wrap_key(packet.local), remote: packet.remote };
        Some(Keys { header, packet })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let KeyPair { local, remote } = self.inner.next_1rtt_keys()?;
        Some(KeyPair { local: self.tap.wrap_key(local), remote })
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

struct TappedKey {
    inner: Box<dyn PacketKey>,
    tap: Tap,
}

impl PacketKey for TappedKey {
    fn encrypt(&self, path: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        let payload = buf.get(header_len..buf.len().saturating_sub(self.inner.tag_len())).unwrap_or_default();
        let mut frames = self.tap.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = stream_frames(payload, |stream, offset, bytes| {
            frames.push(StreamFrame { path, stream, offset, bytes });
        });
        debug_assert!(read.is_some(), "a frame that noq sends and we cannot read");
        drop(frames);
        self.inner.encrypt(path, packet, buf, header_len);
    }

    fn decrypt(&self, path: PathId, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.inner.decrypt(path, packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

/// Finds the STREAM frames of a packet (RFC 9000, section 19; multipath and ACK frequency by their drafts, in the versions
/// noq speaks). `None` if there is a frame we do not know, behind which nothing can be found.
fn stream_frames(mut buf: &[u8], mut found: impl FnMut(StreamId, u64, u64)) -> Option<()> {
    while buf.has_remaining() {
        match varint(&mut buf)? {
            // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK
            0x00 | 0x01 | 0x1e | 0x1f => {}
            // ACK and PATH_ACK, without and with ECN counts
            kind @ (0x02 | 0x03 | 0x3e | 0x3f) => {
                let path = u64::from(kind >= 0x3e);
                varints(&mut buf, path + 2)?;
                let ranges = varint(&mut buf)?;
                let counts = if matches!(kind, 0x03 | 0x3f) { 3 } else { 0 };
                varints(&mut buf, ranges.checked_mul(2)?.checked_add(1 + counts)?)?;
            }
            kind @ 0x08..=0x0f => {
                let stream = StreamId::decode(&mut buf).ok()?;
                let offset = if kind & 0x04 != 0 { varint(&mut buf)? } else { 0 };
                let bytes = if kind & 0x02 != 0 { varint(&mut buf)? } else { buf.remaining() as u64 };
                skip(&mut buf, bytes)?;
                found(stream, offset, bytes);
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID, MAX_PATH_ID, PATHS_BLOCKED
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 | 0x3e7a | 0x3e7b => varints(&mut buf, 1)?,
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED, PATH_ABANDON, PATH_STATUS, PATH_RETIRE_CONNECTION_ID,
            // PATH_CIDS_BLOCKED
            0x05 | 0x11 | 0x15 | 0x3e75..=0x3e77 | 0x3e79 | 0x3e7c => varints(&mut buf, 2)?,
            // RESET_STREAM
            0x04 => varints(&mut buf, 3)?,
            // ACK_FREQUENCY
            0xaf => varints(&mut buf, 4)?,
            // CRYPTO, NEW_TOKEN
            kind @ (0x06 | 0x07) => {
                varints(&mut buf, u64::from(kind == 0x06))?;
                let bytes = varint(&mut buf)?;
                skip(&mut buf, bytes)?;
            }
            // NEW_CONNECTION_ID and that of a path: the id behind its length, and a reset token
            kind @ (0x18 | 0x3e78) => {
                varints(&mut buf, 2 + u64::from(kind == 0x3e78))?;
                let id = buf.try_get_u8().ok()?;
                skip(&mut buf, u64::from(id) + 16)?;
            }
            // PATH_CHALLENGE, PATH_RESPONSE
            0x1a | 0x1b => skip(&mut buf, 8)?,
            // CONNECTION_CLOSE: nothing follows
            0x1c | 0x1d => return Some(()),
            _ => return None,
        }
    }
    Some(())
}

fn varint(buf: &mut &[u8]) -> Option<u64> {
    VarInt::decode(buf).ok().map(VarInt::into_inner)
}

fn varints(buf: &mut &[u8], n: u64) -> Option<()> {
    (0..n).try_for_each(|_| varint(buf).map(drop))
}

fn skip(buf: &mut &[u8], bytes: u64) -> Option<()> {
    *buf = buf.get(usize::try_from(bytes).ok()?..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(payload: &[u8]) -> (Option<()>, Vec<(u64, u64, u64)>) {
        let mut frames = Vec::new();
        let read = stream_frames(payload, |stream, offset, bytes| frames.push((stream.into(), offset, bytes)));
        (read, frames)
    }

    #[test]
    fn frames_before_and_behind_are_passed_over() {
        let mut payload = vec![0x00, 0x01];
        // ACK_ECN with one range more, PATH_ACK with none.
        payload.extend([0x03, 9, 0, 1, 2, 3, 4, 0, 0, 0]);
        payload.extend([0x3e, 1, 9, 0, 0, 2]);
        // PATH_NEW_CONNECTION_ID with an id of 4 bytes.
        payload.extend([0x7e, 0x78, 1, 0, 0, 4]);
        payload.extend([0xee; 20]);
        // STREAM 2 with offset and length, then STREAM 6 with neither.
        payload.extend([0x0e, 2, 0x40, 100, 3, 7, 7, 7]);
        payload.extend([0x09, 6, 7, 7]);
        assert_eq!(read(&payload), (Some(()), vec![(2, 100, 3), (6, 0, 2)]));
        assert_eq!(read(&[0x7e, 0xff]).0, None, "unknown");
        assert_eq!(read(&[0x0e, 2, 0, 9, 1]), (None, vec![]), "cut short");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(payload in proptest::collection::vec(any::<u8>(), 0..64)) {
            read(&payload);
        }
    }
}
