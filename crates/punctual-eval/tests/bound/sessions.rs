//! Sessions over the links that a bound is of.

use std::{collections::BTreeMap, time::Duration};

use punctual_eval::bound::{Job, Links};
use punctual_proto::{Block, BlockId, Event, SessionId, multipath, schedule};
use punctual_sim::{App, AppContext, HostConfig, LinkSpec, World, tls};

/// Hands over `jobs`, from the beginning of the run.
struct Source {
    jobs: Vec<Job>,
    start: Duration,
    session: Option<SessionId>,
    sent: BTreeMap<BlockId, usize>,
}

impl App for Source {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        if let Event::Connected { .. } = event {
            (self.session, self.start) = (Some(session), cx.now());
            for (index, job) in self.jobs.iter().enumerate() {
                cx.set_timer(self.start + job.handed_over, index as u64);
            }
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        let job = &self.jobs[token as usize];
        let block = Block::new(vec![1; job.size as usize]).priority(job.priority).deadline(job.deadline.unwrap());
        let id = cx.send(self.session.unwrap(), block).expect("room");
        self.sent.insert(id, token as usize);
    }
}

/// When each block came.
#[derive(Default)]
struct Sink(BTreeMap<BlockId, Duration>);

impl App for Sink {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        if let Event::Readable = event {
            while let Some(block) = cx.recv(session) {
                self.0.insert(block.id, cx.now());
            }
        }
    }
}

/// The jobs a session delivers on time.
pub(crate) fn run(links: &Links, jobs: &[Job], scheduler: &str, end: Duration) -> Vec<Job> {
    let mut config = tls::client_config();
    config.session.scheduler = schedule::by_name(scheduler).unwrap();
    config.session.path_scheduler = multipath::by_name("earliest").unwrap();
    let mut world = World::new(7);
    let source = Source { jobs: jobs.to_vec(), start: Duration::ZERO, session: None, sent: BTreeMap::new() };
    let client = world.add_host(HostConfig::new().app(source));
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Sink::default()));
    let back = |link: &LinkSpec| LinkSpec::unlimited(link.delay.at(Duration::ZERO).to_owned());
    let paths: Vec<_> = links.own.iter().map(|link| world.add_path(client, server, link.clone(), back(link))).collect();
    world.connect(client, &config, &paths).unwrap();
    let origin = world.handshake().unwrap();
    for (&path, dies) in paths.iter().zip(&links.dies) {
        for (killed, revived) in dies {
            world.at(origin + *killed, move |world| world.kill_path(path));
            world.at(origin + *revived, move |world| world.revive_path(path));
        }
    }
    world.run_for(end);
    let (source, sink): (&Source, &Sink) = (world.app(client).unwrap(), world.app(server).unwrap());
    let came = sink.0.iter().map(|(id, at)| (jobs[source.sent[id]], *at - source.start));
    came.filter(|(job, at)| *at <= job.handed_over + job.deadline.unwrap()).map(|(job, _)| job).collect()
}
