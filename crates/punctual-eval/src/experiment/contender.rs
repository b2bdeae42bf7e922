//! Who competes: a transport and its settings, by a short name.

use punctual_proto::{Redundancy, UnknownRedundancy};
use serde::Deserialize;
use toml::{Table, Value};

use super::{ExperimentError, SessionSpec};
use crate::{
    quic::{Multiplexer, UnknownMultiplexer},
    registry::Registry,
    units::Mode,
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
        /// How blocks are protected against loss whose source does not say it; likewise.
        redundancy: Option<Mode>,
        /// How many repair fragments there are; likewise.
        redundancy_policy: Option<String>,
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
                    None => Transport::Punctual {
                        scheduler: None,
                        path_scheduler: None,
                        congestion: None,
                        redundancy: None,
                        redundancy_policy: None,
                    },
                };
                Ok(Contender { name: table.name.clone(), transport, set: table.set.clone() })
            }
        }
    }
}

/// The contender of that name: a block scheduler, ours or a registered one, or `sctp` (`fcfs-drop`), `quic`, `mpquic`, both also with a
/// multiplexer: `quic-one`, `quic-per-source`, `quic-parallel:4`. A congestion controller may follow behind a slash, and
/// behind another a path scheduler: `ads/cubic/lowest-rtt`. A plus joins a mode or a policy of redundancy to ours: `ads+fec`,
/// `ads/cubic+duplicate`, `ads+both+dmtp:cap=1`.
///
/// # Errors
/// If a part of it is unknown.
pub fn by_name(name: &str, registry: &Registry) -> Result<Contender, ExperimentError> {
    let mut joined = parts_joined(name).into_iter();
    let mut parts = joined.next().unwrap_or_default().split('/');
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
    let (mut redundancy, mut redundancy_policy) = (None, None);
    for part in joined {
        let first = match part.parse() {
            Ok(mode) => redundancy.replace(Mode(mode)).is_none(),
            Err(UnknownRedundancy(_)) => {
                let modes = || Redundancy::ALL.map(Redundancy::name).join(", ");
                let neither = |error| unknown(format!("{error}; or a mode of redundancy: {}", modes()));
                registry.find_redundancy_policy(part).map_err(neither)?;
                redundancy_policy.replace(part.to_owned()).is_none()
            }
        };
        if !first {
            return Err(unknown("one mode and one policy of redundancy, not two".into()));
        }
    }
    let transport = match quic(what) {
        Some((_, Err(error))) => return Err(unknown(error.to_string())),
        Some(_) if redundancy.is_some() || redundancy_policy.is_some() => {
            return Err(unknown("plain QUIC has no redundancy of ours".into()));
        }
        Some((multipath, Ok(multiplexer))) if path_scheduler.is_none() => {
            Transport::Quic { multiplexer, multipath, congestion }
        }
        Some(_) => return Err(unknown("plain QUIC has no path scheduler of ours".into())),
        None => {
            let scheduler = if what == "sctp" { "fcfs-drop" } else { what };
            registry.find_scheduler(scheduler).map_err(unknown)?;
            let scheduler = Some(scheduler.to_owned());
            Transport::Punctual { scheduler, path_scheduler, congestion, redundancy, redundancy_policy }
        }
    };
    Ok(Contender { name: name.to_owned(), transport, set: Table::new() })
}

/// What pluses join. One before a digit is part of a number: `ads:beta=1e+3`.
fn parts_joined(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in name.match_indices('+') {
        if !name[at + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            parts.push(&name[from..at]);
            from = at + 1;
        }
    }
    parts.push(&name[from..]);
    parts
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
        if let Transport::Punctual { scheduler, path_scheduler, congestion, redundancy, redundancy_policy } =
            &self.transport
        {
            session.scheduler = scheduler.clone().unwrap_or(session.scheduler);
            session.path_scheduler = path_scheduler.clone().unwrap_or(session.path_scheduler);
            session.congestion = congestion.clone().unwrap_or(session.congestion);
            session.redundancy = redundancy.unwrap_or(session.redundancy);
            session.redundancy_policy = redundancy_policy.clone().unwrap_or(session.redundancy_policy);
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
            redundancy: None,
            redundancy_policy: None,
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
    fn a_plus_joins_redundancy() {
        let session = |name: &str| by_name(name, &Registry::new()).unwrap().session(SessionSpec::default());
        let plain = session("ads");
        assert_eq!((plain.redundancy.0, plain.redundancy_policy.as_str()), (Redundancy::Auto, "risk"));
        let none = session("ads/cubic/single+none");
        assert_eq!((none.redundancy.0, none.path_scheduler.as_str()), (Redundancy::None, "single"));
        let both = session("ads:beta=1e+2+dmtp:cap=1+both");
        assert_eq!((both.redundancy.0, both.redundancy_policy.as_str()), (Redundancy::Both, "dmtp:cap=1"));
        assert_eq!(both.scheduler, "ads:beta=1e+2");
        let own = SessionSpec { redundancy: Mode(Redundancy::Fec), ..SessionSpec::default() };
        // What a name leaves open is the session's.
        assert_eq!(by_name("ads+dtp", &Registry::new()).unwrap().session(own).redundancy.0, Redundancy::Fec);
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
            ("ads+much", "choose one of: risk"),
            ("ads+much", "duplicate"),
            ("ads+dmtp:cap=x", "cap"),
            ("ads+", "choose one of"),
            ("ads+none+both", "not two"),
            ("quic+fec", "no redundancy"),
        ] {
            let error = by_name(name, &Registry::new()).unwrap_err().to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
    }
}
