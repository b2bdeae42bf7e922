//! Blocks as a CSV file lists them.
//!
//! With a header line, the file has some of the columns of [`COLUMNS`], in any order; `at_s` and `size` it has to have. Without one it
//! has two, the time in seconds and the size in bytes, as the traces of the ACM Multimedia 2021 grand challenge "Meet Deadline
//! Requirements" (AItrans) have.

use std::{collections::HashMap, time::Duration};

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{
    draft::{Draft, Drafts, Making, time},
    error::Problem,
    source::{Csv, MAX_BLOCK, Priority, Source},
};

/// What a header line may name: when, in seconds; bytes; the deadline counted from then, in seconds; the priority, 0 is the highest;
/// the numbers of earlier rows (the first after the header is 1) that it depends on, with spaces between; whether the application gets
/// it in order (`true` or `false`); which source of several it comes from.
pub const COLUMNS: [&str; 7] = ["at_s", "size", "deadline_s", "priority", "depends_on", "ordered", "source"];

/// A row, with what it does not say left open.
struct Row {
    line: u64,
    at: Duration,
    size: u32,
    deadline: Option<Duration>,
    priority: Option<u8>,
    ordered: Option<bool>,
    source: Option<String>,
    /// Numbers of rows, from 1.
    depends_on: Vec<usize>,
}

/// Where each of [`COLUMNS`] is.
type Places = [Option<usize>; COLUMNS.len()];

impl Csv {
    pub(super) fn draft(&self, making: &mut Making<'_>) -> Result<Drafts, Problem> {
        let once = self.once(self.rows(&making.files.read(&self.file)?)?, making.source)?;
        let period = if self.repeat { Some(self.period(&once.blocks)?) } else { None };
        let mut drafts = Drafts { parts: once.parts, blocks: Vec::new() };
        let mut begin = Duration::ZERO;
        while begin < making.length {
            let base = drafts.blocks.len() as u32;
            for block in once.blocks.iter().take_while(|block| begin + block.at < making.length) {
                let references = block.references.iter().map(|on| on + base).collect();
                drafts.push(Draft { at: begin + block.at, references, ..block.clone() })?;
            }
            match period {
                Some(period) => begin += period,
                None => break,
            }
        }
        Ok(drafts)
    }

