//! From values to positions.

/// Maps values to positions along one axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) domain: (f64, f64),
    pub(super) range: (f64, f64),
    pub(super) log: bool,
}

impl Scale {
    pub(super) fn linear(domain: (f64, f64), range: (f64, f64)) -> Self {
        Self { domain, range, log: false }
    }

    pub(super) fn log(domain: (f64, f64), range: (f64, f64)) -> Self {
        Self { domain, range, log: true }
    }

    /// The position of a value; values outside the domain lie on its edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let warp = |x: f64| if self.log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (warp(self.domain.0), warp(self.domain.1));
        let share = ((warp(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.range.0 + share * (self.range.1 - self.range.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_and_clamp() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 0.0));
        assert_eq!([linear.at(0.0), linear.at(5.0), linear.at(99.0)], [100.0, 50.0, 0.0]);
        let log = Scale::log((10.0, 1000.0), (0.0, 100.0));
        assert!((log.at(100.0) - 50.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), 0.0);
    }
}
