//! Every block ends exactly once, on both sides, whatever the network and the applications do, and nothing is left
//! behind.
//!
//! `PUNCTUAL_SEED=n cargo test -p punctual-sim --test exactly_once` runs one world, and prints its event log if it
//! fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use punctual_proto::{Block, BlockId, BlockUpdate, Channel, Event, Limits, Outcome, SendError, SessionId};
use punctual_sim::{App, AppContext, HostClock, HostConfig, HostId, Jitter, LinkSpec, LogMode, Loss, World, tls};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

const WORLDS: u64 = 1_000;

/// How long applications act.
const ACTIVE: Duration = Duration::from_millis(1_500);

/// How long a world has after that to come to rest. (A sender that backs off under loss takes its time.)
const PATIENCE: Duration = Duration::from_secs(60);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An application that sends, changes its mind, cancels, and takes what comes, at once or later.
struct Restless {
    random: Pcg64,
    until: Duration,
    session: Option<SessionId>,
    lazy: bool,
    accepted: Vec<BlockId>,
    refused: u64,
    outcomes: BTreeMap<BlockId, Vec<Outcome>>,
    received: BTreeMap<BlockId, u32>,
    peer_dropped: BTreeMap<BlockId, u32>,
    closed: Option<String>,
}

const ACT: u64 = 0;
const TAKE: u64 = 1;

impl Restless {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64::new(seed.into(), 77);
        Self {
            lazy: random.random_bool(0.3),
            random,
            until: Duration::MAX,
            session: None,
            accepted: Vec::new(),
            refused: 0,
            outcomes: BTreeMap::new(),
            received: BTreeMap::new(),
            peer_dropped: BTreeMap::new(),
            closed: None,
        }
    }

    fn act(&mut self, cx: &mut AppContext<'_>, session: SessionId) {
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
            1..10 => random.random_range(1..2_000),
            _ => random.random_range(1..40_000),
        };
        let mut block = Block::new(vec![size as u8; size]).priority(random.random());
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
            assert!(block.data.iter().all(|byte| *byte == block.data.len() as u8), "the bytes are those sent");
            *self.received.entry(block.id).or_default() += 1;
        }
    }
}

impl App for Restless {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.session = Some(session);
                self.until = cx.now() + ACTIVE;
                cx.set_timer(cx.now(), ACT);
            }
            Event::Outcome { id, outcome } => self.outcomes.entry(id).or_default().push(outcome),
            Event::PeerDropped { id, .. } => *self.peer_dropped.entry(id).or_default() += 1,
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

fn any_link(random: &mut Pcg64) -> LinkSpec {
    let spec = LinkSpec::new(random.random_range(0.5..12.0), ms(random.random_range(1..80)));
    let spec = match random.random_range(0..4) {
        0 => spec,
        1 => spec.loss(Loss::bursts(random.random_range(0.0..0.2), random.random_range(1.0..8.0))),
        _ => spec.loss(Loss::Bernoulli(random.random_range(0.0..0.2))),
    };
    let sometimes =
        |random: &mut Pcg64, most: f64| if random.random_bool(0.5) { random.random_range(0.0..most) } else { 0.0 };
    let spec = if random.random_bool(0.3) { spec.jitter(Jitter::Exponential(ms(5))) } else { spec };
    let spec = if random.random_bool(0.3) { spec.queue(random.random_range(3_000..60_000)) } else { spec };
    let spec = if random.random_bool(0.3) { spec.ecn_threshold(10_000) } else { spec };
    let reordered = sometimes(random, 0.1);
    spec.corruption(sometimes(random, 0.05))
        .duplication(sometimes(random, 0.1))
        .reordering(reordered, ms(random.random_range(1..50)))
}

/// Small limits, so that they are met.
fn any_limits(random: &mut Pcg64) -> Limits {
    if random.random_bool(0.5) {
        return Limits::default();
    }
    Limits::default()
        .max_block_size(40_000)
        .receive_bytes(random.random_range(40_000..400_000))
        .receive_blocks(random.random_range(4..64))
        .send_bytes(random.random_range(40_000..400_000))
        .send_blocks(random.random_range(4..64))
}

/// The same as [`run`], panics of the code under test included.
fn outcome(seed: u64) -> Result<(), String> {
    std::panic::catch_unwind(|| run(seed, LogMode::Off)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default())
    })
}

