//! A figure over the seeds.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::results::Stat;

/// Mean, interval and range of the runs' values.
///
/// The interval is Student's t at 95 %, which takes the runs for independent draws from about a normal distribution. If a value
/// is infinite, so are the mean and the interval.
pub fn stat(values: &[f64]) -> Stat {
    let n = values.len() as f64;
    if values.is_empty() {
        return Stat::default();
    }
    let mean = values.iter().sum::<f64>() / n;
    let half_width = if !mean.is_finite() {
        f64::INFINITY
    } else {
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // No distribution has 0 degrees of freedom: a single run tells nothing of the spread.
        StudentsT::new(0.0, 1.0, n - 1.0).map_or(0.0, |t| t.inverse_cdf(0.975) * (variance / n).sqrt())
    };
    Stat {
        mean,
        half_width,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        n: u32::try_from(values.len()).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let stat = stat(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        // t(0.975, 4) is 2.776445 in the tables; the standard error is sqrt(2.5 / 5).
        assert!((stat.half_width - 2.776_445_105 * 0.5_f64.sqrt()).abs() < 1e-6, "{stat:?}");
        assert_eq!((stat.mean, stat.min, stat.max, stat.n), (3.0, 1.0, 5.0, 5));
    }

    #[test]
    fn equal_values_have_no_interval() {
        assert_eq!(stat(&[0.5; 10]).half_width, 0.0);
    }

    #[test]
    fn a_single_value_has_no_interval() {
        assert_eq!(stat(&[7.0]), Stat { mean: 7.0, half_width: 0.0, min: 7.0, max: 7.0, n: 1 });
    }

    #[test]
    fn no_values_no_figure() {
        assert_eq!(stat(&[]).n, 0);
    }

    #[test]
    fn an_infinite_value_makes_the_mean_infinite() {
        let stat = stat(&[1.0, f64::INFINITY]);
        assert_eq!((stat.mean, stat.half_width, stat.min), (f64::INFINITY, f64::INFINITY, 1.0));
    }
}
