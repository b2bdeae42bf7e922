//! One connection with a peer, as its application sees it.

mod finish;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use punctual_proto::{
    Block, BlockError, BlockId, BlockUpdate, Channel, CloseReason, Delta, PathError, PathId, PathStats, ReceivedBlock,
    Redundancy, SendError, SessionId, SessionStats,
    multipath::{PathBudget, PathRole},
};
use tokio::sync::{broadcast, oneshot};

use crate::{
    error::OpenPathError,
    events::{Events, SentBlock},
    link::{Link, Settings, last_stats},
    local::LocalEnd,
    path::Path,
    qlog::SentInfo,
    shared::{Gone, Shared, Signals},
    snapshot::Snapshot,
    tls::Fingerprint,
};

/// Events that wait for who watches, at most: room for all of them is taken at once.
const MOST_BACKLOG: usize = 1 << 16;

/// One connection with a peer, over one or more paths.
///
/// Clones are handles of the same session; when the last is dropped, the session is closed (code 0, or [`ProtocolError::Panicked`](crate::ProtocolError::Panicked) if that is because the thread panics), and what had not been
/// delivered by then is dropped: see [`finish`](Self::finish) for the patient way. [`SentBlock`], [`Path`] and [`Events`] do not keep a
/// session alive.
///
/// All methods take `&self` and may be called from any task. All futures may be dropped at any time.
#[derive(Clone)]
pub struct Session(Arc<Owner>);

/// Closes the session when the last handle goes.
struct Owner(Link);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.shared.drive(|state, now| state.release(self.0.id, now));
    }
}

impl Session {
    /// A handle of the session whose books these are.
    pub(crate) fn new(shared: Arc<Shared>, id: SessionId, signals: Arc<Signals>, settings: Settings) -> Self {
        Self(Arc::new(Owner(Link { shared, id, signals, settings })))
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.0
    }

    /// Its name within its endpoint, in logs.
    pub fn id(&self) -> SessionId {
        self.link().id
    }

