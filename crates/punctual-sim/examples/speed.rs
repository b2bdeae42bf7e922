//! How many virtual seconds a second of CPU gives, for 12 Mbit/s over two paths.
//!
//! `cargo run --release -p punctual-sim --example speed`

use std::time::{Duration, Instant};

use punctual_proto::{Block, Event, SessionId};
use punctual_sim::{App, AppContext, HostConfig, LinkSpec, World, tls};

const SECONDS: u64 = 60;

/// Sends 30,000 bytes every 20 ms: 12 Mbit/s.
#[derive(Default)]
struct Source {
    session: Option<SessionId>,
    sent: u64,
    on_time: u64,
}

impl App for Source {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.session = Some(session);
                cx.set_timer(cx.now(), 0);
            }
            Event::Outcome { outcome: punctual_proto::Outcome::Delivered(delivery), .. } => {
                self.on_time += u64::from(delivery.on_time());
            }
            _ => (),
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        let block = Block::new(vec![0; 30_000]).deadline(Duration::from_millis(200));
        if let Some(session) = self.session.filter(|_| token < 50 * SECONDS) {
            self.sent += u64::from(cx.send(session, block).is_ok());
            cx.set_timer(cx.now() + Duration::from_millis(20), token + 1);
        }
    }
}

struct Sink;

impl App for Sink {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        if event == Event::Readable {
            while cx.recv(session).is_some() {}
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = (Instant::now(), cpu_time());
    let mut world = World::new(1);
    let client = world.add_host(HostConfig::new().app(Source::default()));
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Sink));
    let link = LinkSpec::new(15.0, Duration::from_millis(60));
    let paths = [(); 2].map(|()| world.add_path(client, server, link.clone(), link.clone()));
    world.connect(client, &tls::client_config(), &paths)?;
    world.handshake()?;
    world.run_for(Duration::from_secs(SECONDS + 1));
    let took = cpu_time().zip(begin.1).map_or(begin.0.elapsed(), |(now, then)| now - then);
    let source: &Source = world.app(client).ok_or("no source")?;
    println!(
        "{} virtual seconds in {:.2} s: {:.0} to one; {} events; {} of {} blocks on time",
        world.now().as_secs(),
        took.as_secs_f64(),
        world.now().as_secs_f64() / took.as_secs_f64(),
        world.events(),
        source.on_time,
        source.sent,
    );
    Ok(())
}

/// What this thread has had of a CPU, where the system says.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}
