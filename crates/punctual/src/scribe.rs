//! Files that a thread of their own writes, so that nothing waits for a disk behind the lock of an endpoint.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tracing::warn;

/// What is gathered before it is handed to the thread, bytes, and for how long it may be gathered.
const CHUNK: usize = 32 << 10;
const AGE: Duration = Duration::from_millis(250);
/// Bytes that may wait for the disk, of all files; what then comes on top ends the file it is for.
const MOST_WAITING: usize = 64 << 20;

enum Job {
    Write(Arc<Path>, Vec<u8>),
    Close(Arc<Path>),
    /// Everything before has been written.
    Tell(oneshot::Sender<()>),
    Stop,
}

/// The thread.
pub(crate) struct Scribe {
    jobs: Sender<Job>,
    waiting: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Scribe {
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, todo) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = waiting.clone();
        let work = move || {
            let mut files = HashMap::new();
            while let Ok(job) = todo.recv() {
                match job {
                    Job::Write(path, bytes) => {
                        left.fetch_sub(bytes.len(), Relaxed);
                        write(&mut files, &path, &bytes);
                    }
                    Job::Close(path) => _ = files.remove(&path),
                    // Whoever asked may have gone.
                    Job::Tell(tell) => _ = tell.send(()),
                    Job::Stop => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("punctual-qlog".into()).spawn(work)?;
        Ok(Self { jobs, waiting, thread: Mutex::new(Some(thread)) })
    }

    /// A file, made when something is first written to it.
    pub(crate) fn file(&self, path: PathBuf) -> ScribeFile {
        let (jobs, waiting) = (self.jobs.clone(), self.waiting.clone());
        ScribeFile { jobs, waiting, path: path.into(), buffer: Vec::new(), since: None, given_up: false }
    }

    /// Waits until everything that was handed over before has been written.
    pub(crate) fn caught_up(&self) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        // Where the thread is gone the answer is that nothing more will come.
        let _ = self.jobs.send(Job::Tell(tell));
        told
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        let _ = self.jobs.send(Job::Stop);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread that writes qlog files has failed");
        }
    }
}

/// Adds to a file; `None` stands for one that cannot be written.
fn write(files: &mut HashMap<Arc<Path>, Option<File>>, path: &Arc<Path>, bytes: &[u8]) {
    let file = files.entry(path.clone()).or_insert_with(|| {
        let made = File::create_new(path);
        made.inspect_err(|error| warn!(%error, "no qlog file at {}", path.display())).ok()
    });
    if let Some(open) = file
        && let Err(error) = open.write_all(bytes)
    {
        warn!(%error, "the qlog file at {} ends here", path.display());
        *file = None;
    }
}

/// A file of the thread's. Writing to it never waits and never fails.
pub(crate) struct ScribeFile {
    jobs: Sender<Job>,
    waiting: Arc<AtomicUsize>,
    path: Arc<Path>,
    buffer: Vec<u8>,
    /// Since when there is something in it.
    since: Option<Instant>,
    given_up: bool,
}

impl Write for ScribeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.given_up {
            self.buffer.extend_from_slice(bytes);
            let since = *self.since.get_or_insert_with(Instant::now);
            if self.buffer.len() >= CHUNK || since.elapsed() >= AGE {
                self.flush()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.since = None;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.buffer);
        if self.waiting.fetch_add(bytes.len(), Relaxed) > MOST_WAITING {
            self.waiting.fetch_sub(bytes.len(), Relaxed);
            self.given_up = true;
            warn!("the disk is too slow: the qlog file at {} ends here", self.path.display());
            return Ok(());
        }
        // The thread lives as long as the endpoint; what comes after that is of no use.
        let _ = self.jobs.send(Job::Write(self.path.clone(), bytes));
        Ok(())
    }
}

impl Drop for ScribeFile {
    fn drop(&mut self) {
        let _ = self.flush();
        let _ = self.jobs.send(Job::Close(self.path.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_there_when_the_thread_has_caught_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let scribe = Scribe::start().expect("a thread");
        let path = dir.path().join("log");
        let mut file = scribe.file(path.clone());
        assert!(!path.exists(), "nothing has been written yet");
        for _ in 0..10_000 {
            file.write_all(b"0123456789").expect("it never fails");
        }
        drop(file);
        scribe.caught_up().blocking_recv().expect("the thread lives");
        assert_eq!(std::fs::read(&path).expect("readable").len(), 100_000);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_in_nobody_s_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let scribe = Scribe::start().expect("a thread");
        let mut bad = scribe.file(dir.path().join("no such directory").join("log"));
        let mut good = scribe.file(dir.path().join("log"));
        bad.write_all(b"lost").expect("it never fails");
        good.write_all(b"kept").expect("it never fails");
        drop((bad, good));
        drop(scribe);
        assert_eq!(std::fs::read(dir.path().join("log")).expect("readable"), b"kept");
    }
}
