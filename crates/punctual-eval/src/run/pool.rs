//! Several threads that do jobs.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// Does the jobs on so many threads, which take them in order; `each` is also given what its thread keeps from one job to the next.
/// Whether all were done: not if `stop` said to stop, which it may between jobs.
///
/// # Errors
/// The first of a job. No other is begun after it.
pub(crate) fn work<J: Sync, S: Default, E: Send>(
    jobs: &[J],
    threads: usize,
    stop: &AtomicBool,
    each: impl Fn(&mut S, &J) -> Result<(), E> + Sync,
) -> Result<bool, E> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failure: Mutex<Option<E>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                let mut kept = S::default();
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Err(error) = each(&mut kept, job) {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        next.store(jobs.len(), Ordering::Relaxed);
                        return;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(done.load(Ordering::Relaxed) == jobs.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_are_done_once() {
        let jobs: Vec<usize> = (0..100).collect();
        let seen = Mutex::new(Vec::new());
        let each = |kept: &mut usize, job: &usize| {
            *kept += 1;
            seen.lock().unwrap().push(*job);
            Ok::<(), ()>(())
        };
        assert_eq!(work(&jobs, 3, &AtomicBool::new(false), each), Ok(true));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, jobs);
        assert_eq!(work(&[], 3, &AtomicBool::new(false), |(), (): &()| Err(())), Ok(true));
    }

    #[test]
    fn an_error_or_a_word_ends_it() {
        let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let each = |(): &mut (), job: &usize| {
            count.fetch_add(1, Ordering::Relaxed);
            if *job == 2 { Err("two") } else { Ok(()) }
        };
        assert_eq!(work(&[0, 1, 2, 3, 4], 1, &stop, each), Err("two"));
        assert_eq!(count.load(Ordering::Relaxed), 3);
        let until_three = |(): &mut (), job: &usize| {
            stop.store(*job == 3, Ordering::Relaxed);
            Ok::<(), ()>(())
        };
        assert_eq!(work(&[0, 1, 2, 3, 4], 1, &stop, until_three), Ok(false));
    }
}
