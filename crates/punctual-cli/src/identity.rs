//! The certificate that one shows to the other side.

use std::{fs, io::Write as _, path::Path};

use punctual::{Identity, TlsError, Trust};

use crate::exit::Failure;

/// An identity, and whether it is new.
pub(crate) struct Loaded {
    pub(crate) identity: Identity,
    pub(crate) made: bool,
}

/// The identity in the file; if there is no such file, a new one that bears `names`, which is kept there.
pub(crate) fn load_or_make(path: &Path, names: &[String]) -> Result<Loaded, Failure> {
    if path.exists() {
        let pem = fs::read(path).map_err(|error| Failure::file("read", path, error))?;
        let identity = Identity::from_pem(&pem, &pem);
        let identity = identity.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        return Ok(Loaded { identity, made: false });
    }
    let identity = make(names)?;
    keep_secret(path, &identity.to_pem()).map_err(|error| Failure::file("write", path, error))?;
    Ok(Loaded { identity, made: true })
}

/// Whether [`load_or_make`] can be expected to go well; makes nothing.
pub(crate) fn check(path: &Path, names: &[String]) -> Result<(), Failure> {
    if path.exists() {
        return load_or_make(path, names).map(drop);
    }
    make(names)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    may_write_in(parent.unwrap_or(Path::new("."))).map_err(|error| Failure::file("write", path, error))
}

/// Whether files can be made in a directory, as far as can be told without making one.
fn may_write_in(dir: &Path) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
    if dir.is_dir() { Ok(()) } else { Err(std::io::ErrorKind::NotADirectory.into()) }
}

/// A new identity that bears `names`.
pub(crate) fn make(names: &[String]) -> Result<Identity, Failure> {
    Identity::self_signed(names).map_err(|error: TlsError| Failure::Usage(error.to_string()))
}

/// The certificate authorities in a file.
pub(crate) fn authorities(path: &Path) -> Result<Trust, Failure> {
    let pem = fs::read(path).map_err(|error| Failure::file("read", path, error))?;
    Trust::ca_pem(pem).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Writes a new file that only its owner can read. If not all of it can be written there is none: half an identity would be in the way of a whole one.
fn keep_secret(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
        // It is what has just been made.
        let _ = fs::remove_file(path);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check makes nothing, and says what making would.
    #[test]
    fn a_check_says_whether_one_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let [locked, file] = ["locked", "file"].map(|name| dir.path().join(name));
        fs::create_dir(&locked).unwrap();
        fs::write(&file, "").unwrap();
        let mut permissions = fs::metadata(&locked).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&locked, permissions).unwrap();
        let names = ["localhost".to_owned()];
        for parent in [dir.path(), &locked, &file, &dir.path().join("missing")] {
            let path = parent.join("own.pem");
            let checked = check(&path, &names).map_err(|failure| failure.code());
            assert!(!path.exists(), "{path:?}");
            // Who may do anything, as root may, can make one in a directory that is locked.
            assert_eq!(checked, load_or_make(&path, &names).map(drop).map_err(|failure| failure.code()), "{path:?}");
        }
        assert!(check(&dir.path().join("own.pem"), &names).is_ok(), "it is there now");
        assert_eq!(check(&file.join("own.pem"), &names).map_err(|failure| failure.code()), Err(3));
    }
}
