//! Experiments: what is run, what is varied, who competes, and what must come of it. All of it is TOML.
//!
//! ```toml
//! title = "Blocks on time over bandwidth"
//! source = "DTP (ICNP 2022), fig. 3"
//! duration = "60s"
//! contenders = ["admission", "ads", "sctp", "quic"]
//!
//! [[path]]
//! rate = "3 MB/s"
//! delay = "2.5ms"
//!
//! [[workload]]
//! size = "200 KB"
//! every = "100ms"
//! deadline = "200ms"
//!
//! [[axis]]
//! name = "bandwidth"
//! unit = "MB/s"
//! set = "path.0.rate"
//! template = "{} MB/s"
//! values = [1, 2, 3]
//!
//! [[must]]
//! say = "ads reaches 95 % of the bound"
//! of = "ads"
//! measure = "share_of_bound"
//! at-least = 0.95
//! ```
//!
//! Each combination of the axes' values with a contender is a *cell*; each cell is run once a seed.

use std::time::Duration;

use punctual_proto::{Limits, duration::spoken};
use serde::Deserialize;
use thiserror::Error;
use toml::Table;

use crate::{
    files::{FileError, Files},
    measure::MeasureConfig,
    network::{self, LinkTable, Network, PathSpec},
    reading::read,
    registry::{Registry, UnknownName},
    results::Figure,
    units::Time,
    workload::{self, Problem, Source, Traffic},
};

mod axis;
pub mod builtin;
mod condition;
pub mod contender;
mod document;
mod figure;
mod must;
mod settings;

pub use axis::{Axis, Point};
pub use condition::Condition;
pub use contender::{Contender, Transport};
pub use must::{Must, Over, check_measure};
pub use settings::{QuicSpec, SessionSpec};

/// Why an experiment cannot be run.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// Its text is no TOML, or not an experiment's.
    #[error("{0}")]
    Text(#[from] toml::de::Error),
    /// A key that cannot be set.
    #[error("cannot set `{key}`: {what}")]
    Key {
        /// The key.
        key: String,
        /// Why.
        what: String,
    },
    /// A contender nobody knows.
    #[error("contender `{name}`: {error}")]
    Contender {
        /// As it was called.
        name: String,
        /// What is wrong.
        error: String,
    },
    /// A kind of workload nobody knows.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// Something that makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A file that is not there.
    #[error(transparent)]
    File(#[from] FileError),
    /// A trace that does not read as it should.
    #[error("{name}: {error}")]
    Trace {
        /// The file.
        name: String,
        /// What is wrong.
        error: punctual_sim::trace::TraceError,
    },
    /// A workload that cannot be made.
    #[error(transparent)]
    Workload(#[from] crate::workload::WorkloadError),
}

impl ExperimentError {
    /// Whether a file is missing or cannot be read, rather than the experiment being wrong.
    pub fn is_about_a_file(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Workload(error) => matches!(error.problem, Problem::File(_)),
            _ => false,
        }
    }

    /// Of a part of it that is called so.
    pub(crate) fn within(self, kind: &str, name: &str) -> Self {
        match self {
            Self::Invalid(what) => Self::Invalid(format!("{kind} `{name}`: {what}")),
            other => other,
        }
    }

    /// Of a path's way back.
    pub(crate) fn of_the_way_back(self) -> Self {
        match self {
            Self::Invalid(what) => Self::Invalid(format!("`back`: {what}")),
            other => other,
        }
    }

    pub(crate) fn trace(name: &str, error: punctual_sim::trace::TraceError) -> Self {
        Self::Trace { name: name.to_owned(), error }
    }
}

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name: that of its file.
    pub name: String,
    /// What does not change from cell to cell.
    pub head: Head,
    /// Who competes.
    pub contenders: Vec<Contender>,
    document: Table,
    registry: Registry,
}

/// What an experiment says besides the runs themselves.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Head {
    /// A line.
    pub title: String,
    /// A paragraph.
    #[serde(default)]
    pub about: String,
    /// Paper and figure.
    #[serde(default)]
    pub source: String,
    /// Runs of each cell.
    #[serde(default = "ten")]
    pub seeds: u32,
    /// What is varied.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
    /// What it must show.
    #[serde(default, rename = "must")]
    pub musts: Vec<Must>,
    /// What to draw.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// Overrides that make it short: for a first look, and for tests.
    #[serde(default)]
    pub smoke: Table,
    contenders: Vec<contender::ContenderSpec>,
}

fn ten() -> u32 {
    10
}

