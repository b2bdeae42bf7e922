//! Who runs the gauntlet: contenders on all paths of a cell, or on one alone.

use crate::{
    carry::Stage,
    experiment::{Contender, ExperimentError, Transport, contender},
    registry::Registry,
};

/// Who runs it unless told otherwise: ours, ours on each path alone, and the strongest fair baselines there are.
pub const CONTENDERS: [&str; 9] = [
    "ads",
    "admission",
    "ads@each",
    "admission@each",
    "quic-by-priority@each",
    "quic-by-priority/bbr3@each",
    "mpquic-by-priority",
    "mpquic-by-priority/cubic/lowest-rtt",
    "mpquic-by-priority/bbr3/lowest-rtt",
];

/// A contender of the list: `NAME`, on all paths as far as it uses them; `NAME@K`, on path K (counted from 0) alone; `NAME@each`,
/// on each path alone, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    contender: Contender,
    paths: Paths,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paths {
    All,
    One(usize),
    Each,
}

/// What a contender is to the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It is judged.
    Ours,
    /// The same on one path alone: more paths must not make it worse.
    OursAlone,
    /// Plain QUIC, however many paths it has.
    Baseline,
}

/// Who runs in a cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entrant {
    /// As results call it: `ads`, `ads@1`.
    pub(super) name: String,
    pub(super) contender: Contender,
    /// The path it has, if not all.
    pub(super) alone: Option<usize>,
}

impl Role {
    /// That of who is called so, path included.
    pub fn of(name: &str) -> Self {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['-', '/', '@']);
        match ["quic", "mpquic"].iter().any(|quic| name.strip_prefix(quic).is_some_and(ends)) {
            true => Self::Baseline,
            false if on_all_paths(name) != name => Self::OursAlone,
            false => Self::Ours,
        }
    }
}

impl Listed {
    /// Reads one of the list.
    ///
    /// # Errors
    /// If nobody is called so.
    pub fn parse(text: &str, registry: &Registry) -> Result<Self, ExperimentError> {
        let (name, paths) = match text.rsplit_once('@') {
            None => (text, Paths::All),
            Some((name, "each")) => (name, Paths::Each),
            Some((name, path)) => {
                let wrong = |_| ExperimentError::Contender {
                    name: text.to_owned(),
                    error: "behind an @ comes a path's number, from 0, or `each`".into(),
                };
                (name, Paths::One(path.parse().map_err(wrong)?))
            }
        };
        Ok(Self { contender: contender::by_name(name, registry)?, paths })
    }

    /// Those of the usual list that this program knows.
    pub fn usual(registry: &Registry) -> Vec<Self> {
        CONTENDERS.iter().filter_map(|name| Self::parse(name, registry).ok()).collect()
    }

    /// Its name, if it is to have a path alone that no cell with so many paths has.
    pub(super) fn lacks_a_path(&self, mut paths: impl Iterator<Item = usize>) -> Option<String> {
        match self.paths {
            Paths::One(path) if paths.all(|paths| path >= paths) => Some(format!("{}@{path}", self.contender.name)),
            _ => None,
        }
    }

    /// Who that is in a cell with so many paths. Nobody, where one would run what another does already.
    pub(super) fn entrants(&self, paths: usize) -> Vec<Entrant> {
        let (ours, several) = match &self.contender.transport {
            Transport::Punctual { .. } => (true, true),
            Transport::Quic { multipath, .. } => (false, *multipath),
        };
        let alone: Vec<Option<usize>> = match self.paths {
            Paths::All if paths == 1 && several && !ours => Vec::new(),
            Paths::All => vec![None],
            Paths::One(path) if path < paths => vec![Some(path)],
            Paths::One(_) => Vec::new(),
            Paths::Each if paths == 1 && ours => Vec::new(),
            Paths::Each => (0..paths).map(Some).collect(),
        };
        let entrant = |alone: Option<usize>| Entrant {
            name: alone.map_or_else(|| self.contender.name.clone(), |path| format!("{}@{path}", self.contender.name)),
            contender: self.contender.clone(),
            alone,
        };
        alone.into_iter().map(entrant).collect()
    }
}

/// Whether the same seed gives the same run: noq's BBRv3 draws from a generator that cannot be seeded.
pub(super) fn repeats(name: &str) -> bool {
    !name.split(['/', '@', '+']).any(|part| part == "bbr3")
}

/// The name without the path it has alone.
pub(super) fn on_all_paths(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(name, _)| name)
}

/// The stage for a contender that has one path alone: its network has no other.
pub(super) fn alone(stage: &Stage, path: usize) -> Stage {
    Stage { paths: vec![stage.paths[path].clone()], ..stage.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str], paths: usize) -> Vec<String> {
        let registry = Registry::new();
        let listed = list.iter().map(|name| Listed::parse(name, &registry).unwrap());
        listed.flat_map(|listed| listed.entrants(paths)).map(|entrant| entrant.name).collect()
    }

    #[test]
    fn each_has_the_paths_it_should() {
        let list = ["ads", "ads@each", "quic-by-priority@each", "mpquic", "edf@1"];
        assert_eq!(names(&list, 1), ["ads", "quic-by-priority@0"]);
        let two = ["ads", "ads@0", "ads@1", "quic-by-priority@0", "quic-by-priority@1", "mpquic", "edf@1"];
        assert_eq!(names(&list, 2), two);
    }

    #[test]
    fn roles_follow_from_names() {
        let of = ["ads", "ads/cubic", "quick", "edf@1", "quic@0", "mpquic-one/bbr3", "quic"].map(Role::of);
        use Role::{Baseline, Ours, OursAlone};
        assert_eq!(of, [Ours, Ours, Ours, OursAlone, Baseline, Baseline, Baseline]);
        let repeating = ["ads", "quic/bbr3@1", "mpquic-one/bbr3", "ads/bbr3+fec"].map(repeats);
        assert_eq!(repeating, [true, false, false, false]);
    }

    #[test]
    fn the_usual_ones_are_known() {
        let usual = Listed::usual(&Registry::new());
        assert!(usual.iter().any(|one| one.contender.name == "ads") && usual.len() >= 6);
        for (name, word) in [("ads@first", "`each`"), ("best@0", "choose one of")] {
            let error = Listed::parse(name, &Registry::new()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
