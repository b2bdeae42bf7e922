//! Every block and every run of an experiment as Parquet, for whoever wants to ask more than the report answers.
//!
//! `blocks.parquet` has a row a block, `runs.parquet` a row a run with all its measures. Both begin with a text column for each
//! axis of the experiment, then `contender` and `seed`, and name units in their columns: times are whole nanoseconds. Files hold
//! no date, no path and no host: two runs of the same experiment are equal to the byte.

mod table;

use std::{
    collections::HashSet,
    io::{self, Write},
};

use self::table::{Column, Kind, Table, Value};
use crate::{
    measure::{BoundFigures, MEASURES},
    record::{BlockRow, Ending, PathRow, RunRecord, SentBytes},
};

/// Of which run rows are.
#[derive(Debug, Clone, Copy)]
pub struct RunLabel<'a> {
    /// The axes and the run's place on each, as in [`Cell::params`](crate::results::Cell::params).
    pub params: &'a [(String, String)],
    /// Who.
    pub contender: &'a str,
    /// The run's seed.
    pub seed: u64,
}

impl<'a> RunLabel<'a> {
    fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let params = self.params.iter().map(|(_, place)| Value::Text(place));
        params.chain([Value::Text(self.contender), self.seed.into()])
    }
}

type OfBlock = fn(&BlockRow) -> Value<'static>;

/// Columns of a block after its source, and whether they may be null.
#[rustfmt::skip] // a table
const OF_BLOCK: &[(&str, Kind, bool, OfBlock)] = &[
    ("priority",         Kind::Integer, false, |block| block.priority.into()),
    ("size",             Kind::Integer, false, |block| block.size.into()),
    ("deadline_ns",      Kind::Integer, true,  |block| block.deadline.into()),
    ("handed_over_ns",   Kind::Times,   false, |block| block.handed_over.into()),
    ("first_sent_ns",    Kind::Times,   true,  |block| block.first_sent.into()),
    ("last_sent_ns",     Kind::Times,   true,  |block| block.last_sent.into()),
    ("first_arrived_ns", Kind::Times,   true,  |block| block.first_arrived.into()),
    ("complete_ns",      Kind::Times,   true,  |block| block.complete.into()),
    ("delivered_ns",     Kind::Times,   true,  |block| block.delivered.into()),
    ("usable_ns",        Kind::Times,   true,  |block| block.usable.into()),
    ("latency_ns",       Kind::Times,   true,  |block| Value::from(block.latency().map(|latency| latency.as_nanos()))),
    ("on_time",          Kind::Boolean, false, |block| Value::Boolean(block.on_time())),
    ("ending",           Kind::Text,    false, |block| Value::Text(ending(block.ending))),
    ("good_bytes",       Kind::Integer, false, |block| block.good_bytes.into()),
    ("arrived_bytes",    Kind::Integer, false, |block| block.arrived_bytes.into()),
    ("source_bytes",     Kind::Integer, false, |block| block.source_bytes.into()),
    ("resent_bytes",     Kind::Integer, false, |block| block.resent_bytes.into()),
    ("copied_bytes",     Kind::Integer, false, |block| block.copied_bytes.into()),
    ("repair_bytes",     Kind::Integer, false, |block| block.repair_bytes.into()),
];

const fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Unfinished => "unfinished",
        Ending::Delivered => "delivered",
        Ending::Expired => "expired",
        Ending::DependencyDropped => "dependency-dropped",
        Ending::Dropped => "dropped",
        Ending::NotTaken => "not-taken",
    }
}

/// Writes `blocks.parquet`.
#[derive(Debug)]
pub struct BlocksFile<W: Write + Send> {
    table: Table<W>,
}

impl<W: Write + Send> BlocksFile<W> {
    /// A file with a column for each of the axes. An axis that has the name of another column becomes `axis_…`.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(writer: W, axes: &[String]) -> io::Result<Self> {
        let mut columns = vec![Column::new("source", Kind::Text, false)];
        columns.extend(OF_BLOCK.iter().map(|&(name, kind, nullable, _)| Column::new(name, kind, nullable)));
        Ok(Self { table: Table::new(writer, "blocks", labelled(axes, columns))? })
    }

    /// Adds the blocks of a run. The caller keeps to an order, or files of the same experiment will differ.
    ///
    /// # Errors
    ///
    /// Those of the writer; and [`InvalidInput`](io::ErrorKind::InvalidInput) if the label does not have the file's axes.
    pub fn push(&mut self, label: &RunLabel<'_>, record: &RunRecord) -> io::Result<()> {
        for block in &record.blocks {
            let source = record.sources.get(usize::from(block.source)).map_or("", String::as_str);
            let values = OF_BLOCK.iter().map(|(.., value)| value(block));
            self.table.push(label.values().chain([Value::Text(source)]).chain(values))?;
        }
        Ok(())
    }

    /// Writes what is left, and the footer. Without it the file cannot be read.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(self) -> io::Result<W> {
        self.table.finish()
    }
}

