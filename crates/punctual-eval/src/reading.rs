//! Values of an experiment's text, and what is wrong with them: a line that names the key as `--set` does.

use serde::de::{self, DeserializeOwned};
use serde_path_to_error::Segment;
use toml::Value;

/// What a value says; else a line that says where in it something is wrong, and what.
pub(crate) fn read<T: DeserializeOwned>(value: impl Into<Value>) -> Result<T, String> {
    serde_path_to_error::deserialize(value.into()).map_err(|error| {
        let path = error.path().iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Map { key } => Some(key.clone()),
            Segment::Enum { variant } => Some(variant.clone()),
            Segment::Unknown => None,
        });
        let path = path.collect::<Vec<_>>().join(".");
        let message = error.inner().message().trim().replace('\n', " ");
        if path.is_empty() { message } else { format!("`{path}`: {message}") }
    })
}

/// The same of a part of what is being read.
pub(crate) fn part<T: DeserializeOwned, E: de::Error>(value: impl Into<Value>) -> Result<T, E> {
    read(value).map_err(E::custom)
}
