//! Where a receiver puts blocks.
//!
//! Writing blocks a thread of its own, so that a reader of our pipe that pauses holds up nothing but the sender: what cannot be
//! written is not taken from the session, and its credit runs out.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::{cli::RecvArgs, exit::Failure};

/// The way to the writing thread.
pub(crate) struct Sink {
    messages: mpsc::Sender<Message>,
    /// Why the thread has ended, if it has.
    failure: Arc<Mutex<Option<Failure>>>,
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
    /// Opens what the command line names; a file that is there is begun anew.
    pub(crate) fn open(args: &RecvArgs) -> Result<Self, Failure> {
        let mut writer = Writer::open(args)?;
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
        Ok(Self { messages: sender, failure })
    }

    /// Puts a block away, as soon as there is room for it.
    pub(crate) async fn put(&self, number: u64, block: Bytes) -> Result<(), Failure> {
        match self.messages.send(Message::Block(number, block)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    /// Waits until everything is written.
    pub(crate) async fn sync(&self) -> Result<(), Failure> {
        let (tell, told) = oneshot::channel();
        // Should the thread end, `tell` goes with it.
        let _ = self.messages.send(Message::Sync(tell)).await;
        match told.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    async fn failure(&self) -> Failure {
        self.messages.closed().await;
        let left = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        left.unwrap_or_else(|| Failure::File("cannot write: the output is closed".into()))
    }
}

struct Writer {
    to: Target,
    /// Whether each block goes behind its length.
    framed: bool,
}

enum Target {
    Stream { name: PathBuf, to: Box<dyn Write + Send> },
    Dir(PathBuf),
}

impl Writer {
    fn open(args: &RecvArgs) -> Result<Self, Failure> {
        let to = match (&args.dir, args.out.as_deref().filter(|path| *path != Path::new("-"))) {
            (Some(dir), _) => {
                fs::create_dir_all(dir).map_err(|error| Failure::file("make the directory", dir, error))?;
                Target::Dir(dir.clone())
            }
            (None, Some(path)) => {
                let file = File::create(path).map_err(|error| Failure::file("write", path, error))?;
                Target::Stream { name: path.to_owned(), to: Box::new(BufWriter::new(file)) }
            }
            (None, None) => {
                Target::Stream { name: "standard output".into(), to: Box::new(BufWriter::new(io::stdout())) }
            }
        };
        Ok(Self { to, framed: args.framed })
    }

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
        match &mut self.to {
            Target::Dir(dir) => {
                let path = dir.join(format!("{number:08}.block"));
                fs::write(&path, block).map_err(|error| Failure::file("write", &path, error))
            }
            Target::Stream { name, to } => {
                let length = u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes();
                let head = if self.framed { &length[..] } else { &[] };
                to.write_all(head)
                    .and_then(|()| to.write_all(block))
                    .map_err(|error| Failure::file("write", name, error))
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.to {
            Target::Dir(_) => Ok(()),
            Target::Stream { name, to } => to.flush().map_err(|error| Failure::file("write", name, error)),
        }
    }
}
