//! How a peer learns at once that nothing is known of its session any more (RFC 9000, section 10.3).

use std::{fmt, sync::Arc};

use noq_proto::{ConnectionIdGenerator, HashedConnectionIdGenerator};
use ring::hmac;

/// By this an endpoint that is started anew is known for the one before it.
///
/// What comes for a session of the one before is answered with a stateless reset, which ends the session at the peer:
/// [`TransportError::is_by_peer`](crate::TransportError::is_by_peer), without a code. Without the same secret it is dropped, and the peer's session lives on until its idle timeout.
///
/// Endpoints that have it and can be sent the same packets can be made to end each other's sessions by who has seen a packet of these (section 21.11): so
/// [derive](Self::derive) it from what each has for itself, such as the address on which it listens.
#[derive(Clone, PartialEq, Eq)]
pub struct ResetSecret([u8; 32]);

impl ResetSecret {
    /// One that is kept, or drawn at random.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// One that follows from another secret, a private key for example, which it does not tell, and from what the endpoint has for itself.
    pub fn derive(from: &[u8], context: &[u8]) -> Self {
        Self(of(from, context))
    }

    /// Gives QUIC the key of its resets, and that by which it knows ids of connections for its own: others are not answered.
    pub(super) fn apply(&self, quic: &mut noq_proto::EndpointConfig) {
        quic.reset_key(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &of(&self.0, b"resets"))));
        let [a, b, c, d, e, f, g, h, ..] = of(&self.0, b"connection ids");
        let key = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let ids = move || -> Box<dyn ConnectionIdGenerator> { Box::new(HashedConnectionIdGenerator::from_key(key)) };
        quic.cid_generator(Arc::new(ids));
    }
}

/// HMAC-SHA-256.
fn of(key: &[u8], what: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), what);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

impl fmt::Debug for ResetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetSecret(…)")
    }
}
