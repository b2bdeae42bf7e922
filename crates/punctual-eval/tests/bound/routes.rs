//! Links in the hands of a sender that knows them: what it gets through can be got through.

use std::time::Duration;

use punctual_eval::bound::{Bound, Job, Links, Place};
use punctual_sim::{Datagram, Link, LinkSpec};

/// The most bytes of a block in one packet, what QUIC needs beside them, and IP and UDP.
pub(crate) const PAYLOAD: u32 = 1444;
pub(crate) const QUIC: u32 = 28;
pub(crate) const HEADERS: u32 = 28;

/// When a link dies, and lives again.
pub(crate) type Dies = Vec<(Duration, Duration)>;

/// Links, when they die, and which of them each path passes, one after the other.
pub(crate) struct Routes {
    links: Vec<LinkSpec>,
    dies: Vec<Dies>,
    paths: Vec<Vec<usize>>,
}

/// How much of a policer's bucket is spent, as its sender knows: bits · 10⁹, and when.
#[derive(Clone, Copy, Default)]
struct Spent(u128, Duration);

impl Spent {
    /// Spends what a packet needs, or says when it might pass; `None` if never.
    fn pass(&mut self, link: &LinkSpec, now: Duration, bytes: u32) -> Result<(), Option<Duration>> {
        const BYTE: u128 = 8_000_000_000;
        let Some(policer) = link.policer else { return Ok(()) };
        let (rate, most) = (u128::from(policer.rate), u128::from(policer.burst) * BYTE);
        *self = Self(self.0.saturating_sub(rate * (now - self.1).as_nanos()), now);
        let packet = u128::from(bytes + QUIC + HEADERS) * BYTE;
        let excess = (self.0 + packet).saturating_sub(most);
        if excess == 0 {
            self.0 += packet;
            return Ok(());
        }
        let is_possible = packet <= most && rate > 0;
        Err(is_possible.then(|| now + Duration::from_nanos(excess.div_ceil(rate) as u64)))
    }
}

impl Routes {
    /// A path over each link.
    pub(crate) fn apart(links: &[LinkSpec]) -> Self {
        Self::over(&links.into())
    }

    /// Paths over links of their own and one that they may share.
    pub(crate) fn over(links: &Links) -> Self {
        let own = links.own.len();
        let chain = |path| match links.shared.first().map(|shared| shared.place) {
            None => vec![path],
            Some(Place::First) => vec![own, path],
            Some(Place::Last) => vec![path, own],
        };
        let shared = links.shared.iter().map(|shared| &shared.link);
        Self {
            links: links.own.iter().chain(shared).cloned().collect(),
            dies: links.dies.iter().cloned().chain(std::iter::repeat(Dies::new())).take(own + 1).collect(),
            paths: (0..own).map(chain).collect(),
        }
    }

    /// When links are killed (`true`) and revived, in order.
    fn deaths(&self) -> Vec<(Duration, usize, bool)> {
        let events = self.dies.iter().enumerate().flat_map(|(link, dies)| {
            dies.iter().flat_map(move |(killed, revived)| [(*killed, link, true), (*revived, link, false)])
        });
        let mut events: Vec<_> = events.collect();
        events.sort_by_key(|(at, ..)| *at);
        events
    }

    /// When a packet would arrive that has a path for itself.
    fn arrival(
        &self,
        path: &[usize],
        now: Duration,
        bytes: u32,
        deaths: &[(Duration, usize, bool)],
    ) -> Option<Duration> {
        path.iter().try_fold(now, |now, index| {
            let mut link = Link::new(self.links[*index].clone(), 1);
            link.offer(now, packet(bytes, 0));
            let arrival = loop {
                let next = link.poll_timeout()?;
                if link.poll(next).is_some() {
                    break next;
                }
            };
            let deaths = || deaths.iter().filter(|(_, link, _)| link == index);
            let is_dead = deaths().take_while(|(at, ..)| *at <= now).last().is_some_and(|(.., killed)| *killed);
            let is_lost = deaths().any(|(at, _, killed)| *killed && (now..arrival).contains(at) && *at > now);
            (!is_dead && !is_lost).then_some(arrival)
        })
    }

