//! Where a cell's numbers come from.
//!
//! Each part of a cell has a generator of its own, PCG64 as everywhere in this crate, seeded by SipHash-2-4 over a label, the cell's
//! number and the part: so one part draws more or less and the others stay as they are. Only the generator's words are used, not a
//! library's ways to make other numbers of them, which may change from version to version.

use rand::RngExt;
use rand_pcg::Pcg64;
use siphasher::sip128::SipHasher24;

use super::VERSION;

/// What is hashed beside numbers, so that these are nobody else's.
const LABEL: &[u8] = b"punctual gauntlet";

/// Which part of a cell numbers are for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// How many paths, which range, how long.
    Shape = 1,
    /// A path; counted.
    Path = 2,
    /// A link that two paths share.
    Shared = 3,
    /// The blocks.
    Workload = 4,
}

/// A generator.
#[derive(Debug)]
pub(super) struct Dice(Pcg64);

impl Dice {
    /// That of the `index`-th part of its kind of a cell.
    pub(super) fn of(cell: u64, part: Part, index: u64) -> Self {
        let hasher = SipHasher24::new_with_keys(VERSION.into(), cell);
        let word = |half: u8| {
            let mut bytes = LABEL.to_vec();
            bytes.push(part as u8);
            bytes.extend(index.to_le_bytes());
            bytes.push(half);
            hasher.hash(&bytes).as_u128()
        };
        Self(Pcg64::new(word(0), word(1)))
    }

    /// From 0 up to, but not, 1.
    fn unit(&mut self) -> f64 {
        // As many bits as a float's mantissa has.
        (self.0.random::<u64>() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something comes true that does with this probability.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// Anything in the range alike, to three digits.
    pub(super) fn uniform(&mut self, (low, high): (f64, f64)) -> f64 {
        rounded(low + (high - low) * self.unit()).clamp(low, high)
    }

    /// Anything in the range, every factor alike, to three digits.
    pub(super) fn log_uniform(&mut self, (low, high): (f64, f64)) -> f64 {
        rounded(low * (high / low).powf(self.unit())).clamp(low, high)
    }

    /// A whole number from the first to the last of these.
    pub(super) fn whole(&mut self, first: u32, last: u32) -> u32 {
        first + (self.unit() * f64::from(last - first + 1)) as u32
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.unit() * from.len() as f64) as usize]
    }

    /// So many moments in order, as shares of the run, none of them at its very beginning or end.
    pub(super) fn moments(&mut self, count: u32) -> Vec<f64> {
        let mut moments: Vec<f64> = (0..count).map(|_| self.uniform((0.02, 0.98))).collect();
        moments.sort_by(f64::total_cmp);
        moments
    }
}

/// A number to three significant digits, as people write them.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    // By division where there are decimals: 10^-n is no binary fraction, and the quotient is the nearest one to what is meant.
    match 10_f64.powi(decimals.abs()) {
        factor if decimals >= 0 => (value * factor).round() / factor,
        factor => (value / factor).round() * factor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_differ_and_repeat() {
        let draw = |cell, part, index| Dice::of(cell, part, index).unit();
        let all = [
            draw(7, Part::Shape, 0),
            draw(8, Part::Shape, 0),
            draw(7, Part::Path, 0),
            draw(7, Part::Path, 1),
            draw(7, Part::Shared, 0),
            draw(7, Part::Workload, 0),
        ];
        assert_eq!(all[0], draw(7, Part::Shape, 0));
        assert!((0..all.len()).all(|n| !all[..n].contains(&all[n])));
    }

    #[test]
    fn numbers_are_where_they_should_be() {
        let mut dice = Dice::of(1, Part::Shape, 0);
        let many = |draw: &mut dyn FnMut() -> f64| (0..10_000).map(|_| draw()).collect::<Vec<_>>();
        let uniform = many(&mut || dice.uniform((2.0, 4.0)));
        let mean = uniform.iter().sum::<f64>() / 1e4;
        assert!((mean - 3.0).abs() < 0.02 && uniform.iter().all(|x| (2.0..=4.0).contains(x)), "{mean}");
        let logs = many(&mut || dice.log_uniform((0.1, 1000.0)));
        let below_ten = logs.iter().filter(|x| **x < 10.0).count();
        assert!((4_800..5_200).contains(&below_ten) && logs.iter().all(|x| (0.1..=1000.0).contains(x)));
        let whole = many(&mut || dice.whole(1, 4).into());
        assert!((1..=4).all(|n| (2_300..2_700).contains(&whole.iter().filter(|x| **x == f64::from(n)).count())));
        assert!((2_800..3_200).contains(&(0..10_000).filter(|_| dice.chance(0.3)).count()));
        assert!(dice.moments(5).is_sorted());
    }

    #[test]
    fn numbers_have_three_digits() {
        let of = [0.123_456, 12.345_6, 1_234.56, 999.96, 0.0, 1e-7 / 3.0].map(rounded);
        assert_eq!(of, [0.123, 12.3, 1_230.0, 1000.0, 0.0, 3.33e-8]);
    }
}
