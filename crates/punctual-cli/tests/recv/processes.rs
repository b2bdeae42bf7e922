//! Receivers and senders under way.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// After this, a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program, told nothing by our own environment.
pub(crate) fn punctual() -> Command {
    // Whoever runs the tests in the background may have these signals ignored, and so would the program.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_punctual")]);
    for name in ["RUST_LOG", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"] {
        command.env_remove(name);
    }
    command
}

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What a process has said so far on one of its outputs.
#[derive(Clone, Default)]
pub(crate) struct Said(Arc<Mutex<String>>);

impl Said {
    fn follow(from: impl Read + Send + 'static) -> (Self, thread::JoinHandle<()>) {
        let said = Self::default();
        let to = said.clone();
        let reader = thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                to.0.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        (said, reader)
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    /// The rest of the first line that has `what`.
    pub(crate) fn after(&self, what: &str) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if let Some(found) = text.lines().find_map(|line| Some(line.split_once(what)?.1.to_owned())) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what:?} in {text:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that does not outlive its test.
pub(crate) struct Process {
    child: Child,
    pub(crate) stdout: Said,
    pub(crate) stderr: Said,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let (stdout, one) = Said::follow(child.stdout.take().expect("it is piped"));
        let (stderr, other) = Said::follow(child.stderr.take().expect("it is piped"));
        Self { child, stdout, stderr, readers: vec![one, other] }
    }

    /// Sends it a signal, by the name that `kill` knows.
    pub(crate) fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Stops it: it does nothing more until it is told to go on. With the signal alone it goes on for a while, as each of its threads
    /// stops only when it has run again.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let threads = format!("/proc/{}/task", self.child.id());
        let stands = |thread: std::io::Result<fs::DirEntry>| {
            let status = thread.and_then(|thread| fs::read_to_string(thread.path().join("status")));
            // One that has ended meanwhile does nothing more, either.
            status.map_or(true, |status| status.contains("\nState:\tT"))
        };
        // Elsewhere there is nothing to see, and we hope for the best.
        wait_for("end of what it was doing", || match fs::read_dir(&threads) {
            Ok(mut threads) => threads.all(stands).then_some(()),
            Err(_) => Some(()),
        });
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Its exit code, once it has ended and everything it said has been read.
    pub(crate) fn end(&mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.end_by_itself()
    }

    /// Its exit code, whichever ends first: it, for a reason of its own, or its input a little later.
    pub(crate) fn end_by_itself_or_with_its_input(&mut self) -> Option<i32> {
        let input = self.child.stdin.take();
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(1));
            drop(input);
        });
        self.end_by_itself()
    }

    /// What it reads.
    pub(crate) fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("it is piped, and nobody else has it")
    }

    /// As [`end`](Self::end), but its input stays open: it must find a reason of its own.
    pub(crate) fn end_by_itself(&mut self) -> Option<i32> {
        let status: ExitStatus = wait_for(&format!("end after {:?}", self.stderr.text()), || {
            self.child.try_wait().expect("it is our child")
        });
        for reader in self.readers.drain(..) {
            reader.join().expect("it only reads");
        }
        status.code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `punctual recv`, listening.
pub(crate) struct Receiver {
    pub(crate) process: Process,
    pub(crate) address: String,
    pub(crate) fingerprint: String,
}

impl Receiver {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::of(punctual().args(["recv", "--listen", "127.0.0.1:0"]).args(args).stdin(Stdio::null()))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let process = Process::start(command);
        let address = process.stderr.after("listening on ");
        let fingerprint = process.stderr.after("fingerprint ");
        Self { process, address, fingerprint }
    }

    /// A sender of lines to it.
    pub(crate) fn sender(&self, args: &[&str]) -> Sender {
        let mut command = punctual();
        command.args(["send", &self.address, "--fingerprint", &self.fingerprint, "--lines"]).args(args);
        Sender(Process::start(command.stdin(Stdio::piped())))
    }

    /// Waits until it has let in so many senders.
    pub(crate) fn serves(&self, senders: usize) {
        wait_for(&format!("{senders} senders let in"), || {
            (self.process.stderr.text().matches("receiving from ").count() >= senders).then_some(())
        });
    }

    pub(crate) fn end(&mut self) -> Option<i32> {
        self.process.end()
    }

    pub(crate) fn said(&self) -> String {
        self.process.stderr.text()
    }
}

/// `punctual send --lines`, whose input stays open until it is ended.
pub(crate) struct Sender(pub(crate) Process);

impl Sender {
    /// Gives it a line to send. It may have ended.
    pub(crate) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.0.child.stdin {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Says lines, each once the one before has been written, for as long as it takes that statistics come in between; all of them.
    pub(crate) fn talk(&mut self, written: impl Fn() -> String) -> String {
        let (begun, mut said) = (Instant::now(), String::new());
        for n in 0.. {
            let line = format!("line {n}");
            self.say(&line);
            said += &format!("{line}\n");
            wait_for(&line, || (written() == said).then_some(()));
            if begun.elapsed() > Duration::from_millis(1_200) {
                break;
            }
        }
        said
    }

    /// Its exit code after the end of its input.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.0.end()
    }

    pub(crate) fn said(&self) -> String {
        self.0.stderr.text()
    }
}