    /// Which of `jobs` are on time if each path, in this order, takes packets of the one that is due first of those that it can
    /// still be in time for. What a path's first link loses is known as soon as it has left, and sent again; nothing is sent that a path
    /// would lose as it dies, or that its first link's policer would not let through.
    pub(crate) fn send(&self, jobs: &[Job], order: &[usize], seed: u64) -> Vec<Job> {
        let links = self.links.iter().zip(seed..);
        let mut links: Vec<Link> = links.map(|(spec, seed)| Link::new(spec.clone(), seed)).collect();
        // Of each link: packets lost so far, and the job and bytes of the last one that was sent over it.
        let mut sent = vec![(0, 0, 0); links.len()];
        let due = |job: &Job| job.handed_over + job.deadline.unwrap();
        let mut left: Vec<u32> = jobs.iter().map(|job| job.size).collect();
        let mut arrived = vec![0; jobs.len()];
        let mut on_time = Vec::new();
        let mut spent = vec![Spent::default(); links.len()];
        let all_deaths = self.deaths();
        let mut deaths = &all_deaths[..];
        let mut now = Duration::ZERO;
        loop {
            // A packet that leaves one link may be on the next at once.
            for at in 0..links.len() * 2 {
                let at = at % links.len();
                while let Some(datagram) = links[at].poll(now) {
                    let (path, index) = (datagram.tag as usize >> 16, datagram.tag as usize & 0xffff);
                    let place = self.paths[path].iter().position(|link| *link == at).unwrap();
                    match self.paths[path].get(place + 1) {
                        Some(next) => links[*next].offer(now, datagram),
                        None => {
                            arrived[index] += datagram.data.len() as u32 - QUIC;
                            if arrived[index] == jobs[index].size && now <= due(&jobs[index]) {
                                on_time.push(jobs[index]);
                            }
                        }
                    }
                }
                let (lost, index, bytes) = &mut sent[at];
                if links[at].counters().lost > *lost {
                    *lost += 1;
                    left[*index] += *bytes;
                }
            }
            while let Some(((_, link, killed), rest)) = deaths.split_first().filter(|((at, ..), _)| *at <= now) {
                if *killed {
                    links[*link].kill(now)
                } else {
                    links[*link].revive()
                }
                deaths = rest;
            }
            let mut again: Option<Duration> = None;
            for path in order {
                let at = self.paths[*path][0];
                let in_time = |i: usize, bytes: u32| {
                    let arrival = self.arrival(&self.paths[*path], now, bytes, &all_deaths);
                    arrival.is_some_and(|arrival| arrival <= due(&jobs[i]))
                };
                while links[at].queued_bytes() == 0 {
                    let ready = (0..jobs.len()).filter(|i| left[*i] > 0 && jobs[*i].handed_over <= now);
                    let ready = ready.filter(|i| in_time(*i, left[*i].min(PAYLOAD)));
                    let Some(index) = ready.min_by_key(|i| due(&jobs[*i])) else { break };
                    let bytes = left[index].min(PAYLOAD);
                    if let Err(later) = spent[at].pass(&self.links[at], now, bytes) {
                        again = again.into_iter().chain(later).min();
                        break;
                    }
                    left[index] -= bytes;
                    (sent[at].1, sent[at].2) = (index, bytes);
                    links[at].offer(now, packet(bytes, (path << 16 | index) as u64));
                }
            }
            let release = jobs.iter().map(|job| job.handed_over).filter(|at| *at > now).min();
            let death = deaths.first().map(|(at, ..)| *at);
            let events = links.iter().filter_map(Link::poll_timeout).chain(release).chain(again).chain(death);
            let Some(next) = events.min() else { break };
            now = next;
        }
        on_time
    }

    /// The most that are on time, whichever of them are sent and whichever path comes first.
    pub(crate) fn best(&self, jobs: &[Job]) -> usize {
        let orders = (0..self.paths.len()).map(|first| {
            let mut order: Vec<usize> = (0..self.paths.len()).collect();
            order.rotate_left(first);
            order
        });
        let orders: Vec<_> = orders.collect();
        let chosen = |choice: u32| (0..jobs.len()).filter(move |i| choice >> i & 1 == 1).map(|i| jobs[i]);
        let sent = |choice: u32| {
            let chosen: Vec<_> = chosen(choice).collect();
            orders.iter().map(|order| self.send(&chosen, order, 1).len()).max().unwrap_or(0)
        };
        (0..1u32 << jobs.len()).map(sent).max().unwrap_or(0)
    }

    /// How far a bound is above what can be sent, for the blocks of each priority and those above it.
    pub(crate) fn gaps(&self, bound: &Bound, jobs: &[Job]) -> Vec<i64> {
        let gap = |(priority, most): &(u8, u64)| {
            let within: Vec<_> = jobs.iter().filter(|job| job.priority <= *priority).copied().collect();
            *most as i64 - self.best(&within) as i64
        };
        bound.up_to_priority.iter().map(gap).collect()
    }
}

pub(crate) fn packet(bytes: u32, tag: u64) -> Datagram {
    Datagram { data: vec![0; (bytes + QUIC) as usize][..].into(), ecn: None, tag }
}