/// Everything about a run but its contender's transport and its seed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setup {
    /// How long blocks are handed over.
    pub duration: Time,
    /// How long the run goes on afterwards; without it, the longest deadline and a second, an hour at most.
    pub drain: Option<Time>,
    /// Our session's settings.
    #[serde(default)]
    pub session: SessionSpec,
    /// Plain QUIC's.
    #[serde(default)]
    pub quic: QuicSpec,
    /// The network.
    #[serde(rename = "path")]
    pub paths: Vec<PathSpec>,
    /// Links that paths share.
    #[serde(rename = "link", default)]
    pub links: Vec<LinkTable>,
    /// The workload.
    #[serde(rename = "workload", default)]
    pub sources: Vec<Source>,
    /// What the receiver hands over to the sender, as a workload; in the same session, if that is one of ours.
    #[serde(rename = "reply", default)]
    pub replies: Vec<Source>,
    /// Flows beside the one under test.
    #[serde(rename = "rival", default)]
    pub rivals: Vec<Rival>,
    /// How some measures are taken.
    #[serde(default)]
    pub measure: MeasureConfig,
    /// Where names are looked up.
    #[serde(skip)]
    pub registry: Registry,
}

/// A `[[rival]]` table: flows beside the one under test, which send all they can, or what a workload of their own says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rival {
    /// What they are: a contender's name, such as `quic/cubic` or `ads`.
    pub like: String,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Over which path.
    #[serde(default)]
    pub path: usize,
    /// From when.
    #[serde(default)]
    pub start: Time,
    /// Whether it sends the other way, over the path's way back.
    #[serde(default)]
    pub backwards: bool,
    /// What each of them hands over, drawn for itself; times count from its start. Without any, all it can.
    #[serde(default, rename = "workload")]
    pub sources: Vec<Source>,
}

fn one() -> u32 {
    1
}

/// A set of parameters and a contender.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPlan {
    /// Its place on each axis.
    pub points: Vec<Point>,
    /// Who.
    pub contender: Contender,
    /// What is run.
    pub setup: Setup,
}

/// Keys of an experiment's text about it as a whole: neither an axis nor a contender can change them for a cell.
const OF_ALL: &[&str] = &["title", "about", "source", "seeds", "axis", "must", "figure", "smoke", "contenders"];

/// And those of what is run.
const OF_CELLS: &[&str] =
    &["duration", "drain", "session", "quic", "path", "link", "workload", "reply", "rival", "measure"];

/// Those of either that may be there several times.
const LISTS: &[&str] = &["axis", "must", "figure", "path", "link", "workload", "reply", "rival"];

/// Blocks are handed over no longer than this, and waited for no longer.
const LONGEST_RUN: Duration = Duration::from_secs(24 * 3_600);

/// Unless `drain` says so, blocks are waited for no longer than this, whatever their deadline.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// A `[[rival]]` is so many flows at most: each is a connection of its own.
const MOST_RIVALS: u32 = 1_000;

/// Whether a key, such as `path.0.loss`, is about the experiment as a whole.
fn is_of_all(key: &str) -> bool {
    key.split('.').next().is_some_and(|first| OF_ALL.contains(&first))
}

fn check_keys(document: &Table) -> Result<(), ExperimentError> {
    let known = || OF_ALL.iter().chain(OF_CELLS).copied();
    match document.keys().find(|key| known().all(|known| known != key.as_str())) {
        Some(key) => {
            let known = known().collect::<Vec<_>>().join(", ");
            Err(ExperimentError::Invalid(format!("`{key}` means nothing here; there are: {known}")))
        }
        None => Ok(()),
    }
}

/// A name that is none of these, in words.
fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!("no {kind} is called `{name}`; there are: {}", known.collect::<Vec<_>>().join(", "))
}

impl Experiment {
    /// Reads an experiment. `name` is its file's, without the ending.
    ///
    /// # Errors
    /// If it is no experiment; every cell is looked at.
    pub fn parse(name: &str, text: &str) -> Result<Self, ExperimentError> {
        Self::parse_with(name, text, &Registry::new())
    }

