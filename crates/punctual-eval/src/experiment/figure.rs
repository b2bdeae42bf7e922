//! Whether a figure is about what its experiment has.

use super::{ExperimentError, axis::Axis, unknown};
use crate::results::Figure;

/// Refuses a figure along an axis, at a value or of a contender that is not there: it would show something else, or nothing.
pub(super) fn check(figure: &Figure, contenders: &[&str], axes: &[Axis]) -> Result<(), ExperimentError> {
    make_sense(figure, contenders, axes)
        .map_err(|what| ExperimentError::Invalid(format!("figure `{}`: {what}", figure.title)))
}

fn make_sense(figure: &Figure, contenders: &[&str], axes: &[Axis]) -> Result<(), String> {
    if let Some(name) = figure.contenders.iter().find(|name| !contenders.contains(&name.as_str())) {
        return Err(unknown("contender", name, contenders.iter().copied()));
    }
    let find = |name: &str| {
        let found = axes.iter().find(|axis| axis.name == name);
        found.ok_or_else(|| unknown("axis", name, axes.iter().map(|axis| axis.name.as_str())))
    };
    if !figure.x.is_empty() {
        find(&figure.x)?;
    }
    for (name, value) in &figure.at {
        let axis = find(name)?;
        let points = axis.points().map_err(|error| error.to_string())?;
        if !points.iter().any(|point| Figure::is_at(value, &point.label, point.number, &axis.unit)) {
            let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
            return Err(format!("axis `{name}` has no value `{value}`; it has: {}", labels.join(", ")));
        }
    }
    Ok(())
}
