//! What a service manager such as systemd wants to hear of a service (`Type=notify`): that it is ready, that it is stopping, and,
//! where it keeps a watchdog, that it is alive. Where nobody asked, nothing is said.

use tokio::time::Interval;

/// The way to the service manager, if there is one.
pub(crate) struct ServiceManager {
    /// When it wants to hear that we are alive.
    watchdog: Option<Interval>,
}

/// Sends nothing: there are such service managers on Unix only.
#[cfg(not(unix))]
impl ServiceManager {
    pub(crate) fn from_environment() -> Self {
        Self { watchdog: None }
    }

    pub(crate) fn ready(&self) {}

    pub(crate) fn stopping(&self) {}

    pub(crate) fn reloading(&self) {}

    fn alive(&self) {}
}

#[cfg(unix)]
impl ServiceManager {
    /// As `NOTIFY_SOCKET` and `WATCHDOG_USEC` say.
    pub(crate) fn from_environment() -> Self {
        // Half of it: one that is late is not the end.
        let period = sd_notify::watchdog_enabled().map(|timeout| timeout / 2).filter(|period| !period.is_zero());
        Self { watchdog: period.map(tokio::time::interval) }
    }

    /// It may send us work.
    pub(crate) fn ready(&self) {
        tell(sd_notify::NotifyState::Ready);
    }

    /// Settings are being read again; [`ready`](Self::ready) says that they have been.
    pub(crate) fn reloading(&self) {
        match sd_notify::NotifyState::monotonic_usec_now() {
            Ok(now) => tell_all(&[sd_notify::NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "the service manager cannot be told the time"),
        }
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        tell(sd_notify::NotifyState::Stopping);
    }

    fn alive(&self) {
        tell(sd_notify::NotifyState::Watchdog);
    }
}

impl ServiceManager {
    /// Says that we are alive whenever it is time, and never returns. To be polled by the task that does the work: were it another, it
    /// would go on when the work does not.
    pub(crate) async fn keep_telling<Never>(&mut self) -> Never {
        loop {
            match &mut self.watchdog {
                Some(due) => due.tick().await,
                None => std::future::pending().await,
            };
            self.alive();
        }
    }
}

/// Nobody is there to be told that telling has failed, but whoever reads the log.
#[cfg(unix)]
fn tell(state: sd_notify::NotifyState<'_>) {
    tell_all(&[state]);
}

/// The same, of several things at once.
#[cfg(unix)]
fn tell_all(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
