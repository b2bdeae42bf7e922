//! What all sessions of an endpoint hold of what their peers sent.
//!
//! Each session has bounds of its own, which thousands of sessions together would make worth nothing. So the more an endpoint's sessions have been promised, the less a new one is; and
//! should all together hold too much nevertheless, the one that holds most has to go.

use super::SessionId;
use crate::limits::Limits;

/// What is promised to a new session, of what is left: 1 / 4.
const SHARE: u64 = 4;

/// Sums over an endpoint's sessions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes their peers may have open.
    promised: u64,
    /// Bytes that are held.
    held: u64,
}

/// A session's part of it.
#[derive(Debug, Default)]
pub(super) struct Part {
    promised: u64,
    held: u64,
}

impl Memory {
    /// How many bytes the peer of a new session may have open: what its limits allow, if there is plenty, and never less than the largest block.
    pub(super) fn promise(&mut self, limits: &Limits) -> Part {
        let left = limits.endpoint_bytes.saturating_sub(self.promised);
        let promised = limits.receive_bytes.min(left / SHARE).max(limits.max_block_size);
        self.promised += promised;
        Part { promised, held: 0 }
    }

    /// A session holds so much now.
    pub(super) fn note(&mut self, part: &mut Part, held: u64) {
        self.held = self.held - part.held + held;
        part.held = held;
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, part: &Part) {
        self.promised -= part.promised;
        self.held -= part.held;
    }

    /// Whether that is too much for a session with these limits to add to.
    pub(super) fn is_too_much(&self, limits: &Limits) -> bool {
        self.held > limits.endpoint_bytes
    }
}

impl Part {
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    /// By how much a session is in the way of others.
    pub(super) fn weight(&self, id: SessionId) -> (u64, SessionId) {
        (self.held, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_promised_the_less_a_newcomer_gets() {
        let limits = Limits::default();
        let mut memory = Memory::default();
        let parts: Vec<_> = (0..1_000).map(|_| memory.promise(&limits)).collect();
        assert_eq!(parts[0].promised(), limits.receive_bytes, "plenty");
        assert!(parts.windows(2).all(|pair| pair[1].promised() <= pair[0].promised()));
        assert_eq!(parts[999].promised(), limits.max_block_size, "each can have its largest block");
        parts.iter().for_each(|part| memory.forget(part));
        assert_eq!((memory.promised, memory.held), (0, 0));
        assert_eq!(memory.promise(&limits).promised(), limits.receive_bytes);
    }
}
