//! A user's own parts: schedulers, path schedulers, congestion controllers, policies of redundancy, kinds of workload and
//! experiments, by name.
//!
//! What is registered is chosen like what is built in: in the name of a contender, in `[session]`, as the `kind` of a `[[workload]]`.
//!
//! ```
//! use punctual_eval::{
//!     experiment::Experiment,
//!     registry::Registry,
//!     workload::{Asked, OwnBlock},
//! };
//!
//! let registry = Registry::new()
//!     .workload("tick", |asked: &Asked<'_>| {
//!         let at = (0..).map(std::time::Duration::from_secs).take_while(|at| *at < asked.length);
//!         Ok(at.map(|at| OwnBlock::new(at, 1000)).collect())
//!     })?;
//! let text = "title = 'Ticks'\nduration = '5s'\ncontenders = ['ads']\n[[path]]\nrate = '1 MB/s'\n[[workload]]\nkind = 'tick'\ndeadline = '50ms'";
//! assert_eq!(Experiment::parse_with("ticks", text, &registry)?.cells()?.len(), 1);
//! assert!(Experiment::parse("ticks", text).is_err(), "there it is not known");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/own-scheduler` in the repository is a program with one of each.

use std::{error::Error, fmt, sync::Arc};

use noq_proto::congestion::ControllerFactory;
use punctual_proto::{
    LookupError, Redundancy,
    congestion::{self, Congestion, CongestionFactory, DriverFactory},
    multipath::{self, PathScheduler, PathSchedulerFactory},
    redundancy::{self, Policy, PolicyFactory},
    schedule::{self, BlockScheduler, SchedulerFactory},
};

use crate::{
    carry::{cubic_pair, informed, oracle},
    experiment::{Experiment, ExperimentError, builtin::BUILTIN},
    workload::{self, Asked, Make, OwnBlock},
};

/// What is known by name beside what is built in. A clone is cheap.
#[derive(Clone, Default)]
pub struct Registry(Arc<Parts>);

#[derive(Clone, Default)]
struct Parts {
    schedulers: Names<SchedulerFactory>,
    path_schedulers: Names<PathSchedulerFactory>,
    controllers: Names<Congestion>,
    redundancy_policies: Names<PolicyFactory>,
    workloads: Names<Make>,
    experiments: Names<String>,
}

/// In the order in which they were registered.
type Names<T> = Vec<(String, T)>;

/// A name that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} can be called `{name}`: {why}")]
pub struct NameError {
    /// What was to be registered.
    pub what: &'static str,
    /// As what.
    pub name: String,
    /// Why not.
    pub why: &'static str,
}

/// Nothing is known by this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is called `{name}`; choose one of: {}", known.join(", "))]
pub struct UnknownName {
    /// What was sought.
    pub what: &'static str,
    /// By which name.
    pub name: String,
    /// Those there are.
    pub known: Vec<String>,
}

impl Registry {
    /// Nothing but what is built in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a block scheduler; `make` makes one for each session.
    ///
    /// # Errors
    /// If the name is taken or cannot be written where names are.
    pub fn scheduler<S: BlockScheduler + 'static>(
        self,
        name: &str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<Self, NameError> {
        let factory: SchedulerFactory = Arc::new(move || Box::new(make()));
        // Contenders share their names with schedulers.
        let built_in = schedule::names().chain(["sctp"]).any(|known| known == family(name));
        let quic = ["quic", "mpquic"]
            .iter()
            .any(|quic| name.strip_prefix(quic).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')));
        self.add("scheduler", name, built_in || quic, factory, |parts| &mut parts.schedulers)
    }

    /// Adds a path scheduler; `make` makes one for each session.
    ///
    /// # Errors
    /// As for [`scheduler`](Self::scheduler).
    pub fn path_scheduler<S: PathScheduler + 'static>(
        self,
        name: &str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<Self, NameError> {
        let factory: PathSchedulerFactory = Arc::new(move || Box::new(make()));
        let built_in = multipath::names().any(|known| known == family(name));
        self.add("path scheduler", name, built_in, factory, |parts| &mut parts.path_schedulers)
    }

    /// Adds a congestion controller; `make` is given the first window in bytes.
    ///
    /// # Errors
    /// As for [`scheduler`](Self::scheduler).
    pub fn controller<F: ControllerFactory + Send + Sync + 'static>(
        self,
        name: &str,
        make: impl Fn(u64) -> F + Send + Sync + 'static,
    ) -> Result<Self, NameError> {
        let factory: CongestionFactory = Arc::new(move |window| Arc::new(make(window)));
        self.add_controller(name, Congestion::Acks(factory))
    }

