//! The gauntlet: networks and workloads drawn at random, which judge every change to what the transport decides.
//!
//! An experiment asks about a case that somebody has thought of. The gauntlet asks about those that nobody has: a [`Cell`] follows
//! from its number alone, so there are as many as one likes, nobody has tuned anything on those that were never run, and a number
//! is all it takes to look at one again. A cell is the text of an ordinary experiment ([`Cell::text`]).

mod cell;
mod changes;
mod dice;
mod earlier;
mod easy;
mod entrants;
mod figures;
mod path;
mod recorded;
mod results;
mod run;
mod score;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use cell::{Cell, Cut, Shared};
pub use changes::Changes;
pub use earlier::EarlierError;
pub use entrants::{CONTENDERS, Listed, Role};
pub use path::{Back, Cross, Jitter, Loss, Path, Pattern, Queue, QueueBy, Rate};
pub use recorded::Recorded;
pub use results::{
    Behind, CellResults, LimitRow, Overall, Participant, PriorityScore, Quantiles, Regret, Results, RunRow, Score,
    Standing, Summary,
};
pub use run::{GauntletError, Options, run};
pub use source::{Application, Priority, Source, Traffic};

/// Counts up with every change that makes another cell of some number: results of two versions are not of the same cells.
pub const VERSION: u32 = 1;