/// Writes `runs.parquet`.
#[derive(Debug)]
pub struct RunsFile<W: Write + Send> {
    table: Table<W>,
}

impl<W: Write + Send> RunsFile<W> {
    /// A file with a column for each of the axes. An axis that has the name of another column becomes `axis_…`.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(writer: W, axes: &[String]) -> io::Result<Self> {
        let mut columns: Vec<_> = MEASURES.iter().map(|measure| Column::new(measure.key, Kind::Double, true)).collect();
        columns.extend([
            Column::new("failure", Kind::Text, false),
            Column::new("ended", Kind::Text, false),
            Column::new("blocks", Kind::Integer, false),
            Column::new("duration_ns", Kind::Integer, false),
            Column::new("events", Kind::Integer, false),
            Column::new("source_bytes", Kind::Integer, false),
            Column::new("resent_bytes", Kind::Integer, false),
            Column::new("copied_bytes", Kind::Integer, false),
            Column::new("repair_bytes", Kind::Integer, false),
            Column::new("wasted_bytes", Kind::Integer, false),
            Column::new("restored_bytes", Kind::Integer, false),
            Column::new("resend_regained_bytes", Kind::Integer, false),
            Column::new("copy_regained_bytes", Kind::Integer, false),
            Column::new("never_regained_bytes", Kind::Integer, false),
            Column::new("paths", Kind::Text, false),
            Column::new("bound_on_time", Kind::Integer, false),
            Column::new("bound_up_to_priority", Kind::Text, false),
            Column::new("bound_weighted", Kind::Double, false),
            Column::new("bound_bytes_on_time", Kind::Integer, false),
        ]);
        Ok(Self { table: Table::new(writer, "runs", labelled(axes, columns))? })
    }

    /// Adds a run; `values` are those of [`MEASURES`], in their order. The caller keeps to an order of runs.
    ///
    /// `blocks` is how many the run had, which `record` need not hold any more. What has no value is null, what is infinite stays
    /// so; a run that did not fail has an empty `failure`, and one whose session lived to its end an empty `ended`. The bound by
    /// priority is JSON, such as `{"0":12,"1":30}`, and so are the paths: a list of what is sent on each, such as
    /// `[{"source":9000,"resent":0,"copied":0,"repair":1000}]`.
    ///
    /// # Errors
    ///
    /// Those of the writer; and [`InvalidInput`](io::ErrorKind::InvalidInput) if the label does not have the file's axes, or
    /// there are not as many values as measures.
    pub fn push(
        &mut self,
        label: &RunLabel<'_>,
        values: &[Option<f64>],
        blocks: u64,
        record: &RunRecord,
        bound: &BoundFigures,
    ) -> io::Result<()> {
        let by_priority = bound.up_to_priority.iter().map(|(priority, blocks)| format!("\"{priority}\":{blocks}"));
        let by_priority = format!("{{{}}}", by_priority.collect::<Vec<_>>().join(","));
        let path = |path: &PathRow| {
            let SentBytes { source, resent, copied, repair } = path.sent;
            format!("{{\"source\":{source},\"resent\":{resent},\"copied\":{copied},\"repair\":{repair}}}")
        };
        let paths = format!("[{}]", record.paths.iter().map(path).collect::<Vec<_>>().join(","));
        let ended = record.ended.as_ref().map_or_else(String::new, ToString::to_string);
        let (sent, lost) = (record.sent(), record.lost);
        let figures = [
            Value::Text(record.failure.as_deref().unwrap_or_default()),
            Value::Text(&ended),
            blocks.into(),
            record.duration.into(),
            record.events.into(),
            sent.source.into(),
            sent.resent.into(),
            sent.copied.into(),
            sent.repair.into(),
            record.wasted_bytes.into(),
            lost.restored.into(),
            lost.resend_regained.into(),
            lost.copy_regained.into(),
            lost.never_regained.into(),
            Value::Text(&paths),
            bound.on_time.into(),
            Value::Text(&by_priority),
            Value::Double(Some(bound.weighted)),
            bound.bytes_on_time.into(),
        ];
        self.table.push(label.values().chain(values.iter().copied().map(Value::Double)).chain(figures))
    }

    /// Writes what is left, and the footer. Without it the file cannot be read.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(self) -> io::Result<W> {
        self.table.finish()
    }
}

/// The columns that say which run, before these.
fn labelled(axes: &[String], columns: Vec<Column>) -> Vec<Column> {
    let run = [Column::new("contender", Kind::Text, false), Column::new("seed", Kind::Integer, false)];
    let rest: Vec<_> = run.into_iter().chain(columns).collect();
    let mut taken: HashSet<String> = rest.iter().map(|column| column.name().to_owned()).collect();
    let mut labelled = Vec::new();
    for axis in axes {
        let mut name = axis.clone();
        while !taken.insert(name.clone()) {
            name.insert_str(0, "axis_");
        }
        labelled.push(Column::new(&name, Kind::Text, false));
    }
    labelled.extend(rest);
    labelled
}

#[cfg(test)]
mod tests;
