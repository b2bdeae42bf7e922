//! What runs on both hosts of a random world, and how it is judged.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use punctual_proto::{Block, BlockId, BlockUpdate, Channel, Event, Outcome, SendError, SessionId};
use punctual_sim::{App, AppContext, HostId, World};
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::ms;

/// How long applications act.
pub(crate) const ACTIVE: Duration = Duration::from_millis(1_500);

/// An application that sends, changes its mind, cancels, and takes what comes, at once or later.
pub(crate) struct Restless {
    random: Pcg64,
    /// Of what it says of latencies.
    moods: Pcg64,
    /// When it begins, if it is connected by then, and until when it acts.
    begins: Duration,
    until: Duration,
    session: Option<SessionId>,
    lazy: bool,
    /// The largest block that it sends now and then.
    largest: usize,
    /// Whether blocks have a [`content`] that says which they are.
    numbers: bool,
    pub(crate) accepted: Vec<BlockId>,
    refused: u64,
    pub(crate) outcomes: BTreeMap<BlockId, Vec<Outcome>>,
    /// When blocks ended.
    pub(crate) ended: BTreeMap<BlockId, Duration>,
    pub(crate) received: BTreeMap<BlockId, u32>,
    pub(crate) peer_dropped: BTreeMap<BlockId, u32>,
    pub(crate) closed: Option<String>,
}

/// Bytes of a block that say which it is, and how long.
pub(crate) const NAMED: usize = 8;

/// The bytes of a block that has a number. They say which it is and how long, if they are at least [`NAMED`].
pub(crate) fn content(number: u32, size: usize) -> Vec<u8> {
    let name = [number.to_le_bytes(), (size as u32).to_le_bytes()].concat();
    let rest = (NAMED..size).map(|at| (at as u32 ^ at as u32 >> 8 ^ number.wrapping_mul(97)) as u8);
    name.into_iter().chain(rest).take(size).collect()
}

const ACT: u64 = 0;
const TAKE: u64 = 1;

impl Restless {
    pub(crate) fn new(seed: u64) -> Self {
        Self::sending(seed, 0)
    }

    /// One that sends blocks of up to `largest` bytes, too, now and then.
    pub(crate) fn sending(seed: u64, largest: usize) -> Self {
        let mut random = Pcg64::new(seed.into(), 77);
        Self {
            lazy: random.random_bool(0.3),
            largest,
            random,
            moods: Pcg64::new(seed.into(), 78),
            begins: Duration::ZERO,
            until: Duration::MAX,
            session: None,
            numbers: false,
            accepted: Vec::new(),
            refused: 0,
            outcomes: BTreeMap::new(),
            ended: BTreeMap::new(),
            received: BTreeMap::new(),
            peer_dropped: BTreeMap::new(),
            closed: None,
        }
    }

    /// One whose blocks, and those of its peer, say by their [`content`] which they are, as nothing else says so to a peer that speaks plain QUIC.
    pub(crate) fn numbering(seed: u64, begins: Duration) -> Self {
        Self { numbers: true, begins, ..Self::new(seed) }
    }

    /// Says now and then when it wants to have blocks, or the peer to be given them.
    fn play(&mut self, cx: &mut AppContext<'_>, id: SessionId) {
        let now = cx.instant();
        let moods = &mut self.moods;
        if !moods.random_bool(0.05) {
            return;
        }
        let latency = moods.random_bool(0.8).then(|| ms(moods.random_range(0..400)));
        let channel = moods.random_bool(0.8).then(|| Channel(moods.random_range(0..3)));
        let session = cx.session(id).expect("it lives");
        if moods.random_bool(0.5) {
            session.set_latency(now, channel, latency);
        } else {
            session.wish_latency(now, channel, latency).expect("four at most");
        }
    }

    fn act(&mut self, cx: &mut AppContext<'_>, session: SessionId) {
        self.play(cx, session);
        match self.random.random_range(0..10) {
            0 => self.on_some_block(cx, |cx, id, _| drop(cx.cancel(session, id))),
            1 | 2 => self.on_some_block(cx, |cx, id, random| {
                let update = BlockUpdate {
                    priority: random.random_bool(0.5).then(|| random.random()),
                    deadline: random
                        .random_bool(0.3)
                        .then(|| random.random_bool(0.8).then(|| ms(random.random_range(1..800)))),
                    dependencies: random.random_bool(0.3).then(|| vec![BlockId(random.random_range(0..=id.0 + 1))]),
                };
                drop(cx.update(session, id, update));
            }),
            _ => self.send(cx, session),
        }
    }

