//! Where a sender reads from, and whether that is live.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::Instant,
};

use crate::exit::Failure;

/// A file or a pipe, open.
pub(super) struct Input {
    /// For messages.
    pub(super) name: PathBuf,
    pub(super) from: Box<dyn Read + Send>,
    /// Whether it gives bytes at its own pace, as pipes and devices do. A regular file gives them as fast as one likes.
    pub(super) live: bool,
}

impl Input {
    /// Opens the file, or standard input if there is none or it is called `-`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            let live = !is_regular_stdin();
            return Ok(Self { name: "standard input".into(), from: Box::new(io::stdin()), live });
        };
        let opened = File::open(path).and_then(|file| {
            let kind = file.metadata()?.file_type();
            if kind.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok((file, !kind.is_file())) }
        });
        let (file, live) = opened.map_err(|error| Failure::file("read", path, error))?;
        Ok(Self { name: path.to_owned(), from: Box::new(file), live })
    }

    pub(super) fn unreadable(name: &Path, error: impl std::fmt::Display) -> Failure {
        Failure::file("read", name, error)
    }

    /// A reader that knows when its bytes came.
    pub(super) fn timed(self) -> Timed {
        let clock = Clock { from: self.from, read: None };
        Timed { live: self.live, reader: BufReader::with_capacity(READ, clock) }
    }
}

/// Bytes read at once.
pub(super) const READ: usize = 1 << 16;

/// Whether a file was put in standard input's place (`< film.h264`).
#[cfg(unix)]
fn is_regular_stdin() -> bool {
    use std::os::fd::AsFd as _;
    let own = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    own.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_file())
}

/// Where that cannot be asked, a pipe is the more likely.
#[cfg(not(unix))]
fn is_regular_stdin() -> bool {
    false
}

/// Bytes, and when they came if they came by themselves.
pub(super) struct Timed {
    live: bool,
    reader: BufReader<Clock>,
}

struct Clock {
    from: Box<dyn Read + Send>,
    /// When the last bytes came.
    read: Option<Instant>,
}

impl Read for Clock {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buf)?;
        self.read = Some(Instant::now());
        Ok(len)
    }
}

impl Timed {
    /// When the next byte came, which this waits for; `None` for a file, whose bytes have always been there.
    pub(super) fn next_came(&mut self) -> io::Result<Option<Instant>> {
        self.reader.fill_buf()?;
        Ok(self.reader.get_ref().read.filter(|_| self.live))
    }
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf)
    }
}

impl BufRead for Timed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_a_file_error() {
        for path in ["/no/such/file", "/"] {
            assert_eq!(Input::open(Some(Path::new(path))).err().map(|error| error.code()), Some(3), "{path}");
        }
    }

    #[test]
    fn files_are_not_live() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!Input::open(Some(file.path())).unwrap().live);
        #[cfg(unix)]
        assert!(Input::open(Some(Path::new("/dev/null"))).unwrap().live);
    }

    #[test]
    fn bytes_that_came_together_came_at_one_time() {
        let input = Input { name: "x".into(), from: Box::new(&b"one\ntwo\n"[..]), live: true };
        let mut timed = input.timed();
        let first = timed.next_came().unwrap();
        timed.read_line(&mut String::new()).unwrap();
        assert!(first.is_some());
        assert_eq!(timed.next_came().unwrap(), first);
    }
}
