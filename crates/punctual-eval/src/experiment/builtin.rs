//! The experiments that come with the program: a new one is one new file in `experiments/` and one line here.

use super::{Experiment, ExperimentError};

/// Names and texts, in the order in which they are listed.
pub const BUILTIN: &[(&str, &str)] = &[
    ("dtp-bandwidth", include_str!("../../experiments/dtp-bandwidth.toml")),
    ("dtp-step", include_str!("../../experiments/dtp-step.toml")),
    ("dtp-loss", include_str!("../../experiments/dtp-loss.toml")),
    ("dtp-loss-bursts", include_str!("../../experiments/dtp-loss-bursts.toml")),
    ("large-blocks", include_str!("../../experiments/large-blocks.toml")),
    ("alpha", include_str!("../../experiments/alpha.toml")),
    ("bulk-loss", include_str!("../../experiments/bulk-loss.toml")),
    ("bulk-corrupt", include_str!("../../experiments/bulk-corrupt.toml")),
    ("ninetails", include_str!("../../experiments/ninetails.toml")),
    ("ninetails-video", include_str!("../../experiments/ninetails-video.toml")),
    ("mapple-matrix", include_str!("../../experiments/mapple-matrix.toml")),
    ("cwr", include_str!("../../experiments/cwr.toml")),
    ("deadline-matrix", include_str!("../../experiments/deadline-matrix.toml")),
    ("dmtp", include_str!("../../experiments/dmtp.toml")),
    ("dmtp-hard", include_str!("../../experiments/dmtp-hard.toml")),
    ("optimizer", include_str!("../../experiments/optimizer.toml")),
    ("aitrans", include_str!("../../experiments/aitrans.toml")),
    ("cellular", include_str!("../../experiments/cellular.toml")),
    ("fairness", include_str!("../../experiments/fairness.toml")),
    ("policer", include_str!("../../experiments/policer.toml")),
    ("route-change", include_str!("../../experiments/route-change.toml")),
    ("unequal-paths", include_str!("../../experiments/unequal-paths.toml")),
    ("slow-link", include_str!("../../experiments/slow-link.toml")),
    ("in-order", include_str!("../../experiments/in-order.toml")),
    ("beside-bulk", include_str!("../../experiments/beside-bulk.toml")),
    ("late-key-frames", include_str!("../../experiments/late-key-frames.toml")),
    ("both-ways", include_str!("../../experiments/both-ways.toml")),
    ("short-path", include_str!("../../experiments/short-path.toml")),
    ("long-way-back", include_str!("../../experiments/long-way-back.toml")),
    ("no-key-frames", include_str!("../../experiments/no-key-frames.toml")),
    ("dependent-video", include_str!("../../experiments/dependent-video.toml")),
    ("overloaded-video", include_str!("../../experiments/overloaded-video.toml")),
    ("cellular-dependent", include_str!("../../experiments/cellular-dependent.toml")),
    ("many-sources", include_str!("../../experiments/many-sources.toml")),
    ("policed-media", include_str!("../../experiments/policed-media.toml")),
    ("fade", include_str!("../../experiments/fade.toml")),
    ("bad-second-path", include_str!("../../experiments/bad-second-path.toml")),
    ("two-lte", include_str!("../../experiments/two-lte.toml")),
    ("lossy-pair", include_str!("../../experiments/lossy-pair.toml")),
    ("shared-bottleneck", include_str!("../../experiments/shared-bottleneck.toml")),
    ("shared-copies", include_str!("../../experiments/shared-copies.toml")),
    ("bufferbloat-beside-clean", include_str!("../../experiments/bufferbloat-beside-clean.toml")),
    ("handover", include_str!("../../experiments/handover.toml")),
    ("flapping", include_str!("../../experiments/flapping.toml")),
    ("budget", include_str!("../../experiments/budget.toml")),
    ("backup", include_str!("../../experiments/backup.toml")),
    ("four-modems", include_str!("../../experiments/four-modems.toml")),
    ("mtu-beside", include_str!("../../experiments/mtu-beside.toml")),
    ("mtu-pair", include_str!("../../experiments/mtu-pair.toml")),
    ("fairness-networks", include_str!("../../experiments/fairness-networks.toml")),
    ("rmcat-capacity", include_str!("../../experiments/rmcat-capacity.toml")),
    ("rmcat-flows", include_str!("../../experiments/rmcat-flows.toml")),
    ("rmcat-feedback", include_str!("../../experiments/rmcat-feedback.toml")),
    ("rmcat-same", include_str!("../../experiments/rmcat-same.toml")),
    ("rmcat-rtt", include_str!("../../experiments/rmcat-rtt.toml")),
    ("rmcat-long-tcp", include_str!("../../experiments/rmcat-long-tcp.toml")),
    ("rmcat-short-tcp", include_str!("../../experiments/rmcat-short-tcp.toml")),
    ("rmcat-pause", include_str!("../../experiments/rmcat-pause.toml")),
];

/// The built-in experiment of that name.
pub fn by_name(name: &str) -> Option<Result<Experiment, ExperimentError>> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(name, text)| Experiment::parse(name, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Cell, Results};

    #[test]
    fn all_of_them_are_sound_long_and_short() {
        for (name, _) in BUILTIN {
            let experiment = by_name(name).unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
            let short = experiment.smoke().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!short.cells().unwrap().is_empty());
            assert!(!experiment.head.musts.is_empty(), "{name} must show something");
        }
    }

    /// What would come of an experiment but for the figures.
    fn blank(experiment: &Experiment) -> Results {
        let cells = experiment.cells().unwrap().into_iter().map(|plan| Cell {
            params: experiment
                .head
                .axes
                .iter()
                .zip(&plan.points)
                .map(|(axis, point)| (axis.name.clone(), point.label.clone()))
                .collect(),
            numbers: plan.points.iter().map(|point| point.number).collect(),
            contender: plan.contender.name,
            ..Cell::default()
        });
        let contenders = experiment.contenders.iter().map(|contender| contender.name.clone()).collect();
        Results { cells: cells.collect(), contenders, ..Results::default() }
    }

    #[test]
    fn every_threshold_is_of_something_that_is_run() {
        for (name, _) in BUILTIN {
            let experiment = by_name(name).unwrap().unwrap();
            let results = blank(&experiment);
            for must in &experiment.head.musts {
                assert!(must.judge(&results).is_some(), "{name}: nothing is run to judge by for `{}`", must.say);
            }
        }
    }
}
