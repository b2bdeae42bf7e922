//! Where a receiver puts blocks.
//!
//! Writing blocks a thread of its own, so that a reader of our pipe that pauses holds up nothing but the sender: what cannot be
//! written is not taken from the session, and its credit runs out.

use std::{
    collections::VecDeque,
    fs::{self, File, TryLockError},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::exit::Failure;

/// The way to the writing thread.
pub(crate) struct Sink {
    name: PathBuf,
    /// The file, as long as what it had in it before is still there.
    old: Mutex<Option<File>>,
    messages: mpsc::Sender<Message>,
    /// Why the thread has ended, if it has.
    failure: Arc<Mutex<Option<Failure>>>,
    /// Blocks that were to be written,
    put: AtomicU64,
    /// and those of them that the operating system has.
    written: Arc<AtomicU64>,
}

enum Message {
    /// A block and the sender's number for it.
    Block(u64, Bytes),
    /// Answer when everything before this is written.
    Sync(oneshot::Sender<()>),
}

/// Blocks that may wait to be written.
const WAITING: usize = 64;

impl Sink {
    /// Starts to write to `target`; if `framed`, 4 bytes of its length (big endian) before each block.
    pub(crate) fn open(mut target: Target, framed: bool) -> Result<Self, Failure> {
        let (name, old) = (target.name().to_owned(), Mutex::new(target.old.take()));
        let written = Arc::<AtomicU64>::default();
        if let Form::Stream(to) = &mut target.to {
            to.get_mut().written = written.clone();
        }
        let mut writer = Writer { target, framed, put: 0, written: written.clone() };
        let (sender, mut messages) = mpsc::channel(WAITING);
        let failure = Arc::new(Mutex::new(None));
        let left = failure.clone();
        let write = move || {
            let end = writer.run(&mut messages);
            // In this order: whoever finds the channel closed finds the reason.
            *left.lock().unwrap_or_else(PoisonError::into_inner) = end.err();
            drop(messages);
        };
        let thread = thread::Builder::new().name("sink".into()).spawn(write);
        thread.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
        Ok(Self { name, old, messages: sender, failure, put: AtomicU64::new(0), written })
    }

    /// Empties the file if there was one: there is somebody whose blocks are to be written. Nothing has been put away before.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        match self.old.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(file) => file.set_len(0).map_err(|error| Failure::file("write", &self.name, error)),
            None => Ok(()),
        }
    }

    /// What it writes to, for people.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Puts a block away, as soon as there is room for it.
    pub(crate) async fn put(&self, number: u64, block: Bytes) -> Result<(), Failure> {
        self.put.fetch_add(1, Ordering::Relaxed);
        match self.messages.send(Message::Block(number, block)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    /// Waits until everything is written: handed to the operating system, which has not complained.
    pub(crate) async fn sync(&self) -> Result<(), Failure> {
        let (tell, told) = oneshot::channel();
        // Should the thread end, `tell` goes with it.
        let _ = self.messages.send(Message::Sync(tell)).await;
        match told.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    /// Blocks that were to be written and are not, or not for certain.
    pub(crate) fn unwritten(&self) -> u64 {
        self.put.load(Ordering::Relaxed).saturating_sub(self.written.load(Ordering::Relaxed))
    }

    async fn failure(&self) -> Failure {
        self.messages.closed().await;
        let left = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        left.unwrap_or_else(|| Failure::File("cannot write: the output is closed".into()))
    }
}

/// Where blocks are put.
pub(crate) struct Target {
    /// For people, and for telling targets apart.
    name: PathBuf,
    /// A file that was there before, as it is.
    old: Option<File>,
    to: Form,
}

enum Form {
    /// One behind the other.
    Stream(BufWriter<Counted>),
    /// Each a file of its own, in the directory of the target's name.
    Dir,
}

impl Form {
    fn stream(to: impl Write + Send + 'static) -> Self {
        let to = Counted { to: Box::new(to), bytes: 0, ends: VecDeque::new(), written: Arc::default() };
        Self::Stream(BufWriter::new(to))
    }
}

/// What the operating system takes, and which blocks that makes whole.
struct Counted {
    to: Box<dyn Write + Send>,
    /// Bytes so far.
    bytes: u64,
    /// Where blocks end that are not whole yet.
    ends: VecDeque<u64>,
    written: Arc<AtomicU64>,
}

impl Counted {
    fn note(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        while self.ends.front().is_some_and(|end| *end <= self.bytes) {
            self.ends.pop_front();
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.to.write(bytes)?;
        self.note(taken);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()?;
        // Of those without bytes there is nothing to be taken.
        self.note(0);
        Ok(())
    }
}

impl Target {
    pub(crate) fn stdout() -> Self {
        Self { name: "standard output".into(), old: None, to: Form::stream(io::stdout()) }
    }

    /// A file that nobody else writes to. One that is there is emptied only [once it is known](Sink::begin) that there is something to write.
    pub(crate) fn file(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::file("write", path, error);
        let file = File::options().write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let is_plain = file.metadata().is_ok_and(|what| what.is_file());
        // Where nothing can be locked nobody is hindered.
        if is_plain && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Failure::File(format!("{} is being written to by another program", path.display())));
        }
        let old = if is_plain { Some(file.try_clone().map_err(failed)?) } else { None };
        Ok(Self { old, ..Self::made_file(path, file) })
    }

    /// A file that has just been made.
    pub(crate) fn made_file(path: &Path, file: File) -> Self {
        Self { name: path.to_owned(), old: None, to: Form::stream(file) }
    }

    /// A directory, which is made if there is none.
    pub(crate) fn dir(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| Failure::file("make the directory", path, error))?;
        Ok(Self::made(path))
    }

    /// A directory that is there.
    pub(crate) fn made(path: &Path) -> Self {
        Self { name: path.to_owned(), old: None, to: Form::Dir }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }
}

