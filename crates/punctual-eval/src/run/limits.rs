//! The clairvoyant bound of a stage, links that paths share included.

use punctual_sim::LinkSpec;

use crate::{
    bound::{self, Bound, Job, Place, SharedLink},
    carry::Stage,
};

/// What nobody can exceed on a stage.
pub(crate) fn bound(stage: &Stage, jobs: &[Job]) -> Bound {
    let (paths, shared) = links(stage);
    bound::bound_over_shared(&paths, &shared, jobs, stage.end)
}

/// Blocks that nobody can exceed on a stage, since some are of no use without others; `None` if none of them is so.
pub(crate) fn decodable(stage: &Stage, jobs: &[Job]) -> Option<u64> {
    let blocks = &stage.plan.blocks;
    blocks.iter().find(|block| !block.depends_on.is_empty())?;
    let (paths, shared) = links(stage);
    let needs = |index: usize| blocks.get(index).map_or(&[][..], |block| &block.depends_on);
    let can = bound::decodable(&paths, &shared, jobs, needs, stage.end);
    let left: Vec<Job> = jobs.iter().zip(can).filter_map(|(job, can)| can.then_some(*job)).collect();
    Some(bound::bound_over_shared(&paths, &shared, &left, stage.end).on_time)
}

/// The paths' own links there, and those that they share.
fn links(stage: &Stage) -> (Vec<LinkSpec>, Vec<SharedLink>) {
    let paths: Vec<LinkSpec> = stage.paths.iter().map(|path| path.forward.clone()).collect();
    let passed = |index| (0..paths.len()).filter(|path| stage.paths[*path].through[0] == Some(index)).collect();
    let links = stage.links.iter().enumerate();
    let shared: Vec<SharedLink> = links
        .map(|(index, link)| SharedLink { link: link.spec.clone(), paths: passed(index), place: Place::Last })
        .collect();
    (paths, shared)
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
