//! Where an experiment's files are looked for.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Folders in which relative file names are looked for, in order.
///
/// The default knows no folder: only absolute names, and those relative to the working directory, are found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    folders: Vec<PathBuf>,
}

/// A file that cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is in none of the folders.
    #[error("no file `{name}` in {}; say where recorded data lies with --data DIR or PUNCTUAL_DATA", list(folders))]
    Missing {
        /// As the experiment names it.
        name: String,
        /// Where it was looked for.
        folders: Vec<PathBuf>,
    },
    /// It is there, but cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is no text.
    #[error("{name} is not UTF-8 text")]
    NotText {
        /// As the experiment names it.
        name: String,
    },
}

fn list(folders: &[PathBuf]) -> String {
    match folders {
        [] => "the working directory".into(),
        _ => folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}

impl Files {
    /// Looks in these folders.
    pub fn in_folders(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { folders: folders.into_iter().collect() }
    }

    /// Looks in `folder` first.
    pub fn and_first(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.insert(0, folder.into());
        self
    }

    /// Where a file is.
    ///
    /// # Errors
    /// [`FileError::Missing`].
    pub fn find(&self, name: &str) -> Result<PathBuf, FileError> {
        let candidates = self.folders.iter().map(|folder| folder.join(name)).chain([Path::new(name).to_path_buf()]);
        candidates
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| FileError::Missing { name: name.to_owned(), folders: self.folders.clone() })
    }

    /// A file's contents.
    ///
    /// # Errors
    /// If it is nowhere or cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let path = self.find(name)?;
        fs::read(&path).map_err(|error| FileError::Unreadable { path, error })
    }

    /// A text file's contents.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if it is no text.
    pub fn text(&self, name: &str) -> Result<String, FileError> {
        String::from_utf8(self.read(name)?).map_err(|_| FileError::NotText { name: name.to_owned() })
    }
}
