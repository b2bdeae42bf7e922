use std::{collections::BTreeMap, fs};

use siphasher::sip::SipHasher13;

use super::{
    path::{CORE, WIDE},
    source::{DEADLINE_LIMITS, LOADS},
    *,
};
use crate::{carry::Stage, experiment::Experiment, files::Files, network::Path as Built};

const CELLS: u64 = 2_000;
/// A cell in which a delay changes twice within a millisecond.
const CHANGES_TWICE_AT_ONCE: u64 = 42_026;

fn all() -> impl Iterator<Item = Cell> {
    (0..CELLS).map(Cell::draw)
}

/// A folder with recordings that are called as the true ones are.
fn recordings() -> (tempfile::TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mahimahi")).unwrap();
    for drive in ["TMobile-LTE-short", "Verizon-LTE-short", "ATT-LTE-driving"] {
        for way in ["down", "up"] {
            let trace: String = (1..=1000).map(|n| format!("{}\n", n * 3)).collect();
            fs::write(dir.path().join(format!("mahimahi/{drive}.{way}")), trace).unwrap();
        }
    }
    let files = Files::new([dir.path()]);
    (dir, files)
}

#[test]
fn a_number_is_always_the_same_cell() {
    // What a cell is called and who runs in it is not what it is.
    let matters = |line: &&str| !["title", "about", "contenders"].iter().any(|key| line.starts_with(key));
    let texts = (0..100).map(|number| Cell::draw(number).text());
    let texts: String =
        texts.flat_map(|text| text.lines().filter(matters).map(str::to_owned).collect::<Vec<_>>()).collect();
    let hash = SipHasher13::new().hash(texts.as_bytes());
    assert_eq!((VERSION, hash), (1, 160_231_868_289_014_577), "other cells: count VERSION up, and say so here");
}

#[test]
fn all_cells_are_experiments() {
    let (_dir, files) = recordings();
    for cell in all().chain([Cell::draw(CHANGES_TWICE_AT_ONCE)]) {
        let text = cell.text();
        let why = |error| format!("cell {}: {error}\n{text}", cell.number);
        let experiment = Experiment::parse("cell", &text).map_err(why).unwrap();
        let setup = experiment.cells().unwrap().remove(0).setup;
        let network = setup.network(&files).map_err(why).unwrap();
        assert_eq!(network.paths.len(), cell.paths.len());
        network.paths.iter().zip(&cell.paths).for_each(|(built, drawn)| is_as_drawn(built, drawn, &text));
        if cell.number % 25 == 0 {
            let stage = Stage::new(&setup, &files, 1).map_err(why).unwrap();
            let bits: f64 = stage.plan.blocks.iter().map(|block| f64::from(block.size) * 8.0).sum();
            let ratio = bits / cell.seconds / cell.bit_rate();
            assert!((0.6..1.7).contains(&ratio), "{ratio}\n{text}");
        }
    }
}

fn is_as_drawn(built: &Built, drawn: &Path, text: &str) {
    let link = &built.forward;
    assert_eq!(link.queue_limit(), drawn.queue.bytes, "{text}");
    assert_eq!((link.mtu, link.ecn_threshold), (drawn.mtu, drawn.ecn_threshold), "{text}");
    let delay = link.delay.at(std::time::Duration::ZERO).as_secs_f64() * 1e3;
    assert!((delay - drawn.delay_ms()).abs() < 1e-6, "{text}");
    if let Rate::Steps(steps) = &drawn.rate {
        let punctual_sim::Rate::Steps(rate) = &link.rate else { panic!("{text}") };
        assert!((*rate.at(std::time::Duration::ZERO) as f64 - steps[0].1).abs() < 1.0, "{text}");
        assert!(rate.values().count() >= steps.len() - 1, "{text}");
    }
    let share = |link: &punctual_sim::LinkSpec| link.loss.at(std::time::Duration::ZERO).mean();
    assert!((share(link) - drawn.loss.mean()).abs() < 1e-9, "{text}");
    let back = drawn.back.loss.unwrap_or(if drawn.loses_back { drawn.loss.mean() } else { 0.0 });
    assert!((share(&built.back) - back).abs() < 1e-9, "{text}");
    assert_eq!(built.dies.len(), usize::from(drawn.dies.is_some()), "{text}");
    assert_eq!(
        built.cross.each_ref().map(Vec::len),
        [&drawn.cross, &drawn.back.cross].map(|cross| usize::from(cross.is_some()))
    );
}

/// That of `of` things so many are such, give or take what chance does.
fn about(what: &str, such: usize, of: usize, share: f64) {
    let (expected, deviation) = (share * of as f64, (share * (1.0 - share) * of as f64).sqrt());
    assert!((such as f64 - expected).abs() <= 4.0 * deviation, "{what}: {such} of {of}, not {expected:.0}");
}

