//! Results of an earlier time, for contenders that do not run now.

use thiserror::Error;

use super::{
    VERSION,
    entrants::on_all_paths,
    results::{CellResults, Participant, Results, RunRow},
    run::Options,
};

/// Why they do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EarlierError {
    /// The same numbers were other cells then.
    #[error(
        "the earlier results are of version {0} of the cells, and this program has version {VERSION}: run their contenders again"
    )]
    Version(u32),
    /// The cells were changed in another way then.
    #[error("the earlier results are of cells that were changed otherwise: give `--set` as they had it")]
    Changes,
    /// A cell is not in them.
    #[error("the earlier results have no cell {0}: give `--first` and `--cells` as they had them, or less")]
    Cell(u64),
    /// There are fewer runs in them.
    #[error(
        "the earlier results have {had} seeds, fewer than {wanted}: give `--seeds {had}`, or run their contenders again"
    )]
    Seeds {
        /// How many they have.
        had: u32,
        /// How many are asked for.
        wanted: u32,
    },
}

/// The earlier results, if there are any, that were found to fit.
pub(super) struct Earlier<'a> {
    results: Option<&'a Results>,
    seeds: u32,
}

impl<'a> Earlier<'a> {
    /// Looks whether they have all these cells, and seeds enough.
    pub(super) fn new(options: &'a Options, cells: &[u64]) -> Result<Self, EarlierError> {
        let seeds = options.seeds;
        let Some(results) = &options.against else { return Ok(Self { results: None, seeds }) };
        if results.gauntlet != VERSION {
            return Err(EarlierError::Version(results.gauntlet));
        }
        if results.changes != options.changes.lines().collect::<Vec<_>>() {
            return Err(EarlierError::Changes);
        }
        if let Some(missing) = cells.iter().find(|number| find(results, **number).is_none()) {
            return Err(EarlierError::Cell(*missing));
        }
        if results.seeds < seeds {
            return Err(EarlierError::Seeds { had: results.seeds, wanted: seeds });
        }
        Ok(Self { results: Some(results), seeds })
    }

    /// Adds to a cell the runs of those who have none in it now.
    pub(super) fn complete(&self, cell: &mut CellResults) {
        let Some(then) = self.results.and_then(|results| find(results, cell.number)) else { return };
        let now: Vec<String> = cell.runs.iter().map(|run| run.contender.clone()).collect();
        let others = then.runs.iter().filter(|run| run.seed <= self.seeds && !now.contains(&run.contender));
        cell.runs.extend(others.cloned());
        if cell.limits.is_empty() {
            cell.limits.extend(then.limits.iter().filter(|limit| limit.seed <= self.seeds).cloned());
        }
    }

    /// The run of a contender in a cell with a seed, whatever it was made for then.
    pub(super) fn run(&self, cell: u64, contender: &str, seed: u32) -> Option<RunRow> {
        let then = self.results.and_then(|results| find(results, cell))?;
        let mut runs = then.runs.iter().chain(&then.confirming);
        runs.find(|run| run.contender == contender && run.seed == seed).cloned()
    }

    /// Who took part in them.
    pub(super) fn participants(&self) -> impl Iterator<Item = Participant> {
        let then = self.results.into_iter().flat_map(|results| &results.contenders);
        then.map(|one| Participant { name: on_all_paths(&one.name).to_owned(), earlier: true, ..one.clone() })
    }
}

fn find(results: &Results, number: u64) -> Option<&CellResults> {
    results.cells.iter().find(|cell| cell.number == number)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Listed, Role},
        *,
    };
    use crate::registry::Registry;

    fn run(contender: &str, seed: u32, on_time: f64) -> RunRow {
        RunRow { contender: contender.to_owned(), seed, on_time, ..RunRow::default() }
    }

    /// Cells 5 and 6 with two seeds of `ads` and `quic`.
    fn then() -> Results {
        let runs = || ["ads", "quic"].iter().flat_map(|name| [1, 2].map(|seed| run(name, seed, 0.5))).collect();
        let participant = |name: &str, role| Participant { name: name.to_owned(), role, repeats: true, earlier: false };
        Results {
            gauntlet: VERSION,
            first: 5,
            seeds: 2,
            contenders: vec![participant("ads", Role::Ours), participant("quic", Role::Baseline)],
            cells: [5, 6].map(|number| CellResults { number, runs: runs(), ..CellResults::default() }).into(),
            ..Results::default()
        }
    }

    fn options(against: Option<Results>, first: u64, cells: u64, seeds: u32) -> Options {
        Options {
            first,
            cells,
            seeds,
            contenders: vec![Listed::parse("ads", &Registry::new()).unwrap()],
            against,
            ..Options::new("nowhere")
        }
    }

    #[test]
    fn who_does_not_run_now_is_taken_over() {
        let options = options(Some(then()), 6, 1, 1);
        let earlier = Earlier::new(&options, &[6]).unwrap();
        let mut cell = CellResults { number: 6, runs: vec![run("ads", 1, 0.9)], ..CellResults::default() };
        earlier.complete(&mut cell);
        let runs: Vec<_> = cell.runs.iter().map(|run| (run.contender.as_str(), run.seed, run.on_time)).collect();
        assert_eq!(runs, [("ads", 1, 0.9), ("quic", 1, 0.5)]);
        assert!(earlier.participants().all(|one| one.earlier));
        assert_eq!(earlier.run(5, "quic", 2).map(|run| run.on_time), Some(0.5));
        assert_eq!(earlier.run(5, "quic", 3), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |then: Results, first, cells, seeds| {
            let options = options(Some(then), first, cells, seeds);
            let numbers: Vec<u64> = (first..first + cells).collect();
            Earlier::new(&options, &numbers).err().unwrap().to_string()
        };
        assert!(refused(Results { gauntlet: VERSION + 1, ..then() }, 5, 2, 2).contains("version"));
        assert!(refused(then(), 5, 3, 2).contains("no cell 7"));
        assert!(refused(then(), 5, 2, 3).contains("--seeds 2"));
        let alone = options(None, 5, 2, 2);
        assert!(Earlier::new(&alone, &[5, 6]).unwrap().participants().next().is_none());
    }
}