    /// Hands a block over, as soon as there is room for it.
    ///
    /// The deadline counts from this call (or from [`Block::begin`], if that is set), so waiting for room counts. When the deadline
    /// passes first, the block comes back as [`SendError::Full`]; except under a scheduler that never drops a late block.
    /// A block that was accepted is sent whether or not the [`SentBlock`] is kept.
    ///
    /// ```no_run
    /// # async fn example(session: punctual::Session, frame: bytes::Bytes) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use punctual::{Block, Outcome};
    ///
    /// let block = Block::new(frame).deadline(Duration::from_millis(100)).priority(1);
    /// let sent = session.send(block).await?;
    /// println!("block {} is on its way", sent.id());
    /// if let Outcome::Delivered(delivery) = sent.await {
    ///     println!("there after {:?}", delivery.completion);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(&self, mut block: Block) -> Result<SentBlock, SendError> {
        let begin = *block.begin.get_or_insert_with(Instant::now);
        let link = self.link();
        let give_up = block.deadline.filter(|_| link.settings.drops_stale).and_then(|d| begin.checked_add(d));
        loop {
            // Made before the attempt, so that room made in between is not missed.
            let room = link.signals.writable.notified();
            block = match self.try_send(block) {
                Err(SendError::Full(block)) => *block,
                other => return other,
            };
            match give_up {
                None => room.await,
                Some(due) => {
                    if tokio::time::timeout_at(due.into(), room).await.is_err() {
                        return Err(SendError::Full(Box::new(block)));
                    }
                }
            }
        }
    }

    /// Hands a block over if there is room for it now.
    ///
    /// # Errors
    /// See [`SendError`]; `Full` gives the block back.
    pub fn try_send(&self, block: Block) -> Result<SentBlock, SendError> {
        let link = self.link();
        let sent = link.drive(|session, slot, now| {
            if slot.finishing.is_some() {
                return Err(SendError::Closed);
            }
            let info = slot.log.is_some().then(|| SentInfo::of(&block, now));
            let id = session.send(now, block)?;
            if let (Some(log), Some(info)) = (&slot.log, &info) {
                log.get().sent(now, id, info);
            }
            let (tell, outcome) = oneshot::channel();
            slot.outcomes.insert(id, tell);
            Ok(SentBlock { id, outcome })
        });
        sent.unwrap_or(Err(SendError::Closed))
    }

    /// Changes what was said of a block that has not ended.
    ///
    /// # Errors
    /// See [`BlockError`].
    pub fn update(&self, id: BlockId, update: BlockUpdate) -> Result<(), BlockError> {
        let updated = self.link().drive(|session, slot, now| {
            session.update(now, id, update.clone())?;
            if let Some(log) = &slot.log {
                log.get().updated(now, id, &update);
            }
            Ok(())
        });
        updated.unwrap_or(Err(BlockError::NotLive(id)))
    }

    /// Drops a block that has not ended, and with it those that depend on it. Its outcome says so, unless the receiver turns out to have
    /// it already.
    ///
    /// # Errors
    /// See [`BlockError`].
    pub fn cancel(&self, id: BlockId) -> Result<(), BlockError> {
        self.link().drive(|session, _, now| session.cancel(now, id)).unwrap_or(Err(BlockError::NotLive(id)))
    }

    /// Says how blocks of a channel are protected against loss that are handed over from now on and do not say it themselves.
    /// What neither a block nor its channel says, [`SessionConfig::redundancy`](crate::SessionConfig::redundancy) does.
    ///
    /// ```no_run
    /// # fn example(session: &punctual::Session) -> Result<(), punctual::SendError> {
    /// use punctual::{Block, Channel, Redundancy};
    ///
    /// // Of commands everything goes twice; of readings the next is better than the last sent again.
    /// let (commands, readings) = (Channel(0), Channel(1));
    /// session.set_channel_redundancy(commands, Redundancy::Duplicate)?;
    /// session.set_channel_redundancy(readings, Redundancy::Fec)?;
    /// session.try_send(Block::new("stop").channel(commands))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SendError::TooManyChannels`] if it has been said of as many channels as [`Limits`](crate::Limits) allow;
    /// [`SendError::Closed`] if the session is gone.
    pub fn set_channel_redundancy(&self, channel: Channel, mode: Redundancy) -> Result<(), SendError> {
        let link = self.link();
        link.drive(|session, _, _| session.set_channel_redundancy(channel, mode)).unwrap_or(Err(SendError::Closed))
    }

    /// How blocks of a channel, or of none, are protected against loss that do not say it themselves: what was said of the channel, or in the configuration.
    ///
    /// ```
    /// # async fn example(session: punctual::Session) {
    /// use punctual::{Block, Redundancy};
    ///
    /// let receipt = match session.redundancy(None) {
    ///     // This one is to arrive whatever the others do.
    ///     Redundancy::None | Redundancy::Fec => Block::new("paid").redundancy(Redundancy::Both),
    ///     _ => Block::new("paid"),
    /// };
    /// # }
    /// ```
    pub fn redundancy(&self, channel: Option<Channel>) -> Redundancy {
        self.link().drive(|session, _, _| session.redundancy(channel)).unwrap_or_default()
    }

    /// Says that a block of about `size` bytes will be handed over on a channel `every` so often, with this deadline and priority; an interval of zero takes that back. Path
    /// schedulers that look ahead (`cwr`, `cwr-red`) keep room for it; without a word, they recognise channels whose blocks come regularly.
    pub fn expect_source(
        &self,
        channel: Channel,
        every: Duration,
        size: u64,
        deadline: Option<Duration>,
        priority: u8,
    ) {
        let link = self.link();
        let _ = link.drive(|session, _, _| session.expect_source(channel, every, size, deadline, priority));
    }

    /// Has the peer's blocks of a channel, or (`None`) those of no channel, come out of [`recv`](Self::recv) `latency` after their hand-over there: early ones wait, and late ones are not waited for. With a
    /// `latency` of `None` they come out as they come in, in a channel in order. What nothing is said of has [`SessionConfig::latency`](crate::SessionConfig::latency), or else what the peer
    /// [wishes](Self::wish_latency).
    ///
    /// The time follows the estimate of how the two clocks differ without jumps: by 0.25 % at most. A block that is not there when one behind it in its channel is due is refused, which
    /// [`SessionEvent::Skipped`](crate::SessionEvent::Skipped) tells. For its sender a block is delivered, and has met its deadline, when it is whole here, whatever it waits. More:
    /// [`punctual_proto::Session::set_latency`].
    ///
    /// ```no_run
    /// # async fn example(session: punctual::Session) -> Result<(), punctual::CloseReason> {
    /// use std::time::Duration;
    /// use punctual::Channel;
    ///
    /// session.set_latency(Some(Channel(0)), Some(Duration::from_millis(200)));
    /// while let Ok(frame) = session.recv().await {
    ///     // 200 ms after it was handed over, to the millisecond; `frame.play_at` says when exactly.
    ///     println!("show {}", frame.id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_latency(&self, channel: Option<Channel>, latency: Option<Duration>) {
        let _ = self.link().drive(|session, _, now| session.set_latency(now, channel, latency));
    }

    /// The latency in force for the peer's blocks of a channel, or of none.
    pub fn latency(&self, channel: Option<Channel>) -> Option<Duration> {
        self.link().drive(|session, _, _| session.latency(channel)).ok().flatten()
    }

    /// Tells the peer at which latency after their hand-over our blocks of a channel, or of none, should be given to its application, which has the last word; `None` takes that back. Said before the
    /// blocks are handed over, it holds from the first of them on, or nearly.
    ///
    /// # Errors
    /// [`SendError::TooManyChannels`] if that is said of too many; [`SendError::Closed`] if the session is gone.
    pub fn wish_latency(&self, channel: Option<Channel>, latency: Option<Duration>) -> Result<(), SendError> {
        let wished = self.link().drive(|session, _, now| session.wish_latency(now, channel, latency));
        wished.unwrap_or(Err(SendError::Closed))
    }

    /// The next complete block from the peer.
    ///
    /// Blocks that were complete when the session ended can still be received.
    ///
    /// To wait here is to say that all blocks given out before have been dealt with; see [`confirm_on_next_recv`](Self::confirm_on_next_recv).
    ///
    /// # Errors
    /// Why the session ended, once there is nothing more to receive.
    pub async fn recv(&self) -> Result<ReceivedBlock, CloseReason> {
        loop {
            let readable = self.link().signals.readable.notified();
            match self.try_recv() {
                Ok(Some(block)) => return Ok(block),
                Ok(None) => {
                    self.link().catch_up();
                    readable.await;
                }
                Err(reason) => return Err(reason),
            }
        }
    }

    /// The next complete block from the peer, if there is one now.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<ReceivedBlock>, CloseReason> {
        let link = self.link();
        let received = link.shared.with(|state, now| match state.session(link.id) {
            Ok((session, slot)) => {
                let block = session.recv(now);
                if let (Some(block), Some(log)) = (&block, &slot.log) {
                    log.get().received(now, block);
                }
                Ok(block)
            }
            Err(Gone) => {
                let Some(slot) = state.sessions.get_mut(&link.id) else { return Err(CloseReason::Local) };
                match (slot.inbox.pop_front(), &slot.closed) {
                    (Some(block), _) => Ok(Some(block)),
                    (None, reason) => Err(reason.clone().unwrap_or(CloseReason::Local)),
                }
            }
        });
        if let Ok(Some(_)) = received {
            // Taking a block makes room for the peer to send another, which it must be told.
            link.shared.wake.notify_one();
        }
        received
    }

    /// Tells the peer's application by how much the completion of one of its blocks missed what this side expected
    /// (`expect` of DTP); positive means it came too late. There it is a [`SessionEvent::Expected`](crate::SessionEvent::Expected).
    ///
    /// # Errors
    /// See [`BlockError`].
    pub fn expect(&self, id: BlockId, delta: Delta) -> Result<(), BlockError> {
        self.link().drive(|session, _, now| session.expect(now, id, delta)).unwrap_or(Err(BlockError::NotLive(id)))
    }

    /// Refuses one of the peer's blocks: it is freed here and dropped there.
    ///
    /// # Errors
    /// See [`BlockError`].
    pub fn refuse(&self, id: BlockId) -> Result<(), BlockError> {
        self.link().drive(|session, _, now| session.refuse(now, id)).unwrap_or(Err(BlockError::NotLive(id)))
    }

    /// Opens another path, from one of the endpoint's [`locals`](crate::Endpoint::locals) or from what a [`Bind`](crate::Bind) says to an address of the
    /// server's, and waits until it is validated. Clients only.
    ///
    /// For a `Bind` the socket that was bound so is taken; if there is none, one is bound. It stays when the path is gone or does not come about, for the next one,
    /// until it is [unbound](crate::Endpoint::unbind): [`Endpoint::local`](crate::Endpoint::local) names it.
    ///
    /// ```no_run
    /// # async fn example(session: punctual::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::Bind;
    ///
    /// let server = "203.0.113.5:4433".parse()?;
    /// let path = session.open_path("wwan0".parse::<Bind>()?, server).await?;
    /// path.set_cost(2.0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`OpenPathError`]. Dropping the future gives the path up.
    pub async fn open_path(&self, local: impl Into<LocalEnd>, remote: SocketAddr) -> Result<Path, OpenPathError> {
        self.link().open_path(local.into(), remote).await
    }

    /// Closes a path; what was in flight on it goes elsewhere.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn close_path(&self, id: PathId) -> Result<(), PathError> {
        self.link().close_path(id)
    }

    /// Says what a byte costs on a path, for path schedulers to go by, in any unit the application likes. At first it is 0, or what the peer's application
    /// says, which is told of it: what comes back goes by it, too.
    ///
    /// The first path is [`PathId`] 0. Others are also named by their [`Path`].
    ///
    /// # Errors
    /// [`PathError::InvalidCost`] if it is negative, infinite or not a number; [`PathError::Unknown`] if there is no such path.
    pub fn set_path_cost(&self, id: PathId, cost: f64) -> Result<(), PathError> {
        self.link().set_path_cost(id, cost)
    }

    /// Says what a path is for, here and for what comes back: a backup carries no data while another path lives. Paths are named as in
    /// [`set_path_cost`](Self::set_path_cost).
    ///
    /// # Errors
    /// [`PathError::Unknown`] if there is no such path.
    pub fn set_path_role(&self, id: PathId, role: PathRole) -> Result<(), PathError> {
        self.link().set_path_role(id, role)
    }

    /// Says how much may be sent on a path over time, as a plan for mobile data allows; `None`, as at first, sets no bound. When half of it is spent, the path
    /// carries what would be late without it, and when all is, nothing while another path lives. Paths are named as in [`set_path_cost`](Self::set_path_cost).
    ///
    /// # Errors
    /// [`PathError::Unknown`] if there is no such path.
    pub fn set_path_budget(&self, id: PathId, budget: Option<PathBudget>) -> Result<(), PathError> {
        self.link().set_path_budget(id, budget)
    }

    /// Totals; once the session has ended, those at its end.
    pub fn stats(&self) -> SessionStats {
        let link = self.link();
        link.shared.with(|state, _| match state.session(link.id) {
            Ok((session, _)) => session.stats(),
            Err(Gone) => last_stats(state, link.id).session,
        })
    }

    /// State and totals of every open path, in the order of their ids; once the session has ended, those at its end.
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.link().path_stats()
    }

    /// All that is counted, at one moment; once the session has ended, as it was at its end.
    pub fn snapshot(&self) -> Snapshot {
        let link = self.link();
        link.shared.with(|state, now| match state.session(link.id) {
            Ok((session, _)) => Snapshot::of(session, now),
            Err(Gone) => last_stats(state, link.id),
        })
    }

    /// The session's events from now on, for those who want to watch.
    pub fn events(&self) -> Events {
        let backlog = self.link().settings.event_backlog.clamp(1, MOST_BACKLOG);
        let events = self.link().slot(|slot| {
            if slot.closed.is_some() {
                return None;
            }
            let events = slot.events.get_or_insert_with(|| broadcast::channel(backlog).0);
            Some(events.subscribe())
        });
        // A session that has ended has no more events: a channel without a sender.
        Events(events.flatten().unwrap_or_else(|| broadcast::channel(1).1))
    }

    /// Blocks handed over that have not ended yet.
    pub fn live_blocks(&self) -> usize {
        let link = self.link();
        link.shared.with(|state, _| state.session(link.id).map_or(0, |(session, _)| session.live_blocks()))
    }

    /// Whether the peer speaks `punctual/1`; if not, each block travels as a QUIC stream of its own.
    pub fn is_punctual(&self) -> bool {
        self.link().slot(|slot| slot.punctual).flatten().unwrap_or(false)
    }

    /// The peer's address on the first path; `None` once the session has ended.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        let link = self.link();
        link.shared.with(|state, _| state.session(link.id).ok().map(|(session, _)| session.remote_address()))
    }

    /// The fingerprint of the certificate that the peer has shown, whose key it holds. `None` if it has shown none, as clients do that
    /// have no [identity](crate::ClientBuilder::identity) or are not asked, and once the session has ended.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        let link = self.link();
        link.shared.with(|state, _| {
            let (session, _) = state.session(link.id).ok()?;
            session.peer_certificates().first().map(|certificate| Fingerprint::of(certificate))
        })
    }

    /// Why the session ended, if it has.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match self.link().slot(|slot| slot.closed.clone()) {
            Some(reason) => reason,
            None => Some(CloseReason::Local),
        }
    }

    /// Waits for the end of the session.
    pub async fn closed(&self) -> CloseReason {
        loop {
            let changed = self.link().signals.changed.notified();
            if let Some(reason) = self.close_reason() {
                return reason;
            }
            changed.await;
        }
    }

    /// Waits until no path of the session has been usable for as long as `patience`, or the session has ended.
    ///
    /// The session itself waits longer, for its [`idle_timeout`](crate::SessionConfig::idle_timeout): a path may answer again, and routes that are
    /// [kept](crate::Paths) are tried anew. Whoever cannot wait starts another session meanwhile.
    ///
    /// ```no_run
    /// # async fn example(session: punctual::Session) {
    /// use std::time::Duration;
    ///
    /// tokio::select! {
    ///     reason = session.closed() => println!("over: {reason}"),
    ///     () = session.stranded(Duration::from_secs(5)) => println!("cut off for five seconds"),
    /// }
    /// # }
    /// ```
    pub async fn stranded(&self, patience: Duration) {
        let link = self.link();
        let mut paths = link.signals.paths.subscribe();
        while !link.is_closed() {
            if link.is_reachable() {
                // The books hold the sender, as long as this handle does.
                let _ = paths.changed().await;
                continue;
            }
            let changed = async {
                while !link.is_closed() && !link.is_reachable() {
                    let _ = paths.changed().await;
                }
            };
            if tokio::time::timeout(patience, changed).await.is_err() {
                return;
            }
        }
    }

    /// Ends the session at once: what is live is dropped ([`DropReason::SessionClosed`](crate::DropReason)). Code 0 is a normal end; codes up to
    /// [`ProtocolError::BASE`](crate::ProtocolError::BASE) are the application's to use.
    ///
    /// The driver sends it; [`Endpoint::wait_idle`](crate::Endpoint::wait_idle) before the program ends gives it the time.
    pub fn close(&self, code: u32, reason: &str) {
        // A session that is gone is closed enough.
        let _: Result<(), Gone> = self.link().drive(|session, _, now| session.close(now, code, reason));
    }

    /// Waits for the handshake to end, one way or the other.
    pub(crate) async fn connected(&self) -> Result<(), CloseReason> {
        loop {
            let changed = self.link().signals.changed.notified();
            match self.link().slot(|slot| (slot.punctual, slot.closed.clone())) {
                Some((Some(_), _)) => return Ok(()),
                Some((None, None)) => changed.await,
                Some((None, Some(reason))) => return Err(reason),
                None => return Err(CloseReason::Local),
            }
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Session").field(&self.link().id.0).finish()
    }
}

/// An IPv4 address in IPv6 clothing is an IPv4 address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}
