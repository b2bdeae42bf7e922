//! `punctual recv`.

use std::{collections::VecDeque, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use punctual::{Endpoint, Incoming, Session, multipath::PathHealth};
use tokio::task::JoinSet;

use crate::{
    cli::{CommonArgs, RecvArgs},
    config::endpoint_config,
    display::{Display, Screen},
    exit::{Failure, close},
    notify::ServiceManager,
    output::{NoOutput, Outputs},
    path_figures,
    reply::{self, Answer, Reply},
    say::say,
    server::{self, Server},
    signals::{Interrupt, Signal},
    sink::{self, Sink},
    stats::{self, Figures, Tally},
    take::{self, Until},
    token,
};

/// How long the end may take once somebody has asked for it: for a reader of our pipe that has stopped reading, and for peers to
/// be told.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Senders that may wait for the output of one that is done. What they have to send is still with them.
const WAITING: usize = 16;

/// Receives from one sender, or from any number.
pub(crate) async fn run(args: &RecvArgs) -> Result<(), Failure> {
    let to_stdout = args.dir.is_none() && args.out.as_deref().is_none_or(|path| path == Path::new("-"));
    if args.common.json && to_stdout {
        return Err(Failure::Usage(
            "--json writes to standard output; put the blocks elsewhere with --out or --dir".into(),
        ));
    }
    let identity = server::identity(&args.door)?;
    let tokens = token::all(&args.token)?;
    let outputs = Outputs::open(args)?;
    if let (Some(out), Some(from)) = (&args.out, &args.reply) {
        sink::not_the_same(from, out)?;
    }
    let reply = Reply::open(args, outputs.is_for_each() && !args.once)?;
    let interrupt = Interrupt::listen()?;
    let mut config = endpoint_config(args.common.qlog.as_deref());
    config.session.latency = args.latency;
    let endpoint = server::listen(
        Server { listen: &args.listen, door: &args.door, clients: None, config },
        identity,
        tokens,
        args.common.quiet,
    )?;
    outputs.begin()?;
    let mut manager = ServiceManager::from_environment();
    manager.ready();
    let mut reception = Reception::new(args, outputs, reply, interrupt.clone());
    let ended = tokio::select! {
        ended = reception.run(&endpoint) => ended,
        never = manager.keep_telling() => never,
        signal = interrupt.first() => Err(Failure::Interrupted(signal)),
    };
    manager.stopping();
    let ended = match ended {
        Err(Failure::Interrupted(signal)) => {
            endpoint.close(close::STOPPED, "the receiver was told to stop");
            reception.stop(signal).await
        }
        ended => {
            endpoint.close(close::REFUSED, "the receiver has served its last sender");
            ended
        }
    };
    let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
    ended
}

/// Everybody who is being served, and the door where others are let in or turned away.
struct Reception {
    outputs: Outputs,
    reply: Option<Arc<Reply>>,
    /// Whether to end with the first sender.
    once: bool,
    served_one: bool,
    /// Whoever came last to be served.
    latest: Option<Session>,
    /// Sessions that came when the only output was about to be free: the sender before has ended, and the last of what it sent is
    /// being written.
    next: VecDeque<Incoming>,
    serving: JoinSet<Served>,
    /// With `--strict`, the first of the senders whose blocks were not all on time.
    missed: Option<Failure>,
    common: CommonArgs,
    screen: Screen,
    interrupt: Interrupt,
}

impl Reception {
    fn new(args: &RecvArgs, outputs: Outputs, reply: Option<Reply>, interrupt: Interrupt) -> Self {
        Self {
            once: args.once || !(args.keep_going || outputs.is_for_each()),
            outputs,
            reply: reply.map(Arc::new),
            served_one: false,
            latest: None,
            next: VecDeque::new(),
            serving: JoinSet::new(),
            missed: None,
            common: args.common.clone(),
            screen: Screen::new(&args.common),
            interrupt,
        }
    }

    /// Serves until there is nobody left to serve. Nobody waits at the door who cannot be next: the others are refused as they come.
    async fn run(&mut self, endpoint: &Endpoint) -> Result<(), Failure> {
        loop {
            tokio::select! {
                incoming = endpoint.incoming() => match incoming {
                    Some(incoming) => self.admit(incoming)?,
                    None => return Err(Failure::Other("the endpoint has ended".into())),
                },
                Some(ended) = self.serving.join_next() => {
                    let Served { ended, missed } = flatten(ended);
                    if self.once {
                        return ended.and(missed.map_or(Ok(()), Err));
                    }
                    self.account_for(ended)?;
                    self.account_for(missed.map_or(Ok(()), Err))?;
                    self.forget_who_left();
                    // Whoever has to wait once more does so for the next to end.
                    for incoming in std::mem::take(&mut self.next) {
                        self.admit(incoming)?;
                    }
                }
            }
        }
    }

    /// Has those who wait no longer give their places up.
    fn forget_who_left(&mut self) {
        self.next.retain(|incoming| !incoming.has_ended());
    }

    /// Lets a session in if there is an output for it; else it is refused, and its sender knows that nothing was taken. Only who is let in can deliver
    /// blocks: else those that came before the refusal would be lost, and their sender believe them to be there.
    fn admit(&mut self, incoming: Incoming) -> Result<(), Failure> {
        if self.once && self.served_one {
            incoming.refuse(close::REFUSED, "busy: the receiver serves one sender and then ends");
            return Ok(());
        }
        let peer = incoming.remote_address().unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into());
        match self.outputs.take(peer) {
            Ok(sink) => {
                let session = incoming.accept();
                self.served_one = true;
                self.latest = Some(session.clone());
                self.screen.say(&format!("receiving from {peer} to {}", sink.name().display()));
                let serving = Serving {
                    session,
                    sink,
                    tally: Tally::default(),
                    answer: self.reply.as_ref().map(Reply::answer),
                    last: self.once,
                    peer: (!self.once).then(|| peer.to_string()),
                    given_up: 0,
                    common: self.common.clone(),
                    screen: self.screen.clone(),
                };
                self.serving.spawn(serving.run(self.interrupt.clone()));
            }
            Err(NoOutput::Busy) => self.have_wait(incoming),
            Err(NoOutput::Failed(failure)) => {
                incoming.refuse(close::FAILED, CANNOT_GO_ON);
                return if self.once { Err(failure) } else { self.account_for(Err(failure)) };
            }
        }
        Ok(())
    }

    /// Has a session wait for the output if that is about to be free; else it is refused. Who sends one thing after the other is not told that it is in its own way.
    fn have_wait(&mut self, incoming: Incoming) {
        self.forget_who_left();
        let is_about_to_be_free = self.latest.as_ref().is_some_and(|latest| latest.close_reason().is_some());
        if is_about_to_be_free && self.next.len() < WAITING {
            self.next.push_back(incoming);
        } else {
            incoming.refuse(close::REFUSED, "busy: the receiver serves one sender at a time; try again later");
        }
    }

    /// Whether to go on after a session that ended so.
    fn account_for(&mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        match ended {
            // What they all write to cannot be written by the next either; an output of one's own may.
            Err(failure @ Failure::File(_)) if !self.outputs.is_for_each() => return Err(failure),
            Err(failure) => {
                self.screen.beside(|| say!("punctual: {failure}"));
                if matches!(failure, Failure::NotDelivered(_)) {
                    self.missed.get_or_insert(failure);
                }
            }
            Ok(()) => {}
        }
        Ok(())
    }

    /// Waits for those being served, whose sessions have been closed.
    async fn stop(&mut self, signal: Signal) -> Result<(), Failure> {
        while let Some(ended) = self.serving.join_next().await {
            let Served { ended, missed } = flatten(ended);
            self.account_for(ended)?;
            self.account_for(missed.map_or(Ok(()), Err))?;
        }
        if let left @ 1.. = self.reply.as_ref().map_or(0, |reply| reply.undelivered()) {
            let noun = if left == 1 { "block" } else { "blocks" };
            let left = format!("{left} {noun} of the reply went to nobody");
            self.screen.beside(|| say!("punctual: {left}"));
            if self.common.strict {
                self.missed.get_or_insert(Failure::NotDelivered(left));
            }
        }
        match self.missed.take() {
            _ if self.once => Err(Failure::Interrupted(signal)),
            // To serve until it is told to stop is all it was asked for.
            None => Ok(()),
            Some(missed) => Err(missed),
        }
    }
}

