//! The network of an experiment: `[[path]]` tables, each two links of the simulator, and `[[link]]` tables for links that several
//! paths share.
//!
//! ```toml
//! [[path]]
//! rate = "12 MB/s"                                  # or in steps: [["0s", "12 MB/s"], ["5s", "4 MB/s"]]
//! delay = "2.5ms"                                   # one way; or in steps
//! loss = "1 %"                                      # or { mean = "5 %", burst = 8 }, or in steps
//! policer = { rate = "20 Mbit/s", burst = "64 KB" } # drops what is more
//! queue = { bdp = 1.0 }                             # or "64 KB"; without it, one bandwidth-delay product
//! cross = [{ rate = "1 Mbit/s", packet = 1200 }]    # traffic of others
//! back = { loss = 0 }                               # where the way back differs; otherwise it is like the way there
//! ```
//!
//! `trace = "file"` takes the rate from a Mahimahi trace, `aitrans = "file"` rate, loss and delay from one of the AItrans
//! challenge. The way back of such a path has its delay, and neither a rate nor losses unless `back` says so.
//!
//! ```toml
//! [[link]]
//! name = "mast"          # both sectors' packets pass it behind their own links
//! rate = "20 Mbit/s"
//!
//! [[path]]
//! rate = "15 Mbit/s"
//! through = "mast"       # `back = { through = … }` for the way back
//! ```

mod steps;
mod values;

use std::time::Duration;

use punctual_proto::{
    duration::spoken,
    multipath::{PathBudget, PathRole},
};
use punctual_sim::{
    Corruption, CorruptionSite, Jitter, LinkSpec, Policer, Queue, Rate, Reordering, Schedule,
    trace::{Opportunities, aitrans_link},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned},
};
use toml::Table;

use crate::{
    experiment::ExperimentError,
    files::Files,
    reading::{part, read},
    units::{BitRate, Share, Size, Time},
};
use steps::Steps;
pub use values::CrossSpec;
use values::{JitterSpec, LossSpec, PolicerSpec, QueueFor, QueueSpec, ReorderingSpec};

/// A `[[path]]` table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathSpec {
    there: DirectionSpec,
    own: PathOwn,
}

/// What a `[[path]]` table says of the path as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct PathOwn {
    name: Option<String>,
    through: Option<String>,
    back: Option<BackSpec>,
    #[serde(default)]
    cost: f64,
    #[serde(default, deserialize_with = "role")]
    role: PathRole,
    #[serde(default, deserialize_with = "budget")]
    budget: Option<PathBudget>,
    #[serde(default)]
    dies: Vec<(Time, Time)>,
}

fn budget<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBudget>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathRole, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// The way back of a path, where it differs.
#[derive(Debug, Clone, Default, PartialEq)]
struct BackSpec {
    direction: DirectionSpec,
    own: BackOwn,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct BackOwn {
    through: Option<String>,
}

/// A `[[link]]` table: one direction, which paths go through behind their own links.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkTable {
    direction: DirectionSpec,
    own: LinkOwn,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct LinkOwn {
    name: String,
}

/// A direction's keys, and those of the table that are something else's. By hand, because serde cannot both flatten and refuse
/// unknown fields.
fn set_apart<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
    keys: &[&str],
) -> Result<(DirectionSpec, T), D::Error> {
    let mut direction = Table::deserialize(deserializer)?;
    let own: Table = keys.iter().filter_map(|key| direction.remove_entry(*key)).collect();
    let direction = read(direction).map_err(|error: String| {
        // Of the table's own keys it knows the direction's only.
        let unknown =
            error.split_once(": ").is_some_and(|(key, rest)| rest.starts_with(&format!("unknown field {key},")));
        let more = keys.iter().map(|key| format!(", `{key}`"));
        de::Error::custom(if unknown { [error].into_iter().chain(more).collect() } else { error })
    })?;
    Ok((direction, part(own)?))
}

impl<'de> Deserialize<'de> for PathSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (there, own) = set_apart(deserializer, &["name", "through", "back", "cost", "role", "budget", "dies"])?;
        Ok(Self { there, own })
    }
}

impl<'de> Deserialize<'de> for BackSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (direction, own) = set_apart(deserializer, &["through"])?;
        Ok(Self { direction, own })
    }
}

impl<'de> Deserialize<'de> for LinkTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (direction, own) = set_apart(deserializer, &["name"])?;
        Ok(Self { direction, own })
    }
}

