//! Hosts, links, and time.

use std::{
    any::Any,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use punctual_proto::{Event, LocalId, NetworkPath, SessionId};

use crate::{
    connection::Connections,
    cross::{CrossSource, CrossTraffic},
    host::{App, AppContext, Host, HostConfig, Punctual},
    link::{Datagram, Link, LinkCounters},
    log::{AppEvent, EventLog, LogMode, What},
    node::Node,
    queue::{Alarm, EventQueue, Target},
    rng::{Purpose, generator, seed_bytes},
    spec::LinkSpec,
    stuck::{MOST_SENT_AT_ONCE, Stuck, Watch},
};

/// Names a host of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// Names a link of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Names a path between two hosts of a world: an address at each end, and links between them both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathHandle(pub u32);

/// Hosts joined by links, in virtual time.
///
/// Time is a [`Duration`] since the world began. It moves only in [`step`](Self::step), [`run_until`](Self::run_until),
/// [`run_for`](Self::run_for) and [`handshake`](Self::handshake), from one event to the next.
pub struct World {
    seed: u64,
    anchor: Instant,
    pub(crate) now: Duration,
    pub(crate) queue: EventQueue,
    pub(crate) hosts: Vec<Host>,
    pub(crate) links: Vec<(Link, Alarm)>,
    pub(crate) routes: Vec<Route>,
    pub(crate) paths: Vec<Path>,
    pub(crate) connections: Connections,
    pub(crate) cross: Vec<CrossSource>,
    pub(crate) log: EventLog,
    watch: Watch,
    /// What keeps time from passing, once that was noticed.
    stuck: Option<Stuck>,
    /// The datagram being sent.
    buffer: Vec<u8>,
}

/// One direction of a path.
pub(crate) struct Route {
    links: Vec<LinkId>,
    to: HostId,
    /// As the receiving host sees it.
    pub(crate) arrival: NetworkPath,
}

/// Both ends of a path, and its first and last routes.
pub(crate) struct Path {
    pub(crate) ends: [End; 2],
    forward: Vec<LinkId>,
    back: Vec<LinkId>,
}

#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) host: HostId,
    pub(crate) local: LocalId,
    pub(crate) address: SocketAddr,
}