    /// The file's blocks in order of time, with the source's word on what the file leaves open.
    fn once(&self, rows: Vec<Row>, source: &Source) -> Result<Drafts, Problem> {
        let Priority::Same(priority) = source.priority else {
            return Err(Problem::value("priority", "a file has a column for priorities; here it is one number"));
        };
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&row| rows[row].at);
        let mut place = vec![0; rows.len()];
        for (index, &row) in order.iter().enumerate() {
            place[row] = index;
        }
        let mut drafts = Drafts { parts: Vec::new(), blocks: Vec::with_capacity(rows.len()) };
        let mut parts = HashMap::new();
        // The sources come in the order in which the file has them.
        for row in &rows {
            parts.entry(row.source.clone()).or_insert_with(|| {
                drafts.parts.push(row.source.clone());
                drafts.parts.len() - 1
            });
        }
        for (index, row) in order.iter().map(|&row| &rows[row]).enumerate() {
            let reference = |&number: &usize| match number.checked_sub(1).and_then(|row| place.get(row)) {
                Some(&on) if on < index => Ok(on as u32),
                _ => {
                    let problem = format!("depends on row {number}, which is not a row before it in time");
                    Err(self.wrong(row.line, problem))
                }
            };
            drafts.push(Draft {
                at: row.at,
                size: row.size,
                deadline: row.deadline.or(source.deadline.map(|deadline| deadline.0)),
                priority: row.priority.unwrap_or(priority),
                ordered: row.ordered.unwrap_or(source.ordered),
                part: parts[&row.source],
                references: row.depends_on.iter().map(reference).collect::<Result<_, _>>()?,
            })?;
        }
        Ok(drafts)
    }

    /// From one beginning of the file to the next: up to its last row, and as long as from row to row on average.
    fn period(&self, blocks: &[Draft]) -> Result<Duration, Problem> {
        let instants = blocks.chunk_by(|a, b| a.at == b.at).count();
        match (blocks, instants) {
            ([first, .., last], 2..) => Ok(last.at + (last.at - first.at) / (instants - 1) as u32),
            _ => Err(self.content("to be repeated it takes rows of two different times at least")),
        }
    }

    fn rows(&self, content: &[u8]) -> Result<Vec<Row>, Problem> {
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .comment(Some(b'#'))
            .from_reader(content);
        let mut records =
            reader.records().map(|record| record.map_err(|error| self.content(error.to_string()))).peekable();
        let headed =
            matches!(records.peek(), Some(Ok(first)) if first.get(0).is_some_and(|cell| cell.parse::<f64>().is_err()));
        let places = match headed {
            true => self.places(&records.next().unwrap_or_else(|| Ok(StringRecord::new()))?)?,
            false => [Some(0), Some(1), None, None, None, None, None],
        };
        let width = places.iter().flatten().count();
        let row = |record: StringRecord| {
            let line = record.position().map_or(0, |position| position.line());
            if record.len() != width {
                return Err(self.wrong(line, format!("{} columns instead of {width}", record.len())));
            }
            read(&record, line, &places).map_err(|problem| self.wrong(line, problem))
        };
        let rows: Vec<Row> = records.map(|record| row(record?)).collect::<Result<_, _>>()?;
        match rows.is_empty() {
            true => Err(self.content("there are no blocks in it")),
            false => Ok(rows),
        }
    }

    fn places(&self, header: &StringRecord) -> Result<Places, Problem> {
        let mut places = Places::default();
        for (index, cell) in header.iter().enumerate() {
            let column = COLUMNS.iter().position(|column| column.eq_ignore_ascii_case(cell)).ok_or_else(|| {
                self.wrong(1, format!("there is no column `{cell}`; a header names some of {}", COLUMNS.join(", ")))
            })?;
            if places[column].replace(index).is_some() {
                return Err(self.wrong(1, format!("the column `{cell}` is there twice")));
            }
        }
        match places {
            [Some(_), Some(_), ..] => Ok(places),
            _ => Err(self.wrong(1, "the columns `at_s` and `size` have to be there".into())),
        }
    }

    fn wrong(&self, line: u64, problem: String) -> Problem {
        Problem::Line { file: self.file.clone(), line, problem }
    }

    fn content(&self, problem: impl Into<String>) -> Problem {
        Problem::Content { file: self.file.clone(), problem: problem.into() }
    }
}

fn read(record: &StringRecord, line: u64, places: &Places) -> Result<Row, String> {
    let [at, size, deadline, priority, depends_on, ordered, source] =
        places.map(|place| place.and_then(|place| record.get(place)).filter(|cell| !cell.is_empty()));
    let seconds = |column: &str, cell: &str| match cell.parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(time(seconds, Duration::ZERO)),
        _ => Err(format!("`{column}` is `{cell}`, not a number of seconds")),
    };
    fn number<T: std::str::FromStr>(column: &str, what: &str, cell: &str) -> Result<T, String> {
        cell.parse().map_err(|_| format!("`{column}` is `{cell}`, not {what}"))
    }
    Ok(Row {
        line,
        at: seconds("at_s", at.unwrap_or_default())?,
        size: number("size", "a number of bytes", size.unwrap_or_default()).and_then(|size| match size {
            1..=MAX_BLOCK => Ok(size),
            _ => Err(format!("{size} bytes are no block; it has 1 byte to 16 MiB")),
        })?,
        deadline: deadline.map(|cell| seconds("deadline_s", cell)).transpose()?,
        priority: priority.map(|cell| number("priority", "from 0 to 255", cell)).transpose()?,
        ordered: ordered.map(|cell| number("ordered", "true or false", cell)).transpose()?,
        source: source.map(ToOwned::to_owned),
        depends_on: depends_on
            .unwrap_or_default()
            .split_whitespace()
            .map(|cell| number("depends_on", "the number of a row", cell))
            .collect::<Result<_, _>>()?,
    })
}