/// One direction of a path.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DirectionSpec {
    rate: Option<Steps<BitRate>>,
    trace: Option<String>,
    aitrans: Option<String>,
    /// How far into its trace it begins.
    trace_from: Option<Time>,
    /// A factor on the rates of a trace.
    scale: Option<f64>,
    delay: Option<Steps<Time>>,
    jitter: Option<JitterSpec>,
    loss: Option<Steps<LossSpec>>,
    policer: Option<PolicerSpec>,
    queue: Option<QueueSpec>,
    corruption: Option<Share>,
    reordering: Option<ReorderingSpec>,
    duplication: Option<Share>,
    ecn_threshold: Option<Size>,
    mtu: Option<u32>,
    cross: Option<Vec<CrossSpec>>,
}

/// The least that a link has to carry in one packet (RFC 791), bytes.
const LEAST_MTU: u32 = 68;

/// A path ready for the simulator.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Path {
    /// As reports call it.
    pub name: String,
    /// The way there.
    pub forward: LinkSpec,
    /// The way back.
    pub back: LinkSpec,
    /// Traffic of others on the way there, and on the way back.
    pub cross: [Vec<CrossSpec>; 2],
    /// The shared link behind it on the way there, and on the way back: indices into [`Network::links`].
    pub through: [Option<usize>; 2],
    /// Cost of a byte.
    pub cost: f64,
    /// What it is for.
    pub role: PathRole,
    /// How much may be sent on it over time.
    pub budget: Option<PathBudget>,
    /// When it dies, and lives again.
    pub dies: Vec<(Duration, Duration)>,
}

/// A link that paths share, ready for the simulator.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLink {
    /// As the experiment calls it.
    pub name: String,
    /// What it is.
    pub spec: LinkSpec,
    /// Traffic of others on it.
    pub cross: Vec<CrossSpec>,
}

/// All that is between the two hosts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Network {
    /// The paths.
    pub paths: Vec<Path>,
    /// The links that some of them share.
    pub links: Vec<SharedLink>,
}

impl Network {
    /// What these tables describe.
    ///
    /// # Errors
    /// If a trace cannot be read, or a table makes no sense, or names a link that is not there.
    pub fn build(paths: &[PathSpec], links: &[LinkTable], files: &Files) -> Result<Self, ExperimentError> {
        check_names(paths, links)?;
        let link = |link: &LinkTable| link.build(files).map_err(|error| error.within("link", &link.own.name));
        let links: Vec<SharedLink> = links.iter().map(link).collect::<Result<_, _>>()?;
        let path = |(index, path): (usize, &PathSpec)| {
            path.build(index, &links, files).map_err(|error| error.within("path", &path.name(index)))
        };
        Ok(Self { paths: paths.iter().enumerate().map(path).collect::<Result<_, _>>()?, links })
    }
}

/// Whether the names of links, and those of paths, are all different, and paths go through such links only.
pub(crate) fn check_names(paths: &[PathSpec], links: &[LinkTable]) -> Result<(), ExperimentError> {
    let names: Vec<&str> = links.iter().map(|link| link.own.name.as_str()).collect();
    let called: Vec<String> = paths.iter().enumerate().map(|(index, path)| path.name(index)).collect();
    for (what, names) in [("links", names.clone()), ("paths", called.iter().map(String::as_str).collect())] {
        if let Some(twice) = (1..names.len()).find(|n| names[..*n].contains(&names[*n])) {
            return Err(ExperimentError::Invalid(format!("two {what} are called `{}`", names[twice])));
        }
    }
    let through = |path: &PathSpec| path.through().map(|name| name.map(str::to_owned));
    match paths.iter().flat_map(through).flatten().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(ExperimentError::Invalid(format!(
            "a path goes `through` a [[link]] called `{name}`; there are: {}",
            names.join(", ")
        ))),
        None => Ok(()),
    }
}

impl LinkTable {
    fn build(&self, files: &Files) -> Result<SharedLink, ExperimentError> {
        let spec = self.direction.link(LinkSpec::default(), files)?;
        let cross = self.direction.cross.clone().unwrap_or_default();
        Ok(SharedLink { name: self.own.name.clone(), spec, cross })
    }
}

impl PathSpec {
    /// Names of the shared links it goes through, there and back.
    fn through(&self) -> [Option<&str>; 2] {
        [self.own.through.as_deref(), self.own.back.as_ref().and_then(|back| back.own.through.as_deref())]
    }

    fn name(&self, index: usize) -> String {
        self.own.name.clone().unwrap_or_else(|| format!("path {index}"))
    }