    fn on_some_block(&mut self, cx: &mut AppContext<'_>, act: impl FnOnce(&mut AppContext<'_>, BlockId, &mut Pcg64)) {
        // Late ones more often, as they are more likely to be live.
        if let Some(newest) = self.accepted.len().checked_sub(1) {
            let back = self.random.random_range(0..=newest).min(self.random.random_range(0..=newest));
            act(cx, self.accepted[newest - back], &mut self.random);
        }
    }

    fn send(&mut self, cx: &mut AppContext<'_>, session: SessionId) {
        let random = &mut self.random;
        let size = match random.random_range(0..20) {
            0 => 0,
            1 if self.largest > 0 && random.random_bool(0.5) => random.random_range(1..=self.largest),
            1..10 => random.random_range(1..2_000),
            _ => random.random_range(1..40_000),
        };
        let data =
            if self.numbers { content(self.accepted.len() as u32, size.max(NAMED)) } else { vec![size as u8; size] };
        let mut block = Block::new(data).priority(random.random());
        if random.random_bool(0.8) {
            block = block.deadline(ms(random.random_range(1..600)));
        }
        if random.random_bool(0.2) {
            block = block.channel(Channel(random.random_range(0..3)));
        }
        for _ in 0..random.random_range(0..6u32).saturating_sub(3) {
            if let Some(newest) = self.accepted.len().checked_sub(1) {
                block = block.depends_on(self.accepted[newest - random.random_range(0..=newest.min(5))]);
            }
        }
        match cx.send(session, block) {
            Ok(id) => self.accepted.push(id),
            Err(SendError::Full(_)) => self.refused += 1,
            Err(error) => panic!("send: {error}"),
        }
    }

    fn take(&mut self, cx: &mut AppContext<'_>, session: SessionId) {
        while let Some(block) = cx.recv(session) {
            let size = block.data.len();
            if self.numbers {
                assert!(block.data == content(block.id.0 as u32, size), "the bytes are those sent");
            } else {
                assert!(block.data.iter().all(|byte| *byte == size as u8), "the bytes are those sent");
            }
            *self.received.entry(block.id).or_default() += 1;
        }
    }
}

impl App for Restless {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.session = Some(session);
                let begins = cx.now().max(self.begins);
                self.until = begins + ACTIVE;
                cx.set_timer(begins, ACT);
            }
            Event::Outcome { id, outcome } => {
                self.outcomes.entry(id).or_default().push(outcome);
                self.ended.insert(id, cx.now());
            }
            Event::PeerDropped { id, .. } | Event::Skipped { id, .. } => *self.peer_dropped.entry(id).or_default() += 1,
            Event::Readable if self.lazy => cx.set_timer(cx.now() + ms(40), TAKE),
            Event::Readable => self.take(cx, session),
            Event::Closed(reason) => self.closed = Some(reason.to_string()),
            _ => (),
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        let session = self.session.expect("connected");
        if token == TAKE {
            return self.take(cx, session);
        }
        self.act(cx, session);
        let wait = ms(self.random.random_range(0..40));
        if cx.now() + wait < self.until {
            cx.set_timer(cx.now() + wait, ACT);
        }
    }
}

pub(crate) fn at_rest(world: &mut World, sessions: &[(HostId, SessionId); 2]) -> bool {
    let heard = |world: &World, from: HostId, to: HostId| {
        let (from, to): (&Restless, &Restless) = (world.app(from).unwrap(), world.app(to).unwrap());
        from.outcomes.len() == from.accepted.len() && to.received.len() + to.peer_dropped.len() >= from.accepted.len()
    };
    let [(client, _), (server, _)] = *sessions;
    heard(world, client, server)
        && heard(world, server, client)
        && sessions.iter().all(|(host, session)| leftovers(world, *host, *session) == [0; 4])
}

pub(crate) fn leftovers(world: &mut World, host: HostId, session: SessionId) -> [u64; 4] {
    world.enter(host, |cx| {
        let stats = cx.session(session).map(|session| session.stats()).unwrap_or_default();
        [stats.live_out, stats.live_out_bytes, stats.live_in, stats.live_in_bytes]
    })
}

pub(crate) fn verdict(world: &mut World, sessions: &[(HostId, SessionId); 2]) -> Result<(), String> {
    for (index, (host, session)) in sessions.iter().enumerate() {
        let left = leftovers(world, *host, *session);
        if left != [0; 4] {
            let app: &Restless = world.app(*host).expect("it runs there");
            let open: Vec<_> = app.accepted.iter().filter(|id| !app.outcomes.contains_key(id)).map(|id| id.0).collect();
            return Err(format!("host {index} is left with {left:?} (blocks out, bytes, blocks in, bytes): {open:?}"));
        }
    }
    let apps = sessions.map(|(host, _)| world.app::<Restless>(host).expect("it runs there"));
    for (side, sender, receiver) in [("client", apps[0], apps[1]), ("server", apps[1], apps[0])] {
        judge(sender, receiver).map_err(|error| format!("blocks of the {side}: {error}"))?;
    }
    Ok(())
}

fn judge(sender: &Restless, receiver: &Restless) -> Result<(), String> {
    if let Some(reason) = &sender.closed {
        return Err(format!("closed: {reason}"));
    }
    let accepted: BTreeSet<_> = sender.accepted.iter().copied().collect();
    if accepted.len() != sender.accepted.len() {
        return Err("an id was given twice".into());
    }
    let known = sender.outcomes.keys().chain(receiver.received.keys()).chain(receiver.peer_dropped.keys());
    if let Some(id) = known.into_iter().find(|id| !accepted.contains(id)) {
        return Err(format!("{id} was never accepted"));
    }
    for id in &accepted {
        let outcomes = sender.outcomes.get(id).map_or(&[][..], |outcomes| outcomes);
        let received = receiver.received.get(id).copied().unwrap_or(0);
        let dropped = receiver.peer_dropped.get(id).copied().unwrap_or(0);
        let right = match outcomes {
            [Outcome::Delivered(_)] => (received, dropped) == (1, 0),
            [Outcome::Dropped { .. }] => (received, dropped) == (0, 1),
            _ => false,
        };
        if !right {
            return Err(format!(
                "{id}: outcomes {outcomes:?}, received {received} times, heard dropped {dropped} times"
            ));
        }
    }
    Ok(())
}
