//! The links of a network, one behind the other as its paths have them, driven by whoever knows the time.
//!
//! What a packet meets is the simulator's [`Link`], so what is carried here meets what an experiment's packets met. This puts them together: it has no socket and no clock.

use std::time::Duration;

use bytes::BytesMut;
use punctual_eval::network::Network;
use punctual_sim::{Datagram, EcnCodepoint, Link, LinkCounters, LinkSpec};

/// The most packets that all links hold. What comes beyond is lost: a link without a rate has no queue that would be full.
const MOST_INSIDE: u64 = 200_000;

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    There,
    Back,
}

/// Of what wires are made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    links: Vec<LinkSpec>,
    pub(crate) paths: Vec<PathPlan>,
}

/// A path: the links that it goes over each way, and when all that are its own die and live again.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathPlan {
    pub(crate) name: String,
    routes: [Vec<usize>; 2],
    dies: Vec<(Duration, Duration)>,
}

impl Plan {
    /// That of an experiment's network.
    ///
    /// # Errors
    /// If it has what cannot be had in real time.
    pub(crate) fn new(network: Network) -> Result<Self, String> {
        let mut plan = Self::default();
        if network.paths.iter().any(|path| path.cross.iter().any(|cross| !cross.is_empty()))
            || network.links.iter().any(|link| !link.cross.is_empty())
        {
            return Err("`cross` is for the simulator: here, others on the link are whoever sends over it".into());
        }
        for path in network.paths {
            plan.add_path(
                path.name,
                path.forward,
                path.back,
                path.dies,
                path.through.map(|shared| shared.into_iter().collect()),
            );
        }
        // Behind those of the paths, which `through` counts from.
        let own = plan.links.len();
        plan.paths.iter_mut().flat_map(|path| &mut path.routes).for_each(|route| {
            route.iter_mut().skip(1).for_each(|shared| *shared += own);
        });
        plan.links.extend(network.links.into_iter().map(|link| link.spec));
        Ok(plan)
    }

    /// Adds a path with links of its own.
    pub(crate) fn path(mut self, name: &str, there: LinkSpec, back: LinkSpec) -> Self {
        self.add_path(name.into(), there, back, Vec::new(), [Vec::new(), Vec::new()]);
        self
    }

    fn add_path(
        &mut self,
        name: String,
        there: LinkSpec,
        back: LinkSpec,
        dies: Vec<(Duration, Duration)>,
        behind: [Vec<usize>; 2],
    ) {
        let first = self.links.len();
        self.links.extend([there, back]);
        let [there, back] = behind;
        let routes = [(first, there), (first + 1, back)].map(|(own, behind)| [vec![own], behind].concat());
        self.paths.push(PathPlan { name, routes, dies });
    }

    /// Changes every link's specification.
    pub(crate) fn each_link(&mut self, change: impl FnMut(&mut LinkSpec)) {
        self.links.iter_mut().for_each(change);
    }
}

/// A packet that has come out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When it should be where it goes.
    pub(crate) due: Duration,
    pub(crate) path: usize,
    pub(crate) way: Way,
    /// Whoever the caller said it was of.
    pub(crate) whose: u32,
    pub(crate) datagram: Datagram,
}

/// What a path has done one way. Bytes are those of what was handed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WayCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Of its own link, and of those behind it all that went over them.
    pub(crate) links: LinkCounters,
}

/// Paths in use. Times count from a moment of the caller's choosing, and never run backwards.
#[derive(Debug)]
pub(crate) struct Wires {
    links: Vec<Link>,
    paths: Vec<PathPlan>,
    offered: Vec<[(u64, u64); 2]>,
    /// When a path dies (or lives again), the earliest last.
    deaths: Vec<(Duration, usize, bool)>,
    begun: Option<Duration>,
    /// Packets that were lost because there were too many.
    pub(crate) refused: u64,
}

