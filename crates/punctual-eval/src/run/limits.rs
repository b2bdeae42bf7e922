//! The clairvoyant bound of a stage, links that paths share included.

use std::time::Duration;

use punctual_sim::{LinkSpec, Rate, Schedule};

use crate::{
    bound::{self, Average, Bound, Job},
    carry::Stage,
    network::{Path, SharedLink},
};

/// What nobody can exceed on a stage.
///
/// Paths must not share anything in the bound's model, so where some do it is the lower of two: each path's own link alone, as if
/// what is shared held up nobody; and each shared link as one path in place of those that go through it, as if their own links
/// held up nobody.
pub(crate) fn bound(stage: &Stage, jobs: &[Job]) -> Bound {
    let Stage { paths, links, end, .. } = stage;
    let apart: Vec<LinkSpec> = paths.iter().map(|path| alone(path, links)).collect();
    let apart = bound::bound(&apart, jobs, *end);
    if paths.iter().all(|path| path.through[0].is_none()) {
        return apart;
    }
    let own = paths.iter().filter(|path| path.through[0].is_none()).map(|path| path.forward.clone());
    let shared = links.iter().enumerate().filter_map(|(index, link)| together(index, link, paths));
    lower(apart, bound::bound(&own.chain(shared).collect::<Vec<_>>(), jobs, *end))
}

/// A path of its own link, as long as its packets are on the way at least.
fn alone(path: &Path, links: &[SharedLink]) -> LinkSpec {
    let behind = path.through[0].map_or(Duration::ZERO, |link| least_delay(&links[link].spec));
    LinkSpec { delay: path.forward.delay.map(|delay| *delay + behind), ..path.forward.clone() }
}

/// A shared link as a path: as if all that go through it had the shortest way to it.
///
/// The way to it comes first, so the model's clock, which begins with the wire behind the link, is that much ahead of the link's.
fn together(index: usize, link: &SharedLink, paths: &[Path]) -> Option<LinkSpec> {
    let through = paths.iter().filter(|path| path.through[0] == Some(index));
    let before = through.map(|path| least_delay(&path.forward)).min()?;
    let spec = &link.spec;
    let rate = match &spec.rate {
        Rate::Unlimited => Rate::Unlimited,
        Rate::Steps(rate) => Rate::Steps(rate.begun_at(before)),
        Rate::Trace(trace) => Rate::Trace(trace.begun_at(before)),
    };
    let delay: Schedule<Duration> = spec.delay.begun_at(before).map(|delay| *delay + before);
    Some(LinkSpec { rate, delay, loss: spec.loss.begun_at(before), ..spec.clone() })
}

fn least_delay(spec: &LinkSpec) -> Duration {
    spec.delay.values().min().copied().unwrap_or_default()
}

/// Of each figure the lower; both hold.
fn lower(a: Bound, b: Bound) -> Bound {
    fn least<T: PartialOrd + Copy>(a: &[(u8, T)], b: &[(u8, T)]) -> Vec<(u8, T)> {
        a.iter().zip(b).map(|(a, b)| (a.0, if b.1 < a.1 { b.1 } else { a.1 })).collect()
    }
    let average = Average {
        on_time: a.average.on_time.min(b.average.on_time),
        up_to_priority: least(&a.average.up_to_priority, &b.average.up_to_priority),
        weighted: a.average.weighted.min(b.average.weighted),
        bytes_on_time: a.average.bytes_on_time.min(b.average.bytes_on_time),
    };
    Bound {
        up_to_priority: least(&a.up_to_priority, &b.up_to_priority),
        weighted: a.weighted.min(b.weighted),
        bytes_on_time: a.bytes_on_time.min(b.bytes_on_time),
        average,
        ..if b.on_time < a.on_time { b } else { a }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{carry, experiment::Experiment, files::Files};

    /// Two paths of 8 Mbit/s, 10 and 30 ms; `shared` is a table's keys, or nothing is shared.
    fn stage(shared: Option<&str>, seed: u64) -> (Stage, crate::experiment::Contender) {
        let (link, through) = match shared {
            Some(keys) => (format!("[[link]]\nname = 'both'\n{keys}\n"), "through = 'both'\n"),
            None => (String::new(), ""),
        };
        let text = format!(
            "title = 'x'\nduration = '2s'\ncontenders = ['ads']\n{link}\
             [[path]]\nrate = '8 Mbit/s'\ndelay = '10ms'\nqueue = '60 KB'\n{through}\
             [[path]]\nrate = '8 Mbit/s'\ndelay = '30ms'\nqueue = '60 KB'\n{through}\
             [[workload]]\nsize = '15 KB'\nevery = '10ms'\ndeadline = '100ms'\n"
        );
        let cell = Experiment::parse("x", &text).unwrap().cells().unwrap().remove(0);
        (Stage::new(&cell.setup, &Files::default(), seed).unwrap(), cell.contender)
    }

    fn limit(stage: &Stage) -> f64 {
        let job = |block: &crate::plan::PlannedBlock| Job {
            handed_over: block.at,
            deadline: block.deadline,
            size: block.size,
            priority: 0,
            weight: 1.0,
        };
        let jobs: Vec<Job> = stage.plan.blocks.iter().map(job).collect();
        bound(stage, &jobs).on_time as f64 / jobs.len() as f64
    }

    fn on_time(stage: &Stage, contender: &crate::experiment::Contender) -> f64 {
        let record = carry::run(stage, contender, 1).unwrap();
        record.blocks.iter().filter(|block| block.on_time()).count() as f64 / record.blocks.len() as f64
    }

    #[test]
    fn a_shared_link_counts_once() {
        let (apart, _) = stage(None, 1);
        let (wide, _) = stage(Some("rate = '100 Mbit/s'"), 1);
        let (narrow, ads) = stage(Some("rate = '6 Mbit/s'\nqueue = '60 KB'"), 1);
        // 12 Mbit/s of blocks: both links together have room for them, and half fit through the narrow one.
        assert!(limit(&apart) > 0.99 && limit(&wide) == limit(&apart), "{} {}", limit(&apart), limit(&wide));
        assert!((0.4..0.52).contains(&limit(&narrow)), "{}", limit(&narrow));
        assert!((0.01..=limit(&narrow)).contains(&on_time(&narrow, &ads)));
    }

    #[test]
    fn delays_behind_each_other_add_up() {
        // 10 ms of own wire and 75 ms behind: 15 ms are left to send 15 KB in, which both paths cannot do.
        assert_eq!(limit(&stage(Some("delay = '75ms'\nrate = '100 Mbit/s'"), 1).0), 0.0);
        assert!(limit(&stage(Some("delay = '50ms'\nrate = '100 Mbit/s'"), 1).0) > 0.9);
        // The link opens at 1 s; what is handed over before is too late but for the last 90 ms.
        let opens = "rate = [['0s', 0], ['1s', '100 Mbit/s']]";
        assert!((0.5..0.56).contains(&limit(&stage(Some(opens), 1).0)), "{}", limit(&stage(Some(opens), 1).0));
    }

    #[test]
    fn nobody_exceeds_it_on_a_link_that_changes() {
        let shared = "rate = [['0s', '3 Mbit/s'], ['0.4s', '14 Mbit/s'], ['0.9s', '1 Mbit/s'], ['1.3s', '9 Mbit/s']]\nqueue = '60 KB'";
        let (stage, ads) = stage(Some(shared), 1);
        assert!(on_time(&stage, &ads) <= limit(&stage) && limit(&stage) < 0.9);
    }
}
