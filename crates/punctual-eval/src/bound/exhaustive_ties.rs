//! The bound on blocks that need others against the truth: every choice of blocks, tried on the paths' machines.

use std::time::Duration;

use proptest::prelude::*;
use punctual_sim::{LinkSpec, Rate, Schedule, trace::Opportunities};

use super::{
    Job, Links, Ties, amortised, bound_of_dependent,
    capacity::{Path, nanos},
    chains::{Role, Stream},
    depends::Tied,
    exhaustive::feasible,
    instance::{due, work},
    shared::cuts,
    windows,
};

const END: Duration = Duration::from_millis(260);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Whether `job` is of no use without `other`, or is it.
fn takes(needs: &[Vec<u32>], job: usize, other: usize) -> bool {
    job == other || needs[job].iter().any(|need| takes(needs, *need as usize, other))
}

/// The most on time of the jobs that count: every choice of them, with all that they need by the first of their due dates, that all of
/// `cuts` allow. Each path has so many units less by any date. What a policer has saved up counts only if nothing of a choice is too
/// late for its path.
fn best(cuts: &[Vec<Path>], jobs: &[Job], needs: &[Vec<u32>], counts: impl Fn(usize) -> bool, less: i64) -> u32 {
    let takes: Vec<Vec<bool>> =
        (0..jobs.len()).map(|job| (0..jobs.len()).map(|other| takes(needs, job, other)).collect()).collect();
    let is_possible = |choice: u32, paths: &[Path]| {
        let sent = (0..jobs.len()).filter_map(|other| {
            let chosen = (0..jobs.len()).filter(|job| choice >> job & 1 == 1 && takes[*job][other]);
            let due = chosen.map(|job| due(&jobs[job], nanos(END))).min()?;
            Some((nanos(jobs[other].handed_over), due, work(&jobs[other])))
        });
        let sent: Vec<(u64, u64, i64)> = sent.collect();
        let in_time = |path: &Path, release, due| path.latest_departure(due) >= Some(path.first_departure(release));
        let is_sure =
            |path: &&Path| !path.saves() || sent.iter().all(|(release, due, _)| in_time(path, *release, *due));
        let paths: Vec<&Path> = paths.iter().filter(is_sure).collect();
        let window = |(release, due, work): &(u64, u64, i64)| {
            let before = |path: &&Path| path.before(path.first_departure(*release).into());
            let by =
                |path: &&Path| path.latest_departure(*due).map_or(0, |latest| (path.by(latest.into()) - less).max(0));
            (paths.iter().map(before).collect(), paths.iter().map(by).collect(), *work)
        };
        let (windows, tasks) = windows::several(&sent.iter().map(window).collect::<Vec<_>>());
        feasible(&windows, &tasks)
    };
    let choices =
        (0..1u32 << jobs.len()).filter(|choice| (0..jobs.len()).all(|job| choice >> job & 1 == 0 || counts(job)));
    let is_possible = |choice: &u32| cuts.iter().all(|paths| is_possible(*choice, paths));
    choices.filter(is_possible).map(u32::count_ones).max().unwrap_or(0)
}

fn links() -> impl Strategy<Value = LinkSpec> {
    let rate = || prop::sample::select(vec![0u64, 1_200_000, 3_000_000, 6_000_000]);
    let delay = || prop::sample::select(vec![2u64, 9, 35, 70]).prop_map(ms);
    let steps =
        (rate(), rate(), 1..90u64, delay(), delay(), 1..90u64).prop_map(|(first, then, at, early, late, later)| {
            let delay = Schedule::fixed(early).then(ms(later), late);
            LinkSpec::default().rate(Rate::Steps(Schedule::fixed(first).then(ms(at), then))).delay(delay)
        });
    let steady = (1..8u64, delay()).prop_map(|(mbps, delay)| LinkSpec::new(mbps as f64, delay));
    let trace = (prop::collection::btree_set(0..40u64, 1..20), delay()).prop_map(|(at, delay)| {
        let text: String = at.iter().map(|at| format!("{at}\n")).collect();
        Opportunities::parse(&(text + "41\n")).map(|trace| LinkSpec::default().rate(Rate::Trace(trace)).delay(delay))
    });
    let trace = trace.prop_filter_map("a trace", Result::ok);
    prop_oneof![3 => steady, 2 => steps, 1 => trace]
}

