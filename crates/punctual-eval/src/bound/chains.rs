//! Chains in order: a source's families of blocks, one after the other, in which blocks need the one before them. The most on time.

use std::{collections::VecDeque, time::Duration};

use super::{
    Job,
    capacity::{Path, nanos},
    instance::{due, work},
};

/// Blocks of which the most on time are found together. What is behind them is found as if they had never been, which is no lower.
const TOGETHER: usize = 4_000;

/// The fewest that are; a family is never cut.
const FEWEST: usize = 250;

/// Numbers of blocks on time that are looked at, in all: some tens of milliseconds.
const STEPS: usize = 40_000_000;

/// A longer part is left to other bounds.
const LONGEST: usize = 6_000;

/// No way to have so many on time.
const NEVER: i64 = i64::MAX;

/// What a block is in its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The first.
    First,
    /// Needs the last that was no leaf, and others need it.
    Next,
    /// Needs the last that was no leaf. No other needs it.
    Leaf,
}

/// A block on one machine for all paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) job: usize,
    pub(super) role: Role,
    /// Where the machine's clock stands when it is handed over.
    pub(super) release: i64,
    /// And at the last moment that is of use to it.
    pub(super) due: i64,
    pub(super) work: i64,
    /// The number of blocks from this one on of which none is on time if this one takes a path that is too long for all of them; `None`
    /// if none in its family is on time then.
    pub(super) detour: Option<usize>,
}

/// The blocks of a source, in order.
pub(super) struct Stream(pub(super) Vec<Frame>);

impl Stream {
    /// The jobs `of` a source, in order; `needs` says whether one directly needs another.
    pub(super) fn new(
        paths: &[Path],
        jobs: &[Job],
        of: &[usize],
        needs: impl Fn(usize, usize) -> bool,
        end: Duration,
    ) -> Self {
        let (releases, dues) = agreeing(jobs, of, nanos(end));
        let first = |path: &Path, index: usize| path.first_departure(releases[index]);
        // Of each path, the latest departures for all of them.
        let latest = |path: &Path| dues.iter().map(|due| path.latest_departure(*due)).collect::<Vec<_>>();
        let latest: Vec<Vec<Option<u64>>> = paths.iter().map(latest).collect();
        let is_open = |path: &Path, latest: &[Option<u64>]| (0..of.len()).any(|i| latest[i] >= Some(first(path, i)));
        let (open, closed): (Vec<_>, Vec<_>) = paths.iter().zip(&latest).partition(|(path, of)| is_open(path, of));

        let roles = roles(of, needs);
        let mut family_end = of.len();
        let mut frames: Vec<Frame> = Vec::with_capacity(of.len());
        for index in (0..of.len()).rev() {
            let gone = |path: &Path| path.before(first(path, index).into());
            let useful = |(path, latest): &(&Path, &Vec<Option<u64>>)| {
                latest[index].map_or(0, |latest| path.by(latest.into())).max(gone(path))
            };
            let arrives = |(path, latest): &(&Path, &Vec<Option<u64>>)| {
                latest[index..family_end].partition_point(|latest| *latest < Some(first(path, index)))
            };
            frames.push(Frame {
                job: of[index],
                role: roles[index],
                release: open.iter().map(|(path, _)| gone(path)).fold(0, i64::saturating_add),
                due: open.iter().map(useful).fold(0, i64::saturating_add),
                work: work(&jobs[of[index]]),
                detour: closed.iter().map(arrives).min().filter(|blocks| index + blocks < family_end),
            });
            if roles[index] == Role::First {
                family_end = index;
            }
        }
        frames.reverse();
        Self(frames)
    }

    /// The most blocks on time of those that count.
    pub(super) fn most(&self, counts: impl Fn(usize) -> bool) -> u64 {
        let together = (STEPS / self.0.len().max(1)).clamp(FEWEST, TOGETHER);
        let (mut total, mut begin) = (0, 0);
        for end in 1..=self.0.len() {
            let is_cut = self.0.get(end).is_none_or(|next| next.role == Role::First && end - begin >= together);
            if is_cut {
                let part = &self.0[begin..end];
                total += if part.len() > LONGEST {
                    part.iter().filter(|frame| counts(frame.job)).count() as u64
                } else {
                    most(part, &counts)
                };
                begin = end;
            }
        }
        total
    }
}

