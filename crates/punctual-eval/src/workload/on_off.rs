//! Silences: from a source's own time to the run's.

use std::time::Duration;

use super::{dist::Sampler, draft::time, error::Problem, files::Files, random::Random, source::OnOff};

/// Neither state is shorter.
const LEAST: Duration = Duration::from_micros(1);

/// A source's clock, which stands still while it is silent.
pub(super) struct Clock {
    states: Option<States>,
}

struct States {
    on: Sampler,
    off: Sampler,
    random: Random,
    /// By the source's own time.
    on_until: Duration,
    /// Silence so far.
    silence: Duration,
}

impl Clock {
    pub(super) fn new(on_off: Option<&OnOff>, mut random: Random, files: &Files) -> Result<Self, Problem> {
        let states = match on_off {
            None => None,
            Some(on_off) => {
                let mut on = on_off.on.sampler("on-off", files)?;
                let off = on_off.off.sampler("on-off", files)?;
                let on_until = time(on.draw(&mut random), LEAST);
                Some(States { on, off, random, on_until, silence: Duration::ZERO })
            }
        };
        Ok(Self { states })
    }

    /// How long after the source's beginning its own clock shows `at`, unless that is at `end` or later. To be asked in order of time.
    pub(super) fn since_start(&mut self, at: Duration, end: Duration) -> Option<Duration> {
        if let Some(states) = &mut self.states {
            while at >= states.on_until && at + states.silence < end {
                states.silence += time(states.off.draw(&mut states.random), LEAST);
                states.on_until += time(states.on.draw(&mut states.random), LEAST);
            }
        }
        let at = at + self.states.as_ref().map_or(Duration::ZERO, |states| states.silence);
        (at < end).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        units::Time,
        workload::{
            Distribution,
            random::{Purpose, generator},
        },
    };

    #[test]
    fn time_stands_still_in_silence() {
        let constant = |millis| Distribution::Constant(Time(Duration::from_millis(millis)));
        let on_off = OnOff { on: constant(100), off: constant(50) };
        let random = generator(1, 0, 0, Purpose::OnOff);
        let mut clock = Clock::new(Some(&on_off), random, &Files::default()).unwrap();
        let mut since = |millis| {
            let at = clock.since_start(Duration::from_millis(millis), Duration::from_millis(1000));
            at.map(|at| at.as_millis())
        };
        assert_eq!(since(0), Some(0));
        assert_eq!(since(99), Some(99));
        assert_eq!(since(100), Some(150));
        assert_eq!(since(350), Some(500));
        assert_eq!(since(699), Some(999));
        assert_eq!(since(700), None);
    }
}
