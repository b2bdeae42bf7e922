//! Where the files that an experiment names are looked for.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use siphasher::sip::SipHasher13;

/// Folders in which relative file names are looked for, in order: an experiment's own, a folder with recordings.
#[derive(Debug, Clone, Default)]
pub struct Files {
    search: Vec<PathBuf>,
    /// Names and hashes of what was read, if anybody wants to know.
    seen: Option<Arc<Mutex<BTreeMap<String, u64>>>>,
}

/// A folder for people: the one we are in has an empty name when others are beside it.
fn shown(dir: &Path) -> String {
    if dir.as_os_str().is_empty() { ".".into() } else { dir.display().to_string() }
}

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// None of the folders has it.
    #[error("there is no file `{name}`; looked in: {}", .search.iter().map(|dir| shown(dir)).collect::<Vec<_>>().join(", "))]
    NotFound {
        /// As the experiment has it.
        name: String,
        /// The folders looked into.
        search: Vec<PathBuf>,
    },
    /// It is no text.
    #[error("`{name}` is not UTF-8 text")]
    NotText {
        /// As the experiment has it.
        name: String,
    },
    /// It is there, but cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

impl Files {
    /// Looks in these folders, the first of them first.
    pub fn new(search: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self { search: search.into_iter().map(Into::into).collect(), seen: None }
    }

    /// The same folders, and a list of what will be read from them.
    pub(crate) fn watched(&self) -> (Self, Seen) {
        let seen = Seen::default();
        (Self { search: self.search.clone(), seen: Some(seen.0.clone()) }, seen)
    }

    /// The content of the first file of this name. An absolute name is taken as it is.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let candidates = match Path::new(name).is_absolute() {
            true => vec![PathBuf::from(name)],
            false => self.search.iter().map(|dir| dir.join(name)).collect(),
        };
        for path in candidates {
            match fs::read(&path) {
                Ok(content) => {
                    if let Some(seen) = &self.seen {
                        let hash = SipHasher13::new().hash(&content);
                        seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), hash);
                    }
                    return Ok(content);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(FileError::Unreadable { path, error }),
            }
        }
        Err(FileError::NotFound { name: name.to_owned(), search: self.search.clone() })
    }

    /// The same, of a text.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if it is no text.
    pub fn text(&self, name: &str) -> Result<String, FileError> {
        String::from_utf8(self.read(name)?).map_err(|_| FileError::NotText { name: name.to_owned() })
    }
}

/// What was read: names, and hashes of contents.
#[derive(Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<BTreeMap<String, u64>>>);

impl Seen {
    /// Changes with every name and every content.
    pub(crate) fn fingerprint(&self) -> u64 {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        SipHasher13::new().hash(format!("{seen:?}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_it_counts() {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(near.path().join("both"), "near").unwrap();
        fs::write(far.path().join("both"), "far").unwrap();
        fs::write(far.path().join("one"), "far").unwrap();
        let files = Files::new([near.path(), far.path()]);
        assert_eq!(files.read("both").unwrap(), b"near");
        assert_eq!(files.read("one").unwrap(), b"far");
        assert_eq!(files.read(far.path().join("both").to_str().unwrap()).unwrap(), b"far");
        let missing = files.read("none").unwrap_err().to_string();
        assert!(missing.contains("`none`") && missing.contains(near.path().to_str().unwrap()), "{missing}");
        assert!(matches!(files.read("."), Err(FileError::Unreadable { .. })));
    }
}
