//! Signals that end a sweep of runs: after the first, what is under way is finished; the second ends at once.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    exit::Failure,
    say::say,
    signals::{Interrupt, Signal},
};

/// What a signal sets.
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
    signal: Arc<OnceLock<Signal>>,
}

impl Stop {
    /// Listens from now on, for as long as the program runs.
    pub(super) fn listen() -> Result<Self, Failure> {
        let interrupt = Interrupt::listen()?;
        let stop = Self { flag: Arc::default(), signal: Arc::default() };
        let (flag, signal) = (stop.flag.clone(), stop.signal.clone());
        tokio::spawn(async move {
            let _ = signal.set(interrupt.first().await);
            say!("ending when the runs under way are done; a second time ends at once");
            flag.store(true, Ordering::Relaxed);
        });
        Ok(stop)
    }

    /// Whether to begin no more runs.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Of a sweep that it has ended.
    pub(super) fn failure(&self) -> Failure {
        self.signal.get().map_or_else(|| Failure::Other("stopped".into()), |signal| Failure::Paused(*signal))
    }
}
