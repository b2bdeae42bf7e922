//! The network of the demo, and how it is told on screen and in the report.

use std::time::Duration;

use super::{impair::LinkSpec, relay::PathSpec};

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
    /// Two access links of a moving car, say: the better one is enough for the clip but for two seconds in the middle, the other
    /// never is, both together always are.
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
            path("A", link(&[(0, 2.0), (3_500, 0.4), (5_500, 2.0)], 30, 0.01, 48_000)),
            path("B", link(&[(0, 1.2)], 45, 0.01, 48_000)),
        ];
        Self { paths, deadline, seed, drain: ms(3_000) }
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
        assert_eq!(
            lines[0],
            "path A: 2 Mbit/s, 0.4 from 3.5 s, 2 from 5.5 s; 30 ms each way, 1 % loss, queue of 48 KB"
        );
    }
}
