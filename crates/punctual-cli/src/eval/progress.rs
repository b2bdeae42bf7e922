//! How far an experiment has come.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use punctual_eval::run::Progress;

/// A bar on standard error.
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// A bar for the experiment of that name; one that shows nothing if not `visible`.
    pub(super) fn new(name: &str, visible: bool) -> Self {
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:40}] {pos}/{len} runs, {eta} to go") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    pub(super) fn show(&self, progress: Progress) {
        self.0.set_length(progress.total as u64);
        if self.0.position() == 0 && progress.done > 0 {
            // Runs of an earlier time say nothing of how long the rest will take.
            self.0.reset_eta();
        }
        self.0.set_position(progress.done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
