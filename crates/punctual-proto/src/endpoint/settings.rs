//! What an endpoint is made of.

use std::time::Instant;

use super::ResetSecret;

/// What an endpoint is made of.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Seeds connection ids, packet-number gaps and the like, for runs that repeat; `None` draws from the system.
    pub seed: Option<[u8; 32]>,
    /// The zero of the clock that goes on the wire: any fixed moment not after the endpoint's first use. What the peer began before it counts as begun
    /// then, so that it may as well be a while before.
    pub epoch: Instant,
    /// What stays the same when the endpoint is started anew, so that peers of the one before hear of it; `None`: they do not.
    pub reset: Option<ResetSecret>,
}

impl EndpointConfig {
    /// With a seed from the system; `epoch` is [`epoch`](Self#structfield.epoch).
    pub fn new(epoch: Instant) -> Self {
        Self { seed: None, epoch, reset: None }
    }

    /// Sets [`seed`](Self#structfield.seed).
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets [`reset`](Self#structfield.reset).
    pub fn reset(mut self, secret: ResetSecret) -> Self {
        self.reset = Some(secret);
        self
    }
}
