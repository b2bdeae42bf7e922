//! Who competes: a transport and its settings, by a short name.

use punctual_proto::Redundancy;
use serde::Deserialize;
use toml::{Table, Value};

use super::{ExperimentError, SessionSpec};
use crate::{
    carry::{informed, oracle},
    quic::{Multiplexer, PathChoice, StreamScheduler},
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
    /// The only one of the experiment's paths it is given, counted from 0; all if none.
    pub path: Option<usize>,
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
        /// Which stream goes next; as the multiplexer has it if none.
        stream_scheduler: Option<StreamScheduler>,
        /// Whether it takes all paths it is given, or the first of them only.
        multipath: bool,
        /// The congestion controller; noq's default, CUBIC, if none.
        congestion: Option<String>,
        /// Which path a packet takes; as noq has it if none.
        choice: Option<PathChoice>,
    },
}

impl Transport {
    /// Our session, as the experiment has it.
    const SESSION: Self = Self::Punctual {
        scheduler: None,
        path_scheduler: None,
        congestion: None,
        redundancy: None,
        redundancy_policy: None,
    };
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
                let like = table.like.as_deref().map(|name| by_name(name, registry)).transpose()?;
                let (transport, path) = like.map_or((Transport::SESSION, None), |like| (like.transport, like.path));
                Ok(Contender { name: table.name.clone(), transport, path, set: table.set.clone() })
            }
        }
    }
}

/// The contender of that name: a block scheduler, ours or a registered one, or `sctp` (`fcfs-drop`), `quic`, `mpquic`, both also with a
/// multiplexer: `quic-one`, `quic-per-source`, `quic-parallel:4`, and behind that with a stream scheduler: `quic-per-source-in-order`. A congestion controller may follow behind a slash, and
/// behind another a path scheduler, or for `mpquic` its choice of path: `ads/cubic/lowest-rtt`, `mpquic//round-robin`. A plus joins a mode or a
/// policy of redundancy to ours: `ads+fec`, `ads/cubic+duplicate`, `ads+both+dmtp:cap=1`. At the end, `@1` gives it the
/// experiment's second path and no other.
///
/// # Errors
/// If a part of it is unknown.
pub fn by_name(name: &str, registry: &Registry) -> Result<Contender, ExperimentError> {
    let wrong = |error: String| ExperimentError::Contender { name: name.to_owned(), error };
    let (rest, path) = match name.split_once('@') {
        Some((rest, path)) => (rest, Some(path_number(path).ok_or_else(|| wrong(NOT_A_PATH.into()))?)),
        None => (name, None),
    };
    let mut joined = parts_joined(rest).into_iter();
    let mut parts = joined.next().unwrap_or_default().split('/');
    let what = parts.next().unwrap_or_default();
    let congestion = parts.next().filter(|part| !part.is_empty());
    let choice = parts.next();
    if parts.next().is_some() {
        return Err(wrong("at most two slashes: SCHEDULER/CONTROLLER/PATH-SCHEDULER".into()));
    }
    if let Some(controller) = congestion {
        registry.find_controller(controller).map_err(|error| wrong(error.to_string()))?;
    }
    let redundancy = Joined::read(joined, registry).map_err(wrong)?;
    let transport = match quic(what) {
        Some((multipath, streams)) => {
            plain(streams.map_err(wrong)?, multipath, congestion, choice, &redundancy).map_err(wrong)?
        }
        None => {
            let scheduler = if what == "sctp" { "fcfs-drop" } else { what };
            registry.find_scheduler(scheduler).map_err(wrong)?;
            choice.map(|name| registry.find_path_scheduler(name)).transpose().map_err(wrong)?;
            Transport::Punctual {
                scheduler: Some(scheduler.to_owned()),
                path_scheduler: choice.map(str::to_owned),
                congestion: congestion.map(str::to_owned),
                redundancy: redundancy.mode,
                redundancy_policy: redundancy.policy,
            }
        }
    };
    Ok(Contender { name: name.to_owned(), transport, path, set: Table::new() })
}

