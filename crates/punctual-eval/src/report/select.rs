//! Which cells a figure shows: the panels of its small multiples.

use super::words::with_unit;
use crate::results::{Cell, Figure, Results};

/// A figure has at most this many panels.
const MOST_PANELS: usize = 12;

/// A drawing's share of the cells.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    /// The values of the axes that tell it from the others.
    pub(super) title: String,
    pub(super) cells: Vec<&'a Cell>,
}

/// What a figure shows.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    pub(super) panels: Vec<Panel<'a>>,
    /// Panels there would have been.
    pub(super) all: usize,
    /// Values of axes the figure fixes, in words.
    pub(super) fixed: Vec<String>,
    /// The axis along x, if the figure has one.
    pub(super) x: Option<usize>,
}

impl<'a> Selection<'a> {
    /// Selects the cells of a figure; with `along_x`, the figure's axis is not split into panels.
    pub(super) fn of(results: &'a Results, figure: &Figure, along_x: bool) -> Self {
        let x = along_x.then(|| axis(results, &figure.x)).flatten();
        let cells: Vec<&Cell> = results.cells.iter().filter(|cell| wanted(results, figure, cell)).collect();
        // The axes of the panels, each with its values in order of appearance.
        let split: Vec<usize> = (0..results.axes.len())
            .filter(|&n| Some(n) != x && !figure.at.contains_key(&results.axes[n].0) && values(&cells, n).len() > 1)
            .collect();
        let mut kept: Vec<Vec<&str>> = split.iter().map(|&n| values(&cells, n)).collect();
        let all = kept.iter().map(Vec::len).product();
        thin(&mut kept);
        let mut panels: Vec<Panel<'a>> = Vec::new();
        for cell in cells {
            let mut place = split.iter().zip(&kept);
            if !place.all(|(&n, kept)| kept.contains(&value(cell, n))) {
                continue;
            }
            let title = title(results, cell, &split);
            match panels.iter_mut().find(|panel| panel.title == title) {
                Some(panel) => panel.cells.push(cell),
                None => panels.push(Panel { title, cells: vec![cell] }),
            }
        }
        let unit = |name: &str| results.axes.iter().find(|axis| axis.0 == name).map_or("", |axis| axis.1.as_str());
        let fixed = figure.at.iter().map(|(name, value)| format!("{name} {}", with_unit(value, unit(name)))).collect();
        Self { panels, all, fixed, x }
    }
}

/// An axis by name; the first if none is named, or none has that name.
fn axis(results: &Results, name: &str) -> Option<usize> {
    let named = results.axes.iter().position(|axis| axis.0 == name);
    named.or_else(|| (!results.axes.is_empty()).then_some(0))
}

/// A cell's place on an axis, as a person reads it.
pub(super) fn value(cell: &Cell, axis: usize) -> &str {
    cell.params.get(axis).map_or("", |param| param.1.as_str())
}

/// The values on an axis, in order of appearance.
pub(super) fn values<'a>(cells: &[&'a Cell], axis: usize) -> Vec<&'a str> {
    let mut values: Vec<&str> = Vec::new();
    for cell in cells {
        let value = value(cell, axis);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// Leaves out values, those of the longest axis first and evenly, until there are few enough panels.
fn thin(kept: &mut [Vec<&str>]) {
    while kept.iter().map(Vec::len).product::<usize>() > MOST_PANELS {
        let Some(longest) = kept.iter_mut().max_by_key(|values| values.len()) else {
            return;
        };
        // First and last stay: they say how far the axis goes.
        let (count, last) = (longest.len() - 1, longest.len() - 1);
        let pick = |n: usize| longest[(n * last + (count - 1) / 2) / (count - 1).max(1)];
        *longest = (0..count).map(pick).collect();
    }
}

fn wanted(results: &Results, figure: &Figure, cell: &Cell) -> bool {
    let fixed = |(name, want): (&String, &String)| {
        results.axes.iter().position(|axis| axis.0 == *name).is_none_or(|n| {
            Figure::is_at(want, value(cell, n), cell.numbers.get(n).copied().flatten(), &results.axes[n].1)
        })
    };
    (figure.contenders.is_empty() || figure.contenders.contains(&cell.contender)) && figure.at.iter().all(fixed)
}

/// Some axes' values of a cell, in words.
pub(super) fn title(results: &Results, cell: &Cell, axes: &[usize]) -> String {
    let one = |&n: &usize| {
        let (name, unit) = &results.axes[n];
        format!("{name} {}", with_unit(value(cell, n), unit))
    };
    axes.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(loss: usize, rates: usize) -> Results {
        let mut results =
            Results { axes: vec![("rate".into(), "MB/s".into()), ("loss".into(), "%".into())], ..Results::default() };
        for rate in 0..rates {
            for loss in 0..loss {
                for contender in ["ads", "quic"] {
                    results.cells.push(Cell {
                        params: vec![("rate".into(), format!("{rate} MB/s")), ("loss".into(), loss.to_string())],
                        numbers: vec![Some(rate as f64), Some(loss as f64)],
                        contender: contender.into(),
                        ..Cell::default()
                    });
                }
            }
        }
        results
    }

    #[test]
    fn panels_are_the_axes_that_are_neither_along_x_nor_fixed() {
        let results = results(3, 4);
        let selection = Selection::of(&results, &Figure { x: "rate".into(), ..Figure::default() }, true);
        let titles: Vec<&str> = selection.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["loss 0 %", "loss 1 %", "loss 2 %"]);
        assert_eq!(selection.panels[0].cells.len(), 8);
    }

    #[test]
    fn an_axis_is_fixed_with_or_without_its_unit() {
        let results = results(3, 4);
        for at in ["2", "2 MB/s", "2.0"] {
            let at = [("rate".to_owned(), at.to_owned())].into();
            let selection = Selection::of(&results, &Figure { at, x: "loss".into(), ..Figure::default() }, true);
            assert_eq!(selection.panels.len(), 1);
            assert_eq!(selection.panels[0].cells.len(), 6);
            assert_eq!(selection.fixed.len(), 1);
        }
    }

    #[test]
    fn too_many_panels_are_thinned_evenly() {
        let results = results(5, 20);
        let selection = Selection::of(&results, &Figure::default(), false);
        assert_eq!(selection.all, 100);
        assert!((9..=MOST_PANELS).contains(&selection.panels.len()), "{}", selection.panels.len());
        assert_eq!(selection.panels[0].title, "rate 0 MB/s, loss 0 %");
        assert_eq!(selection.panels.last().map(|panel| panel.title.as_str()), Some("rate 19 MB/s, loss 4 %"));
    }
}
