//! Kinds of workload that a user brings along.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use rand::RngExt as _;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{
    draft::{Drafts, Making},
    error::Problem,
    files::Files,
    source::{MAX_BLOCK, Priority, Source, Traffic},
};
use crate::registry::{Registry, UnknownName};

/// The kind that stands for all own ones, whose table then holds what is left of the user's: the kind's name and its own keys.
pub(crate) const OWN: &str = "own";

/// What every source may have, whatever its kind.
const COMMON: &[&str] = &[
    "name",
    "start",
    "stop",
    "copies",
    "deadline",
    "priority",
    "ordered",
    "depends",
    "on-off",
    "hand-over",
    "redundancy",
];

/// A source of a kind that was [registered](Registry::workload).
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// Its table, without the keys that every source may have.
    pub(super) table: Table,
    /// Makes its blocks; `None` until the kind was looked up.
    pub(super) make: Option<Make>,
}

/// What the maker of an own kind's blocks is asked for: those of one source, or of one copy of it.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The `[[workload]]` table without the keys that every source may have; `kind` is still there.
    pub table: &'a Table,
    /// Blocks at this time or later are not needed. Times count from the source's start.
    pub length: Duration,
    /// All that may be random has to come from this; every copy has its own.
    pub seed: u64,
    /// Where files are to be looked for.
    pub files: &'a Files,
}

impl Asked<'_> {
    /// The kind's own keys as a struct; with `#[serde(deny_unknown_fields)]`, misspelt ones are told. `kind` is not among them.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn keys<T: DeserializeOwned>(&self) -> Result<T, toml::de::Error> {
        let mut table = self.table.clone();
        table.remove("kind");
        table.try_into()
    }
}

/// A block of an own kind of source.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnBlock {
    /// When it is ready, since the source's start; none is earlier than the one before.
    pub at: Duration,
    /// Bytes, 1 to [`MAX_BLOCK`].
    pub size: u32,
    /// Counted from `at`; the source's `deadline` if `None`.
    pub deadline: Option<Duration>,
    /// 0 is the highest; the source's `priority` if `None`.
    pub priority: Option<u8>,
    /// Earlier blocks without which it is of no use: indices into the list it is in.
    pub depends_on: Vec<u32>,
}

impl OwnBlock {
    /// A block with the source's deadline and priority that depends on nothing.
    pub fn new(at: Duration, size: u32) -> Self {
        Self { at, size, deadline: None, priority: None, depends_on: Vec::new() }
    }
}