fn path_number(text: &str) -> Option<usize> {
    // Rust's numbers may have a plus in front.
    text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))
}

const NOT_A_PATH: &str = "behind `@`, at the very end, stands the number of a path, counted from 0";

/// Plain QUIC, if it can be what its name asks for.
fn plain(
    (multiplexer, stream_scheduler): Streams,
    multipath: bool,
    congestion: Option<&str>,
    choice: Option<&str>,
    redundancy: &Joined,
) -> Result<Transport, String> {
    if redundancy.mode.is_some() || redundancy.policy.is_some() {
        return Err("plain QUIC has no redundancy of ours".into());
    }
    if let Some(controller) = congestion.filter(|name| NEED_OUR_SESSION.contains(name)) {
        return Err(format!("`{controller}` needs our session, and plain QUIC has none"));
    }
    let choice: Option<PathChoice> = choice.map(|name| name.parse().map_err(|error| format!("{error}"))).transpose()?;
    if choice.is_some() && !multipath {
        return Err("plain QUIC has one path, and no choice; `mpquic` has all, and `@K` chooses the one".into());
    }
    Ok(Transport::Quic { multiplexer, stream_scheduler, multipath, congestion: congestion.map(str::to_owned), choice })
}

/// The controllers that plain QUIC cannot have: one goes by what our receivers tell, the others are told of the links by our session.
const NEED_OUR_SESSION: [&str; 3] = ["steady", oracle::NAME, informed::NAME];

/// What a name joins to our session with pluses.
#[derive(Default)]
struct Joined {
    mode: Option<Mode>,
    policy: Option<String>,
}

impl Joined {
    fn read<'a>(parts: impl Iterator<Item = &'a str>, registry: &Registry) -> Result<Self, String> {
        let mut joined = Self::default();
        for part in parts {
            let first = match part.parse() {
                Ok(mode) => joined.mode.replace(Mode(mode)).is_none(),
                Err(_) => {
                    let modes = || Redundancy::ALL.map(Redundancy::name).join(", ");
                    let neither = |error| format!("{error}; or a mode of redundancy: {}", modes());
                    registry.find_redundancy_policy(part).map_err(neither)?;
                    joined.policy.replace(part.to_owned()).is_none()
                }
            };
            if !first {
                return Err("one mode and one policy of redundancy, not two".into());
            }
        }
        Ok(joined)
    }
}

/// Contenders' names with commas between them, which parameters of a scheduler have, too: `ads:alpha=0.3,beta=255,edf`.
pub fn listed(list: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in list.split(',').map(str::trim) {
        match names.last_mut().filter(|last| part.contains('=') && !part.contains(':') && last.contains(':')) {
            Some(last) => *last = format!("{last},{part}"),
            None => names.push(part.to_owned()),
        }
    }
    names
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

/// How messages become streams, and which stream goes next.
type Streams = (Multiplexer, Option<StreamScheduler>);

/// Whether plain QUIC is meant, with how many paths, and which streams.
fn quic(name: &str) -> Option<(bool, Result<Streams, String>)> {
    let (multipath, rest) = match name.strip_prefix("mpquic") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("quic")?),
    };
    match rest.strip_prefix('-') {
        None if rest.is_empty() => Some((multipath, Ok((Multiplexer::PerBlock, None)))),
        None => None,
        Some(streams) => Some((multipath, streams_by_name(streams))),
    }
}

