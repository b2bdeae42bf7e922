//! What a person sees while a run is under way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counters of the run under way, written by the run and read by the line on screen.
#[derive(Debug, Default)]
pub(crate) struct Live {
    sent: AtomicU64,
    arrived: AtomicU64,
    on_time: AtomicU64,
    delay_ms: AtomicU64,
}

impl Live {
    pub(super) fn restart(&self) {
        for counter in [&self.sent, &self.arrived, &self.on_time, &self.delay_ms] {
            counter.store(0, Relaxed);
        }
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    pub(super) fn arrived(&self, delay: Duration, on_time: bool) {
        self.arrived.fetch_add(1, Relaxed);
        self.on_time.fetch_add(u64::from(on_time), Relaxed);
        self.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn line(&self) -> String {
        let [arrived, on_time, delay] =
            [&self.arrived, &self.on_time, &self.delay_ms].map(|counter| counter.load(Relaxed));
        format!("{arrived:>3} frames here, {on_time:>3} on time, delay {delay:>4} ms")
    }
}

/// The line on screen for one run; gone silently if there is nobody to see it.
pub(crate) struct Line {
    bar: ProgressBar,
    live: Arc<Live>,
    task: tokio::task::JoinHandle<()>,
}

impl Line {
    /// Shows a run of `frames` frames.
    pub(crate) fn show(name: &str, frames: usize, live: Arc<Live>, visible: bool) -> Self {
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(frames as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:>15} {bar:24} {pos:>3}/{len} sent  {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        let (shown, counters) = (bar.clone(), live.clone());
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(100));
            loop {
                tick.tick().await;
                shown.set_position(counters.sent.load(Relaxed));
                shown.set_message(counters.line());
            }
        });
        Self { bar, live, task }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.set_position(self.live.sent.load(Relaxed));
        self.bar.abandon_with_message(self.live.line());
    }
}