    /// Adds a controller that goes by what the receiver reports; `make` makes that of a path, given its number among the session's and
    /// the first window in bytes. Plain QUIC cannot have it.
    ///
    /// # Errors
    /// As for [`scheduler`](Self::scheduler).
    pub fn driver(self, name: &str, make: DriverFactory) -> Result<Self, NameError> {
        self.add_controller(name, Congestion::Reports(make))
    }

    fn add_controller(self, name: &str, controller: Congestion) -> Result<Self, NameError> {
        let built_in = congestion::names().any(|known| known == name);
        self.add("controller", name, built_in, controller, |parts| &mut parts.controllers)
    }

    /// Adds a policy of redundancy, which says how many repair fragments a group gets; `make` makes one for each session.
    ///
    /// # Errors
    /// As for [`scheduler`](Self::scheduler).
    pub fn redundancy_policy<P: Policy + 'static>(
        self,
        name: &str,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Result<Self, NameError> {
        let factory: PolicyFactory = Arc::new(move || Box::new(make()));
        // Contenders name modes and policies in one place.
        let built_in = redundancy::names().any(|known| known == family(name)) || name.parse::<Redundancy>().is_ok();
        self.add("policy of redundancy", name, built_in, factory, |parts| &mut parts.redundancy_policies)
    }

