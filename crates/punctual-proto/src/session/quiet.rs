//! A client to which nothing comes any more asks whether it can still be reached.
//!
//! Who merely receives has nothing under way that could be missed. If a NAT before it has forgotten it, what the peer sends goes where nobody is any more, and the
//! peer learns of the new address with the next keep-alive, seconds later. So after a silence that is longer than is usual between data, a client pings each of
//! its paths, once: that shows the peer where it is, and what becomes of the ping is for the paths' alarms. A server need not: nobody could find it elsewhere.

use std::time::{Duration, Instant};

use super::Session;
use crate::base::PathHealth;

/// No silence before this: what comes in frames may pause for two of them.
const LEAST_SILENCE: Duration = Duration::from_millis(100);
/// So many of the longest pauses of late are a silence.
const PAUSES: u32 = 3;
/// The longest pause fades by this part of each that is shorter, whatever the number of packets: it is forgotten within four times as long.
const FADING: u32 = 4;

/// When data came last, and how it comes.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    last: Option<Instant>,
    /// The longest pause of late.
    pause: Duration,
    /// What follows the last data has been asked for.
    asked: bool,
}

impl Quiet {
    /// Data came. A silence beyond which `keep_alive` takes over is no pause: whoever comes back from one is soon missed again.
    pub(super) fn on_data(&mut self, now: Instant, keep_alive: Duration) {
        let pause = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let pause = pause.min(keep_alive / PAUSES);
        self.pause = pause.max(self.pause.saturating_sub(pause / FADING));
        (self.last, self.asked) = (Some(now), false);
    }

    /// It has been asked whether we are still there to be reached.
    fn on_asked(&mut self) {
        self.asked = true;
    }

    /// When that is to be asked. Later than `keep_alive` there is no need.
    fn due(&self, keep_alive: Duration) -> Option<Instant> {
        let silence = (self.pause * PAUSES).max(LEAST_SILENCE);
        self.last.filter(|_| !self.asked && silence < keep_alive).and_then(|last| last.checked_add(silence))
    }
}

impl Session {
    /// When [`ask_if_quiet`](Self::ask_if_quiet) has something to do.
    pub(super) fn next_question(&self) -> Option<Instant> {
        let asks = self.conn.side().is_client() && self.punctual == Some(true);
        let due = self.quiet.due(self.config.keep_alive).filter(|_| asks)?;
        // Where anything else comes, be it answers, we can be reached.
        let heard = self.paths.iter().map(|path| path.last_received()).max()?;
        Some(due.max(heard + LEAST_SILENCE))
    }

    /// If it has been quiet for too long, pings all paths that are in use and not in doubt.
    pub(super) fn ask_if_quiet(&mut self, now: Instant) {
        if self.next_question().is_none_or(|at| now < at) {
            return;
        }
        self.quiet.on_asked();
        for path in self.paths.iter().filter(|path| path.health() == PathHealth::Active) {
            let _ = self.conn.ping_path(path.quic);
        }
    }

    /// The peer hears nothing on a path any more. If we have heard nothing there either for a round trip, that may be because we are elsewhere: a word from us tells it where. (The peer has missed
    /// something for as long, and says so once.)
    pub(super) fn show_ourselves(&mut self, now: Instant, quic: noq_proto::PathId) {
        if !self.conn.side().is_client() || self.quiet.last.is_none() {
            return;
        }
        if self.paths.by_quic(quic).is_some_and(|path| now >= path.last_received() + path.rtt().min(LEAST_SILENCE)) {
            let _ = self.conn.ping_path(quic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_ALIVE: Duration = Duration::from_secs(5);

    /// After how long, in milliseconds, it is asked where bursts of so many packets come so often.
    fn asks_after(packets: u32, interval: u64) -> Option<u128> {
        let (mut now, mut quiet) = (Instant::now(), Quiet::default());
        for _ in 0..20 {
            (0..packets).for_each(|n| quiet.on_data(now + Duration::from_micros(n.into()), KEEP_ALIVE));
            now += Duration::from_millis(interval);
        }
        let last = quiet.last.expect("some came");
        quiet.due(KEEP_ALIVE).map(|due| (due - last).as_millis())
    }

    #[test]
    fn a_silence_is_longer_than_pauses_are() {
        assert_eq!(asks_after(1, 10), Some(100));
        assert_eq!(asks_after(15, 33), Some(100));
        assert!(asks_after(15, 100).is_some_and(|after| (200..=300).contains(&after)));
        assert!(asks_after(1, 1_000).is_some_and(|after| (2_000..=3_000).contains(&after)), "never between two");
        assert!(asks_after(200, 1_000).is_some_and(|after| (2_000..=3_000).contains(&after)));
        assert!(asks_after(1, 2_000).is_none_or(|after| after > 4_900), "QUIC does, by itself");
    }

    #[test]
    fn it_is_asked_once() {
        let (now, mut quiet) = (Instant::now(), Quiet::default());
        assert_eq!(quiet.due(KEEP_ALIVE), None);
        quiet.on_data(now, KEEP_ALIVE);
        assert!(quiet.due(KEEP_ALIVE).is_some());
        quiet.on_asked();
        assert_eq!(quiet.due(KEEP_ALIVE), None);
        (0..300).for_each(|n| quiet.on_data(now + KEEP_ALIVE * 9 + Duration::from_millis(n * 33), KEEP_ALIVE));
        let last = quiet.last.expect("some came");
        assert_eq!(
            quiet.due(KEEP_ALIVE).map(|due| due - last),
            Some(LEAST_SILENCE),
            "a long pause is forgotten in ten seconds"
        );
    }
}