#[test]
fn there_is_as_much_of_everything_as_there_should_be() {
    let cells: Vec<Cell> = all().collect();
    let cells_with = |such: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| such(cell)).count();
    about("wide", cells_with(&|cell| cell.wide), cells.len(), 0.25);
    for (paths, share) in [(1, 0.3), (2, 0.4), (3, 0.15), (4, 0.15)] {
        about("paths", cells_with(&|cell| cell.paths.len() == paths), cells.len(), share);
    }
    let several = cells_with(&|cell| cell.paths.len() > 1);
    about("shared", cells_with(&|cell| cell.shared.is_some()), several, 0.1);
    let paths: Vec<&Path> = cells.iter().flat_map(|cell| &cell.paths).collect();
    let with = |such: &dyn Fn(&Path) -> bool| paths.iter().filter(|path| such(path)).count();
    let all = paths.len();
    let lossy = with(&|path| path.loss != Loss::None);
    about("no loss", with(&|path| path.loss == Loss::None), all, 0.45);
    about("random loss", with(&|path| matches!(path.loss, Loss::Random(_))), all, 0.3);
    about("lossy both ways", with(&|path| path.loses_back), lossy, 0.5);
    about("jitter", with(&|path| path.jitter.is_some()), all, 0.25);
    about("reordering", with(&|path| path.reordering.is_some()), all, 0.05);
    about("recorded", with(&|path| matches!(path.rate, Rate::Recorded(_))), all, 0.12);
    about("steps", with(&|path| matches!(&path.rate, Rate::Steps(steps) if steps.len() > 1)), all, 0.2 * 0.88);
    about("delay steps", with(&|path| path.delay.len() > 1), all, 0.1);
    about("stalls", with(&|path| !path.stalls.is_empty()), all, 0.05 * 0.88);
    about("policer", with(&|path| path.policer.is_some()), all, 0.05);
    about("MTU", with(&|path| path.mtu < 1500), all, 0.2);
    about("ECN", with(&|path| path.ecn_threshold.is_some()), all, 0.05);
    about("cross traffic", with(&|path| path.cross.is_some()), all, 0.1);
    about("trouble on the way back", with(&|path| path.back.is_troubled()), all, 0.15);
    // Those that are alone do not die.
    let in_company: usize = cells.iter().filter(|cell| cell.paths.len() > 1).map(|cell| cell.paths.len()).sum();
    about("deaths", with(&|path| path.dies.is_some()), in_company, 0.06);
    about("bulk", cells_with(&|cell| cell.bulk), cells.len(), 0.09);
    let mut kinds: BTreeMap<Application, usize> = BTreeMap::new();
    cells.iter().for_each(|cell| *kinds.entry(cell.application).or_default() += 1);
    // Videos that cannot be are messages.
    assert!(kinds.len() == 5 && kinds.values().all(|count| (200..900).contains(count)), "{kinds:?}");
    let cut = |cut: Cut| cells_with(&|cell| cell.cut == cut);
    assert!(cut(Cut::default()) > 1_200, "most are as drawn");
    assert!(cut(Cut { shorter: true, lighter: false }) > 20 && cut(Cut { shorter: true, lighter: true }) > 20);
}

#[test]
fn everything_is_within_its_range() {
    for cell in all() {
        let (text, range) = (cell.describe(), if cell.wide { WIDE } else { CORE });
        assert!((6.0..=20.0).contains(&cell.seconds), "{text}");
        assert!(cell.paths.iter().any(|path| path.dies.is_none()), "{text}");
        for path in &cell.paths {
            if let Rate::Steps(steps) = &path.rate {
                let base = steps[0].1;
                assert!((range.rate.0..=range.rate.1).contains(&(base / 1e6)), "{text}");
                assert!((1..=5).contains(&steps.len()) && steps.is_sorted_by(|a, b| a.0 <= b.0), "{text}");
                assert!(steps.iter().all(|step| (0.199..3.01).contains(&(step.1 / base))), "{text}");
            }
            assert!((range.delay.0..=range.delay.1).contains(&path.delay_ms()), "{text}");
            assert!(path.delay.iter().all(|step| (0.299..4.01).contains(&(step.1 / path.delay_ms()))), "{text}");
            assert!(path.queue.bytes >= 1500 && (1280..=1500).contains(&path.mtu), "{text}");
            assert!(path.dies.is_none_or(|(_, lasts)| (0.5..=5.0).contains(&lasts)), "{text}");
            assert!((0.0..=0.1).contains(&path.loss.mean()), "{text}");
            if let (Some((back, _)), Rate::Steps(steps)) = (path.back.rate, &path.rate) {
                let fastest = steps.iter().map(|step| step.1).fold(0.0, f64::max);
                assert!(back >= 0.99 * fastest / 40.0 && back <= (fastest / 39.0).max(1e6), "{text}");
            }
        }
        let least = cell.delays_ms().into_iter().fold(f64::INFINITY, f64::min);
        let lowest = (1.1 * least).clamp(DEADLINE_LIMITS.0, DEADLINE_LIMITS.1);
        for source in &cell.sources {
            assert!(source.deadline_ms >= 0.99 * lowest && source.deadline_ms <= DEADLINE_LIMITS.1, "{text}");
        }
        assert!(cell.load() <= LOADS.1 * 1.1, "{text}");
        assert!(cell.packets_per_second() * cell.seconds <= 1.1 * 120_000.0, "{text}");
    }
}

#[test]
fn no_block_takes_longer_than_its_deadline_on_all_paths_together() {
    for cell in all() {
        for source in &cell.sources {
            let bits = match &source.traffic {
                Traffic::Messages { size, .. } => f64::from(*size) * 8.0 * f64::from(source.at_once()),
                Traffic::Video { bit_rate, fps, gop, ratio, .. } => {
                    bit_rate / f64::from(*fps) * ratio * f64::from(*gop) / (f64::from(*gop) - 1.0 + ratio)
                }
            };
            let rates = cell.paths.iter().map(Path::mean_rate).zip(cell.delays_ms());
            let room: f64 = rates.map(|(rate, delay)| rate * (source.deadline_ms - delay).max(0.0) / 1e3).sum();
            // Messages of a few bytes are as small as they get.
            assert!(bits <= 0.62 * room || bits <= 1_600.0, "{bits} {room}: {}", cell.describe());
        }
    }
}