/// How it went with a sender.
struct Served {
    ended: Result<(), Failure>,
    /// With `--strict`, which of its blocks were not all on time, however it ended.
    missed: Option<Failure>,
}

fn flatten(served: Result<Served, tokio::task::JoinError>) -> Served {
    served.unwrap_or_else(|error| Served { ended: Err(Failure::Other(error.to_string())), missed: None })
}

const CANNOT_GO_ON: &str = "the receiver cannot go on: its output failed";

/// One sender being served.
struct Serving {
    session: Session,
    sink: Arc<Sink>,
    tally: Tally,
    /// What it is sent back.
    answer: Option<Answer>,
    /// Nobody comes after it.
    last: bool,
    /// What to call it, where there may be others.
    peer: Option<String>,
    /// Blocks that came and were given up before anybody asked for them to be written.
    given_up: u64,
    common: CommonArgs,
    screen: Screen,
}

impl Serving {
    /// Receives until the sender is done, or, after a signal, until everything that has come is written.
    async fn run(mut self, interrupt: Interrupt) -> Served {
        let display = Display::on(self.screen.clone());
        let ended = tokio::select! {
            ended = take::all(&self.session, &self.sink, &self.tally, Until::Closed) => ended.map(drop),
            never = self.answer() => never,
            never = display.run(self.session.events(), None, || self.figures()) => never,
            () = async { interrupt.first().await; tokio::time::sleep(END_WITHIN).await } => Ok(()),
        };
        drop(display);
        if ended.is_err() {
            self.session.close(close::FAILED, CANNOT_GO_ON);
        }
        if let Some(answer) = &self.answer {
            answer.settle(&self.session, self.last).await;
        }
        self.given_up = take::none(&self.session, &self.tally);
        let figures = self.figures();
        let mut told = Ok(());
        self.screen.beside(|| told = stats::conclude(&self.common, &figures));
        let peer = self.peer.as_deref();
        let cut_short = self.answer.as_mut().and_then(Answer::take_cut_short);
        let missed = figures.shortfall().or_else(|| cut_short.as_ref().map(Failure::to_string));
        let missed = missed.filter(|_| self.common.strict);
        // Where others come after this one, it is no reason to end, and has been told.
        let cut_short = cut_short.filter(|_| self.last && missed.is_none());
        Served {
            ended: ended.map_err(|failure| failure.of(peer)).and(told).and(cut_short.map_or(Ok(()), Err)),
            missed: missed.map(|words| Failure::NotDelivered(words).of(peer)),
        }
    }

