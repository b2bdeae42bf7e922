//! Redundancy groups, for a target in `/fuzz`: not part of the API.

use bytes::Bytes;

use super::decode::Groups;
use crate::{
    error::ProtocolError,
    fec::Encoder,
    frame::{DatagramFrame, DatagramFrames, RepairHead, SourceHead},
};

/// A group has at most so many symbols here, and repairs.
const MOST: u8 = 12;

/// Feeds a receiver's groups with what the input says, one step after the other: datagrams, pauses, and groups as a sender makes
/// them, of which some datagrams are lost.
///
/// It panics if the groups do, if they exceed a bound or lose count, or restore something else than was sent.
pub fn repair(bytes: &[u8]) {
    let mut input = Input(bytes);
    let window = u64::from(input.byte()) << (input.byte() % 16);
    let (mut groups, mut now) = (Groups::new(window), 0_u64);
    // Ids that no datagram can name.
    let mut honest_group = 1 << 63;
    while !input.0.is_empty() {
        let result = match input.byte() % 4 {
            0 => {
                now = now.saturating_add(1_000 * u64::from(input.byte()));
                groups.on_timeout(now);
                assert!(groups.next_timeout().is_none_or(|at| at > now));
                Ok(())
            }
            1 => {
                honest_group += 1 + u64::from(input.byte() % 2);
                honest(&mut groups, honest_group, window, now, &mut input);
                Ok(())
            }
            _ => datagram(&mut groups, now, input.chunk()),
        };
        match result {
            Ok(()) => groups.check(),
            // The session would be over.
            Err(_) => groups = Groups::new(window),
        }
    }
    groups.on_timeout(u64::MAX);
    assert!(groups.is_empty());
    groups.check();
}

fn datagram(groups: &mut Groups, now: u64, payload: &[u8]) -> Result<(), ProtocolError> {
    for frame in DatagramFrames::new(Bytes::copy_from_slice(payload)) {
        let restored = match frame? {
            DatagramFrame::Source { head, symbol } => groups.on_source(&head, &symbol, now)?,
            DatagramFrame::Repair { head, shard } => groups.on_repair(&head, &shard, now)?,
            _ => continue,
        };
        for symbol in restored {
            let _: Result<Vec<_>, _> = DatagramFrames::of_symbol(symbol).collect();
        }
    }
    Ok(())
}

/// A group whose datagrams come in an order, and with losses, that the input tells.
fn honest(groups: &mut Groups, group: u64, window: u64, now: u64, input: &mut Input<'_>) {
    let (m, n) = (1 + input.byte() % MOST, 1 + input.byte() % MOST);
    let symbols: Vec<_> = (0..m).map(|_| Bytes::copy_from_slice(input.chunk())).collect();
    let repairs = Encoder::new().encode(&symbols, n.into());
    let bytes: usize = symbols.iter().chain(&repairs).map(Bytes::len).sum();
    // More than is reckoned for them. What is older is forgotten first.
    let has_room = bytes as u64 + 128 * u64::from(m + n) + 512 <= window;

    let mut came = vec![false; usize::from(m + n)];
    let mut is_over = false;
    for _ in 0..m + n {
        let which = input.byte() % (m + n);
        let restored = match which.checked_sub(m) {
            None => groups.on_source(&SourceHead { group, index: which, life: 50 }, &symbols[usize::from(which)], now),
            Some(index) => {
                let head = RepairHead { group, life: 50, sources: m, repairs: n, index };
                groups.on_repair(&head, &repairs[usize::from(index)], now)
            }
        };
        let restored = restored.expect("an honest group has no contradictions");
        groups.check();
        came[usize::from(which)] = true;
        let (sources, others) = came.split_at(symbols.len());
        let is_decodable = others.contains(&true) && came.iter().filter(|came| **came).count() >= symbols.len();
        let missing = symbols.iter().zip(sources).filter(|(_, came)| !**came).map(|(symbol, _)| symbol.clone());
        let expected = if is_decodable && !is_over { missing.collect() } else { Vec::new() };
        if has_room || !restored.is_empty() {
            assert_eq!(restored, expected);
        }
        is_over |= is_decodable;
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The next byte; 0 at the end.
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// A byte that says how long, and then so many bytes.
    fn chunk(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        self.0.split_off(..len).unwrap_or_default()
    }
}
