//! What a slice header says of its picture, and where one picture ends and the next begins.

use h264_reader::{
    Context,
    nal::{
        Nal as _, RefNal, UnitType,
        slice::{Field, FieldPic, PicOrderCountLsb, SliceFamily, SliceHeader},
        sps::PicOrderCntType,
    },
};

/// A coded picture, as far as its slice headers tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    pub(super) coding: Coding,
    /// Whether other pictures may refer to it.
    pub(super) reference: bool,
    identity: Identity,
    pub(super) order: Order,
}

/// How its slices are predicted; the most dependent of them counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coding {
    I,
    P,
    B,
}

/// What tells the slices of one picture from those of another (H.264, 7.4.1.2.4).
#[derive(Debug, Clone, PartialEq)]
struct Identity {
    frame_num: u16,
    parameter_set: u8,
    field: Option<bool>,
    idr: Option<u32>,
    order: Option<[i64; 2]>,
}

/// What its place in display order is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Picture order count type 0: the low bits, and how many values they count through.
    LowBits { value: i64, modulus: i64 },
    /// Type 2: pictures are displayed in the order in which they are decoded.
    Decoding,
    /// Type 1, which is hardly used and not worked out here.
    Unknown,
}

impl Picture {
    /// Takes in another slice of the same picture.
    pub(super) fn join(&mut self, slice: &Self) {
        self.coding = self.coding.max(slice.coding);
    }

    pub(super) fn is_idr(&self) -> bool {
        self.identity.idr.is_some()
    }

    pub(super) fn is_field(&self) -> bool {
        self.identity.field.is_some()
    }
}

/// Reads the header of the slice in `nal` (start code removed, perhaps cut short); `None` if it cannot be understood.
pub(super) fn parse_slice(parameters: &Context, nal: &[u8], complete: bool) -> Option<Picture> {
    let nal = RefNal::new(nal, &[], complete);
    let header = nal.header().ok()?;
    let (slice, sps, pps) = SliceHeader::from_bits(parameters, &mut nal.rbsp_bits(), header, None).ok()?;
    let lsb = slice.pic_order_cnt_lsb.as_ref().map(|lsb| match *lsb {
        PicOrderCountLsb::Frame(low) => [i64::from(low), 0],
        PicOrderCountLsb::FieldsAbsolute { pic_order_cnt_lsb, delta_pic_order_cnt_bottom } => {
            [i64::from(pic_order_cnt_lsb), i64::from(delta_pic_order_cnt_bottom)]
        }
        PicOrderCountLsb::FieldsDelta([first, second]) => [i64::from(first), i64::from(second)],
    });
    Some(Picture {
        coding: match slice.slice_type.family {
            SliceFamily::I | SliceFamily::SI => Coding::I,
            SliceFamily::P | SliceFamily::SP => Coding::P,
            SliceFamily::B => Coding::B,
        },
        reference: header.nal_ref_idc() != 0,
        order: match (&sps.pic_order_cnt, lsb) {
            (PicOrderCntType::TypeZero { log2_max_pic_order_cnt_lsb_minus4: bits }, Some([value, _])) => {
                Order::LowBits { value, modulus: 1 << (u32::from(*bits) + 4) }
            }
            (PicOrderCntType::TypeTwo, _) => Order::Decoding,
            _ => Order::Unknown,
        },
        identity: Identity {
            frame_num: slice.frame_num,
            parameter_set: pps.pic_parameter_set_id.id(),
            field: match slice.field_pic {
                FieldPic::Frame => None,
                FieldPic::Field(field) => Some(field == Field::Bottom),
            },
            idr: (header.nal_unit_type() == UnitType::SliceLayerWithoutPartitioningIdr)
                .then_some(slice.idr_pic_id.unwrap_or(0)),
            order: lsb,
        },
    })
}

/// Whether `slice` begins a picture other than `current`, both as far as they were understood.
///
/// `nal` holds the slice's bytes, for when its header was not: then macroblock 0 begins a picture.
pub(super) fn first_of_new_picture(current: Option<&Picture>, slice: Option<&Picture>, nal: &[u8]) -> bool {
    match (current, slice) {
        (Some(current), Some(slice)) => current.identity != slice.identity || current.reference != slice.reference,
        // first_mb_in_slice is 0 exactly if the first bit of its Exp-Golomb code is set.
        _ => nal.get(1).is_some_and(|byte| byte & 0x80 != 0),
    }
}
