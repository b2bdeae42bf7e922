//! One alarm, as precise as the system allows without spinning.
//!
//! tokio's timers tick once a millisecond and round up; at 100 Mbit/s a millisecond is ten packets. On Linux the alarm is a
//! timerfd; elsewhere it is a tokio sleep, and QUIC's pacer, which allows for a burst, keeps the rate right. Measured on a
//! busy machine of two cores: half of the alarms were more than 0.04 ms late with a timerfd, 1.0 ms with a sleep
//! (`cargo test -p punctual --lib how_late -- --ignored --nocapture`).

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::time::Sleep;

/// An alarm that can be set again and again.
pub(crate) struct Timer {
    due: Option<Instant>,
    source: Source,
}

enum Source {
    #[cfg(target_os = "linux")]
    Fd(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    Sleep(Pin<Box<Sleep>>),
}

impl Timer {
    /// An alarm that is not set.
    pub(crate) fn new() -> Self {
        Self { due: None, source: Source::new() }
    }

    /// Sets the alarm, or switches it off.
    pub(crate) fn set(&mut self, due: Option<Instant>) {
        if self.due == due {
            return;
        }
        self.due = due;
        if let Some(due) = due {
            self.source.arm(due);
        }
    }

    /// Ready once the moment has come; the alarm is then off.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        if due > Instant::now() && self.source.poll(cx, due).is_pending() {
            return Poll::Pending;
        }
        self.due = None;
        Poll::Ready(())
    }
}

impl Source {
    // `with_interest` is deprecated for file descriptors that may be closed behind its back, which an owned one is not; what
    // replaces it is unsafe.
    #[cfg(target_os = "linux")]
    #[allow(deprecated)]
    fn new() -> Self {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|fd| tokio::io::unix::AsyncFd::with_interest(fd, tokio::io::Interest::READABLE))
            .map_or_else(
                |error| {
                    tracing::debug!(%error, "no timerfd; falling back to timers of a millisecond");
                    Self::sleep()
                },
                Self::Fd,
            )
    }

    #[cfg(not(target_os = "linux"))]
    fn new() -> Self {
        Self::sleep()
    }

    fn sleep() -> Self {
        Self::Sleep(Box::pin(tokio::time::sleep(std::time::Duration::ZERO)))
    }

    fn arm(&mut self, due: Instant) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Fd(fd) => {
                use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
                // A span of zero would switch the timer off.
                let span = due.saturating_duration_since(Instant::now()).max(std::time::Duration::from_nanos(1));
                let value = Timespec { tv_sec: span.as_secs().min(1 << 30) as _, tv_nsec: span.subsec_nanos().into() };
                let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
                let spec = Itimerspec { it_interval: interval, it_value: value };
                if let Err(error) = timerfd_settime(&*fd, TimerfdTimerFlags::empty(), &spec) {
                    tracing::warn!(%error, "timerfd failed; falling back to timers of a millisecond");
                    *self = Self::sleep();
                    self.arm(due);
                }
            }
            Self::Sleep(sleep) => sleep.as_mut().reset(due.into()),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        match self {
            // Readiness may be left over from an earlier setting, so only the clock decides.
            #[cfg(target_os = "linux")]
            Self::Fd(fd) => loop {
                match std::task::ready!(fd.poll_read_ready(cx)) {
                    Ok(mut ready) => ready.clear_ready(),
                    // The reactor is shutting down, and the task with it.
                    Err(_) => return Poll::Pending,
                }
                if due <= Instant::now() {
                    return Poll::Ready(());
                }
            },
            Self::Sleep(sleep) => {
                let _ = due;
                sleep.as_mut().poll(cx)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    #[tokio::test]
    async fn never_fires_early_and_can_be_set_again() {
        let mut timer = Timer::new();
        for micros in [0, 300, 2_500, 50] {
            let due = Instant::now() + Duration::from_micros(micros);
            timer.set(Some(due + Duration::from_secs(3600)));
            timer.set(Some(due));
            poll_fn(|cx| timer.poll(cx)).await;
            assert!(Instant::now() >= due);
        }
        // Switched off, it stays silent.
        timer.set(Some(Instant::now()));
        timer.set(None);
        assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx))).await.is_pending());
    }

    #[tokio::test]
    #[ignore = "a measurement"]
    async fn how_late_each_source_is() {
        for (name, source) in [("timerfd", Source::new()), ("sleep", Source::sleep())] {
            let mut timer = Timer { due: None, source };
            let mut late = Vec::new();
            for n in 0..2_000 {
                let due = Instant::now() + Duration::from_micros(100 + n * 37 % 1_500);
                timer.set(Some(due));
                poll_fn(|cx| timer.poll(cx)).await;
                late.push(due.elapsed());
            }
            late.sort_unstable();
            println!("{name}: p50 {:?} p90 {:?} p99 {:?}", late[1_000], late[1_800], late[1_980]);
        }
    }
}
