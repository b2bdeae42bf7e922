//! Words that are kept until the peer is known to have read them.

/// Bytes that are added at the end and forgotten from the beginning, at no cost but for what comes in, however little is forgotten at a time.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    /// So many at the beginning are forgotten.
    forgotten: usize,
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.forgotten
    }

    /// All but the first `len` of them.
    pub(super) fn behind(&self, len: usize) -> &[u8] {
        &self.bytes[self.forgotten + len..]
    }

    /// Where more are added.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// These go before all others.
    pub(super) fn put_ahead(&mut self, mut ahead: Vec<u8>) {
        ahead.extend_from_slice(self.behind(0));
        *self = Self { bytes: ahead, forgotten: 0 };
    }

    /// The first `len` are needed no more.
    pub(super) fn forget(&mut self, len: usize) {
        self.forgotten = (self.forgotten + len).min(self.bytes.len());
        // What is moved is no more than what has been forgotten since the last time.
        if self.forgotten >= self.len() {
            self.bytes.drain(..self.forgotten);
            self.forgotten = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_a_little_at_a_time_leaves_the_rest_as_it_was() {
        let mut backlog = Backlog::default();
        backlog.end().extend(10..110_u8);
        backlog.put_ahead((0..10).collect());
        for forgotten in 0..110 {
            assert_eq!((backlog.len(), backlog.behind(0)[0]), (110 - usize::from(forgotten), forgotten));
            assert_eq!(backlog.behind(1).first().copied(), (forgotten < 109).then_some(forgotten + 1));
            assert!(backlog.bytes.len() <= 2 * backlog.len() + 1, "memory is given back");
            backlog.forget(1);
        }
        assert_eq!((backlog.len(), backlog.bytes.len()), (0, 0));
    }
}