/// A multiplexer's name, perhaps with that of a stream scheduler behind it.
fn streams_by_name(name: &str) -> Result<Streams, String> {
    let error = match name.parse() {
        Ok(multiplexer) => return Ok((multiplexer, None)),
        Err(error) => error.to_string(),
    };
    // Names of both kinds have dashes in them.
    let (multiplexer, scheduler) =
        name.match_indices('-').find_map(|(at, _)| Some((name[..at].parse().ok()?, &name[at + 1..]))).ok_or(error)?;
    match (multiplexer, scheduler.parse().map_err(|error| format!("{error}"))?) {
        (Multiplexer::One, _) => Err("of one stream none goes before another".into()),
        (Multiplexer::ByPriority, _) => Err("`by-priority` says it all; `per-block` takes a stream scheduler".into()),
        (Multiplexer::Parallel(_), StreamScheduler::ByPriority) => {
            Err("each of `parallel`'s streams has messages of any priority".into())
        }
        (multiplexer, scheduler) => Ok((multiplexer, Some(scheduler))),
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

    /// Refuses what cannot be otherwise for one contender alone.
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        match self.set.keys().find(|key| super::is_of_all(key)) {
            Some(key) => {
                let error = format!("it sets `{key}`, which is the whole experiment's");
                Err(ExperimentError::Contender { name: self.name.clone(), error })
            }
            None => Ok(()),
        }
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
        let quic = |multiplexer, multipath, congestion: Option<&str>, choice| Transport::Quic {
            multiplexer,
            stream_scheduler: None,
            multipath,
            congestion: congestion.map(str::to_owned),
            choice,
        };
        assert_eq!(transport("quic"), quic(Multiplexer::PerBlock, false, None, None));
        assert_eq!(transport("mpquic-parallel:4/bbr3"), quic(Multiplexer::Parallel(4), true, Some("bbr3"), None));
        assert_eq!(transport("quic-one"), quic(Multiplexer::One, false, None, None));
        let fastest = quic(Multiplexer::ByPriority, true, Some("cubic"), Some(PathChoice::LowestRtt));
        assert_eq!(transport("mpquic-by-priority/cubic/lowest-rtt"), fastest);
        let turns = quic(Multiplexer::PerBlock, true, None, Some(PathChoice::RoundRobin));
        assert_eq!(transport("mpquic//round-robin"), turns);
        for (name, expected) in [
            ("mpquic-per-source-by-priority", (Multiplexer::PerSource, StreamScheduler::ByPriority)),
            ("mpquic-per-block-in-turn/bbr3/lowest-rtt", (Multiplexer::PerBlock, StreamScheduler::InTurn)),
            ("quic-parallel:4-in-order", (Multiplexer::Parallel(4), StreamScheduler::InOrder)),
        ] {
            let Transport::Quic { multiplexer, stream_scheduler, .. } = transport(name) else { panic!("{name}") };
            assert_eq!((multiplexer, stream_scheduler), (expected.0, Some(expected.1)), "{name}");
        }
    }

    #[test]
    fn an_at_gives_one_path() {
        let contender = |name: &str| by_name(name, &Registry::new()).unwrap();
        for name in
            ["ads", "ads:alpha=0.2/cubic/single+both+dmtp:cap=1", "quic-by-priority/bbr3", "mpquic//round-robin"]
        {
            let [all, one] = [contender(name), contender(&format!("{name}@2"))];
            assert_eq!((all.path, one.path), (None, Some(2)), "{name}");
            assert_eq!(all.transport, one.transport, "{name}");
            assert_eq!(one.name, format!("{name}@2"));
        }
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
            ("quic-per-source-fair", "in-turn"),
            ("mpquic-one-in-order", "one stream"),
            ("mpquic-by-priority-in-turn", "per-block"),
            ("mpquic-parallel:4-by-priority", "any priority"),
            ("quic/cubic/lowest-rtt", "no choice"),
            ("mpquic/cubic/single", "lowest-rtt"),
            ("mpquic/cubic/", "round-robin"),
            ("quic/steady", "needs our session"),
            ("quic/oracle", "`oracle` needs our session"),
            ("mpquic/informed", "`informed` needs our session"),
            ("mpquic-by-priority/steady", "needs our session"),
            ("ads@", "number of a path"),
            ("ads@first", "number of a path"),
            ("ads@1@2", "number of a path"),
            ("ads@1+fec", "number of a path"),
            ("ads@-1", "number of a path"),
            ("ads@+1", "number of a path"),
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
