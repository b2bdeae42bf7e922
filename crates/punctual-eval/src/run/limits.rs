//! The clairvoyant bound of a stage, with its deaths and the links that paths share.

use crate::{
    bound::{self, Bound, Job, Links, Place, SharedLink, Ties},
    carry::Stage,
};

/// What nobody can exceed on a stage.
pub(crate) fn bound(stage: &Stage, jobs: &[Job]) -> Bound {
    bound::bound_over(&links(stage), jobs, stage.end)
}

/// What nobody can exceed on a stage with its first blocks, of which some are of no use without others; `None` if none of them is so.
pub(crate) fn dependent(stage: &Stage, jobs: &[Job]) -> Option<Bound> {
    let blocks = stage.plan.blocks.iter().take(jobs.len());
    let ties: Vec<Ties<'_>> = blocks.map(|block| Ties { source: block.source, needs: &block.depends_on }).collect();
    ties.iter().find(|tie| !tie.needs.is_empty())?;
    Some(bound::bound_of_dependent(&links(stage), jobs, &ties, stage.end))
}

/// The links there.
fn links(stage: &Stage) -> Links {
    let passed =
        |index| (0..stage.paths.len()).filter(|path| stage.paths[*path].through[0] == Some(index)).collect::<Vec<_>>();
    let links = stage.links.iter().enumerate();
    Links {
        own: stage.paths.iter().map(|path| path.forward.clone()).collect(),
        shared: links
            .map(|(index, link)| SharedLink { link: link.spec.clone(), paths: passed(index), place: Place::Last })
            .collect(),
        dies: stage.paths.iter().map(|path| path.dies.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn deaths_and_policers_count() {
        let (apart, ads) = stage(None, 1);
        let mut harsh = apart.clone();
        harsh.paths[0].dies = vec![(Duration::from_millis(500), Duration::from_millis(1_500))];
        // With 10 Mbit/s beside 8 all of 12 can be on time; without, two thirds in half of the time.
        harsh.paths[0].forward.rate = punctual_sim::Rate::mbps(10.0);
        assert!((0.75..0.9).contains(&limit(&harsh)), "{}", limit(&harsh));
        assert!((0.01..=limit(&harsh)).contains(&on_time(&harsh, &ads)));
        harsh.paths[0].forward = harsh.paths[0].forward.clone().policer(1_000_000, 15_000);
        harsh.paths[1].forward = harsh.paths[1].forward.clone().policer(5_000_000, 15_000);
        assert!((0.4..0.55).contains(&limit(&harsh)), "{}", limit(&harsh));
        assert!((0.01..=limit(&harsh)).contains(&on_time(&harsh, &ads)));
    }

    #[test]
    fn frames_need_the_frames_they_refer_to() {
        let text = "title = 'x'\nduration = '4s'\ncontenders = ['admission']\n\
                    [[path]]\nrate = '4 Mbit/s'\ndelay = '10ms'\nqueue = '60 KB'\nloss = 0.1\n\
                    [[workload]]\nkind = 'video'\nbit-rate = '6 Mbit/s'\nfps = 50\ngop = { length = 20, b-frames = 0 }\n\
                    ratio = [10, 1, 1]\ndeadline = '400ms'\n";
        let cell = Experiment::parse("x", text).unwrap().cells().unwrap().remove(0);
        let stage = Stage::new(&cell.setup, &Files::default(), 1).unwrap();
        let record = carry::run(&stage, &cell.contender, 1).unwrap();
        let jobs = crate::run::jobs_of(&record, &cell.setup.measure);
        let (apart, together) = (bound(&stage, &jobs), dependent(&stage, &jobs).unwrap());
        // Two thirds of what is handed over fit: all but some of the I frames, or two thirds of the groups and less.
        assert!(apart.on_time > 180 && (90..150).contains(&together.on_time), "{} {}", apart.on_time, together.on_time);
        // Of what is left once a tenth is lost, by fractions.
        assert!((0.85..1.0).contains(&(together.average.on_time / together.on_time as f64)), "{together:?}");
        let on_time = record.blocks.iter().filter(|block| block.on_time()).count() as u64;
        assert!((1..=together.on_time).contains(&on_time), "{on_time}");
        assert_eq!(dependent(&self::stage(None, 1).0, &[]), None);
    }
}