impl Wires {
    /// Wires with the draws of this seed; ideal until they [begin](Self::begin).
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        let ideal = |(spec, index): (LinkSpec, u64)| {
            let mut link = Link::numbered(spec, seed, index);
            link.make_ideal();
            link
        };
        Self {
            links: plan.links.into_iter().zip(0..).map(ideal).collect(),
            offered: vec![Default::default(); plan.paths.len()],
            paths: plan.paths,
            deaths: Vec::new(),
            begun: None,
            refused: 0,
        }
    }

    /// From now on all of the specification holds; schedules, traces, deaths and counters begin here.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.begun = Some(now);
        self.links.iter_mut().for_each(|link| link.shape(now));
        self.offered.fill(Default::default());
        let deaths = self.paths.iter().enumerate().flat_map(|(index, path)| {
            path.dies.iter().flat_map(move |&(from, to)| [(now + from, index, false), (now + to, index, true)])
        });
        self.deaths = deaths.collect();
        // Where one death ends as another begins, it goes on.
        self.deaths.sort_by_key(|&(at, _, lives)| std::cmp::Reverse((at, !lives)));
    }

    /// When they began.
    pub(crate) fn begun(&self) -> Option<Duration> {
        self.begun
    }

    /// A packet comes to a path. Call [`poll`](Self::poll) until nothing is due any more before.
    pub(crate) fn offer(
        &mut self,
        now: Duration,
        path: usize,
        way: Way,
        whose: u32,
        data: BytesMut,
        ecn: Option<EcnCodepoint>,
    ) {
        let counted = &mut self.offered[path][way as usize];
        *counted = (counted.0 + 1, counted.1 + data.len() as u64);
        if self.inside() >= MOST_INSIDE {
            self.refused += 1;
            return;
        }
        let tag = u64::from(whose) << 32 | (path as u64) << 16 | (way as u64) << 8;
        self.links[self.paths[path].routes[way as usize][0]].offer(now, Datagram { data, ecn, tag });
    }

    /// When something is due next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let death = self.deaths.last().map(|&(at, ..)| at);
        self.links.iter().filter_map(Link::poll_timeout).chain(death).min()
    }

    /// The next packet that has come out by `now`.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Arrival> {
        while let Some(at) = self.next().filter(|at| *at <= now) {
            if let Some((_, path, lives)) = self.deaths.pop_if(|&mut (due, ..)| due <= at) {
                self.set_alive(at, path, lives);
                continue;
            }
            let due = self.links.iter().position(|link| link.poll_timeout() == Some(at))?;
            let Some((due, mut datagram)) = self.links[due].poll_timed(at) else { continue };
            datagram.tag += 1;
            let tag = datagram.tag;
            let (path, hop) = ((tag >> 16) as usize & 0xffff, (tag & 0xff) as usize);
            let way = if tag >> 8 & 1 == 0 { Way::There } else { Way::Back };
            match self.paths[path].routes[way as usize].get(hop) {
                Some(&link) => self.links[link].offer(due, datagram),
                None => return Some(Arrival { due, path, way, whose: (tag >> 32) as u32, datagram }),
            }
        }
        None
    }

    fn set_alive(&mut self, now: Duration, path: usize, lives: bool) {
        for way in [Way::There, Way::Back] {
            let link = &mut self.links[self.paths[path].routes[way as usize][0]];
            if lives { link.revive() } else { link.kill(now) }
        }
    }

    /// What a path has done one way since it began.
    pub(crate) fn counters(&self, path: usize, way: Way) -> WayCounters {
        let (packets, bytes) = self.offered[path][way as usize];
        let route = &self.paths[path].routes[way as usize];
        let links = route.iter().map(|&link| *self.links[link].counters());
        let links = links.reduce(|own, shared| LinkCounters {
            delivered: shared.delivered,
            delivered_bytes: shared.delivered_bytes,
            lost: own.lost + shared.lost,
            policed: own.policed + shared.policed,
            overflowed: own.overflowed + shared.overflowed,
            oversized: own.oversized + shared.oversized,
            died: own.died + shared.died,
            ..own
        });
        WayCounters { packets, bytes, links: links.unwrap_or_default() }
    }

    /// Names of the paths.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|path| path.name.as_str())
    }

    /// Packets queued or under way.
    fn inside(&self) -> u64 {
        let inside = |counters: &LinkCounters| {
            (counters.offered + counters.duplicated).saturating_sub(counters.delivered + counters.dropped())
        };
        self.links.iter().map(|link| inside(link.counters())).sum()
    }
}

#[cfg(test)]
mod tests {
    use punctual_eval::{
        files::Files,
        network::{LinkTable, PathSpec},
    };
    use punctual_sim::Loss;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn plan(text: &str) -> Result<Plan, String> {
        let table: toml::Table = text.parse().unwrap();
        let paths: Vec<PathSpec> = table["path"].clone().try_into().unwrap();
        let links: Vec<LinkTable> = table.get("link").map_or_else(Vec::new, |links| links.clone().try_into().unwrap());
        Plan::new(Network::build(&paths, &links, &Files::default()).map_err(|error| error.to_string())?)
    }