/// When the jobs are handed over and due, nanoseconds: none sooner than the one before it. Where that is not so, earlier hand-overs and
/// later dues that are.
fn agreeing(jobs: &[Job], of: &[usize], end: u64) -> (Vec<u64>, Vec<u64>) {
    let mut releases: Vec<u64> = of.iter().map(|job| nanos(jobs[*job].handed_over)).collect();
    let mut dues: Vec<u64> = of.iter().map(|job| due(&jobs[*job], end)).collect();
    for index in 1..of.len() {
        dues[index] = dues[index].max(dues[index - 1]);
    }
    for index in (1..of.len()).rev() {
        releases[index - 1] = releases[index - 1].min(releases[index]);
    }
    (releases, dues)
}

/// What each is. One that does not need the last that was no leaf begins a family, whatever else it may need.
fn roles(of: &[usize], needs: impl Fn(usize, usize) -> bool) -> Vec<Role> {
    let mut last: Option<usize> = None;
    let mut roles = Vec::with_capacity(of.len());
    for (index, &job) in of.iter().enumerate() {
        let follows = last.is_some_and(|last| needs(job, last));
        // What needs it as the last that was no leaf comes before the next that is none.
        let is_needed = || of[index + 1..].iter().take(MOST_LEAVES).any(|later| needs(*later, job));
        let role = match follows {
            false => Role::First,
            true if is_needed() => Role::Next,
            true => Role::Leaf,
        };
        if role != Role::Leaf {
            last = Some(job);
        }
        roles.push(role);
    }
    roles
}

/// Blocks behind one among which another that needs it is looked for.
const MOST_LEAVES: usize = 64;

/// The most of `frames` on time, of those that count, on one machine that takes them in order: see `docs/bound.md`.
///
/// For each number on time the least level that the machine's clock can have is all that matters to the others, and whether their
/// family is sent as far as there.
pub(super) fn most(frames: &[Frame], counts: impl Fn(usize) -> bool) -> u64 {
    let (mut intact, mut broken) = (vec![i64::MIN], vec![NEVER]);
    let mut detours: VecDeque<(usize, Vec<i64>)> = VecDeque::new();
    for (index, frame) in frames.iter().enumerate() {
        if frame.role == Role::First {
            least(&mut intact, &broken);
            broken.fill(NEVER);
            detours.clear();
        }
        while detours.front().is_some_and(|(at, _)| *at == index) {
            detours.pop_front().iter().for_each(|(_, levels)| least(&mut intact, levels));
        }
        if let Some(blocks) = frame.detour.filter(|_| frame.role != Role::Leaf) {
            detours.push_back((index + blocks, intact.clone()));
        }
        if frame.role != Role::Leaf {
            least(&mut broken, &intact);
        }
        let counts = counts(frame.job);
        intact.push(NEVER);
        broken.push(NEVER);
        for on_time in (0..intact.len() - 1).rev() {
            let level = intact[on_time];
            if level == NEVER {
                continue;
            }
            let done = level.max(frame.release).saturating_add(frame.work);
            let is_on_time = counts && done <= frame.due;
            if is_on_time {
                intact[on_time + 1] = intact[on_time + 1].min(done);
            }
            if frame.role != Role::Leaf {
                intact[on_time] = if is_on_time { NEVER } else { done };
            }
        }
        while intact.len() > 1 && intact.last() == Some(&NEVER) && broken.last() == Some(&NEVER) {
            intact.pop();
            broken.pop();
        }
    }
    intact.len() as u64 - 1
}

/// The lower of two for each number of blocks.
fn least(levels: &mut [i64], others: &[i64]) {
    levels.iter_mut().zip(others).for_each(|(own, other)| *own = (*own).min(*other));
}

#[cfg(test)]
mod tests {
    use punctual_sim::LinkSpec;

    use super::*;

    /// Frames of a video of one group of pictures after the other, a frame every unit of time; each is due so long after.
    fn video(groups: usize, works: &[i64], deadline: i64) -> Vec<Frame> {
        let frame = |job: usize| {
            let (role, release) = (if job.is_multiple_of(works.len()) { Role::First } else { Role::Next }, job as i64);
            Frame { job, role, release, due: release + deadline, work: works[job % works.len()], detour: None }
        };
        (0..groups * works.len()).map(frame).collect()
    }

