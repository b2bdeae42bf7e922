//! Who competes: a transport and its settings, by a short name.

use serde::Deserialize;
use toml::{Table, Value};

use super::{ExperimentError, SessionSpec};
use crate::{
    quic::{Multiplexer, UnknownMultiplexer},
    registry::Registry,
};

/// One of an experiment's contenders.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// As results call it.
    pub name: String,
    /// What it is.
    pub transport: Transport,
    /// Keys of the experiment that it wants otherwise.
    pub set: Table,
}

/// How blocks are carried.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// Our session.
    Punctual {
        /// Which block goes next; the experiment's `session.scheduler` if none.
        scheduler: Option<String>,
        /// Which path it takes; likewise.
        path_scheduler: Option<String>,
        /// How fast each path is driven; likewise.
        congestion: Option<String>,
    },
    /// Plain QUIC streams, noq's own.
    Quic {
        /// How blocks become streams.
        multiplexer: Multiplexer,
        /// Whether it has all paths, or the first only.
        multipath: bool,
        /// The congestion controller; noq's default, CUBIC, if none.
        congestion: Option<String>,
    },
}

/// A contender as an experiment's text has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a contender's name, or a table with at least `name`")]
pub(super) enum ContenderSpec {
    Name(String),
    Table(ContenderTable),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ContenderTable {
    name: String,
    /// What it is, in the notation of names; without it, our session as `[session]` has it.
    like: Option<String>,
    #[serde(default)]
    set: Table,
}

impl ContenderSpec {
    pub(super) fn build(&self, registry: &Registry) -> Result<Contender, ExperimentError> {
        match self {
            Self::Name(name) => by_name(name, registry),
            Self::Table(table) => {
                let transport = match &table.like {
                    Some(name) => by_name(name, registry)?.transport,
                    None => Transport::Punctual { scheduler: None, path_scheduler: None, congestion: None },
                };
                Ok(Contender { name: table.name.clone(), transport, set: table.set.clone() })
            }
        }
    }
}

/// The contender of that name: a block scheduler, ours or a registered one, or `sctp` (`fcfs-drop`), `quic`, `mpquic`, both also with a
/// multiplexer: `quic-one`, `quic-per-source`, `quic-parallel:4`. A congestion controller may follow behind a slash, and
/// behind another a path scheduler: `ads/cubic/lowest-rtt`.
///
/// # Errors
/// If a part of it is unknown.
pub fn by_name(name: &str, registry: &Registry) -> Result<Contender, ExperimentError> {
    let mut parts = name.split('/');
    let what = parts.next().unwrap_or_default();
    let congestion = parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let path_scheduler = parts.next().map(str::to_owned);
    let unknown = |error: String| ExperimentError::Contender { name: name.to_owned(), error };
    if parts.next().is_some() {
        return Err(unknown("at most two slashes: SCHEDULER/CONTROLLER/PATH-SCHEDULER".into()));
    }
    if let Some(controller) = &congestion {
        registry.find_controller(controller).map_err(|error| unknown(error.to_string()))?;
    }
    if let Some(scheduler) = &path_scheduler {
        registry.find_path_scheduler(scheduler).map_err(unknown)?;
    }
    let transport = match quic(what) {
        Some((_, Err(error))) => return Err(unknown(error.to_string())),
        Some((multipath, Ok(multiplexer))) if path_scheduler.is_none() => {
            Transport::Quic { multiplexer, multipath, congestion }
        }
        Some(_) => return Err(unknown("plain QUIC has no path scheduler of ours".into())),
        None => {
            let scheduler = if what == "sctp" { "fcfs-drop" } else { what };
            registry.find_scheduler(scheduler).map_err(unknown)?;
            Transport::Punctual { scheduler: Some(scheduler.to_owned()), path_scheduler, congestion }
        }
    };
    Ok(Contender { name: name.to_owned(), transport, set: Table::new() })
}

/// Whether plain QUIC is meant, with how many paths, and which multiplexer.
fn quic(name: &str) -> Option<(bool, Result<Multiplexer, UnknownMultiplexer>)> {
    let (multipath, rest) = match name.strip_prefix("mpquic") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("quic")?),
    };
    match rest.strip_prefix('-') {
        None if rest.is_empty() => Some((multipath, Ok(Multiplexer::PerBlock))),
        None => None,
        Some(multiplexer) => Some((multipath, multiplexer.parse())),
    }
}

impl Contender {
    /// The session's settings with this contender's in their place.
    pub fn session(&self, mut session: SessionSpec) -> SessionSpec {
        if let Transport::Punctual { scheduler, path_scheduler, congestion } = &self.transport {
            session.scheduler = scheduler.clone().unwrap_or(session.scheduler);
            session.path_scheduler = path_scheduler.clone().unwrap_or(session.path_scheduler);
            session.congestion = congestion.clone().unwrap_or(session.congestion);
        }
        session
    }

    /// Puts what it wants otherwise into an experiment's text.
    pub(super) fn apply(&self, document: &mut Table) -> Result<(), ExperimentError> {
        self.set
            .iter()
            .try_for_each(|(key, value): (&String, &Value)| super::document::set(document, key, value.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn punctual(scheduler: &str, congestion: Option<&str>, path_scheduler: Option<&str>) -> Transport {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Transport::Punctual {
            scheduler: Some(scheduler.into()),
            path_scheduler: own(path_scheduler),
            congestion: own(congestion),
        }
    }

    #[test]
    fn names_say_it_all() {
        let transport = |name: &str| by_name(name, &Registry::new()).unwrap().transport;
        assert_eq!(transport("ads"), punctual("ads", None, None));
        assert_eq!(
            transport("ads:alpha=0.2/cubic/round-robin"),
            punctual("ads:alpha=0.2", Some("cubic"), Some("round-robin"))
        );
        assert_eq!(transport("sctp"), punctual("fcfs-drop", None, None));
        let quic = |multiplexer, multipath, congestion: Option<&str>| Transport::Quic {
            multiplexer,
            multipath,
            congestion: congestion.map(str::to_owned),
        };
        assert_eq!(transport("quic"), quic(Multiplexer::PerBlock, false, None));
        assert_eq!(transport("mpquic-parallel:4/steady"), quic(Multiplexer::Parallel(4), true, Some("steady")));
        assert_eq!(transport("quic-one"), quic(Multiplexer::One, false, None));
    }

    #[test]
    fn what_is_unknown_is_named() {
        for (name, word) in [
            ("best", "choose one of"),
            ("ads/reno", "choose one of: steady"),
            ("ads/cubic/x", "choose one of"),
            ("quic-many", "per-source"),
            ("quic/cubic/single", "no path scheduler"),
            ("ads/cubic/single/x", "two slashes"),
        ] {
            let error = by_name(name, &Registry::new()).unwrap_err().to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
    }
}
