//! What a receiver sends back, in the session in which it receives.

use std::{path::PathBuf, time::Duration};

use punctual::{Channel, Session};
use tokio::{sync::Mutex, task::JoinSet};

use crate::{
    cli::RecvArgs,
    exit::Failure,
    feed::{Blocks, Feeder, Input, Stopped},
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
    Once(Box<Mutex<Once>>),
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
        let source = Source::open(Some(path), args.reply_as)?;
        let from = match source.is_live() || path.as_os_str() == "-" {
            true if at_once => {
                let path = path.display();
                return Err(Failure::Usage(format!(
                    "--reply {path} goes to one sender at a time, and there may be several at once: let it be a file, or let all have one output"
                )));
            }
            true => From::Once(Box::new(Mutex::new(Once::Untouched(source)))),
            false => From::File(path.clone()),
        };
        Ok(Some(Self { cut: args.reply_as, deadline: args.reply_deadline, from }))
    }

    /// Sends it, to its end, and says that this is the end. The session goes on.
    pub(crate) async fn send(&self, session: &Session, tally: &Tally) -> Result<(), Failure> {
        let feeder = Feeder {
            deadline: self.deadline,
            priority: if matches!(self.cut, Cut::Video(_)) { 0 } else { 128 },
            channel: Some(Channel(0)),
            tally: tally.clone(),
            blocks: Blocks::default(),
        };
        let sent = match &self.from {
            From::File(path) => {
                let source = Source::open(Some(path), self.cut)?;
                feed(&feeder, session, &mut Input::new(source.start()?)).await
            }
            From::Once(once) => {
                let mut once = once.lock().await;
                if let Once::Untouched(_) = *once
                    && let Once::Untouched(source) = std::mem::replace(&mut *once, Once::Broken)
                {
                    *once = Once::Begun(Input::new(source.start()?));
                }
                match &mut *once {
                    Once::Begun(input) => feed(&feeder, session, input).await,
                    Once::Untouched(_) | Once::Broken => Ok(()),
                }
            }
        };
        no_more(session).await;
        sent
    }
}

/// Hands over all there is.
async fn feed(feeder: &Feeder, session: &Session, input: &mut Input) -> Result<(), Failure> {
    let mut outcomes = JoinSet::new();
    let sent = feeder.send_all(session, input, &mut outcomes).await;
    // They are counted as they end; with the session, at the latest, they do.
    tokio::spawn(outcomes.join_all());
    match sent {
        // What the sender did not wait for is no failure of ours.
        Ok(()) | Err(Stopped::Session(_)) => Ok(()),
        Err(Stopped::Input(failure)) => Err(failure),
    }
}

/// Says that there is nothing (more) to send back, lest the sender wait for it.
pub(crate) async fn no_more(session: &Session) {
    session.finish_sending(Duration::MAX).await;
}
