//! Signals that ask the program to end: Ctrl-C, SIGTERM, and SIGHUP of a terminal that goes away.
//!
//! The first asks for an end in order: the peer is told, what is under way is finished, output is flushed, the summary printed. A
//! second ends at once. A signal that whoever started us has had ignored (`nohup`, `&` in a script) stays ignored.

use std::time::Duration;

use tokio::sync::watch;

use crate::exit::Failure;

/// What asked for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(unix), expect(dead_code, reason = "elsewhere there is Ctrl-C only"))]
pub(crate) enum Signal {
    Hangup = 1,
    Interrupt = 2,
    Terminate = 15,
}

impl Signal {
    /// The code a process ends with that was ended by it, as shells have it: 128 and its number.
    pub(crate) fn code(self) -> u8 {
        128 + self as u8
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "Ctrl-C",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// How long the end at once may take: enough to tell the peer, little enough that nobody waits.
const AT_ONCE: Duration = Duration::from_millis(300);

/// The signals that came so far. Clones hear of the same.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(watch::Receiver<Asked>);

/// Who asked first, and how often it was asked for in all.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    first: Option<Signal>,
    times: u32,
}

impl Interrupt {
    /// Listens from now on; until then a signal ends the process as it always does.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::listen_to(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate])
    }

    /// The same, to all but SIGHUP: that asks for [something else](Hangups).
    pub(crate) fn listen_but_for_hangups() -> Result<Self, Failure> {
        Self::listen_to(&[Signal::Interrupt, Signal::Terminate])
    }

    fn listen_to(signals: &[Signal]) -> Result<Self, Failure> {
        let mut signals =
            Signals::listen(signals).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))?;
        let (tell, asked) = watch::channel(Asked::default());
        tokio::spawn(async move {
            let first = signals.next().await;
            tell.send_replace(Asked { first: Some(first), times: 1 });
            let second = signals.next().await;
            tell.send_replace(Asked { first: Some(first), times: 2 });
            tokio::time::sleep(AT_ONCE).await;
            crate::say::finish();
            std::process::exit(second.code().into());
        });
        Ok(Self(asked))
    }

    /// Waits for the first signal.
    pub(crate) async fn first(&self) -> Signal {
        let mut asked = self.0.clone();
        let first = asked.wait_for(|asked| asked.first.is_some()).await.ok().and_then(|asked| asked.first);
        match first {
            Some(signal) => signal,
            // The listener ends with the runtime; then there is nobody left to ask.
            None => std::future::pending().await,
        }
    }

    /// Waits until the process is about to end at once.
    pub(crate) async fn second(&self) -> Signal {
        let mut asked = self.0.clone();
        if asked.wait_for(|asked| asked.times >= 2).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.first().await
    }
}

/// SIGHUP, where it asks a service to read its settings again.
pub(crate) struct Hangups(#[cfg(unix)] tokio::signal::unix::Signal);

impl Hangups {
    /// Listens from now on.
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let signal = signal(SignalKind::hangup());
        signal.map(Self).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))
    }

    /// There is no such signal.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self())
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if self.0.recv().await.is_some() {
            return;
        }
        std::future::pending().await
    }
}

#[cfg(unix)]
struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

#[cfg(unix)]
impl Signals {
    fn listen(to: &[Signal]) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let ignored = ignored();
        let heard = to.iter().copied().filter(|&which| ignored & 1 << (which as u64 - 1) == 0);
        heard.map(|which| Ok((which, signal(SignalKind::from_raw(which as i32))?))).collect::<Result<_, _>>().map(Self)
    }

    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            let came = self.0.iter_mut().find_map(|(which, signal)| signal.poll_recv(cx).is_ready().then_some(*which));
            came.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}

/// The signals that are ignored, bit 0 for signal 1. Only Linux tells without code that could break memory; elsewhere none.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen(_: &[Signal]) -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}
