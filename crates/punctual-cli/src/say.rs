//! Words for people, on standard error. Whoever reads them may read slowly, or not any more, and the disk that they go to may be full: that is no reason to hold up or end a session.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal as _, Write},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for a reader who is slow; what comes then is left out.
const WAITING: usize = 1_024;
/// How long the last words may take.
const LAST: Duration = Duration::from_secs(1);

/// Says a line, as `eprintln!` would.
macro_rules! say {
    () => { $crate::say::line(String::new()) };
    ($($words:tt)*) => { $crate::say::line(format!($($words)*)) };
}
pub(crate) use say;

/// What waits to be written.
struct Queue {
    state: Mutex<State>,
    more: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    /// One of them is being written.
    writing: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes, for ever.
    fn run(&self) {
        loop {
            let waiting = self.more.wait_while(self.lock(), |state| state.lines.is_empty());
            let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
            let line = state.lines.pop_front();
            state.writing = true;
            drop(state);
            line.into_iter().for_each(|line| write(&line));
            self.lock().writing = false;
            self.done.notify_all();
        }
    }
}

/// Whoever cannot be told is not told.
fn write(line: &str) {
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The queue, if there is a thread to write what is in it. On a terminal there is none, for lines must come before what is drawn after them.
fn queue() -> Option<&'static Queue> {
    static QUEUE: OnceLock<Option<&'static Queue>> = OnceLock::new();
    *QUEUE.get_or_init(|| {
        if io::stderr().is_terminal() {
            return None;
        }
        let queue: &'static Queue =
            Box::leak(Box::new(Queue { state: Mutex::default(), more: Condvar::new(), done: Condvar::new() }));
        thread::Builder::new().name("words".into()).spawn(|| queue.run()).ok().map(|_| queue)
    })
}

/// Says a line.
pub(crate) fn line(mut text: String) {
    text.push('\n');
    whole(text);
}

fn whole(text: String) {
    let Some(queue) = queue() else { return write(&text) };
    let mut state = queue.lock();
    if state.lines.len() < WAITING {
        state.lines.push_back(text);
        queue.more.notify_one();
    }
}

/// Waits until all that was said is written, for a while.
pub(crate) fn finish() {
    let Some(queue) = queue() else { return };
    let more = |state: &mut State| state.writing || !state.lines.is_empty();
    drop(queue.done.wait_timeout_while(queue.lock(), LAST, more));
}

/// Where the log goes.
pub(crate) struct Log;

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for Log {
    /// An entry, which is written at once.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        whole(String::from_utf8_lossy(entry).into_owned());
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
