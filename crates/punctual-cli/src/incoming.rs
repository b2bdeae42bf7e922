//! What a receiver sends back, at the sender: taken from one session after the other, and written to one output.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use punctual::Session;
use tokio::task::JoinHandle;

use crate::{
    back::BackFigures,
    cli::SendArgs,
    exit::{Failure, close},
    sink::{Sink, Target},
    stats::Tally,
    take::{self, Until},
};

/// What comes back, by whatever session.
#[derive(Clone)]
pub(crate) struct Incoming {
    sink: Arc<Sink>,
    tally: Tally,
    /// Sessions that the receiver has not said to have no more for.
    unfinished: Arc<AtomicU64>,
    /// The receiver has said in the last of them that it has no more.
    ended: Arc<AtomicBool>,
    /// Of the sessions, one writes after the other.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Incoming {
    /// The output that the command line names, if it does.
    pub(crate) fn open(args: &SendArgs) -> Result<Option<Self>, Failure> {
        let target = match args.receive.as_deref() {
            None => return Ok(None),
            Some(path) if path == Path::new("-") && args.common.json => {
                let words = "--json writes to standard output; put what comes back elsewhere with --receive FILE";
                return Err(Failure::Usage(words.into()));
            }
            Some(path) if path == Path::new("-") => Target::stdout(),
            Some(path) => Target::file(path)?,
        };
        let sink = Arc::new(Sink::open(target, args.receive_framed)?);
        Ok(Some(Self {
            sink,
            tally: Tally::default(),
            unfinished: Arc::default(),
            ended: Arc::default(),
            turn: Arc::default(),
        }))
    }

    /// Empties what it is written to, if it has something in it.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        self.sink.begin()
    }

    /// Takes what comes by this session, once all of the one before is written, until the receiver has no more.
    pub(crate) fn follow(&self, session: &Session) -> Coming {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        self.ended.store(false, Ordering::Relaxed);
        let (incoming, session) = (self.clone(), session.clone());
        Coming(Some(tokio::spawn(async move {
            let _turn = incoming.turn.lock().await;
            let taken = take::all(&session, &incoming.sink, &incoming.tally, Until::Finished).await;
            if let Err(Failure::File(_)) = taken {
                session.close(close::FAILED, "the sender cannot write what it is sent back");
            }
            if let Ok(Until::Finished) = taken {
                incoming.unfinished.fetch_sub(1, Ordering::Relaxed);
                incoming.ended.store(true, Ordering::Relaxed);
            }
            taken
        })))
    }

    /// Whether the receiver has no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The figures, with what the receiver has dropped.
    pub(crate) fn figures(&self, dropped: u64) -> BackFigures {
        let complete = Some(self.unfinished.load(Ordering::Relaxed) == 0);
        let unwritten = Some(self.sink.unwritten()).filter(|&blocks| blocks > 0);
        BackFigures { complete, unwritten, ..self.tally.back().with_dropped(dropped) }
    }
}

/// What comes by one session, as long as it is not known how that ended.
pub(crate) struct Coming(Option<JoinHandle<Result<Until, Failure>>>);

impl Coming {
    /// Waits until the receiver has no more, or the session has ended, and all that came is written; which of the two it was. May be given up, and begun again.
    pub(crate) async fn end(&mut self) -> Result<Until, Failure> {
        let Some(task) = &mut self.0 else { return Ok(Until::Closed) };
        let ended = task.await;
        self.0 = None;
        ended.unwrap_or_else(|error| Err(Failure::Other(error.to_string())))
    }

    /// The session has ended; what came by it is still written, unless that takes too long: its reader may have stopped reading. That it cannot be written is an error,
    /// whatever became of the session.
    pub(crate) async fn written(mut self, within: Duration) -> Result<(), Failure> {
        match tokio::time::timeout(within, self.end()).await {
            Ok(Err(failure @ Failure::File(_))) => Err(failure),
            // How the session ended is known from elsewhere.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
