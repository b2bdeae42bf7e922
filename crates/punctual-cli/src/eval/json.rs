//! What machines read: one object a line.

use punctual_eval::{
    experiment::Experiment,
    measure::MEASURES,
    results::{Cell, Results},
};
use serde_json::{Map, Value, json};

use crate::{exit::Failure, out::line};

/// A number; `null` if it is none, or infinite.
pub(super) fn number(value: Option<f64>) -> Value {
    value.and_then(serde_json::Number::from_f64).map_or(Value::Null, Value::Number)
}

pub(super) fn list(experiments: &[Experiment]) -> Result<(), Failure> {
    experiments.iter().try_for_each(|experiment| {
        let head = &experiment.head;
        line(json!({ "name": experiment.name, "title": head.title, "source": head.source, "seeds": head.seeds }))
    })
}

pub(super) fn cells(results: &Results) -> Result<(), Failure> {
    results.cells.iter().try_for_each(|cell| line(object(&results.name, cell)))
}

pub(super) fn verdicts(results: &Results) -> Result<(), Failure> {
    results.verdicts.iter().try_for_each(|verdict| {
        line(json!({
            "experiment": results.name, "must": verdict.must, "holds": verdict.holds,
            "value": number(Some(verdict.value)), "threshold": number(Some(verdict.threshold)), "where": verdict.worst,
        }))
    })?;
    results.unjudged.iter().try_for_each(|must| {
        let none = Value::Null;
        line(json!({ "experiment": results.name, "must": must, "holds": none, "value": none, "threshold": none, "where": none }))
    })
}

fn object(experiment: &str, cell: &Cell) -> Value {
    let params = cell.params.iter().zip(&cell.numbers).map(|((name, label), value)| {
        (name.clone(), value.map_or_else(|| Value::String(label.clone()), |value| number(Some(value))))
    });
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("experiment", experiment.into());
    put("scheduler", cell.contender.as_str().into());
    put("params", Value::Object(params.collect()));
    put("seeds", cell.seeds.into());
    let ended = cell.ended.iter().map(|run| Value::from(format!("seed {}: {}", run.seed, run.ended)));
    put("ended", if cell.ended.is_empty() { Value::Null } else { ended.collect() });
    put("on_time", number(cell.mean("on_time")));
    put("on_time_95", number(cell.stats.get("on_time").map(|stat| stat.half_width)));
    put("on_time_by_priority", cell.priorities.iter().map(|of| number(Some(of.on_time.mean))).collect());
    put(
        "share_of_bound_by_priority",
        cell.priorities.iter().map(|of| number(Some(of.share_of_bound_up_to.mean))).collect(),
    );
    for measure in MEASURES.iter().filter(|measure| measure.key != "on_time") {
        put(measure.key, number(cell.mean(measure.key)));
    }
    let pooled = cell.pooled.iter().map(|(name, of)| (name.clone(), number(Some(of.mean))));
    put("pooled", Value::Object(pooled.collect()));
    put("path_shares", cell.path_shares.iter().map(|share| number(Some(*share))).collect());
    put("path_bytes", json!(cell.path_bytes));
    put("lost", json!(cell.lost));
    put("wasted_bytes", cell.wasted_bytes.into());
    Value::Object(object)
}