impl World {
    /// An empty world. All that is left to chance in it follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            anchor: Instant::now(),
            now: Duration::ZERO,
            queue: EventQueue::default(),
            hosts: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
            paths: Vec::new(),
            connections: Connections::default(),
            cross: Vec::new(),
            log: EventLog::new(LogMode::Off),
            watch: Watch::default(),
            stuck: None,
            buffer: Vec::with_capacity(2048),
        }
    }

    /// The same, remembering what happens. See [`log`](Self::log).
    pub fn with_log(self, mode: LogMode) -> Self {
        Self { log: EventLog::new(mode), ..self }
    }

    /// The same, which is [stuck](Stuck) after more events than this.
    pub fn with_most_events(mut self, most: u64) -> Self {
        self.watch.allow(most);
        self
    }

    /// Adds a host.
    pub fn add_host(&mut self, config: HostConfig) -> HostId {
        let id = HostId(self.hosts.len() as u32);
        let seed = seed_bytes(self.seed, Purpose::Host, u64::from(id.0));
        self.hosts.push(Host::new(id, config, self.anchor, seed));
        id
    }

    /// Adds a host with a perfect clock that runs something else than Punctual.
    pub fn add_node(&mut self, node: impl Node) -> HostId {
        let id = HostId(self.hosts.len() as u32);
        self.hosts.push(Host::foreign(id, Box::new(node), self.anchor));
        id
    }

    /// Adds a link that no path uses yet.
    pub fn add_link(&mut self, spec: LinkSpec) -> LinkId {
        let id = LinkId(self.links.len() as u32);
        let mut link = Link::with_random(spec, generator(self.seed, Purpose::Link, u64::from(id.0)));
        link.set_recording(self.log.mode() != LogMode::Off);
        self.links.push((link, Alarm::default()));
        id
    }

    /// Joins two hosts by a path of its own: `forward` from `a` to `b`, `back` the other way.
    pub fn add_path(&mut self, a: HostId, b: HostId, forward: LinkSpec, back: LinkSpec) -> PathHandle {
        let (forward, back) = (self.add_link(forward), self.add_link(back));
        self.join(a, b, &[forward], &[back])
    }

    /// Joins two hosts by a path over links that exist already, one behind the other; other paths may share them. Each
    /// end of the path gets an address and a [`LocalId`] of its own.
    ///
    /// # Panics
    /// If there are no links, or more than 255, one way.
    pub fn join(&mut self, a: HostId, b: HostId, forward: &[LinkId], back: &[LinkId]) -> PathHandle {
        let path = PathHandle(self.paths.len() as u32);
        assert!([forward, back].iter().all(|links| (1..256).contains(&links.len())), "a path needs 1 to 255 links");
        let [_, _, x, y] = path.0.to_be_bytes();
        let mut end = |host: HostId, last, port| {
            let local = LocalId(self.hosts[host.0 as usize].locals);
            self.hosts[host.0 as usize].locals += 1;
            End { host, local, address: (IpAddr::V4(Ipv4Addr::new(10, x, y, last)), port).into() }
        };
        let ends = [end(a, 1, 50_000), end(b, 2, 4433)];
        self.paths.push(Path { ends, forward: forward.to_vec(), back: back.to_vec() });
        self.add_route(ends[0], ends[1], forward);
        self.add_route(ends[1], ends[0], back);
        path
    }

    fn add_route(&mut self, from: End, to: End, links: &[LinkId]) {
        let departure = NetworkPath { local: from.local, remote: to.address };
        let arrival = NetworkPath { local: to.local, remote: from.address };
        self.hosts[from.host.0 as usize].routes.insert(departure, self.routes.len());
        self.routes.push(Route { links: links.to_vec(), to: to.host, arrival });
    }

    /// The path as `host`, one of its ends, names it.
    ///
    /// # Panics
    /// If the path does not end at the host.
    pub fn network_path(&self, path: PathHandle, host: HostId) -> NetworkPath {
        let [a, b] = self.paths[path.0 as usize].ends;
        let (own, peer) = if a.host == host { (a, b) } else { (b, a) };
        assert_eq!(own.host, host, "the path does not end there");
        NetworkPath { local: own.local, remote: peer.address }
    }

    /// The hosts a path joins.
    pub fn path_ends(&self, path: PathHandle) -> (HostId, HostId) {
        let [a, b] = self.paths[path.0 as usize].ends;
        (a.host, b.host)
    }

    /// The links of a path: those from its first host to its second, and those back.
    pub fn path_links(&self, path: PathHandle) -> (&[LinkId], &[LinkId]) {
        let path = &self.paths[path.0 as usize];
        (&path.forward, &path.back)
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Events that have happened; a measure of the work done.
    pub fn events(&self) -> u64 {
        self.watch.events()
    }

    /// What happened, if the world was asked to remember it.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Has packets that concern no host take their share of a link. They begin to come when the measured run begins
    /// (see [`handshake`](Self::handshake)), or now if it has; without a handshake, now.
    pub fn add_cross_traffic(&mut self, link: LinkId, traffic: CrossTraffic) {
        let index = self.cross.len();
        self.cross.push(CrossSource::new(link, traffic, generator(self.seed, Purpose::Cross, index as u64)));
        self.start_cross_traffic(index);
    }

    /// Does something to the world at a time, now or later.
    pub fn at(&mut self, time: Duration, action: impl FnOnce(&mut Self) + 'static) {
        self.queue.push(time.max(self.now), Target::Action(Box::new(action)));
    }

    /// A link.
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.0 as usize].0
    }

    /// What a link has done since it was shaped.
    pub fn counters(&self, link: LinkId) -> &LinkCounters {
        self.link(link).counters()
    }

    /// Changes a link while it runs.
    pub fn update_link(&mut self, link: LinkId, change: impl FnOnce(&mut LinkSpec)) {
        let now = self.now;
        self.touch(link, |link| link.update(now, change));
    }

    /// A link dies: what is queued or under way is lost, and what is offered from now on.
    pub fn kill_link(&mut self, link: LinkId) {
        let now = self.now;
        self.touch(link, |link| link.kill(now));
    }

    /// A dead link lives again.
    pub fn revive_link(&mut self, link: LinkId) {
        self.touch(link, Link::revive);
    }

    /// All links of a path die.
    pub fn kill_path(&mut self, path: PathHandle) {
        self.each_link(path, Self::kill_link);
    }

    /// All links of a path live again.
    pub fn revive_path(&mut self, path: PathHandle) {
        self.each_link(path, Self::revive_link);
    }

    fn each_link(&mut self, path: PathHandle, act: impl Fn(&mut Self, LinkId)) {
        let path = &self.paths[path.0 as usize];
        let links: Vec<_> = path.forward.iter().chain(&path.back).copied().collect();
        links.into_iter().for_each(|link| act(self, link));
    }

    /// Does to a host's sessions what an application on it could, now.
    ///
    /// # Panics
    /// If the host is a [node](Self::add_node).
    pub fn enter<R>(&mut self, host: HostId, act: impl FnOnce(&mut AppContext<'_>) -> R) -> R {
        let context = self.hosts[host.0 as usize].context(self.now, &mut self.queue, &mut self.log);
        let (mut cx, _) = context.expect("the host runs Punctual");
        let result = act(&mut cx);
        self.drive(host);
        result
    }

    /// The application that runs on a host, if it is a `T`.
    pub fn app<T: App>(&self, host: HostId) -> Option<&T> {
        let app: &dyn Any = self.hosts[host.0 as usize].punctual()?.app.as_deref()?;
        app.downcast_ref()
    }

    /// The same, to change it.
    pub fn app_mut<T: App>(&mut self, host: HostId) -> Option<&mut T> {
        let app: &mut dyn Any = self.hosts[host.0 as usize].punctual_mut()?.app.as_deref_mut()?;
        app.downcast_mut()
    }

    /// The node that is a host, if it is a `T`.
    pub fn node<T: Node>(&self, host: HostId) -> Option<&T> {
        let node: &dyn Any = self.hosts[host.0 as usize].node()?;
        node.downcast_ref()
    }

    /// The same, to do something to it; what it has to send then leaves when the world next runs.
    pub fn node_mut<T: Node>(&mut self, host: HostId) -> Option<&mut T> {
        self.queue.push(self.now, Target::Kick(host));
        let node: &mut dyn Any = self.hosts[host.0 as usize].node_mut()?;
        node.downcast_mut()
    }

    /// The events so far of a host that has no application, with their virtual times.
    pub fn take_events(&mut self, host: HostId) -> Vec<(Duration, SessionId, Event)> {
        self.hosts[host.0 as usize].punctual_mut().map(|one| std::mem::take(&mut one.inbox)).unwrap_or_default()
    }

    /// Sessions a host's endpoint has not forgotten.
    pub fn sessions(&self, host: HostId) -> usize {
        self.hosts[host.0 as usize].punctual().map_or(0, |one| one.endpoint.sessions())
    }

    /// Lets everything happen that is due by `time`; it is `time` then.
    ///
    /// # Panics
    /// If time cannot pass; see [`try_run_until`](Self::try_run_until).
    pub fn run_until(&mut self, time: Duration) {
        or_panic(self.try_run_until(time));
    }

    /// The same, for worlds in which something runs that may keep them busy for ever.
    ///
    /// # Errors
    /// If time cannot pass. It never will again.
    pub fn try_run_until(&mut self, time: Duration) -> Result<(), Stuck> {
        while self.queue.next_time().is_some_and(|next| next <= time) {
            self.try_step()?;
        }
        self.now = self.now.max(time);
        Ok(())
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// As [`run_until`](Self::run_until).
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Lets the next event happen, and says whether there was one.
    ///
    /// # Panics
    /// As [`run_until`](Self::run_until).
    pub fn step(&mut self) -> bool {
        or_panic(self.try_step())
    }

    /// The same, for worlds in which something runs that may keep them busy for ever.
    ///
    /// # Errors
    /// If time cannot pass. It never will again.
    pub fn try_step(&mut self) -> Result<bool, Stuck> {
        if let Some(stuck) = self.stuck {
            return Err(stuck);
        }
        let Some((time, target)) = self.queue.pop() else { return Ok(false) };
        debug_assert!(time >= self.now, "time runs backwards");
        self.now = time;
        if let Err(stuck) = self.watch.count(time, &target) {
            self.stuck = Some(stuck);
            return Err(stuck);
        }
        match target {
            Target::Host(host) => self.wake_host(host),
            Target::Kick(host) => self.drive(host),
            Target::Link(link) => self.wake_link(link),
            Target::Cross(index) => self.send_cross_traffic(index),
            Target::Timer(host, token) => {
                if let Some(until) = self.hosts[host.0 as usize].asleep_until {
                    self.queue.push(until, Target::Timer(host, token));
                    return Ok(true);
                }
                let context = self.hosts[host.0 as usize].context(self.now, &mut self.queue, &mut self.log);
                if let Some((mut cx, Some(app))) = context {
                    app.on_timer(&mut cx, token);
                }
                self.drive(host);
            }
            Target::Action(action) => action(self),
        }
        self.stuck.map_or(Ok(true), Err)
    }

    fn wake_host(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        if host.alarm.ring(self.now) && host.asleep_until.is_none() {
            if !host.wake(self.now) {
                self.stuck = Some(Stuck::Host { host: id, at: self.now });
                return;
            }
            self.drive(id);
        }
    }

    fn wake_link(&mut self, id: LinkId) {
        if !self.links[id.0 as usize].1.ring(self.now) {
            return;
        }
        let now = self.now;
        while let Some(datagram) = self.links[id.0 as usize].0.poll(now) {
            self.arrive(datagram);
        }
        self.touch(id, |_| ());
    }

    /// A datagram has come to the end of a link: on to the next, or to its host.
    fn arrive(&mut self, mut datagram: Datagram) {
        let route = &self.routes[(datagram.tag >> 8) as usize];
        datagram.tag += 1;
        if let Some(&next) = route.links.get((datagram.tag & 0xff) as usize) {
            return self.offer(next, datagram);
        }
        let (to, path) = (route.to, route.arrival);
        let host = &mut self.hosts[to.0 as usize];
        if host.asleep_until.is_some() {
            return;
        }
        host.stack.handle_datagram(host.moment(self.now), path, datagram.ecn, datagram.data);
        self.drive(to);
    }

    fn offer(&mut self, link: LinkId, datagram: Datagram) {
        let now = self.now;
        self.touch(link, |link| link.offer(now, datagram));
    }

    /// Does something to a link, and keeps its alarm and the log right.
    pub(crate) fn touch(&mut self, id: LinkId, act: impl FnOnce(&mut Link)) {
        let (link, alarm) = &mut self.links[id.0 as usize];
        act(link);
        for (at, event, bytes) in link.take_records() {
            self.log.push(at, What::Link { link: id, event, bytes });
        }
        if let Some(due) = link.poll_timeout() {
            alarm.set(due.max(self.now), &mut self.queue, Target::Link(id));
        }
    }

    /// Drains what a host runs, as its contract wants it after anything that goes in, and sets its alarm.
    pub(crate) fn drive(&mut self, id: HostId) {
        if self.hosts[id.0 as usize].asleep_until.is_some() {
            return;
        }
        let mut sent_at_once = 0;
        loop {
            let sent = self.transmit(id, &mut sent_at_once);
            let told = self.tell(id);
            if !sent && !told || self.stuck.is_some() {
                break;
            }
        }
        self.hosts[id.0 as usize].set_alarm(self.now, &mut self.queue);
    }

    /// Puts on their links the datagrams a host has to send, and counts them; whether there were any.
    fn transmit(&mut self, id: HostId, sent_at_once: &mut u32) -> bool {
        let mut any = false;
        loop {
            if *sent_at_once > MOST_SENT_AT_ONCE {
                self.stuck = Some(Stuck::Host { host: id, at: self.now });
                return any;
            }
            *sent_at_once += 1;
            let host = &mut self.hosts[id.0 as usize];
            self.buffer.clear();
            let at = host.moment(self.now);
            let Some(transmit) = host.stack.poll_transmit(at, &mut self.buffer) else { return any };
            any = true;
            // What is sent to nowhere is lost, as on any network.
            if let Some(&route) = host.routes.get(&transmit.path) {
                let data = self.buffer[..transmit.size].into();
                let datagram = Datagram { data, ecn: transmit.ecn, tag: (route as u64) << 8 };
                self.offer(self.routes[route].links[0], datagram);
            }
        }
    }

    /// Hands an endpoint's events on; whether there were any.
    fn tell(&mut self, id: HostId) -> bool {
        let mut any = false;
        while let Some((session, event)) =
            self.hosts[id.0 as usize].punctual_mut().and_then(|one| one.endpoint.poll_event())
        {
            any = true;
            self.follow(id, session, &event);
            if let Some(event) = self.connections.hold(id, session, event) {
                self.deliver(id, session, event);
            }
        }
        any
    }

    /// Gives an event to the application.
    pub(crate) fn deliver(&mut self, id: HostId, session: SessionId, event: Event) {
        let now = self.now;
        let host = &mut self.hosts[id.0 as usize];
        if let Some(event) = AppEvent::of(&event) {
            self.log.push(now, What::App { host: id, session, event });
        }
        if let Some(Punctual { app: None, inbox, .. }) = host.punctual_mut() {
            return inbox.push((now, session, event));
        }
        if let Some((mut cx, Some(app))) = host.context(now, &mut self.queue, &mut self.log) {
            app.on_event(&mut cx, session, event);
        }
    }
}

/// What callers get that do not reckon with a world that is stuck.
fn or_panic<T>(result: Result<T, Stuck>) -> T {
    result.unwrap_or_else(|stuck| panic!("{stuck}"))
}
