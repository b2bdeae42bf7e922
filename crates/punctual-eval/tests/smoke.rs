//! The short version of every built-in experiment, run to the end: what it gives makes sense, and gives it again.
//!
//! Recordings are made up and lie in `data/`.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use punctual_eval::{
    experiment::{Experiment, Transport, builtin},
    files::Files,
    report,
    results::{Cell, Results},
    run::{self, Options, RunError, SweepError},
};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

fn options(directory: &Path) -> Options {
    // Tests run side by side already.
    Options { files: Files::new([DATA]), threads: 1, command: "punctual eval run".into(), ..Options::new(directory) }
}

/// The results, and all that is made of them: report, runs, blocks.
fn run(experiment: &Experiment, directory: &Path) -> (Results, [Vec<u8>; 3]) {
    let results = run::run(experiment, &options(directory), &AtomicBool::new(false), &|_| {}).unwrap();
    let read = |name| fs::read(directory.join(name)).unwrap();
    let files = [report::page(&results).into_bytes(), read("runs.parquet"), read("blocks.parquet")];
    (results, files)
}

fn smoke(name: &str) {
    let experiment = builtin::by_name(name).unwrap().unwrap().smoke().unwrap();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (results, files) = run(&experiment, directories[0].path());

    let planned = experiment.cells().unwrap();
    assert_eq!(results.cells.len(), planned.len());
    for (cell, plan) in results.cells.iter().zip(&planned) {
        assert_eq!(cell.contender, plan.contender.name);
        assert!(cell.params.iter().map(|(_, label)| label).eq(plan.points.iter().map(|point| &point.label)));
        assert_eq!(cell.seeds, experiment.head.seeds);
        makes_sense(cell, plan.setup.rivals.is_empty());
    }
    let page = std::str::from_utf8(&files[0]).unwrap();
    assert!(page.len() > 5_000 && page.ends_with("</html>\n") && page.contains(&results.name));
    for parquet in &files[1..] {
        assert!(parquet.len() > 100 && parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    }

    if planned.iter().any(|plan| has_bbr(&plan.contender.transport)) {
        return; // noq's BBR draws from a generator that cannot be seeded.
    }
    let (again, same) = run(&experiment, directories[1].path());
    assert!(again == results || format!("{again:?}") == format!("{results:?}"), "other results");
    for (what, (a, b)) in ["report", "runs", "blocks"].iter().zip(files.iter().zip(&same)) {
        assert!(a == b, "another {what} the second time");
    }
}

fn has_bbr(transport: &Transport) -> bool {
    let (Transport::Punctual { congestion, .. } | Transport::Quic { congestion, .. }) = transport;
    congestion.as_deref() == Some("bbr3")
}

/// Shares are shares, and nobody is better than the best there can be.
fn makes_sense(cell: &Cell, alone: bool) {
    let place = format!("{:?}, {}", cell.params, cell.contender);
    let shares = cell.priorities.iter().map(|of| of.on_time).chain(cell.stats.get("on_time").copied());
    for share in shares.filter(|share| share.n > 0) {
        assert!((0.0..=1.0).contains(&share.min) && (0.0..=1.0).contains(&share.max), "{place}: {share:?}");
    }
    // A rival takes some of what the bound counts on: with one, the bound holds all the more, but says little.
    let of_bound = cell.priorities.iter().map(|of| of.share_of_bound_up_to);
    let all = ["share_of_bound", "score_share_of_bound"].iter().filter_map(|measure| cell.stats.get(*measure).copied());
    for share in of_bound.chain(all).filter(|share| alone && share.n > 0) {
        assert!(share.max <= 1.0 + 1e-9, "{place}: above the bound, {share:?}");
    }
    // Plain QUIC knows of no deadlines: where a block is more than its window, all of them may come, and all too late.
    let measure = if cell.contender.contains("quic") { "throughput_mbps" } else { "goodput_mbps" };
    let delivered = cell.mean(measure).or(cell.mean("bulk_mbps"));
    assert!(delivered.is_some_and(|rate| rate > 0.0), "{place}: nothing was delivered");
}

/// A test for each experiment, so that they run side by side; and one that none is forgotten.
macro_rules! smoke {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { smoke($name); })*

        #[test]
        fn every_experiment_is_here() {
            assert_eq!([$($name),*].as_slice(), builtin::BUILTIN.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        }
    };
}

