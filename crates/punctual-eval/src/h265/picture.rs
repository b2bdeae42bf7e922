//! What a slice header says of its picture (H.265, 7.3.6.1).

use super::{
    bits::Bits,
    parameters::{Parameters, unit_type},
    reference_set::ReferenceSet,
};

/// A coded picture, as far as its slice headers tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    pub(super) role: Role,
    pub(super) coding: Coding,
    /// Whether other pictures of its temporal layer may refer to it.
    pub(super) reference: bool,
    /// Whether picture order counts are told from it: pictures of the lowest temporal layer that are no leading ones.
    pub(super) anchor: bool,
    pub(super) order: Option<Order>,
    /// Unknown where it could not be read; empty for IDR pictures.
    pub(super) set: Option<ReferenceSet>,
}

/// What it is to the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Decoding can start here, and nothing behind it refers to what was before (IDR, BLA).
    Fresh,
    /// Decoding can start here; pictures shown before it may refer to earlier ones (CRA).
    Open,
    /// Any other.
    Trailing,
}

/// How its slices are predicted; the most dependent of them counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coding {
    I,
    P,
    B,
}

/// The low bits of its picture order count, and how many values they count through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) value: i64,
    pub(super) modulus: i64,
}

impl Picture {
    /// Takes in another slice of the same picture.
    pub(super) fn join(&mut self, slice: &Self) {
        self.coding = self.coding.max(slice.coding);
    }
}

/// Reads the header of the slice in `nal` (start code removed, perhaps cut short); `None` if it cannot be understood, as that of a
/// dependent slice segment, which says nothing new.
pub(super) fn parse_slice(parameters: &Parameters, nal: &[u8]) -> Option<Picture> {
    let &[first, second, ..] = nal else { return None };
    let (kind, temporal) = (unit_type(first), second & 7);
    // IDR pictures, that have no picture order count, and all random access points.
    let (idr, random_access) = (matches!(kind, 19 | 20), (16..=23).contains(&kind));
    let mut bits = Bits::of(nal)?;
    let first_of_picture = bits.flag()?;
    if random_access {
        bits.skip(1)?;
    }
    let (picture, sequence) = parameters.of(bits.golomb(63)?)?;
    if !first_of_picture {
        if picture.dependent_segments && bits.flag()? {
            return None;
        }
        bits.skip(sequence.address_bits())?;
    }
    bits.skip(picture.extra_bits)?;
    let coding = match bits.golomb(2)? {
        0 => Coding::B,
        1 => Coding::P,
        _ => Coding::I,
    };
    bits.skip(u32::from(picture.output_flag) + 2 * u32::from(sequence.separate_planes))?;
    let (order, set) = if idr {
        (Some(Order { value: 0, modulus: 1 << sequence.order_bits }), Some(ReferenceSet::default()))
    } else {
        let value = i64::from(bits.number(sequence.order_bits)?);
        let sets = &sequence.reference_sets;
        let set = match bits.flag()? {
            // As many bits as number the sets.
            true => {
                bits.number(sets.len().next_power_of_two().trailing_zeros()).and_then(|n| sets.get(n as usize).cloned())
            }
            false => ReferenceSet::parse(&mut bits, sets, true),
        };
        (Some(Order { value, modulus: 1 << sequence.order_bits }), set)
    };
    Some(Picture {
        role: match kind {
            16..=20 => Role::Fresh,
            21..=23 => Role::Open,
            _ => Role::Trailing,
        },
        coding,
        // Of types 0 to 15, the even ones.
        reference: kind >= 16 || kind % 2 == 1,
        anchor: temporal <= 1 && (random_access || !matches!(kind, 0 | 2 | 4 | 6..=10 | 12 | 14)),
        order,
        set,
    })
}