/// Runs a world to its end; what is wrong with it, if anything.
fn run(seed: u64, log: LogMode) -> Result<(), String> {
    let mut random = Pcg64::new(seed.into(), 1);
    let mut world = World::new(seed).with_log(log);
    let (mut client_config, mut server_config) = (tls::client_config(), tls::server_config());
    client_config.session.limits = any_limits(&mut random);
    server_config.session.limits = any_limits(&mut random);
    let clock = |random: &mut Pcg64| {
        HostClock::ahead(Duration::from_secs(random.random_range(0..10_000)))
            .drift_ppm(random.random_range(-100.0..100.0))
    };
    let client = HostConfig::new().clock(clock(&mut random)).app(Restless::new(random.next_u64()));
    let server =
        HostConfig::new().clock(clock(&mut random)).server(server_config).app(Restless::new(random.next_u64()));
    let hosts = [world.add_host(client), world.add_host(server)];
    let paths: Vec<_> = (0..random.random_range(1..=3))
        .map(|_| world.add_path(hosts[0], hosts[1], any_link(&mut random), any_link(&mut random)))
        .collect();
    let connection = world.connect(hosts[0], &client_config, &paths).map_err(|error| error.to_string())?;
    let start = world.handshake().map_err(|error| error.to_string())?;
    for &path in &paths {
        if random.random_bool(0.4) {
            let death = start + ms(random.random_range(0..1_500));
            let rebirth = death + ms(random.random_range(1..1_500));
            world.at(death, move |world| world.kill_path(path));
            world.at(rebirth, move |world| world.revive_path(path));
        }
    }
    // All paths but one may die for good, both ways or one.
    let mut fate = Pcg64::new(seed.into(), 2);
    let survivor = fate.random_range(0..paths.len());
    for (_, &path) in paths.iter().enumerate().filter(|(at, _)| *at != survivor) {
        let (to, back) = world.path_links(path);
        for link in [to, back].concat() {
            if fate.random_bool(0.3) {
                world.at(start + ms(fate.random_range(0..3_500)), move |world| world.kill_link(link));
            }
        }
    }
    let sessions = [world.client(connection), world.server(connection).expect("the server has the session")];

    world.run_until(start + ACTIVE);
    while world.now() < start + ACTIVE + PATIENCE && !at_rest(&mut world, &sessions) {
        world.run_for(ms(50));
    }
    // What is on its way twice must not turn up again.
    world.run_for(ms(300));
    let result = verdict(&mut world, &sessions);
    if result.is_err() && log == LogMode::Full {
        println!("{}", world.log());
    }
    result
}

fn at_rest(world: &mut World, sessions: &[(HostId, SessionId); 2]) -> bool {
    let heard = |world: &World, from: HostId, to: HostId| {
        let (from, to): (&Restless, &Restless) = (world.app(from).unwrap(), world.app(to).unwrap());
        from.outcomes.len() == from.accepted.len() && to.received.len() + to.peer_dropped.len() >= from.accepted.len()
    };
    let [(client, _), (server, _)] = *sessions;
    heard(world, client, server)
        && heard(world, server, client)
        && sessions.iter().all(|(host, session)| leftovers(world, *host, *session) == [0; 4])
}

fn leftovers(world: &mut World, host: HostId, session: SessionId) -> [u64; 4] {
    world.enter(host, |cx| {
        let stats = cx.session(session).map(|session| session.stats()).unwrap_or_default();
        [stats.live_out, stats.live_out_bytes, stats.live_in, stats.live_in_bytes]
    })
}

fn verdict(world: &mut World, sessions: &[(HostId, SessionId); 2]) -> Result<(), String> {
    for (index, (host, session)) in sessions.iter().enumerate() {
        let left = leftovers(world, *host, *session);
        if left != [0; 4] {
            return Err(format!("host {index} is left with {left:?} (blocks out, bytes, blocks in, bytes)"));
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

#[test]
fn a_thousand_random_worlds() {
    if let Some(seed) = std::env::var("PUNCTUAL_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed, LogMode::Full).unwrap();
    }
    let failures: Vec<_> = (0..WORLDS).filter_map(|seed| outcome(seed).err().map(|error| (seed, error))).collect();
    let listed: String = failures.iter().take(20).map(|(seed, error)| format!("\nseed {seed}: {error}")).collect();
    assert!(failures.is_empty(), "{} of {WORLDS} worlds failed:{listed}", failures.len());
}