    /// Adds a kind of workload; `make` makes the blocks of one source, in order of time.
    ///
    /// # Errors
    /// As for [`scheduler`](Self::scheduler).
    pub fn workload(
        self,
        kind: &str,
        make: impl Fn(&Asked<'_>) -> Result<Vec<OwnBlock>, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Result<Self, NameError> {
        let built_in = workload::KINDS.contains(&kind) || kind == workload::OWN;
        self.add("kind of workload", kind, built_in, Make::new(make), |parts| &mut parts.workloads)
    }

    /// Adds an experiment, to be run by its name; `text` is TOML, and read when it is asked for.
    ///
    /// # Errors
    /// As for [`scheduler`](Self::scheduler).
    pub fn experiment(self, name: &str, text: impl Into<String>) -> Result<Self, NameError> {
        let built_in = BUILTIN.iter().any(|(known, _)| *known == name);
        self.add("experiment", name, built_in, text.into(), |parts| &mut parts.experiments)
    }

    fn add<T>(
        mut self,
        what: &'static str,
        name: &str,
        built_in: bool,
        part: T,
        names: impl Fn(&mut Parts) -> &mut Names<T>,
    ) -> Result<Self, NameError> {
        let refuse = |why| Err(NameError { what, name: name.to_owned(), why });
        if built_in {
            return refuse("that is built in");
        }
        if name.is_empty() || name.contains(|c: char| "/,+@".contains(c) || c.is_whitespace()) {
            return refuse("a name has neither spaces nor any of `,` `/` `+` `@`");
        }
        let names = names(Arc::make_mut(&mut self.0));
        if names.iter().any(|(known, _)| known == name) {
            return refuse("that is registered already");
        }
        names.push((name.to_owned(), part));
        Ok(self)
    }

    /// The block scheduler of that name, own or built in.
    pub(crate) fn find_scheduler(&self, name: &str) -> Result<SchedulerFactory, String> {
        let own = &self.0.schedulers;
        find(own, name).map_or_else(|| schedule::by_name(name).map_err(|error| and(error, "scheduler", own)), Ok)
    }

    /// The path scheduler of that name, own or built in.
    pub(crate) fn find_path_scheduler(&self, name: &str) -> Result<PathSchedulerFactory, String> {
        let own = &self.0.path_schedulers;
        find(own, name).map_or_else(|| multipath::by_name(name).map_err(|error| and(error, "path scheduler", own)), Ok)
    }

    /// The controller of that name, own or built in.
    pub(crate) fn find_controller(&self, name: &str) -> Result<Congestion, UnknownName> {
        if [oracle::NAME, informed::NAME].contains(&name) {
            // Another takes its place once the link is known.
            return Ok(congestion::default_congestion());
        }
        if name == cubic_pair::NAME {
            return Ok(cubic_pair::congestion());
        }
        let (own, built_in) = (&self.0.controllers, congestion::names().collect::<Vec<_>>());
        find(own, name)
            .or_else(|| congestion::by_name(name).ok())
            .ok_or_else(|| unknown("controller", name, &built_in, own))
    }

    /// The same for plain QUIC, which has no reports to go by.
    pub(crate) fn find_quic_controller(&self, name: &str) -> Result<CongestionFactory, UnknownName> {
        match self.find_controller(name)? {
            Congestion::Acks(factory) => Ok(factory),
            _ => {
                let quic: Vec<&str> = congestion::names().filter(|name| congestion::quic(name).is_ok()).collect();
                Err(unknown("controller of plain QUIC", name, &quic, &Names::<Congestion>::new()))
            }
        }
    }

    /// The policy of redundancy of that name, own or built in.
    pub(crate) fn find_redundancy_policy(&self, name: &str) -> Result<PolicyFactory, String> {
        let (own, what) = (&self.0.redundancy_policies, "policy of redundancy");
        find(own, name).map_or_else(|| redundancy::by_name(name).map_err(|error| and(error, what, own)), Ok)
    }

    /// Makes the sources of that kind; `None` if it is built in.
    pub(crate) fn find_workload(&self, kind: &str) -> Result<Option<Make>, UnknownName> {
        if workload::KINDS.contains(&kind) {
            return Ok(None);
        }
        let own = &self.0.workloads;
        find(own, kind).map(Some).ok_or_else(|| unknown("kind of workload", kind, workload::KINDS, own))
    }

    /// Names of all experiments, built-in ones first.
    pub fn experiments(&self) -> impl Iterator<Item = &str> {
        BUILTIN.iter().map(|(name, _)| *name).chain(self.0.experiments.iter().map(|(name, _)| name.as_str()))
    }

    /// The experiment of that name, own or built in, if there is one.
    pub fn load(&self, name: &str) -> Option<Result<Experiment, ExperimentError>> {
        let built_in = BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let text = built_in.or_else(|| find(&self.0.experiments, name))?;
        Some(Experiment::parse_with(name, &text, self))
    }
}

/// What of a name stands before its parameters.
fn family(name: &str) -> &str {
    name.split(':').next().unwrap_or_default()
}

fn find<T: Clone>(names: &Names<T>, name: &str) -> Option<T> {
    names.iter().find(|(known, _)| known == name).map(|(_, part)| part.clone())
}

fn unknown<T>(what: &'static str, name: &str, built_in: &[&str], own: &Names<T>) -> UnknownName {
    let known = built_in.iter().map(|name| (*name).to_owned()).chain(own.iter().map(|(name, _)| name.clone()));
    UnknownName { what, name: name.to_owned(), known: known.collect() }
}

/// What is wrong with a name, own ones among those to choose from.
fn and<T>(error: LookupError, what: &'static str, own: &Names<T>) -> String {
    match error {
        LookupError::UnknownName { name, known, .. } => unknown(what, &name, &known, own).to_string(),
        other => other.to_string(),
    }
}

impl PartialEq for Registry {
    /// Whether both know the same names; what is behind them cannot be compared.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || format!("{self:?}") == format!("{other:?}")
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn names<T>(names: &Names<T>) -> Vec<&str> {
            names.iter().map(|(name, _)| name.as_str()).collect()
        }
        let Parts { schedulers, path_schedulers, controllers, redundancy_policies, workloads, experiments } = &*self.0;
        f.debug_struct("Registry")
            .field("schedulers", &names(schedulers))
            .field("path_schedulers", &names(path_schedulers))
            .field("controllers", &names(controllers))
            .field("redundancy_policies", &names(redundancy_policies))
            .field("workloads", &names(workloads))
            .field("experiments", &names(experiments))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noq_proto::congestion::CubicConfig;

