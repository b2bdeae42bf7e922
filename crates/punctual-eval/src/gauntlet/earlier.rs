//! Results of an earlier time, for contenders that do not run now.

use thiserror::Error;

use super::{
    VERSION,
    entrants::on_all_paths,
    results::{CellResults, Participant, Results},
    run::Options,
};

/// Why they do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EarlierError {
    /// The same numbers were other cells then.
    #[error("the earlier results are of version {0} of the cells, and this program has version {VERSION}: run their contenders again")]
    Version(u32),
    /// A cell is not in them.
    #[error("the earlier results have no cell {0}: give `--first` and `--cells` as they had them, or less")]
    Cell(u64),
    /// There are fewer runs in them.
    #[error("the earlier results have {had} seeds, fewer than {wanted}: give `--seeds {had}`, or run their contenders again")]
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

    /// Who took part in them.
    pub(super) fn participants(&self) -> impl Iterator<Item = Participant> {
        let then = self.results.into_iter().flat_map(|results| &results.contenders);
        then.map(|one| Participant { name: on_all_paths(&one.name).to_owned(), earlier: true, ..one.clone() })
    }
}

fn find(results: &Results, number: u64) -> Option<&CellResults> {
    results.cells.iter().find(|cell| cell.number == number)
}
