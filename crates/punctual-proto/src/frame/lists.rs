//! Words on many blocks at once: COMPLETED_LIST and DROPPED_LIST.

use std::ops::Range;

use bytes::{Buf, BufMut};

use super::{
    varint,
    zigzag::{difference, get_difference, put_difference, unzigzag, zigzag},
};
use crate::{block::BlockId, error::ProtocolError};

/// The most blocks of a COMPLETED_LIST, or runs of a DROPPED_LIST, that we write: however far apart, they have room.
pub(crate) const MAX_LIST: usize = 60;
/// The most blocks that a DROPPED_LIST tells of: each is an event at the receiver, and few bytes are to make few of them.
pub(crate) const MAX_RUNS_HOLD: u64 = 1_024;

/// Whether a block can follow another in a COMPLETED_LIST.
pub(crate) fn can_follow(before: BlockId, id: BlockId) -> bool {
    difference(before.0, id.0).is_some()
}

/// Writes what COMPLETED_LIST says of its first block, and then by how much the next ones differ.
pub(super) fn put(out: &mut impl BufMut, list: &[(BlockId, u32)]) {
    let mut before = None;
    for &(id, at) in list {
        match before.replace((id, at)) {
            None => {
                varint::put(out, id.0);
                out.put_u32(at);
            }
            Some((BlockId(last), since)) => {
                let told = put_difference(out, last, id.0);
                debug_assert!(told, "{id:?} is too far from {last}");
                varint::put(out, zigzag(at.wrapping_sub(since).cast_signed().into()));
            }
        }
    }
}

pub(super) fn get(input: &mut impl Buf) -> Result<Vec<(BlockId, u32)>, ProtocolError> {
    let mut last = (varint::get(input)?, varint::get_u32(input)?);
    let mut list = vec![(BlockId(last.0), last.1)];
    while input.has_remaining() {
        let id = get_difference(input, last.0)?;
        let later = i32::try_from(unzigzag(varint::get(input)?)).map_err(|_| ProtocolError::Malformed)?;
        last = (id, last.1.wrapping_add_signed(later));
        list.push((BlockId(last.0), last.1));
    }
    Ok(list)
}

/// Writes runs of ids, rising: how far each begins behind the end of the one before it, and how many there are.
pub(super) fn put_runs(out: &mut impl BufMut, runs: &[Range<u64>]) {
    let mut end = 0;
    for run in runs {
        varint::put(out, run.start - end);
        varint::put(out, run.end - run.start);
        end = run.end;
    }
}

pub(super) fn get_runs(input: &mut impl Buf) -> Result<Vec<Range<u64>>, ProtocolError> {
    let (mut runs, mut end, mut blocks) = (Vec::<Range<u64>>::new(), 0, 0);
    loop {
        let (ahead, count) = (varint::get(input)?, varint::get(input)?);
        let touches = !runs.is_empty() && ahead == 0;
        // No sum overflows: what is added is a varint, and so is what it is added to, near enough.
        let start = end + ahead;
        end = start + count;
        blocks += count;
        if touches || count == 0 || blocks > MAX_RUNS_HOLD || end - 1 > varint::MAX {
            return Err(ProtocolError::Malformed);
        }
        runs.push(start..end);
        if !input.has_remaining() {
            return Ok(runs);
        }
    }
}