    struct Never;

    impl BlockScheduler for Never {
        fn name(&self) -> &'static str {
            "never"
        }

        fn insert(&mut self, _: &schedule::BlockView) {}

        fn remove(&mut self, _: punctual_proto::BlockId) {}

        fn next(&mut self, _: &schedule::SendContext<'_>) -> Option<punctual_proto::BlockId> {
            None
        }
    }

    struct Half;

    impl Policy for Half {
        fn name(&self) -> &'static str {
            "half"
        }

        fn repairs(&mut self, group: &redundancy::GroupView<'_>) -> usize {
            group.len().div_ceil(2)
        }
    }

    #[test]
    fn own_names_stand_beside_the_built_in_ones() {
        let registry = Registry::new().scheduler("never", || Never).unwrap();
        let registry = registry.controller("mine", |_| CubicConfig::default()).unwrap();
        assert_eq!(registry.find_scheduler("never").unwrap()().name(), "never");
        assert_eq!(registry.find_scheduler("ads:alpha=0.3").unwrap()().name(), "ads");
        assert!(registry.find_controller("mine").is_ok() && registry.find_controller("steady").is_ok());
        let error = registry.find_scheduler("other").err().unwrap();
        assert!(
            error.starts_with("no scheduler is called `other`; choose one of: admission, ads")
                && error.ends_with("never"),
            "{error}"
        );
        let error = registry.find_controller("reno").err().unwrap().to_string();
        assert!(error.starts_with("no controller is called `reno`") && error.ends_with("mine"), "{error}");
        assert!(Registry::new().find_scheduler("never").is_err());
        let registry = Registry::new().redundancy_policy("half", || Half).unwrap();
        assert_eq!(registry.find_redundancy_policy("half").unwrap()().name(), "half");
        assert_eq!(registry.find_redundancy_policy("risk:target=0.01").unwrap()().name(), "risk");
        let error = registry.find_redundancy_policy("other").err().unwrap();
        assert!(error.starts_with("no policy of redundancy is called `other`") && error.ends_with("half"), "{error}");
    }

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for taken in ["ads", "ads:alpha=7", "sctp", "quic", "mpquic-one", "two words", "a/b", "a,b", "a+b", "a@1", ""] {
            assert!(Registry::new().scheduler(taken, || Never).is_err(), "{taken}");
        }
        let registry = Registry::new().scheduler("never", || Never).unwrap();
        assert!(registry.clone().scheduler("never", || Never).unwrap_err().why.contains("already"));
        assert!(registry.scheduler("quick", || Never).is_ok());
        for taken in ["risk", "dmtp:cap=1", "fec"] {
            assert!(Registry::new().redundancy_policy(taken, || Half).is_err(), "{taken}");
        }
        assert!(Registry::new().controller("bbr3", |_| CubicConfig::default()).is_err());
        for kind in ["csv", "own"] {
            assert!(Registry::new().workload(kind, |_| Ok(Vec::new())).is_err(), "{kind}");
        }
        assert!(Registry::new().experiment("dtp-step", "").is_err());
    }

    #[test]
    fn own_experiments_are_listed_and_read() {
        let text = "title = 'x'\nduration = '1s'\ncontenders = ['never']\n[[path]]\nrate = '1 MB/s'\n[[workload]]\nkind = 'bulk'";
        let registry = Registry::new().experiment("mine", text).unwrap();
        assert_eq!(registry.experiments().last(), Some("mine"));
        assert!(registry.load("mine").unwrap().is_err(), "its scheduler is not registered");
        let registry = registry.scheduler("never", || Never).unwrap();
        assert_eq!(registry.load("mine").unwrap().unwrap().head.title, "x");
        assert!(registry.load("other").is_none() && registry.load("dtp-step").unwrap().is_ok());
    }
}