/// That what is read is not what is written to, which would be emptied before.
pub(crate) fn not_the_same(from: &Path, to: &Path) -> Result<(), Failure> {
    let from = if from == Path::new("-") { Path::new("/dev/stdin") } else { from };
    let is_same = to != Path::new("-") && is_same_file(from, to);
    if !is_same {
        return Ok(());
    }
    Err(Failure::Usage(format!("{} is what is read, and cannot be written to", to.display())))
}

#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let known = |path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| (file.dev(), file.ino()));
    known(one).is_some_and(|one| known(other) == Some(one))
}

#[cfg(not(unix))]
fn is_same_file(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

struct Writer {
    target: Target,
    /// Whether each block goes behind its length.
    framed: bool,
    /// Bytes so far, those that are still held here included,
    put: u64,
    /// and whole blocks that the operating system has.
    written: Arc<AtomicU64>,
}

impl Writer {
    /// Writes until nobody has anything to write any more.
    fn run(&mut self, messages: &mut mpsc::Receiver<Message>) -> Result<(), Failure> {
        while let Some(message) = messages.blocking_recv() {
            match message {
                Message::Block(number, block) => {
                    self.put(number, &block)?;
                    // What is complete shall be seen, once there is time for it.
                    if messages.is_empty() {
                        self.flush()?;
                    }
                }
                Message::Sync(tell) => {
                    self.flush()?;
                    // Whoever asked may have gone.
                    let _ = tell.send(());
                }
            }
        }
        self.flush()
    }

    fn put(&mut self, number: u64, block: &[u8]) -> Result<(), Failure> {
        let Target { name, to, .. } = &mut self.target;
        match to {
            Form::Dir => {
                let path = name.join(format!("{number:08}.block"));
                fs::write(&path, block).map_err(|error| Failure::file("write", &path, error))?;
                self.written.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Form::Stream(to) => {
                let length = u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes();
                let head = if self.framed { &length[..] } else { &[] };
                self.put += (head.len() + block.len()) as u64;
                to.get_mut().ends.push_back(self.put);
                to.write_all(head)
                    .and_then(|()| to.write_all(block))
                    .map_err(|error| Failure::file("write", name, error))
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let Target { name, to, .. } = &mut self.target;
        if let Form::Stream(to) = to {
            to.flush().map_err(|error| Failure::file("write", name, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_not_written_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Sink::open(Target::file(&dir.path().join("out")).unwrap(), false).unwrap();
        assert_eq!(sink.unwritten(), 0);
        for n in 0..100 {
            sink.put(n, Bytes::from_static(b"a block")).await.unwrap();
        }
        sink.sync().await.unwrap();
        assert_eq!(sink.unwritten(), 0);
    }

    /// A reader who takes a little and no more.
    struct Slow(usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                loop {
                    thread::park();
                }
            }
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn while_more_waits_what_is_written_is_known_to_the_block() {
        let target = Target { name: "slow".into(), old: None, to: Form::stream(Slow(25_000)) };
        let sink = Sink::open(target, false).unwrap();
        for n in 0..40 {
            sink.put(n, Bytes::from(vec![0; 1_000])).await.unwrap();
        }
        let come_so_far = async {
            while sink.unwritten() > 15 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), come_so_far).await.unwrap();
        // It holds more than a block before it hands on, and never says more than there is.
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert_eq!(sink.unwritten(), 15);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_cannot_be_written_is_not() {
        let sink = Sink::open(Target::file(Path::new("/dev/full")).unwrap(), false).unwrap();
        sink.put(0, Bytes::from_static(b"a block")).await.unwrap();
        assert!(sink.sync().await.is_err());
        assert_eq!(sink.unwritten(), 1);
    }
}
