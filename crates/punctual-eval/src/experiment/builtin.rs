//! The experiments that come with the program: a new one is one new file in `experiments/` and one line here.

use super::{Experiment, ExperimentError};

/// Names and texts, in the order in which they are listed.
pub const BUILTIN: &[(&str, &str)] = &[("dtp-bandwidth", include_str!("../../../../experiments/dtp-bandwidth.toml"))];

/// The built-in experiment of that name.
pub fn by_name(name: &str) -> Option<Result<Experiment, ExperimentError>> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(name, text)| Experiment::parse(name, text))
}
