//! The code that makes repair symbols: any m of a group's m + n datagrams give back all m.
//!
//! Reed–Solomon over GF(2^16), computed as Lin, Chung and Han do in "Novel Polynomial Basis and Its Application to
//! Reed-Solomon Erasure Codes" (FOCS 2014) and as crate `reed-solomon-simd` has it. `docs/protocol.md` says what comes out of it, so that another
//! implementation may compute it in another way; the tests here do.
//!
//! The code wants equal lengths, and datagrams differ in theirs. So each symbol becomes a **shard**: its length in two bytes,
//! the symbol, and zeros up to the length all the shards of its group have. Only repairs travel as shards.
//!
//! The library makes its tables when it is first used in a process, for a group of more than one symbol: 8 MiB, in about 8 ms.

mod engine;

use bytes::Bytes;
use reed_solomon_simd::{
    ReedSolomonEncoder,
    rate::{DefaultRateDecoder, RateDecoder},
};

use self::engine::FewShards;
use crate::error::ProtocolError;

/// The most symbols of a group.
pub(crate) const MAX_SOURCES: usize = 128;
/// The most repairs of a group: with these, a group has no more shards than bytes can number.
pub(crate) const MAX_REPAIRS: usize = 127;

/// The most repairs there may be for so many symbols: a code is as dear to undo as it has repairs, and a few bytes are not to cost a receiver more than
/// they cost who sends them.
pub(crate) const fn most_repairs(sources: usize) -> usize {
    let most = 4 * sources + 8;
    if most < MAX_REPAIRS { most } else { MAX_REPAIRS }
}
/// Bytes of a shard that say how long its symbol is.
pub(crate) const LENGTH_PREFIX: usize = 2;

/// The length of the shards of a group whose longest symbol has `longest_symbol` bytes: even, for the code works on 16 bits.
pub(crate) const fn shard_len(longest_symbol: usize) -> usize {
    (longest_symbol + LENGTH_PREFIX).next_multiple_of(2)
}

/// Makes the library's tables, which takes some milliseconds once in a process: not in the middle of a session.
pub(crate) fn prepare() {
    let symbols = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    Encoder::new().encode(&symbols, 1);
}

/// Whether a repair may have this length.
pub(crate) const fn is_shard_len(len: usize) -> bool {
    len >= LENGTH_PREFIX && len.is_multiple_of(2)
}

/// Appends a symbol as a shard of `len` bytes, which must be enough.
fn put_shard(out: &mut Vec<u8>, symbol: &[u8], len: usize) {
    let end = out.len() + len;
    // Nothing longer than a datagram is a symbol.
    out.extend_from_slice(&(symbol.len() as u16).to_be_bytes());
    out.extend_from_slice(symbol);
    out.resize(end, 0);
}

/// The symbol in a shard, or an error if this is none.
fn symbol_of(shard: &[u8]) -> Result<&[u8], ProtocolError> {
    let (prefix, rest) = shard.split_first_chunk::<LENGTH_PREFIX>().ok_or(ProtocolError::Repair)?;
    let (symbol, zeros) = rest.split_at_checked(u16::from_be_bytes(*prefix).into()).ok_or(ProtocolError::Repair)?;
    if zeros.iter().all(|&byte| byte == 0) { Ok(symbol) } else { Err(ProtocolError::Repair) }
}

/// Makes repairs. It keeps its working memory, about the size of the largest group it has seen.
#[derive(Default)]
pub(crate) struct Encoder {
    code: Option<ReedSolomonEncoder>,
    shard: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The repairs of a group of up to [`MAX_SOURCES`] symbols, by index; at most [`MAX_REPAIRS`] of them. They depend on how
    /// many there are to be: the first of three is not the first of four.
    ///
    /// They share one allocation.
    pub(crate) fn encode(&mut self, symbols: &[Bytes], repairs: usize) -> Vec<Bytes> {
        debug_assert!((1..=MAX_SOURCES).contains(&symbols.len()), "{} symbols", symbols.len());
        debug_assert!((1..=MAX_REPAIRS).contains(&repairs), "{repairs} repairs");
        let longest = symbols.iter().map(Bytes::len).max().unwrap_or_default();
        debug_assert!(longest <= u16::MAX.into(), "a symbol of {longest} bytes");
        let len = shard_len(longest);
        let mut out = Vec::with_capacity(repairs * len);
        if let [symbol] = symbols {
            // A line through one point: what the code gives, too.
            (0..repairs).for_each(|_| put_shard(&mut out, symbol, len));
        } else if self.run(symbols, repairs, len, &mut out).is_err() {
            debug_assert!(false, "the code has all these sizes");
            return Vec::new();
        }
        let out = Bytes::from(out);
        (0..repairs).map(|index| out.slice(index * len..(index + 1) * len)).collect()
    }

    fn run(
        &mut self,
        symbols: &[Bytes],
        repairs: usize,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), reed_solomon_simd::Error> {
        let code = match &mut self.code {
            Some(code) => {
                code.reset(symbols.len(), repairs, len)?;
                code
            }
            None => self.code.insert(ReedSolomonEncoder::new(symbols.len(), repairs, len)?),
        };
        for symbol in symbols {
            self.shard.clear();
            put_shard(&mut self.shard, symbol, len);
            code.add_original_shard(&self.shard)?;
        }
        code.encode()?.recovery_iter().for_each(|shard| out.extend_from_slice(shard));
        Ok(())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

/// A group's code: what each of its repairs says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    /// m: how many symbols there are.
    pub(crate) sources: usize,
    /// n: how many repairs could be made.
    pub(crate) repairs: usize,
    /// Bytes of a shard.
    pub(crate) shard_len: usize,
}

impl Code {
    /// The missing symbols by rising index, from at least as many symbols and repairs as there are sources.
    ///
    /// # Errors
    /// [`ProtocolError::Repair`] if what is given is not enough, twice the same, or no group of this code's; or if what comes out is
    /// no shard.
    pub(crate) fn restore<'a>(
        &self,
        symbols: impl Iterator<Item = (usize, &'a [u8])>,
        repairs: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<Vec<Bytes>, ProtocolError> {
        self.run(symbols, repairs).unwrap_or(Err(ProtocolError::Repair))
    }

    fn run<'a>(
        &self,
        symbols: impl Iterator<Item = (usize, &'a [u8])>,
        mut repairs: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<Result<Vec<Bytes>, ProtocolError>, reed_solomon_simd::Error> {
        let &Self { sources, repairs: count, shard_len: len } = self;
        if sources == 1
            && let Some((_, shard)) = repairs.next()
        {
            return Ok(symbol_of(shard).map(|symbol| vec![Bytes::copy_from_slice(symbol)]));
        }
        let mut code = DefaultRateDecoder::new(sources, count, len, FewShards::default(), None)?;
        let mut scratch = Vec::with_capacity(len);
        for (index, symbol) in symbols {
            if symbol.len() + LENGTH_PREFIX > len {
                return Ok(Err(ProtocolError::Repair));
            }
            scratch.clear();
            put_shard(&mut scratch, symbol, len);
            code.add_original_shard(index, &scratch)?;
        }
        for (index, shard) in repairs {
            code.add_recovery_shard(index, shard)?;
        }
        let restored = code.decode()?;
        let symbols = restored.restored_original_iter().map(|(_, shard)| symbol_of(shard).map(Bytes::copy_from_slice));
        Ok(symbols.collect())
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