    fn offer(wires: &mut Wires, now: Duration, path: usize, whose: u32) {
        wires.offer(now, path, Way::There, whose, [0; 1_222][..].into(), None);
    }

    fn drain(wires: &mut Wires, now: Duration) -> Vec<(Duration, usize, u32)> {
        std::iter::from_fn(|| wires.poll(now)).map(|arrival| (arrival.due, arrival.path, arrival.whose)).collect()
    }

    #[test]
    fn paths_share_a_link_behind_their_own() {
        // A packet of 1,250 bytes with headers takes 10 ms at 1 Mbit/s.
        let text = "[[link]]\nname = 'mast'\nrate = '1 Mbit/s'\n[[path]]\ndelay = '20ms'\nthrough = 'mast'\n\
                    [[path]]\ndelay = '25ms'\nthrough = 'mast'\nback = { delay = '5ms' }";
        let mut wires = Wires::new(plan(text).unwrap(), 1);
        wires.begin(ms(1_000));
        offer(&mut wires, ms(1_000), 0, 7);
        offer(&mut wires, ms(1_000), 1, 8);
        wires.offer(ms(1_000), 1, Way::Back, 9, [0; 10][..].into(), None);
        assert_eq!(wires.next(), Some(ms(1_005)));
        assert_eq!(drain(&mut wires, ms(1_029)), [(ms(1_005), 1, 9)]);
        // Looked at late: what comes out is told by when it should have.
        assert_eq!(drain(&mut wires, ms(5_000)), [(ms(1_030), 0, 7), (ms(1_040), 1, 8)]);
        assert_eq!((wires.next(), wires.inside()), (None, 0));
        let counters = wires.counters(1, Way::There);
        assert_eq!((counters.packets, counters.bytes, counters.links.delivered), (1, 1_222, 2));
    }

    #[test]
    fn a_path_dies_and_lives_again() {
        let mut wires = Wires::new(plan("[[path]]\ndelay = '20ms'\ndies = [['1s', '2s'], ['2s', '3s']]").unwrap(), 1);
        let start = ms(500);
        wires.begin(start);
        for (at, whose) in [(900, 1), (985, 2), (1_500, 3), (2_000, 4), (2_999, 5), (3_000, 6)] {
            let arrived = drain(&mut wires, start + ms(at));
            assert!(arrived.iter().all(|(_, _, whose)| [1, 6].contains(whose)), "{arrived:?}");
            offer(&mut wires, start + ms(at), 0, whose);
        }
        assert_eq!(drain(&mut wires, ms(9_000)), [(start + ms(3_020), 0, 6)]);
        assert_eq!(wires.counters(0, Way::There).links.died, 4);
    }

    #[test]
    fn the_draws_are_those_of_a_world() {
        let lossy = LinkSpec::unlimited(ms(1)).loss(Loss::Bernoulli(0.3));
        let plan =
            Plan::default().path("a", lossy.clone(), LinkSpec::default()).path("b", lossy.clone(), lossy.clone());
        let mut wires = Wires::new(plan, 42);
        // Handshakes take none.
        (0..5).for_each(|n| offer(&mut wires, ms(n), 1, 9_999));
        wires.begin(ms(10));
        let mut link = Link::numbered(lossy, 42, 2);
        for n in 0..200_u32 {
            let now = ms(10 + u64::from(n));
            offer(&mut wires, now, 1, n);
            link.offer(now, Datagram { data: [0; 1_222][..].into(), ecn: None, tag: 0 });
            let came = drain(&mut wires, now + ms(1)).iter().any(|(.., whose)| *whose == n);
            assert_eq!(came, link.poll(now + ms(1)).is_some(), "{n}");
        }
        assert!((40..80).contains(&wires.counters(1, Way::There).links.lost));
    }

    #[test]
    fn an_endless_wire_holds_no_more_than_so_much() {
        let long = LinkSpec::unlimited(Duration::from_secs(3_600));
        let mut wires = Wires::new(Plan::default().path("long", long, LinkSpec::default()), 1);
        wires.begin(ms(0));
        for n in 0..MOST_INSIDE + 10 {
            wires.offer(Duration::from_nanos(n), 0, Way::There, 0, [0; 1][..].into(), None);
        }
        assert_eq!((wires.inside(), wires.refused), (MOST_INSIDE, 10));
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        let error = plan("[[path]]\ncross = [{ rate = '1 Mbit/s' }]").unwrap_err();
        assert!(error.contains("`cross`"), "{error}");
    }
}