type MakeFn = dyn Fn(&Asked<'_>) -> Result<Vec<OwnBlock>, Box<dyn Error + Send + Sync>> + Send + Sync;

/// Makes the blocks of an own kind.
#[derive(Clone)]
pub(crate) struct Make(Arc<MakeFn>);

impl Make {
    pub(crate) fn new(
        make: impl Fn(&Asked<'_>) -> Result<Vec<OwnBlock>, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }
}

impl PartialEq for Make {
    fn eq(&self, other: &Self) -> bool {
        Arc::as_ptr(&self.0).cast::<()>() == Arc::as_ptr(&other.0).cast::<()>()
    }
}

impl fmt::Debug for Make {
    /// Always the same: what names a run must not hold an address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Make")
    }
}

/// Writes the tables of own kinds as [`Source`] reads them. What is no list of tables is left for it to tell.
pub(crate) fn set_apart(document: &mut Table, registry: &Registry) -> Result<(), UnknownName> {
    let Some(Value::Array(sources)) = document.get_mut("workload") else { return Ok(()) };
    for source in sources.iter_mut().filter_map(Value::as_table_mut) {
        let Some(Value::String(kind)) = source.get("kind") else { continue };
        if registry.find_workload(kind)?.is_some() {
            let (common, own): (Table, Table) =
                std::mem::take(source).into_iter().partition(|(key, _)| COMMON.contains(&key.as_str()));
            *source = common;
            source.insert("kind".into(), OWN.into());
            source.insert(OWN.into(), own.into());
        }
    }
    Ok(())
}

impl Source {
    /// Looks its kind up, if that is an own one.
    pub(crate) fn look_up(&mut self, registry: &Registry) -> Result<(), UnknownName> {
        if let Traffic::Own(own) = &mut self.traffic {
            own.make = registry.find_workload(own.kind())?;
        }
        Ok(())
    }
}

impl Own {
    /// What its kind is called.
    pub fn kind(&self) -> &str {
        self.table.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn draft(&self, making: &mut Making<'_>) -> Result<Drafts, Problem> {
        let failed = |problem: String| Problem::Own { kind: self.kind().to_owned(), problem };
        let make = self.make.as_ref().ok_or_else(|| failed("is not registered".into()))?;
        let seed = making.random.random();
        let asked = Asked { table: &self.table, length: making.length, seed, files: making.files };
        let blocks = make.0(&asked).map_err(|error| failed(error.to_string()))?;
        let mut drafts = Drafts::new();
        let Priority::Same(priority) = making.source.priority else {
            return Err(Problem::value("priority", "here it is one number"));
        };
        let mut last = Duration::ZERO;
        for (index, block) in (0u32..).zip(blocks) {
            let wrong = |what: &str| Err(failed(format!("block {index} {what}")));
            if block.at < last {
                return wrong("is earlier than the one before");
            }
            if !(1..=MAX_BLOCK).contains(&block.size) {
                return wrong("is of a size that no block has; it has 1 byte to 16 MiB");
            }
            if block.depends_on.iter().any(|on| *on >= index) {
                return wrong("depends on one that is not before it");
            }
            last = block.at;
            let mut draft = making.block(block.at, block.size.into(), block.priority.unwrap_or(priority));
            draft.deadline = block.deadline.or(draft.deadline);
            draft.references = block.depends_on;
            drafts.push(draft)?;
        }
        Ok(drafts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiment::Experiment, plan::Plan, workload::plan};

    fn planned(table: &str, blocks: Vec<OwnBlock>) -> Result<Plan, String> {
        let registry = Registry::new().workload("mine", move |_| Ok(blocks.clone())).unwrap();
        let text = format!(
            "title = 'x'\nduration = '1s'\ncontenders = ['ads']\n[[path]]\nrate = '1 MB/s'\n[[workload]]\nkind = 'mine'\n{table}"
        );
        let cells = Experiment::parse_with("x", &text, &registry).and_then(|experiment| experiment.cells());
        let setup = cells.map_err(|error| error.to_string())?.remove(0).setup;
        plan(&setup.sources, setup.duration.0, 1, &Files::default()).map_err(|error| error.to_string())
    }

    fn at(millis: u64) -> OwnBlock {
        OwnBlock::new(Duration::from_millis(millis), 100)
    }

    #[test]
    fn the_source_s_keys_hold_where_blocks_say_nothing() {
        let blocks = vec![
            at(0),
            OwnBlock { deadline: Some(Duration::from_secs(1)), priority: Some(1), depends_on: vec![0], ..at(10) },
            at(5000),
        ];
        let plan = planned("deadline = '200ms'\npriority = 3\nstart = '100ms'", blocks).unwrap();
        let of = |index: usize| {
            let block = &plan.blocks[index];
            (block.at.as_millis(), block.deadline.unwrap().as_millis(), block.priority, block.depends_on.len())
        };
        assert_eq!(plan.blocks.len(), 2, "the third is later than the end");
        assert_eq!((of(0), of(1)), ((100, 200, 3, 0), (110, 1000, 1, 1)));
    }

    #[test]
    fn blocks_that_cannot_be_are_told() {
        let too_large = OwnBlock { size: MAX_BLOCK + 1, ..at(0) };
        let itself = OwnBlock { depends_on: vec![0], ..at(0) };
        for (blocks, word) in [
            (vec![at(10), at(9)], "earlier"),
            (vec![OwnBlock { size: 0, ..at(0) }], "size"),
            (vec![too_large], "size"),
            (vec![itself], "not before it"),
        ] {
            let error = planned("", blocks).unwrap_err();
            assert!(error.contains(word) && error.contains("`mine`") && error.contains("`source-1`"), "{error}");
        }
    }

    #[test]
    fn own_keys_reach_the_maker_and_seeds_differ() {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            size: u32,
        }
        let make = |asked: &Asked<'_>| {
            let Keys { size } = asked.keys()?;
            Ok(vec![OwnBlock::new(Duration::from_millis(asked.seed % 1000), size)])
        };
        let registry = Registry::new().workload("mine", make).unwrap();
        let planned = |keys: &str| {
            let text = format!(
                "title = 'x'\nduration = '1s'\ncontenders = ['ads']\n[[path]]\nrate = '1 MB/s'\n[[workload]]\nkind = 'mine'\ncopies = 2\n{keys}"
            );
            let setup = Experiment::parse_with("x", &text, &registry).unwrap().cells().unwrap().remove(0).setup;
            plan(&setup.sources, setup.duration.0, 1, &Files::default()).map_err(|error| error.to_string())
        };
        let plan = planned("size = 7").unwrap();
        assert!(plan.blocks.iter().all(|block| block.size == 7));
        assert_ne!(plan.blocks[0].at, plan.blocks[1].at);
        assert_eq!(plan, planned("size = 7").unwrap());
        assert!(planned("length = 7").unwrap_err().contains("length"));
    }

    #[test]
    fn a_kind_nobody_knows_is_told_with_those_there_are() {
        let text = "title = 'x'\nduration = '1s'\ncontenders = ['ads']\n[[path]]\nrate = '1 MB/s'\n[[workload]]\nkind = 'film'";
        for (registry, known) in
            [(Registry::new(), "bulk"), (Registry::new().workload("mine", |_| Ok(vec![])).unwrap(), "mine")]
        {
            let error = Experiment::parse_with("x", text, &registry).unwrap_err().to_string();
            assert!(error.contains("`film`") && error.ends_with(known), "{error}");
        }
    }
}
