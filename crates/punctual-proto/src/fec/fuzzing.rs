//! The code, for `benches/fec.rs`: not part of the API.

use bytes::Bytes;

use super::{Code, Encoder};

/// A group with all its repairs.
pub struct CodedGroup {
    encoder: Encoder,
    symbols: Vec<Bytes>,
    repairs: Vec<Bytes>,
}

impl CodedGroup {
    /// Of these symbols, with `repairs` repairs.
    pub fn new(symbols: Vec<Bytes>, repairs: usize) -> Self {
        let mut encoder = Encoder::new();
        let repairs = encoder.encode(&symbols, repairs);
        Self { encoder, symbols, repairs }
    }

    /// Makes the repairs anew.
    pub fn encode(&mut self) -> Vec<Bytes> {
        self.encoder.encode(&self.symbols, self.repairs.len())
    }

    /// Restores the first `lost` symbols from the others and as many repairs.
    pub fn restore(&self, lost: usize) -> Vec<Bytes> {
        let (sources, repairs) = (self.symbols.len(), self.repairs.len());
        let code = Code { sources, repairs, shard_len: self.repairs[0].len() };
        let slices = |(index, bytes)| -> (usize, &[u8]) { (index, bytes) };
        let symbols = self.symbols.iter().map(|bytes| &bytes[..]).enumerate().skip(lost).map(slices);
        let shards = self.repairs.iter().map(|bytes| &bytes[..]).enumerate().take(lost).map(slices);
        code.restore(symbols, shards).expect("there are enough")
    }
}