    /// Sends back what there is. A reply that cannot be read is no reason to receive no more.
    async fn answer<Never>(&self) -> Never {
        let sent = match &self.answer {
            Some(answer) => answer.send(&self.session).await,
            None => Ok(()),
        };
        if let (Err(failure), Some(answer)) = (sent, &self.answer) {
            self.screen.beside(|| say!("punctual: the reply ends here: {failure}"));
            answer.ends_with(failure);
        }
        reply::no_more(&self.session).await;
        std::future::pending().await
    }

    fn figures(&self) -> Figures {
        let snapshot = self.session.snapshot();
        let mut figures = self.tally.figures(None, &snapshot.paths, |id| id.to_string());
        figures.paths.extend(path_figures::together(PathHealth::Closed.name(), &snapshot.closed_paths));
        let stats = snapshot.session;
        let (dropped, skipped) = (stats.blocks_peer_dropped + stats.blocks_skipped, stats.blocks_skipped);
        let back = self.answer.as_ref().map(Answer::figures);
        Figures {
            peer: self.peer.clone(),
            released: self.tally.released(skipped),
            unwritten: Some(self.sink.unwritten() + self.given_up).filter(|&blocks| blocks > 0),
            back,
            ..figures.with_peer_dropped(dropped)
        }
    }
}
