//! What every run of the demo has in common: the clip, the clock, the impaired paths, and the notes of when each frame left and arrived.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use punctual_eval::h264::AccessUnit;
use tokio::sync::Notify;

use super::{progress::Live, scenario::Scenario};
use crate::{
    exit::Failure,
    link::relay::{Carried, Relay},
};

/// What a run is given.
pub(crate) struct Stage {
    /// The clip, in decoding order.
    pub(crate) frames: Arc<[AccessUnit]>,
    /// From one frame to the next.
    pub(crate) interval: Duration,
    pub(crate) scenario: Scenario,
    /// Where people look while it runs.
    pub(crate) live: Arc<Live>,
}

/// What a run leaves behind.
pub(crate) struct Recording {
    /// For each frame, from the beginning of the clip.
    pub(crate) frames: Vec<Times>,
    /// What each path carried.
    pub(crate) carried: Vec<Carried>,
}

/// When a frame was handed to the transport and when the receiver had all of it, counted from the beginning of the clip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) sent: Option<Duration>,
    pub(crate) arrived: Option<Duration>,
}

/// Writes down what happens to each frame, for sender and receiver, which share this host and its clock.
pub(crate) struct Recorder {
    frames: Arc<[AccessUnit]>,
    deadline: Duration,
    live: Arc<Live>,
    notes: Mutex<Notes>,
    complete: Notify,
}

struct Notes {
    start: Instant,
    times: Vec<Times>,
    missing: usize,
}

/// How long both ends may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Waits for both ends of a connection.
pub(crate) async fn both_ends<C, S>(
    client: impl Future<Output = Result<C, Failure>>,
    server: impl Future<Output = Option<S>>,
) -> Result<(C, S), Failure> {
    let server = async { server.await.ok_or_else(|| failed("accept over loopback", "the endpoint is closed")) };
    let ends = async { tokio::try_join!(client, server) };
    let timed_out = |_| failed("connect over loopback", format_args!("no answer within {HANDSHAKE:?}"));
    tokio::time::timeout(HANDSHAKE, ends).await.map_err(timed_out)?
}

/// What a run says when this host does not play along.
pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("the demo could not {what}: {error}"))
}

impl Stage {
    /// Hands over one frame after the other at the true rate, then waits for the last of them as long as it makes sense.
    ///
    /// `hand_over` gives a frame to the transport and must not wait for the network.
    pub(crate) async fn play(
        &self,
        relay: &Relay,
        recorder: &Recorder,
        mut hand_over: impl AsyncFnMut(usize, &AccessUnit) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        relay.begin();
        let start = recorder.begin();
        for (frame, index) in self.frames.iter().zip(0..) {
            tokio::time::sleep_until((start + self.interval * index).into()).await;
            recorder.sent(index as usize);
            hand_over(index as usize, frame).await?;
        }
        // A run that never ends proves nothing more.
        let _ = tokio::time::timeout(self.scenario.drain, recorder.complete.notified()).await;
        Ok(())
    }

    pub(crate) fn recorder(&self) -> Arc<Recorder> {
        self.live.restart();
        Arc::new(Recorder {
            frames: self.frames.clone(),
            deadline: self.scenario.deadline,
            live: self.live.clone(),
            notes: Mutex::new(Notes {
                start: Instant::now(),
                times: vec![Times::default(); self.frames.len()],
                missing: self.frames.len(),
            }),
            complete: Notify::new(),
        })
    }
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn begin(&self) -> Instant {
        let mut notes = self.lock();
        notes.start = Instant::now();
        notes.start
    }

    fn sent(&self, index: usize) {
        let mut notes = self.lock();
        notes.times[index].sent = Some(notes.start.elapsed());
        self.live.sent();
    }

    /// A frame is whole at the receiver. One that differs from what was sent does not count.
    pub(crate) fn arrived(&self, index: usize, data: &[u8]) {
        if self.frames.get(index).is_none_or(|frame| frame.data != data) {
            return;
        }
        let mut notes = self.lock();
        let now = notes.start.elapsed();
        let times = &mut notes.times[index];
        if times.arrived.replace(now).is_some() {
            return;
        }
        let delay = now.saturating_sub(times.sent.unwrap_or(now));
        self.live.arrived(delay, delay <= self.deadline);
        self.settle(notes);
    }

    /// A frame will never arrive, by the transport's word.
    pub(crate) fn dropped(&self, index: usize) {
        let notes = self.lock();
        if notes.times.get(index).is_some_and(|times| times.arrived.is_none()) {
            self.settle(notes);
        }
    }

    fn settle(&self, mut notes: MutexGuard<'_, Notes>) {
        notes.missing = notes.missing.saturating_sub(1);
        if notes.missing == 0 {
            self.complete.notify_one();
        }
    }

    pub(crate) fn finish(&self, relay: &Relay) -> Recording {
        Recording { frames: self.lock().times.clone(), carried: relay.carried() }
    }
}
