//! What a receiver sends back, in the session in which it receives.

use std::{
    fmt::Display,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use punctual::{Channel, Session};
use tokio::{sync::Mutex, task::JoinSet};

use crate::{
    back::BackFigures,
    cli::RecvArgs,
    exit::Failure,
    feed::{Blocks, Feeder, Input, LeftOut},
    source::{Cut, Source},
    stats::Tally,
};

/// What there is to send back.
pub(crate) struct Reply {
    cut: Cut,
    deadline: Option<Duration>,
    from: From,
}

enum From {
    /// A file, which each sender gets from its beginning.
    File(PathBuf),
    /// Something that gives its bytes once, to one sender at a time. Boxed, as it is much the larger.
    Once {
        once: Box<Mutex<Once>>,
        /// What has been read from it, and has not ended.
        blocks: Blocks,
    },
}

enum Once {
    /// Nobody has read from it.
    Untouched(Source),
    Begun(Input),
    /// It could not be begun.
    Broken,
}

impl Reply {
    /// The reply that the command line asks for, if it does; `at_once`: there may be several senders at the same time.
    pub(crate) fn open(args: &RecvArgs, at_once: bool) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.reply else { return Ok(None) };
        // To have nothing to say is no error.
        let source = Source::open(Some(path), args.reply_as)?.maybe_empty();
        let from = match source.is_live() || path.as_os_str() == "-" {
            true if at_once => {
                let path = path.display();
                return Err(Failure::Usage(format!(
                    "--reply {path} goes to one sender at a time, and there may be several at once: let it be a file, or let all have one output"
                )));
            }
            true => From::Once { once: Box::new(Mutex::new(Once::Untouched(source))), blocks: Blocks::default() },
            false => From::File(path.clone()),
        };
        Ok(Some(Self { cut: args.reply_as, deadline: args.reply_deadline, from }))
    }

    /// Begins to answer a sender: what the one before it did not get of a pipe goes to this one.
    pub(crate) fn answer(self: &Arc<Self>) -> Answer {
        let (tally, blocks) = (Tally::default(), self.blocks().cloned().unwrap_or_default());
        tally.taken_over(blocks.len() as u64);
        Answer {
            reply: self.clone(),
            tally,
            blocks,
            left_out: LeftOut::default(),
            outcomes: Mutex::default(),
            cut_short: OnceLock::new(),
            settled: OnceLock::new(),
        }
    }

    /// What was read from a pipe and no sender has got, and now nobody will.
    pub(crate) fn undelivered(&self) -> usize {
        self.blocks().map_or(0, Blocks::len)
    }

    /// Those of a pipe, which outlast sessions.
    fn blocks(&self) -> Option<&Blocks> {
        match &self.from {
            From::Once { blocks, .. } => Some(blocks),
            From::File(_) => None,
        }
    }
}

/// What one sender is sent back, and what becomes of it.
pub(crate) struct Answer {
    reply: Arc<Reply>,
    tally: Tally,
    blocks: Blocks,
    left_out: LeftOut,
    /// Those under way. They end with the session, at the latest, which may be after [`send`](Self::send) was given up.
    outcomes: Mutex<JoinSet<()>>,
    /// Why there is less of it than there should be, if so.
    cut_short: OnceLock<Failure>,
    settled: OnceLock<Settled>,
}

/// How it ended.
struct Settled {
    confirmed: Option<bool>,
    left: Option<u64>,
}

impl Answer {
    /// Sends it, to its end, and says that this is the end. The session goes on.
    pub(crate) async fn send(&self, session: &Session) -> Result<(), Failure> {
        let Reply { cut, deadline, from } = &*self.reply;
        let feeder = Feeder {
            deadline: *deadline,
            priority: if matches!(cut, Cut::Video(_)) { 0 } else { 128 },
            channel: Some(Channel(0)),
            tally: self.tally.clone(),
            blocks: self.blocks.clone(),
            left_out: self.left_out.clone(),
            latency: None,
        };
        let sent = match from {
            From::File(path) => {
                let source = Source::open(Some(path), *cut)?.maybe_empty();
                self.feed(&feeder, session, &mut Input::new(source.start()?)).await
            }
            From::Once { once, .. } => {
                let mut once = once.lock().await;
                if let Once::Untouched(_) = *once
                    && let Once::Untouched(source) = std::mem::replace(&mut *once, Once::Broken)
                {
                    *once = Once::Begun(Input::new(source.start()?));
                }
                match &mut *once {
                    Once::Begun(input) => self.feed(&feeder, session, input).await,
                    Once::Untouched(_) | Once::Broken => Ok(()),
                }
            }
        };
        no_more(session).await;
        sent
    }

    /// Hands over all there is.
    async fn feed(&self, feeder: &Feeder, session: &Session, input: &mut Input) -> Result<(), Failure> {
        let mut outcomes = self.outcomes.lock().await;
        // What the sender did not wait for is no failure of ours.
        let _ = feeder.send_all(session, input, &mut outcomes).await;
        input.failure.take().map_or(Ok(()), Err)
    }

    /// Closes the books on a session that has ended. What it has not delivered of a pipe, and is not too late, waits for the next sender, unless this was the `last`.
    pub(crate) async fn settle(&self, session: &Session, last: bool) {
        while self.outcomes.lock().await.join_next().await.is_some() {}
        self.blocks.drop_stale(&self.tally);
        let left = (!last && self.reply.blocks().is_some()).then(|| self.blocks.len() as u64);
        match left {
            Some(left) => self.tally.handed_on(left),
            None => self.blocks.give_up_all(&self.tally),
        }
        let taken = session.finish_sending(Duration::ZERO).await;
        let _ = self.settled.set(Settled { confirmed: session.is_punctual().then_some(taken), left });
    }

    /// Notes that it cannot be read on.
    pub(crate) fn ends_with(&self, failure: Failure) {
        // The first reason is the one that counts.
        let _ = self.cut_short.set(failure);
    }

    /// Why there is less of it than there should be, if so: it could not be read to its end, or has blocks that cannot be sent.
    pub(crate) fn take_cut_short(&mut self) -> Option<Failure> {
        let ended = |text: &dyn Display| format!("the reply ends before its end: {text}");
        match self.cut_short.take() {
            Some(Failure::File(text)) => Some(Failure::File(ended(&text))),
            Some(Failure::Usage(text)) => Some(Failure::Usage(ended(&text))),
            Some(other) => Some(Failure::Other(ended(&other))),
            None => self.left_out.failure().map(|failure| Failure::Usage(format!("of the reply, {failure}"))),
        }
    }

    pub(crate) fn figures(&self) -> BackFigures {
        let figures = self.tally.back();
        match self.settled.get() {
            Some(&Settled { confirmed, left }) => BackFigures { confirmed, left, ..figures },
            None => figures,
        }
    }
}

/// Says that there is nothing (more) to send back, lest the sender wait for it.
pub(crate) async fn no_more(session: &Session) {
    session.finish_sending(Duration::MAX).await;
}
