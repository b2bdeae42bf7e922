//! The arithmetic of the code, for groups that are small.

use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, GF_ORDER, GfElement, ShardsRefMut, tables};

/// No point of a group of [`MAX_SOURCES`](super::MAX_SOURCES) and [`MAX_REPAIRS`](super::MAX_REPAIRS) lies beyond: half are for
/// the larger of the two rounded up to a power of two, and half for the smaller.
const POINTS: usize = 256;

/// The library's own engine, but for one step of decoding: where the polynomial that is zero at every missing shard's point is
/// evaluated.
///
/// The library does so at all 65,536 points of the field at once, by Walsh transforms, which takes longer than all the rest for
/// less than thousands of shards. A group has [`POINTS`] at most: here the polynomial is multiplied out, in logarithms, for just these.
#[derive(Default)]
pub(super) struct FewShards(DefaultEngine);

impl Engine for FewShards {
    fn fft(&self, data: &mut ShardsRefMut, pos: usize, size: usize, truncated_size: usize, skew_delta: usize) {
        self.0.fft(data, pos, size, truncated_size, skew_delta);
    }

    fn ifft(&self, data: &mut ShardsRefMut, pos: usize, size: usize, truncated_size: usize, skew_delta: usize) {
        self.0.ifft(data, pos, size, truncated_size, skew_delta);
    }

    fn mul(&self, x: &mut [[u8; 64]], log_m: GfElement) {
        self.0.mul(x, log_m);
    }

    /// Replaces what is 1 at missing points and 0 at the others by the logarithm of that polynomial there; where it is zero, by
    /// that of its derivative, which is the product without the zero.
    fn eval_poly(erasures: &mut [GfElement; GF_ORDER], truncated_size: usize) {
        let log = &*tables::get_exp_log().log;
        // All points from `POINTS` on are either all missing or all not: in the first case the product goes over all of
        // the field but those that are there, and the product over all of it is 1 (each non-zero element with its inverse, and 1).
        let all_beyond = truncated_size > POINTS;
        let points = &mut erasures[..POINTS];
        let wanted = GfElement::from(!all_beyond);
        let factors: Vec<_> = (0..POINTS).filter(|&point| points[point] == wanted).collect();
        for (point, value) in points.iter_mut().enumerate() {
            // The table has 65,535 for the logarithm of zero, which is none to the modulus: just the factor to leave out.
            let sum: u32 = factors.iter().map(|&factor| u32::from(log[factor ^ point])).sum();
            let sum = (sum % u32::from(GF_MODULUS)) as GfElement;
            *value = if all_beyond { GF_MODULUS - sum } else { sum };
        }
    }
}