smoke! {
    dtp_bandwidth: "dtp-bandwidth",
    dtp_step: "dtp-step",
    dtp_loss: "dtp-loss",
    dtp_loss_bursts: "dtp-loss-bursts",
    large_blocks: "large-blocks",
    alpha: "alpha",
    bulk_loss: "bulk-loss",
    bulk_corrupt: "bulk-corrupt",
    ninetails: "ninetails",
    ninetails_video: "ninetails-video",
    mapple_matrix: "mapple-matrix",
    cwr: "cwr",
    deadline_matrix: "deadline-matrix",
    dmtp: "dmtp",
    dmtp_hard: "dmtp-hard",
    optimizer: "optimizer",
    aitrans: "aitrans",
    cellular: "cellular",
    fairness: "fairness",
    policer: "policer",
    route_change: "route-change",
    unequal_paths: "unequal-paths",
    slow_link: "slow-link",
    in_order: "in-order",
    beside_bulk: "beside-bulk",
    late_key_frames: "late-key-frames",
    both_ways: "both-ways",
    short_path: "short-path",
    long_way_back: "long-way-back",
    no_key_frames: "no-key-frames",
    dependent_video: "dependent-video",
    overloaded_video: "overloaded-video",
    cellular_dependent: "cellular-dependent",
    many_sources: "many-sources",
    policed_media: "policed-media",
    fade: "fade",
    bad_second_path: "bad-second-path",
    two_lte: "two-lte",
    lossy_pair: "lossy-pair",
    shared_bottleneck: "shared-bottleneck",
    shared_copies: "shared-copies",
    bufferbloat_beside_clean: "bufferbloat-beside-clean",
    handover: "handover",
    flapping: "flapping",
    budget: "budget",
    backup: "backup",
    four_modems: "four-modems",
    mtu_beside: "mtu-beside",
    mtu_pair: "mtu-pair",
    fairness_networks: "fairness-networks",
    rmcat_capacity: "rmcat-capacity",
    rmcat_flows: "rmcat-flows",
    rmcat_feedback: "rmcat-feedback",
    rmcat_same: "rmcat-same",
    rmcat_rtt: "rmcat-rtt",
    rmcat_long_tcp: "rmcat-long-tcp",
    rmcat_short_tcp: "rmcat-short-tcp",
    rmcat_pause: "rmcat-pause",
}

#[test]
fn an_interrupted_experiment_goes_on_where_it_stopped() {
    let experiment = builtin::by_name("dtp-loss").unwrap().unwrap().smoke().unwrap();
    let experiment = experiment.with("duration", "1s").unwrap().with("seeds", "2").unwrap();
    let [whole, parts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (_, expected) = run(&experiment, whole.path());

    let stop = AtomicBool::new(false);
    let interrupt = |progress: run::Progress| stop.store(progress.done >= 3, Ordering::Relaxed);
    let outcome = run::run(&experiment, &options(parts.path()), &stop, &interrupt);
    assert!(matches!(outcome, Err(RunError::Sweep(SweepError::Interrupted))));

    let first = std::sync::Mutex::new(None);
    let note = |progress: run::Progress| {
        first.lock().unwrap().get_or_insert(progress.done);
    };
    run::run(&experiment, &options(parts.path()), &AtomicBool::new(false), &note).unwrap();
    assert_eq!(*first.lock().unwrap(), Some(3), "it went on with what it had");
    let (_, files) = run(&experiment, parts.path());
    assert!(files == expected, "the same bytes, with and without an interruption");
}