    /// The path this describes. `index` counts paths, for those without a name.
    fn build(&self, index: usize, links: &[SharedLink], files: &Files) -> Result<Path, ExperimentError> {
        let forward = self.there.link(LinkSpec::default(), files)?;
        let traced = self.there.trace.is_some() || self.there.aitrans.is_some();
        let like = match traced {
            true => LinkSpec { rate: Rate::Unlimited, loss: Schedule::default(), ..forward.clone() },
            false => forward.clone(),
        };
        let back_spec = self.own.back.as_ref().map(|back| &back.direction);
        let back = match back_spec {
            Some(spec) => spec.link(like, files).map_err(ExperimentError::of_the_way_back)?,
            None => like,
        };
        let cross = |spec: Option<&DirectionSpec>| spec.and_then(|spec| spec.cross.clone()).unwrap_or_default();
        if !(self.own.cost.is_finite() && self.own.cost >= 0.0) {
            let cost = self.own.cost;
            return Err(ExperimentError::Invalid(format!(
                "a path's `cost` of {cost}: give a number that is not negative"
            )));
        }
        if let Some((from, to)) = self.own.dies.iter().find(|(from, to)| from.0 >= to.0) {
            let [from, to] = [from.0, to.0].map(spoken);
            return Err(ExperimentError::Invalid(format!("a path that dies at {from} lives again later than at {to}")));
        }
        let mut deaths: Vec<_> = self.own.dies.iter().map(|(from, to)| (from.0, to.0)).collect();
        deaths.sort_unstable();
        if let Some(two) = deaths.windows(2).find(|two| two[1].0 < two[0].1) {
            let [until, again] = [two[0].1, two[1].0].map(spoken);
            let what = format!("a path that is dead until {until} dies again at {again}");
            return Err(ExperimentError::Invalid(what));
        }
        Ok(Path {
            name: self.name(index),
            cross: [cross(Some(&self.there)), cross(back_spec)],
            through: self.through().map(|name| links.iter().position(|link| Some(link.name.as_str()) == name)),
            forward,
            back,
            cost: self.own.cost,
            role: self.own.role,
            budget: self.own.budget,
            dies: self.own.dies.iter().map(|(from, to)| (from.0, to.0)).collect(),
        })
    }
}

impl DirectionSpec {
    /// What `like` is, as far as this says nothing else.
    fn link(&self, like: LinkSpec, files: &Files) -> Result<LinkSpec, ExperimentError> {
        let mut link = like;
        if self.trace_from.is_some() && self.trace.is_none() && self.aitrans.is_none() {
            let what = "`trace-from` is for a path with a `trace` or `aitrans`";
            return Err(ExperimentError::Invalid(what.into()));
        }
        if self.trace.is_some() && (self.rate.is_some() || self.aitrans.is_some()) {
            return Err(ExperimentError::Invalid(
                "a `trace` says the rate: neither `rate` nor `aitrans` goes with it".into(),
            ));
        }
        let begin = self.trace_from.unwrap_or_default().0;
        if let Some(name) = &self.aitrans {
            let recorded = aitrans_link(&files.text(name)?).map_err(|error| ExperimentError::trace(name, error))?;
            let rate = match recorded.rate {
                Rate::Steps(rate) => Rate::Steps(rate.begun_at(begin)),
                other => other,
            };
            link =
                LinkSpec { rate, delay: recorded.delay.begun_at(begin), loss: recorded.loss.begun_at(begin), ..link };
        }
        if let Some(name) = &self.trace {
            let trace =
                Opportunities::parse(&files.text(name)?).map_err(|error| ExperimentError::trace(name, error))?;
            link.rate = Rate::Trace(trace.begun_at(begin));
        }
        if let Some(rate) = &self.rate {
            link.rate = Rate::Steps(rate.schedule("rate", |rate| rate.0.round() as u64)?);
        }
        if let Some(factor) = self.scale {
            link.rate = scaled(link.rate, factor)?;
        }
        if let Some(delay) = &self.delay {
            link.delay = delay.schedule("delay", |delay| delay.0)?;
        }
        if let Some(loss) = &self.loss {
            loss.values().try_for_each(LossSpec::check)?;
            link.loss = loss.schedule("loss", LossSpec::model)?;
        }
        if let Some(jitter) = self.jitter {
            link.jitter = match jitter {
                JitterSpec::Uniform(most) => Jitter::Uniform(most.0),
                JitterSpec::Exponential(mean) => Jitter::Exponential(mean.0),
                JitterSpec::Normal { mean, deviation } => Jitter::Normal { mean: mean.0, deviation: deviation.0 },
            };
        }
        if let Some(share) = self.corruption {
            link.corruption = Corruption { probability: share.0, site: CorruptionSite::Tag };
        }
        if let Some(spec) = self.reordering {
            link.reordering = Reordering { probability: spec.probability.0, delay: spec.delay.0 };
        }
        if let Some(policer) = self.policer {
            link.policer = Some(Policer { rate: policer.rate.0.round() as u64, burst: policer.burst.0 });
        }
        link.duplication = self.duplication.map_or(link.duplication, |share| share.0);
        link.ecn_threshold = self.ecn_threshold.map(|size| size.0).or(link.ecn_threshold);
        if let Some(mtu) = self.mtu {
            if mtu < LEAST_MTU {
                return Err(ExperimentError::Invalid(format!(
                    "an `mtu` of {mtu} bytes: IP asks for {LEAST_MTU} at least"
                )));
            }
            link.mtu = mtu;
        }
        self.cross.iter().flatten().try_for_each(CrossSpec::check).map_err(ExperimentError::Invalid)?;
        // Last, for a product needs the others.
        match self.queue {
            Some(QueueSpec::Bytes(size)) => link.queue = Queue::Bytes(size.0),
            Some(QueueSpec::For(QueueFor::Bdp(bdp))) if !(bdp.is_finite() && bdp > 0.0) => {
                return Err(ExperimentError::Invalid(format!("a `queue` of {bdp} bdp: give a positive number")));
            }
            Some(QueueSpec::For(QueueFor::Bdp(bdp))) => {
                link.queue = Queue::Bytes((bdp * product(&link)).max(1.0) as u64);
            }
            Some(QueueSpec::For(QueueFor::Time(time))) => {
                let rate = link.rate.nominal().unwrap_or_default() / 8.0;
                link.queue = Queue::Bytes((rate * time.0.as_secs_f64()).max(1.0) as u64);
            }
            None => {}
        }
        Ok(link)
    }
}

