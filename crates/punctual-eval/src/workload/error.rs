//! Why there is no workload.

use super::files::FileError;

/// A source of the experiment cannot be planned.
#[derive(Debug, thiserror::Error)]
#[error("source `{source_name}`: {problem}")]
pub struct WorkloadError {
    /// Which.
    pub source_name: String,
    /// Why.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a source.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It needs a key that is not there.
    #[error("a source of kind `{kind}` needs `{key}`")]
    Missing {
        /// The kind of source.
        kind: &'static str,
        /// What it lacks.
        key: &'static str,
    },
    /// It has a key that means nothing for it.
    #[error("`{key}` means nothing for a source of kind `{kind}`, whose own keys are {}", .own.join(", "))]
    Foreign {
        /// The kind of source.
        kind: &'static str,
        /// What it has.
        key: &'static str,
        /// What it might have, beside the keys that all kinds have.
        own: &'static [&'static str],
    },
    /// A value will not do.
    #[error("`{key}`: {problem}")]
    Value {
        /// Of which key.
        key: &'static str,
        /// Why it will not do, and what would.
        problem: String,
    },
    /// A file is missing or unreadable.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file holds something else than it should.
    #[error("{file}, line {line}: {problem}")]
    Line {
        /// The file's name.
        file: String,
        /// From 1.
        line: u64,
        /// What is wrong there.
        problem: String,
    },
    /// A file as a whole is not what it should be.
    #[error("{file}: {problem}")]
    Content {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A kind that was registered did not make its blocks as it should.
    #[error("kind `{kind}`: {problem}")]
    Own {
        /// The kind.
        kind: String,
        /// What it says, or what is wrong with what it made.
        problem: String,
    },
    /// Two sources have this name.
    #[error("another source has the same name")]
    SameName,
    /// Its blocks depend on those of a source that is not there.
    #[error("`depends`: there is no other source `{wanted}`; the others are {}", .others.join(", "))]
    UnknownSource {
        /// The name given.
        wanted: String,
        /// Names there are.
        others: Vec<String>,
    },
    /// The run would be too large.
    #[error("with it, the run has more than {most} {what}")]
    TooMany {
        /// Sources or blocks.
        what: &'static str,
        /// As many as there may be.
        most: usize,
    },
}

impl Problem {
    /// A value that will not do.
    pub(super) fn value(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Value { key, problem: problem.into() }
    }
}