/// So many links, of which some die and some have policers.
fn networks(paths: std::ops::Range<usize>) -> impl Strategy<Value = Links> {
    let policer = (prop::sample::select(vec![800_000u64, 2_000_000, 5_000_000]), 1_500..9_000u64);
    let link = (links(), prop::option::weighted(0.3, policer)).prop_map(|(link, policer)| match policer {
        Some((rate, burst)) => link.policer(rate, burst),
        None => link,
    });
    prop::collection::vec((link, dies()), paths).prop_map(|paths| {
        let (own, dies) = paths.into_iter().unzip();
        Links { own, dies, ..Links::default() }
    })
}

fn dies() -> impl Strategy<Value = Vec<(Duration, Duration)>> {
    let once = (0..150u64, 0..60u64).prop_map(|(at, lasts)| (ms(at), ms(at + lasts)));
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(once, 1..3)]
}

/// The links alone, with their policers in the place of those that they hold back, if there are any.
fn cut(links: &Links) -> [Vec<Path>; 1] {
    [cuts(links).pop().unwrap_or_default()]
}

/// What a block is: of a source, so many milliseconds behind the last, this deadline and size, what it needs (nothing, the source's
/// last that was no leaf, as a leaf or not, or any before it), priority.
type Drawn = (u16, u64, u64, u32, u8, usize, u8);

fn drawn(deadlines: std::ops::Range<u64>, ways: u8, sources: u16, most: usize) -> impl Strategy<Value = Vec<Drawn>> {
    let size = prop_oneof![3 => 1..2_500u32, 1 => 2_500..20_000u32];
    let block = (0..sources, 0..25u64, deadlines, size, 0..ways, any::<usize>(), 0..2u8);
    prop::collection::vec(block, 1..=most)
}

fn jobs(drawn: &[Drawn], deadline: Option<u64>) -> (Vec<Job>, Vec<u16>, Vec<Vec<u32>>) {
    let (mut at, mut last) = (0, [None; 4]);
    let (mut jobs, mut needs) = (Vec::new(), Vec::new());
    for (index, (source, gap, own, size, way, any, priority)) in drawn.iter().enumerate() {
        at += gap;
        let deadline = Some(ms(deadline.unwrap_or(*own)));
        jobs.push(Job { handed_over: ms(at), deadline, size: *size, priority: *priority, weight: 1.0 });
        let last = &mut last[usize::from(*source)];
        let need: Option<u32> = match way {
            0 => None,
            1..=4 => *last,
            _ if index == 0 => None,
            _ => Some((any % index) as u32),
        };
        if *way != 4 || last.is_none() {
            *last = Some(index as u32);
        }
        needs.push(need.into_iter().collect());
    }
    (jobs, drawn.iter().map(|block| block.0).collect(), needs)
}

