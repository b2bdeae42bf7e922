//! The network of the demo, and how it is told on screen and in the report.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use punctual_sim::{Loss, Rate, Schedule};

use crate::link::{
    relay::{Ends, Relay},
    wires::Plan,
};

/// Both directions of a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathSpec {
    pub(crate) name: &'static str,
    /// From the client to the server.
    pub(crate) up: LinkSpec,
    /// Back again.
    pub(crate) down: LinkSpec,
}

/// How one direction of a path treats packets, as it is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkSpec {
    /// Rates in bits per second, each from its moment on; the first is from 0.
    pub(crate) rates: Vec<(Duration, f64)>,
    /// Propagation delay.
    pub(crate) delay: Duration,
    /// The chance that a packet is lost on the wire, each by itself.
    pub(crate) loss: f64,
    /// Bytes that may wait; what does not fit is dropped.
    pub(crate) queue: u64,
}

impl LinkSpec {
    /// The same for the link that does it.
    fn link(&self) -> punctual_sim::LinkSpec {
        let rates = self.rates.iter().skip(1);
        let first = Schedule::fixed(self.rates.first().map_or(0, |(_, rate)| *rate as u64));
        let rate = rates.fold(first, |rates, (from, rate)| rates.then(*from, *rate as u64));
        punctual_sim::LinkSpec::unlimited(self.delay)
            .rate(Rate::Steps(rate))
            .loss(Loss::Bernoulli(self.loss))
            .queue(self.queue)
    }
}

/// What all runs of a demo go through alike.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) paths: Vec<PathSpec>,
    /// Counted from a frame's hand-over; also the depth of the play-out buffer.
    pub(crate) deadline: Duration,
    /// Of the loss on every link.
    pub(crate) seed: u64,
    /// How long after the last frame stragglers are waited for.
    pub(crate) drain: Duration,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Scenario {
    /// Two access links of a moving car, say: the better one is enough for the clip but for two seconds in the middle, the
    /// other but for the busiest seconds; both together always are.
    pub(crate) fn new(deadline: Duration, seed: u64) -> Self {
        let link = |mbits: &[(u64, f64)], delay, loss, queue| LinkSpec {
            rates: mbits.iter().map(|&(from, mbits)| (ms(from), mbits * 1e6)).collect(),
            delay: ms(delay),
            loss,
            queue,
        };
        // Acknowledgements come back over the same delay and loss, at a rate that never matters.
        let path = |name, up: LinkSpec| {
            let down = LinkSpec { rates: vec![(Duration::ZERO, 10e6)], ..up.clone() };
            PathSpec { name, up, down }
        };
        let paths = vec![
            path("A", link(&[(0, 2.0), (4_000, 0.4), (6_000, 2.0)], 30, 0.01, 48_000)),
            path("B", link(&[(0, 1.5)], 45, 0.01, 48_000)),
        ];
        Self { paths, deadline, seed, drain: ms(3_000) }
    }

    /// The paths, to a server on this host; ideal until they begin.
    pub(crate) fn relay(&self, server: SocketAddr) -> io::Result<Relay> {
        let add = |plan: Plan, path: &PathSpec| plan.path(path.name, path.up.link(), path.down.link());
        let ends = vec![Ends { listen: (Ipv4Addr::LOCALHOST, 0).into(), to: server }; self.paths.len()];
        Relay::start(self.paths.iter().fold(Plan::default(), add), &ends, self.seed, false)
    }

    /// One line for each path.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.paths.iter().map(|path| format!("path {}: {}", path.name, describe_link(&path.up))).collect()
    }
}

fn describe_link(link: &LinkSpec) -> String {
    let mut text = format!("{} Mbit/s", link.rates[0].1 / 1e6);
    for pair in link.rates.windows(2) {
        text += &format!(", {} from {} s", pair[1].1 / 1e6, pair[1].0.as_secs_f64());
    }
    text + &format!(
        "; {} ms each way, {} % loss, queue of {} KB",
        link.delay.as_millis(),
        link.loss * 100.0,
        link.queue / 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_in_one_line() {
        let lines = Scenario::new(ms(150), 1).describe();
        assert_eq!(lines[0], "path A: 2 Mbit/s, 0.4 from 4 s, 2 from 6 s; 30 ms each way, 1 % loss, queue of 48 KB");
    }
}
