//! Two results side by side.

use std::{fs, path::Path};

use comfy_table::{Table, presets};
use punctual_eval::{
    experiment::check_measure,
    results::{Cell, Results},
};
use serde_json::{Map, Value};

use super::{args::CompareArgs, json::number, table};
use crate::{exit::Failure, out::line};

pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    args.measure.iter().try_for_each(|name| check_measure(name)).map_err(Failure::Usage)?;
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let pairs: Vec<(&Cell, &Cell)> = a.cells.iter().filter_map(|cell| Some((cell, partner(cell, &b)?))).collect();
    if pairs.is_empty() {
        return Err(Failure::Usage("the two have no cell in common: other parameters, or other contenders".into()));
    }
    if args.json {
        return pairs.iter().try_for_each(|(a, b)| line(object(a, b, &args.measure)));
    }
    line(side_by_side(&pairs, &args.measure))?;
    match a.cells.len() + b.cells.len() - 2 * pairs.len() {
        0 => Ok(()),
        others => line(format_args!("{others} cells are in only one of the two")),
    }
}

fn read(path: &Path) -> Result<Results, Failure> {
    let file = if path.is_dir() { path.join("results.json") } else { path.to_path_buf() };
    let text = fs::read_to_string(&file).map_err(|error| Failure::file("read", &file, error))?;
    serde_json::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

fn partner<'a>(cell: &Cell, results: &'a Results) -> Option<&'a Cell> {
    results.cells.iter().find(|other| other.params == cell.params && other.contender == cell.contender)
}

/// Whether two means differ by more than their intervals allow for.
fn differs(a: &Cell, b: &Cell, measure: &str) -> bool {
    match (a.stat(measure), b.stat(measure)) {
        (Some(a), Some(b)) => (a.mean - b.mean).abs() > a.half_width.hypot(b.half_width),
        _ => false,
    }
}

fn side_by_side(pairs: &[(&Cell, &Cell)], measures: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let axes = pairs[0].0.params.iter().map(|(name, _)| name.clone());
    let columns = measures.iter().flat_map(|measure| [format!("{measure} A"), "B".into(), String::new()]);
    table.set_header(axes.chain(["contender".to_owned()]).chain(columns));
    for (a, b) in pairs {
        let params = a.params.iter().map(|(_, value)| value.clone());
        let figures = measures.iter().flat_map(|measure| {
            let [left, right] =
                [a, b].map(|cell| cell.stat(measure).map_or(String::new(), |stat| table::figure(measure, &stat)));
            let (x, y) = (a.mean(measure).unwrap_or(f64::NAN), b.mean(measure).unwrap_or(f64::NAN));
            let mark = match table::better(measure, x, y).filter(|_| differs(a, b, measure)) {
                Some(true) => "better",
                Some(false) => "worse",
                None => "",
            };
            [left, right, mark.to_owned()]
        });
        table.add_row(params.chain([a.contender.clone()]).chain(figures).collect::<Vec<_>>());
    }
    table
}

fn object(a: &Cell, b: &Cell, measures: &[String]) -> Value {
    let mut object = Map::new();
    let params = a.params.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
    object.insert("params".into(), Value::Object(params.collect()));
    object.insert("scheduler".into(), a.contender.as_str().into());
    for measure in measures {
        let values = [
            ("a", number(a.mean(measure))),
            ("b", number(b.mean(measure))),
            ("differs", differs(a, b, measure).into()),
        ];
        object.insert(
            measure.clone(),
            Value::Object(values.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()),
        );
    }
    Value::Object(object)
}