fn ties<'a>(sources: &[u16], needs: &'a [Vec<u32>]) -> Vec<Ties<'a>> {
    sources.iter().zip(needs).map(|(source, needs)| Ties { source: *source, needs }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_chain_on_one_path_is_exact(
        link in links(), dies in dies(), drawn in drawn(1..2, 5, 1, 9), deadline in 15..90u64, priority in 0..2u8,
    ) {
        let links = Links { own: vec![link], dies: vec![dies], ..Links::default() };
        let (cut, (jobs, _, needs)) = (cut(&links), jobs(&drawn, Some(deadline)));
        let all: Vec<usize> = (0..jobs.len()).collect();
        let stream = Stream::new(&cut[0], &jobs, &all, |job, on| needs[job].contains(&(on as u32)), END);
        let counts = |job: usize| jobs[job].priority <= priority;
        prop_assert_eq!(stream.most(counts), u64::from(best(&cut, &jobs, &needs, counts, 0)), "{:?}", stream.0);
    }

    #[test]
    fn a_chain_is_never_below_the_best(
        links in networks(1..4), drawn in drawn(10..80, 6, 1, 8), deadline in prop::option::of(15..90u64),
    ) {
        let (cut, (jobs, _, needs)) = (cut(&links), jobs(&drawn, deadline));
        let all: Vec<usize> = (0..jobs.len()).collect();
        let stream = Stream::new(&cut[0], &jobs, &all, |job, on| needs[job].contains(&(on as u32)), END);
        prop_assert!(stream.most(|_| true) >= best(&cut, &jobs, &needs, |_| true, 4).into(), "{:?}", stream.0);
    }

    #[test]
    fn no_fraction_is_below_the_best(
        links in networks(1..4), drawn in drawn(10..80, 7, 2, 8), priority in 0..2u8,
    ) {
        let (cut, (jobs, sources, needs)) = (cut(&links), jobs(&drawn, None));
        let ties = ties(&sources, &needs);
        if let Some(tied) = Tied::new(&cut, &jobs, &ties, END) {
            let most = best(&cut, &jobs, &needs, |job| jobs[job].priority <= priority, 4);
            prop_assert!(tied.fractional(&cut[0], &jobs, END, priority) + 1e-6 >= most.into());
        }
    }

    #[test]
    fn all_together_are_never_below_the_best(
        links in networks(1..4), drawn in drawn(10..80, 7, 2, 7), deadline in prop::option::of(15..90u64),
    ) {
        let (jobs, sources, needs) = jobs(&drawn, deadline);
        let bound = bound_of_dependent(&links, &jobs, &ties(&sources, &needs), END);
        for (priority, most) in &bound.up_to_priority {
            let best = best(&cuts(&links), &jobs, &needs, |job| jobs[job].priority <= *priority, 4);
            prop_assert!(*most >= best.into(), "{priority}: {most} below {best}");
        }
        prop_assert!(bound.average.on_time <= bound.on_time as f64);
    }

    #[test]
    fn no_choice_bears_more_than_it_needs(drawn in drawn(1..2, 7, 2, 9), counting in any::<u32>()) {
        let (jobs, _, needs) = jobs(&drawn, None);
        let parents: Vec<_> = needs.iter().map(|needs| needs.first().map(|need| *need as usize)).collect();
        let shares = amortised::shares(&jobs, &parents, |job| counting >> job & 1 == 1);
        prop_assert!(shares.iter().all(|share| counting >> share.job & 1 == 1 && share.work > 0));
        for choice in 0..1u32 << shares.len() {
            let chosen = || shares.iter().enumerate().filter(|(index, _)| choice >> index & 1 == 1).map(|(_, share)| share);
            let taken = (0..jobs.len()).filter(|other| chosen().any(|share| takes(&needs, share.job, *other)));
            prop_assert!(chosen().map(|share| share.work).sum::<i64>() <= taken.map(|job| work(&jobs[job])).sum());
        }
    }
}

/// How often the parts of the chains' algorithm make a difference in what is drawn above.
#[test]
fn what_is_drawn_has_leaves_detours_and_overload() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let drawn = (networks(2..4), drawn(10..80, 6, 1, 8), prop::option::of(15..90u64));
    let (mut leaves, mut detours, mut overload) = (0, 0, 0);
    for _ in 0..500 {
        let (links, drawn, deadline) = drawn.new_tree(&mut runner).unwrap().current();
        let (jobs, _, needs) = jobs(&drawn, deadline);
        let all: Vec<usize> = (0..jobs.len()).collect();
        let stream = Stream::new(&cut(&links)[0], &jobs, &all, |job, on| needs[job].contains(&(on as u32)), END);
        leaves += usize::from(stream.0.iter().any(|frame| frame.role == Role::Leaf));
        detours += usize::from(stream.0.iter().any(|frame| frame.detour.is_some()));
        overload += usize::from(stream.most(|_| true) < jobs.len() as u64);
    }
    assert!(leaves > 200 && detours > 50 && overload > 100, "{leaves} {detours} {overload}");
}
