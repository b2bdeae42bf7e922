//! A video over two poor paths: frames that depend on each other, a dip in one path's rate, random loss.

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::{Sink, ms};
use punctual_proto::{Block, BlockId, Event, Outcome, SessionId};
use punctual_sim::{App, AppContext, HostConfig, LinkSpec, Loss, Rate, Schedule, World, tls};

/// 30 frames a second: an I frame of 22 KB each second, P frames of 4 KB that depend on the frame before.
#[derive(Default)]
struct Camera {
    session: Option<SessionId>,
    last: Option<BlockId>,
    sent: BTreeMap<BlockId, Duration>,
    outcomes: BTreeMap<BlockId, Outcome>,
}

const FRAMES: u64 = 300;
const DEADLINE: Duration = Duration::from_millis(150);

impl App for Camera {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.session = Some(session);
                self.on_timer(cx, 0);
            }
            Event::Outcome { id, outcome } => drop(self.outcomes.insert(id, outcome)),
            _ => (),
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, frame: u64) {
        let Some(session) = self.session.filter(|_| frame < FRAMES) else { return };
        let intra = frame.is_multiple_of(30);
        let mut block = Block::new(vec![1; if intra { 22_000 } else { 4_000 }]).deadline(DEADLINE);
        block = block.priority(if intra { 0 } else { 1 });
        if let Some(last) = self.last.filter(|_| !intra) {
            block = block.depends_on(last);
        }
        let id = cx.send(session, block).expect("room");
        self.last = Some(id);
        self.sent.insert(id, cx.now());
        cx.set_timer(cx.now() + Duration::from_micros(33_333), frame + 1);
    }
}

fn run(a: LinkSpec, b: LinkSpec, seed: u64) -> (usize, Vec<String>) {
    let back = |link: &LinkSpec| LinkSpec { rate: Rate::mbps(10.0), ..link.clone() };
    let mut world = World::new(seed);
    let client = world.add_host(HostConfig::new().app(Camera::default()));
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Sink::default()));
    let paths = [&a, &b].map(|link| world.add_path(client, server, link.clone(), back(link)));
    world.connect(client, &tls::client_config(), &paths).expect("a session can be started");
    let start = world.handshake().expect("the handshake succeeds");
    world.run_for(ms(13_000));
    let camera: &Camera = world.app(client).expect("a camera");
    let sink: &Sink = world.app(server).expect("a sink");
    let mut on_time = 0;
    let mut report = Vec::new();
    for (id, at) in &camera.sent {
        let took = sink.received.get(id).map(|(done, _)| *done - *at);
        if took.is_some_and(|took| took <= DEADLINE) {
            on_time += 1;
        } else {
            report.push(format!("{id} at {:?}: {took:?} {:?}", *at - start, camera.outcomes.get(id)));
        }
    }
    (on_time, report)
}

fn link(mbps: f64, delay: u64, loss: f64) -> LinkSpec {
    LinkSpec::new(mbps, ms(delay)).loss(Loss::Bernoulli(loss)).queue(48_000)
}

#[test]
fn steady_links_carry_every_frame() {
    let (on_time, late) = run(link(2.0, 30, 0.0), link(1.2, 45, 0.0), 1);
    assert_eq!(on_time as u64, FRAMES, "{late:#?}");
}

#[test]
fn random_loss_costs_little() {
    for seed in 1..4 {
        let (on_time, late) = run(link(2.0, 30, 0.01), link(1.2, 45, 0.01), seed);
        assert!(on_time >= 290, "seed {seed}: {on_time} of {FRAMES}: {late:#?}");
    }
}

/// For two of the ten seconds the better path has a fifth of its rate, and both together just enough.
#[test]
fn a_dip_costs_frames_only_while_it_lasts() {
    let mut all = 0;
    for seed in 1..=10 {
        let rate = Schedule::fixed(2_000_000).then(ms(3_500), 400_000).then(ms(5_500), 2_000_000);
        let dip = LinkSpec { rate: Rate::Steps(rate), ..link(2.0, 30, 0.01) };
        let (on_time, late) = run(dip, link(1.2, 45, 0.01), seed);
        assert!(seed > 3 || on_time >= 240, "seed {seed}: {on_time} of {FRAMES}: {late:#?}");
        all += on_time as u64;
    }
    assert!(all * 100 >= 10 * FRAMES * 85, "{all} of {}", 10 * FRAMES);
}
