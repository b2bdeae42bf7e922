//! What is changed in every cell before it is run: settings that no cell draws.

use super::cell::Cell;
use crate::{
    experiment::{Experiment, ExperimentError},
    registry::Registry,
};

/// Keys of the text of an experiment with new values, one after the other.
///
/// `*` in place of a number stands for all: `path.*.` for every path of the cell, `workload.*.` for every source but the bulk beside
/// them, which has neither deadline nor order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes(Vec<(String, String)>);

impl Changes {
    /// These keys with these values.
    ///
    /// # Errors
    /// Of keys that are the command's own matter: who runs, and how often.
    pub fn new(changes: impl IntoIterator<Item = (String, String)>) -> Result<Self, ExperimentError> {
        let changes: Vec<_> = changes.into_iter().collect();
        for (key, _) in &changes {
            if matches!(key.as_str(), "contenders" | "contender" | "scheduler" | "seeds") {
                let what = format!("`{key}` is not a cell's: see --contenders and --seeds");
                return Err(ExperimentError::Invalid(what));
            }
        }
        Ok(Self(changes))
    }

    /// Whether cells are run as they are drawn.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each as `KEY=VALUE`, in order.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(key, value)| format!("{key}={value}"))
    }

    /// The experiment that a cell is, changed.
    ///
    /// # Errors
    /// If the cell has no such key, or what comes out is no experiment.
    pub fn experiment(&self, cell: &Cell, registry: &Registry) -> Result<Experiment, ExperimentError> {
        let mut experiment = Experiment::parse_with(&format!("cell-{}", cell.number), &cell.text(), registry)?;
        for (key, value) in &self.0 {
            for key in each(key, cell) {
                experiment = experiment.with(&key, value)?;
            }
        }
        Ok(experiment)
    }
}

/// The keys that one with a `*` stands for.
fn each(key: &str, cell: &Cell) -> Vec<String> {
    // Bulk comes after all others.
    let lists = [("path.*.", "path", cell.paths.len()), ("workload.*.", "workload", cell.sources.len())];
    match lists.iter().find_map(|(all, list, len)| Some((key.strip_prefix(all)?, list, *len))) {
        Some((rest, list, len)) => (0..len).map(|index| format!("{list}.{index}.{rest}")).collect(),
        None => vec![key.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(cell: u64, changes: &[(&str, &str)]) -> Result<String, ExperimentError> {
        let owned = changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let changes = Changes::new(owned)?;
        Ok(changes.experiment(&Cell::draw(cell), &Registry::new())?.text())
    }

    /// A cell with several paths and sources, and bulk beside them.
    fn with_bulk() -> Cell {
        let suits = |cell: &Cell| cell.bulk && cell.paths.len() > 1 && cell.sources.len() > 1;
        (0..).map(Cell::draw).find(suits).unwrap()
    }

    #[test]
    fn a_star_is_every_path_and_every_source_but_the_bulk() {
        let cell = with_bulk();
        let text = changed(cell.number, &[("workload.*.ordered", "true"), ("path.*.loss", "0.125")]).unwrap();
        assert_eq!(text.matches("ordered = true").count(), cell.sources.len(), "{text}");
        assert!(text.matches("loss = 0.125").count() >= cell.paths.len(), "{text}");
        let one = changed(cell.number, &[("workload.0.ordered", "true")]).unwrap();
        assert_eq!(one.matches("ordered = true").count(), 1, "{one}");
    }

    #[test]
    fn what_no_cell_has_is_refused() {
        let number = with_bulk().number;
        for (key, value) in
            [("workload.*.colour", "red"), ("path.99.loss", "0.1"), ("contenders", "ads"), ("seeds", "3")]
        {
            let refused = changed(number, &[(key, value)]);
            assert!(refused.is_err(), "{key}={value}");
        }
    }
}