    /// The same, in which names may also be those of this registry.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with(name: &str, text: &str, registry: &Registry) -> Result<Self, ExperimentError> {
        let experiment = Self::from_document(name, toml::from_str(text)?, registry)?;
        experiment.check_thresholds()?;
        Ok(experiment)
    }

    fn from_document(name: &str, document: Table, registry: &Registry) -> Result<Self, ExperimentError> {
        check_keys(&document)?;
        let one = |key: &&&str| document.get(**key).is_some_and(toml::Value::is_table);
        if let Some(key) = LISTS.iter().find(one) {
            let what = format!("`[{key}]` is one table, and there may be several: write `[[{key}]]`");
            return Err(ExperimentError::Invalid(what));
        }
        let head: Head = read(document.clone()).map_err(ExperimentError::Invalid)?;
        axis::check(&head.axes)?;
        head.musts.iter().try_for_each(Must::check)?;
        for figure in head.figures.iter().filter(|figure| !figure.measure.is_empty()) {
            let wrong = |what| ExperimentError::Invalid(format!("figure `{}`: {what}", figure.title));
            must::check_measure(&figure.measure).map_err(wrong)?;
        }
        let contenders = head.contenders.iter().map(|spec| spec.build(registry)).collect::<Result<Vec<_>, _>>()?;
        if contenders.is_empty() {
            return Err(ExperimentError::Invalid("there are no contenders".into()));
        }
        let names = contenders.iter().map(|contender| &contender.name);
        if let Some((_, name)) =
            names.clone().enumerate().find(|&(index, name)| names.clone().take(index).any(|other| other == name))
        {
            return Err(ExperimentError::Invalid(format!("two contenders are called `{name}`")));
        }
        if head.seeds == 0 {
            return Err(ExperimentError::Invalid("`seeds` of 0: nothing would be run".into()));
        }
        let experiment = Self { name: name.to_owned(), head, contenders, document, registry: registry.clone() };
        experiment.cells()?;
        Ok(experiment)
    }

    /// Refuses thresholds and figures about what is not in the experiment: they would never be judged, or show nothing. Of one that was
    /// [changed](Self::with) it is no fault.
    fn check_thresholds(&self) -> Result<(), ExperimentError> {
        let contenders: Vec<&str> = self.contenders.iter().map(|contender| contender.name.as_str()).collect();
        let Head { axes, musts, figures, .. } = &self.head;
        let places = axis::combinations(axes)?;
        musts.iter().try_for_each(|must| must.check_names(&contenders, axes, &places))?;
        figures.iter().try_for_each(|figure| figure::check(figure, &contenders, axes))
    }

    /// The same, changed: `key` is an axis, whose values are then those of the comma-separated list `value`; or `contenders`, likewise; or `seeds`;
    /// or any key of the text, as in `path.0.loss`.
    ///
    /// # Errors
    /// If there is no such key, or what comes out is no experiment.
    pub fn with(&self, key: &str, value: &str) -> Result<Self, ExperimentError> {
        let mut document = self.document.clone();
        if let Some(index) = self.head.axes.iter().position(|axis| axis.name == key) {
            let mut axis = self.head.axes[index].clone();
            axis.restrict(value)?;
            document::set(&mut document, &format!("axis.{index}.values"), axis.values())?;
        } else if matches!(key, "contenders" | "contender" | "scheduler") {
            document.insert("contenders".into(), self.choose_contenders(value));
        } else {
            document::set(&mut document, key, document::value(value))?;
        }
        let changed = Self::from_document(&self.name, document, &self.registry)?;
        if key.split('.').next().is_some_and(|first| matches!(first, "must" | "figure")) {
            // What was given here is no slip of somebody else's.
            changed.check_thresholds()?;
        }
        Ok(changed)
    }

    /// The short version.
    ///
    /// # Errors
    /// If its `[smoke]` table does not fit.
    pub fn smoke(&self) -> Result<Self, ExperimentError> {
        let mut short = self.clone();
        for (key, value) in &self.head.smoke {
            short = short.with(key, &document::label(value))?;
        }
        Ok(short)
    }

    /// Contenders by name: as the experiment has them where it does.
    fn choose_contenders(&self, list: &str) -> toml::Value {
        let known = self.document.get("contenders").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        let name = |value: &toml::Value| match value {
            toml::Value::Table(table) => table.get("name").map(document::label).unwrap_or_default(),
            value => document::label(value),
        };
        let chosen = contender::listed(list).into_iter().map(|wanted| {
            known.iter().find(|value| name(value) == wanted).cloned().unwrap_or(toml::Value::String(wanted))
        });
        toml::Value::Array(chosen.collect())
    }

    /// What is run: every combination of the axes' values with every contender, contenders changing fastest.
    ///
    /// # Errors
    /// If a combination makes no sense.
    pub fn cells(&self) -> Result<Vec<CellPlan>, ExperimentError> {
        let mut cells = Vec::new();
        for points in axis::combinations(&self.head.axes)? {
            for contender in &self.contenders {
                contender.check()?;
                let mut document = self.document.clone();
                points.iter().try_for_each(|point| point.apply(&mut document))?;
                contender.apply(&mut document)?;
                let setup = Setup::from_document(document, &self.registry)?;
                setup.check_names(contender)?;
                setup.check_path(contender)?;
                cells.push(CellPlan { points: points.clone(), contender: contender.clone(), setup });
            }
        }
        Ok(cells)
    }

    /// Its text, with all changes.
    pub fn text(&self) -> String {
        toml::to_string(&self.document).unwrap_or_default()
    }
}