/// Bandwidth-delay product of a link and one like it back, bytes.
fn product(link: &LinkSpec) -> f64 {
    let delay = link.delay.values().max().copied().unwrap_or_default();
    link.rate.nominal().unwrap_or_default() / 8.0 * 2.0 * delay.as_secs_f64()
}

fn scaled(rate: Rate, factor: f64) -> Result<Rate, ExperimentError> {
    if !(factor.is_finite() && factor > 0.0) {
        return Err(ExperimentError::Invalid(format!("a path's `scale` of {factor}: give a positive number")));
    }
    match rate {
        Rate::Steps(schedule) => Ok(Rate::Steps(schedule.map(|rate| (*rate as f64 * factor).round() as u64))),
        Rate::Unlimited => Err(ExperimentError::Invalid("`scale` is a factor on a `rate` or an `aitrans`".into())),
        Rate::Trace(_) => Err(ExperimentError::Invalid("`scale` does not go with a Mahimahi trace".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Tables {
        #[serde(default)]
        link: Vec<LinkTable>,
        path: Vec<PathSpec>,
    }

    fn build(text: &str) -> Result<Network, String> {
        let Tables { link, path } = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        Network::build(&path, &link, &Files::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_go_through_shared_links() {
        let network = build(
            "[[link]]\nname = 'up'\nrate = '5 Mbit/s'\n[[link]]\nname = 'down'\nloss = '1 %'\n\
             [[path]]\nrate = '4 Mbit/s'\nthrough = 'up'\nback = { through = 'down', rate = '1 Mbit/s' }\n\
             [[path]]\nthrough = 'up'\n[[path]]",
        );
        let Network { paths, links } = network.unwrap();
        assert_eq!(links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["up", "down"]);
        assert_eq!(links[0].spec.rate, Rate::mbps(5.0));
        // What the way back shares, it says itself.
        let through: Vec<_> = paths.iter().map(|path| path.through).collect();
        assert_eq!(through, [[Some(0), Some(1)], [Some(0), None], [None, None]]);
        assert_eq!((&paths[0].forward.rate, &paths[0].back.rate), (&Rate::mbps(4.0), &Rate::mbps(1.0)));
    }

    #[test]
    fn what_cannot_be_shared_is_named() {
        let link = "[[link]]\nname = 'up'\n";
        for (text, word) in [
            (format!("{link}{link}[[path]]"), "two links are called `up`"),
            (format!("{link}[[path]]\nthrough = 'down'"), "`down`; there are: up"),
            (format!("{link}[[path]]\nback = {{ through = 'down' }}"), "`down`"),
            (format!("{link}dies = []\n[[path]]"), "dies"),
            ("[[link]]\nrate = 1\n[[path]]".to_owned(), "name"),
            ("[[path]]\nback = { dies = [] }".to_owned(), "dies"),
            ("[[path]]\ndies = [['12s', '10s']]".to_owned(), "dies at 12 s"),
            ("[[path]]\ncost = -1".to_owned(), "`cost` of -1"),
            ("[[path]]\ncost = nan".to_owned(), "`cost` of NaN"),
            ("[[path]]\nqueue = { bdp = -1 }".to_owned(), "-1 bdp"),
            ("[[path]]\nqueue = { bdp = nan }".to_owned(), "NaN bdp"),
            ("[[path]]\nloss = { mean = '5 %', burst = 0.5 }".to_owned(), "a burst of 0.5"),
            ("[[path]]\nloss = [['0s', '1 %'], ['1s', { mean = '5 %', burst = nan }]]".to_owned(), "a burst of NaN"),
        ] {
            let error = build(&text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