    #[test]
    fn a_large_frame_cannot_be_left_out() {
        // Ten units for a group of four frames in four: of the first large one all is on time, then of every third.
        let frames = video(1, &[7, 1, 1, 1], 7);
        assert_eq!(most(&frames, |_| true), 4);
        assert_eq!(most(&frames, |job| job > 0), 3);
        assert_eq!(most(&video(7, &[7, 1, 1, 1], 7), |_| true), 12);
        // It counts for nothing itself, too late as it is, and has to be there for what needs it.
        assert_eq!(most(&video(1, &[8, 1, 1, 1], 7), |_| true), 0);
        assert_eq!(most(&video(1, &[8, 0, 0, 0], 7), |_| true), 3);
    }

    #[test]
    fn a_leaf_can_be_left_out() {
        let mut frames = video(1, &[2, 9, 2], 5);
        assert_eq!(most(&frames, |_| true), 1);
        frames[1].role = Role::Leaf;
        assert_eq!(most(&frames, |_| true), 2);
    }

    #[test]
    fn a_detour_costs_the_blocks_before_it_arrives() {
        let mut frames = video(1, &[9, 1, 1, 1], 2);
        assert_eq!(most(&frames, |_| true), 0);
        frames[0].detour = Some(2);
        assert_eq!(most(&frames, |_| true), 2);
        frames[0].detour = Some(4);
        frames.extend(video(1, &[1], 2));
        assert_eq!(most(&frames, |_| true), 1, "the next family does not need it");
    }

    #[test]
    fn a_path_that_is_too_long_is_a_detour() {
        let job = |at: u64, size| Job {
            handed_over: Duration::from_millis(at),
            deadline: Some(Duration::from_millis(50)),
            size,
            priority: 0,
            weight: 1.0,
        };
        // 50 KB take 33 ms over both, and 67 ms and more over either.
        let jobs = [job(0, 50_000), job(20, 10), job(60, 10), job(80, 10)];
        let links = [20, 90].map(|delay| LinkSpec::new(6.0, Duration::from_millis(delay)));
        let paths: Vec<Path> = links.iter().filter_map(Path::new).collect();
        let stream =
            |paths: &[Path]| Stream::new(paths, &jobs, &[0, 1, 2, 3], |job, on| job == on + 1, Duration::from_secs(1));
        let detours = |stream: &Stream| stream.0.iter().map(|frame| frame.detour).collect::<Vec<_>>();
        assert_eq!(detours(&stream(&paths)), [Some(2), Some(1), None, None]);
        assert_eq!(detours(&stream(&paths[..1])), [None; 4]);
        assert_eq!((stream(&paths[..1]).most(|_| true), stream(&paths).most(|_| true)), (2, 2));
    }

    #[test]
    fn long_streams_are_cut_between_families() {
        let frames = video(3_000, &[7, 1, 1, 1], 7);
        let (all, exact) = (Stream(frames.clone()), most(&frames[..4_000], |_| true));
        // Each part begins with an idle machine.
        let parts = all.most(|_| true);
        assert!((exact * 3..=exact * 3 + 6).contains(&parts), "{parts} of {exact} a third");
        assert_eq!(Stream(video(1, &[1; LONGEST + 1], -1)).most(|_| true), LONGEST as u64 + 1, "nothing is known");
    }

    #[test]
    fn what_is_out_of_order_is_given_the_benefit_of_it() {
        let job = |at: u64, deadline: u64| Job {
            handed_over: Duration::from_millis(at),
            deadline: Some(Duration::from_millis(deadline)),
            size: 1,
            priority: 0,
            weight: 1.0,
        };
        let jobs = [job(5, 50), job(3, 10), job(9, 20)];
        let at = |times: Vec<u64>| times.into_iter().map(|time| time / 1_000_000).collect::<Vec<_>>();
        let (releases, dues) = agreeing(&jobs, &[0, 1, 2], 40_000_000);
        assert_eq!((at(releases), at(dues)), (vec![3, 3, 9], vec![40, 40, 40]));
    }
}