impl Setup {
    fn from_document(mut document: Table, registry: &Registry) -> Result<Self, ExperimentError> {
        workload::set_apart(&mut document, registry)?;
        // What an axis or a contender sets may be a key that nobody reads.
        check_keys(&document)?;
        let mut setup: Self = read(document).map_err(ExperimentError::Invalid)?;
        setup.sources.iter_mut().chain(&mut setup.replies).try_for_each(|source| source.look_up(registry))?;
        setup.registry = registry.clone();
        setup.check()?;
        Ok(setup)
    }

    /// Refuses what makes no sense, whoever competes.
    fn check(&self) -> Result<(), ExperimentError> {
        for sources in [&self.sources, &self.replies].into_iter().chain(self.rivals.iter().map(|rival| &rival.sources))
        {
            let bulk = sources.iter().filter(|source| matches!(source.traffic, Traffic::Bulk(_)));
            if bulk.map(|source| u32::from(source.copies)).sum::<u32>() > 1 {
                let what = "more than one bulk source: a run can have one, its reply and each rival one of its own, and there are [[rival]]s";
                return Err(ExperimentError::Invalid(what.into()));
            }
        }
        if self.duration.0.is_zero() || self.sources.is_empty() && self.rivals.is_empty() {
            let what = "there is nothing to send: a `duration` of more than nothing and a [[workload]] are wanted";
            return Err(ExperimentError::Invalid(what.into()));
        }
        for (key, time) in [("duration", self.duration), ("drain", self.drain.unwrap_or_default())] {
            if time.0 > LONGEST_RUN {
                let [time, most] = [time.0, LONGEST_RUN].map(spoken);
                return Err(ExperimentError::Invalid(format!("`{key}` of {time}: {most} at most")));
            }
        }
        // As many as a session has without being told otherwise, ours and plain QUIC's.
        let (count, most) = (self.paths.len(), Limits::default().paths as usize);
        if count == 0 || count > most {
            return Err(ExperimentError::Invalid(format!("there are {count} [[path]]s: it takes 1 to {most}")));
        }
        for rival in &self.rivals {
            if rival.count == 0 || rival.count > MOST_RIVALS {
                let what = format!("rival `{}`: a `count` of {}; 1 to {MOST_RIVALS}", rival.like, rival.count);
                return Err(ExperimentError::Invalid(what));
            }
        }
        self.measure.check().map_err(ExperimentError::Invalid)?;
        network::check_names(&self.paths, &self.links)?;
        self.session.check().and_then(|()| self.quic.check()).map_err(ExperimentError::Invalid)
    }

    /// Refuses a contender, or a rival, whose path is not there.
    fn check_path(&self, contender: &Contender) -> Result<(), ExperimentError> {
        if contender.path.is_some_and(|path| path >= self.paths.len()) {
            let error = format!("there are {} paths, counted from 0", self.paths.len());
            return Err(ExperimentError::Contender { name: contender.name.clone(), error });
        }
        for rival in &self.rivals {
            if contender::by_name(&rival.like, &self.registry)?.path.is_some() {
                let error = "a rival says its path by `path`".into();
                return Err(ExperimentError::Contender { name: rival.like.clone(), error });
            }
        }
        Ok(())
    }

    /// Refuses names that nobody knows, before anything is run.
    fn check_names(&self, contender: &Contender) -> Result<(), ExperimentError> {
        let session = contender.session(self.session.clone());
        let invalid = |error: String| ExperimentError::Invalid(format!("[session]: {error}"));
        self.registry.find_scheduler(&session.scheduler).map_err(invalid)?;
        self.registry.find_path_scheduler(&session.path_scheduler).map_err(invalid)?;
        self.registry.find_controller(&session.congestion).map_err(|error| invalid(error.to_string()))?;
        self.registry.find_redundancy_policy(&session.redundancy_policy).map_err(invalid)?;
        self.rivals.iter().try_for_each(|rival| contender::by_name(&rival.like, &self.registry).map(drop))
    }

    /// The network, ready for the simulator.
    ///
    /// # Errors
    /// If a recording is missing or a path makes no sense.
    pub fn network(&self, files: &Files) -> Result<Network, ExperimentError> {
        Network::build(&self.paths, &self.links, files)
    }

    /// How long a run is, the time after the last block included.
    pub fn end(&self, longest_deadline: Duration) -> Duration {
        let drain = || longest_deadline.saturating_add(Duration::from_secs(1)).min(LONGEST_WAIT);
        self.duration.0 + self.drain.map_or_else(drain, |drain| drain.0)
    }
}
