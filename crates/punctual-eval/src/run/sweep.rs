//! Many runs on all cores, each kept in a [journal](super::journal) as it is finished: a sweep that was interrupted goes on where it stopped.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    hash::Hasher,
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use serde::{Serialize, de::DeserializeOwned};
use siphasher::sip::SipHasher13;
use thiserror::Error;

use super::{
    journal::{Journal, RunKey},
    pool,
};

/// Why a sweep came to no end.
#[derive(Debug, Error)]
pub enum SweepError {
    /// A file could not be written, or read back.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another sweep writes there.
    #[error("another run writes to {} now: wait for its end, or have the results elsewhere", .0.display())]
    Busy(PathBuf),
    /// It was told to stop; what is done is kept.
    #[error("interrupted; the same command goes on where it stopped")]
    Interrupted,
}

/// How far a sweep has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Runs done, those of an earlier time included.
    pub done: usize,
    /// Runs in all, as far as is known.
    pub total: usize,
}

/// How runs are done.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    /// How many go on at once.
    pub(crate) threads: usize,
    /// Interrupts them, between one and the next.
    pub(crate) stop: &'a AtomicBool,
    /// Told after each.
    pub(crate) progress: &'a (dyn Fn(Progress) + Sync),
}

/// What is kept of runs, a `T` for each, and what it takes to do more of them.
pub(crate) struct Sweep<'a, T> {
    manner: Manner<'a>,
    journal: Mutex<Journal<T>>,
    path: PathBuf,
    /// Runs of an earlier time.
    known: BTreeSet<RunKey>,
    done: AtomicUsize,
    total: AtomicUsize,
}

impl<'a, T: Serialize + DeserializeOwned> Sweep<'a, T> {
    /// Opens the journal of a directory, which is made if need be. Runs of an earlier time count if all that they depended on was the same:
    /// the program and what `basis` has taken in; and none does if the sweep is to begin `fresh`.
    pub(crate) fn open(
        directory: &Path,
        fresh: bool,
        mut basis: SipHasher13,
        manner: Manner<'a>,
    ) -> Result<Self, SweepError> {
        fs::create_dir_all(directory).map_err(at(directory))?;
        let path = directory.join("journal");
        hash_program(&mut basis);
        let (journal, known) = Journal::open(&path, basis.finish(), fresh).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => SweepError::Busy(directory.to_path_buf()),
            _ => at(&path)(error),
        })?;
        let (journal, known) = (Mutex::new(journal), known.into_iter().collect());
        Ok(Self { manner, journal, path, known, done: AtomicUsize::new(0), total: AtomicUsize::new(0) })
    }

    /// Does those of the jobs that are not done yet; `one` is also given what its thread keeps from one job to the next.
    ///
    /// # Errors
    /// The first of a job, or that it was interrupted. What is done is kept.
    pub(crate) fn perform<J: Sync, S: Default, E: From<SweepError> + Send>(
        &self,
        jobs: &[J],
        key: impl Fn(&J) -> RunKey + Sync,
        one: impl Fn(&mut S, &J) -> Result<T, E> + Sync,
    ) -> Result<(), E> {
        let left: Vec<&J> = jobs.iter().filter(|job| !self.known.contains(&key(job))).collect();
        self.total.fetch_add(jobs.len(), Relaxed);
        self.count(jobs.len() - left.len());
        let each = |kept: &mut S, job: &&J| -> Result<(), E> {
            let run = one(kept, job)?;
            self.journal().append(key(job), &run).map_err(at(&self.path))?;
            self.count(1);
            Ok(())
        };
        let Manner { threads, stop, .. } = self.manner;
        if pool::work(&left, threads, stop, each)? { Ok(()) } else { Err(SweepError::Interrupted.into()) }
    }

    /// What is kept of a run that was done.
    pub(crate) fn read(&self, key: RunKey) -> Result<T, SweepError> {
        let lost = || io::Error::new(io::ErrorKind::NotFound, "a run is not in the journal any more");
        self.journal().read(key).and_then(|run| run.ok_or_else(lost)).map_err(at(&self.path))
    }

    /// So many more runs are done.
    fn count(&self, more: usize) {
        let done = self.done.fetch_add(more, Relaxed) + more;
        (self.manner.progress)(Progress { done, total: self.total.load(Relaxed) });
    }

    fn journal(&self) -> MutexGuard<'_, Journal<T>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with the file it is about.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> SweepError + use<> {
    let path = path.to_path_buf();
    move |error| SweepError::File { path: path.clone(), error }
}

/// Takes in the program that runs: a run of another program is no run of this one.
fn hash_program(hasher: &mut SipHasher13) {
    if let Some(mut program) = std::env::current_exe().ok().and_then(|path| File::open(path).ok()) {
        // In pieces: with debugging information a program may be larger than everything else that is held.
        let _ = io::copy(&mut program, &mut Hashing(hasher));
    }
}

/// Hashes what is written to it.
struct Hashing<'a>(&'a mut SipHasher13);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds of the runs that were begun, and how many of how many were said to be done.
    type Course = (Vec<u32>, Vec<(usize, usize)>);

    /// Does the runs with these seeds, of which `bad` fails.
    fn sweep(directory: &Path, fresh: bool, seeds: &[u32], bad: u32) -> (Course, Result<(), SweepError>) {
        let (begun, said) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let progress = |Progress { done, total }: Progress| said.lock().unwrap().push((done, total));
        let manner = Manner { threads: 1, stop: &AtomicBool::new(false), progress: &progress };
        let sweep: Sweep<'_, String> = Sweep::open(directory, fresh, SipHasher13::new(), manner).unwrap();
        let key = |&seed: &u32| RunKey { cell: 1, seed };
        let one = |(): &mut (), &seed: &u32| {
            begun.lock().unwrap().push(seed);
            if seed == bad { Err(SweepError::Interrupted) } else { Ok(seed.to_string()) }
        };
        let result = sweep.perform(seeds, key, one);
        for seed in seeds {
            let kept = sweep.read(key(seed)).ok();
            assert_eq!(kept.is_some_and(|kept| kept == seed.to_string()), result.is_ok() || *seed < bad);
        }
        ((begun.into_inner().unwrap(), said.into_inner().unwrap()), result)
    }

    #[test]
    fn what_was_interrupted_goes_on_where_it_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("new");
        let (course, result) = sweep(&place, false, &[1, 2, 3], 3);
        assert_eq!(course, (vec![1, 2, 3], vec![(0, 3), (1, 3), (2, 3)]));
        assert!(matches!(result, Err(SweepError::Interrupted)));
        let (course, result) = sweep(&place, false, &[1, 2, 3, 4], 0);
        assert_eq!(course, (vec![3, 4], vec![(2, 4), (3, 4), (4, 4)]));
        assert!(result.is_ok());
        assert_eq!(sweep(&place, true, &[1, 2], 0).0.0, [1, 2], "it begins anew");
    }
}
