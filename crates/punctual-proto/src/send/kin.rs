//! Who came after whom lately, and what that says of what is still to come.
//!
//! A graph of live blocks forgets. A block that was delivered may depend on one that was not (its bytes were lost, and what
//! had to be sent again came behind); whoever depends on it needs that one, too. And what a block is worth to others shows
//! only once they are handed over, which may be after its deadline. So the latest blocks are remembered a little longer than
//! they live: what they depended on, and how many came after them that depended on them, over any number of steps.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use super::families::{Families, Outlook};
use crate::block::{BlockId, Channel};

/// How many of the latest blocks are remembered: some seconds of video with all that goes beside it, and about 100 bytes each.
const RECENT: usize = 1024;

/// So many blocks at most are found on the way back from a block to those it depends on, the nearest first. What is worth that much
/// need not be told apart from what is worth more.
const REACH: usize = 64;

/// Where families of a kind go on side by side, a follower counts as still to come for so many times the usual wait for one: its capture or
/// encoding may take longer for once. After that its family has probably ended.
const PATIENCE: u32 = 3;

/// With fewer followers on average, a block is not expected to have any.
const LIKELY: f64 = 0.5;

/// What tells kinds of blocks apart: where they go, how important they are, and whether they depend on others. Who does not, as an I frame,
/// begins a family, and has more to come than those in its midst.
pub(super) type Kind = (Option<Channel>, u8, bool);

/// The memory.
#[derive(Debug, Default)]
pub(super) struct Kin {
    /// The id of the first that is remembered; the others follow without gaps.
    first: u64,
    recent: VecDeque<Member>,
    kinds: BTreeMap<Kind, Habit>,
    families: Families,
    /// No more blocks are handed over.
    complete: bool,
}

/// Whom a block concerns that was handed over.
#[derive(Debug, Default)]
pub(super) struct Concerned {
    /// Those it depends on, over any number of steps.
    pub(super) leaders: Vec<BlockId>,
    /// The members of a family that has ended by it: there will be no more who depend on them.
    pub(super) ended: Vec<BlockId>,
}

/// A block that was handed over lately, live or not.
#[derive(Debug)]
struct Member {
    kind: Kind,
    size: u64,
    /// How many it depends on, one behind the other.
    depth: u32,
    /// Its place in a family.
    family: Option<Seat>,
    needs: Vec<BlockId>,
    /// What it depends on, over steps of delivered blocks, that had not been delivered when it was.
    open: Vec<BlockId>,
    /// How many blocks depend on it, over any number of steps.
    followers: u32,
    /// When it, or the latest of these, was handed over.
    last: Instant,
    /// From its hand-over to that of the first block that depends on it.
    wait: Option<Duration>,
}

/// A place in a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seat {
    /// The kind of the family's first, and its id.
    kind: Kind,
    first: u64,
    place: u32,
}

/// What is usual for a kind of blocks: sums over those remembered.
#[derive(Debug, Default)]
struct Habit {
    blocks: u32,
    followers: u64,
    wait: Duration,
    waits: u32,
}

impl Kin {
    /// The next block was handed over, whatever becomes of it: if only those counted that are of use, whoever is dropped early would seem to be of use to few, and the next
    /// one of its kind, too, for good. Returns whom that concerns.
    pub(super) fn insert(
        &mut self,
        id: BlockId,
        kind: Kind,
        size: u64,
        needs: Vec<BlockId>,
        now: Instant,
    ) -> Concerned {
        if self.first + self.recent.len() as u64 != id.0 {
            // What came before was never told.
            self.recent.clear();
            self.kinds.clear();
            self.families.clear();
            self.first = id.0;
        }
        for need in &needs {
            // Only the first one's wait tells of the rhythm.
            let Some(member) = at(&mut self.recent, self.first, *need).filter(|member| member.wait.is_none()) else {
                continue;
            };
            let wait = now.saturating_duration_since(member.last);
            member.wait = Some(wait);
            if let Some(habit) = habit(&mut self.kinds, member) {
                habit.wait += wait;
                habit.waits += 1;
            }
        }
        let leaders = self.above(&needs);
        for &leader in &leaders {
            let Some(member) = at(&mut self.recent, self.first, leader) else { continue };
            member.followers += 1;
            member.last = now;
            if let Some(habit) = habit(&mut self.kinds, member) {
                habit.followers += 1;
            }
        }
        self.kinds.entry(kind).or_default().blocks += 1;
        let (family, ended) = self.find_family(id, kind, &needs);
        let depth = needs.iter().filter_map(|need| Some(self.get(*need)?.depth.saturating_add(1))).max().unwrap_or(0);
        if let Some(seat) = family {
            self.families.remember(seat.kind);
        }
        self.recent.push_back(Member {
            kind,
            size,
            depth,
            family,
            needs,
            open: Vec::new(),
            followers: 0,
            last: now,
            wait: None,
        });
        if self.recent.len() > RECENT {
            self.forget_first();
        }
        Concerned { leaders, ended }
    }

    /// There will be no more blocks, and so none who depend on others.
    pub(super) fn complete(&mut self) {
        self.complete = true;
    }

    /// It depends on something else now.
    pub(super) fn set_needs(&mut self, id: BlockId, needs: &[BlockId]) {
        if let Some(member) = at(&mut self.recent, self.first, id) {
            member.needs = needs.to_vec();
        }
    }

    /// The block was delivered, though not yet what it depended on.
    pub(super) fn on_delivered(&mut self, id: BlockId, open: Vec<BlockId>) {
        if let Some(member) = at(&mut self.recent, self.first, id) {
            member.open = open;
        }
    }

    /// What a block that is said to depend on `needs` depends on: these, and what those of them that were delivered still need.
    pub(super) fn with_open(&self, needs: &[BlockId]) -> Vec<BlockId> {
        let mut all: BTreeSet<BlockId> = needs.iter().copied().collect();
        let mut todo = needs.to_vec();
        while let Some(need) = todo.pop() {
            for &open in self.get(need).into_iter().flat_map(|member| &member.open) {
                if all.insert(open) {
                    todo.push(open);
                }
            }
        }
        all.into_iter().collect()
    }

    /// To which family a block comes that depends on `needs`, and at which place; and who belongs to the family that has ended by that.
    fn find_family(&mut self, id: BlockId, kind: Kind, needs: &[BlockId]) -> (Option<Seat>, Vec<BlockId>) {
        if let Some(&need) = needs.first() {
            return (self.join_family(need), Vec::new());
        }
        let before = self.families.begin(kind, id.0);
        let ended = before.map_or_else(Vec::new, |before| self.end_family(kind, before));
        (Some(Seat { kind, first: id.0, place: 0 }), ended)
    }

    /// The place of a block that depends on `need`. Its first may be forgotten by then.
    fn join_family(&mut self, need: BlockId) -> Option<Seat> {
        let Seat { kind, first, .. } = self.get(need)?.family?;
        let place = self.families.join(kind, first)?;
        Some(Seat { kind, first, place })
    }

    /// Learns from a family that has ended, and returns its members.
    fn end_family(&mut self, kind: Kind, first: u64) -> Vec<BlockId> {
        let (mut members, mut bytes) = (Vec::new(), 0);
        let from = usize::try_from(first.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.recent.len());
        for (member, id) in self.recent.range(from..).zip(self.first + from as u64..) {
            if let Some(seat) = member.family.filter(|seat| seat.first == first) {
                self.families.learn(kind, seat.place, member.followers);
                members.push(BlockId(id));
                bytes += member.size;
            }
        }
        if !members.is_empty() {
            self.families.learn_size(kind, bytes as f64 / members.len() as f64);
        }
        members
    }

    fn outlook(&self, member: &Member) -> Option<Outlook> {
        let Seat { kind, first, place } = member.family?;
        self.families.outlook(kind, first, place)
    }

    /// How many blocks depend on this one or, if that is more, will as far as can be told.
    pub(super) fn followers(&self, id: BlockId) -> u32 {
        let Some(member) = self.get(id) else { return 0 };
        let expected = match self.outlook(member) {
            Some(Outlook::Usual(usual)) => usual,
            Some(Outlook::Ended) => 0.0,
            Some(Outlook::Open) | None => self.habit(member).map_or(0.0, Habit::usual),
        };
        member.followers.max(expected as u32)
    }

    /// Whether its place in a family tells what it is worth.
    pub(super) fn is_of_family(&self, id: BlockId) -> bool {
        let Some(member) = self.get(id) else { return false };
        let alone = member.needs.is_empty() && self.followers(id) == 0;
        !alone && matches!(self.outlook(member), Some(Outlook::Usual(_) | Outlook::Ended))
    }

    /// What a member of its family costs on average, in bytes, for each block that is of use with this one. So each costs less than those that depend
    /// on it, whatever their sizes.
    pub(super) fn price(&self, id: BlockId) -> f64 {
        let Some(member) = self.get(id) else { return 0.0 };
        let size = member.family.map(|seat| self.families.size(seat.kind)).filter(|size| *size > 0.0);
        size.unwrap_or(member.size as f64) / f64::from(self.followers(id) + 1)
    }

    /// For how long yet blocks are likely to come that depend on this one, if any are at `now`.
    pub(super) fn to_come(&self, id: BlockId, now: Instant) -> Option<Duration> {
        let member = self.get(id).filter(|_| !self.complete)?;
        let habit = self.habit(member)?;
        let wait = habit.wait().or_else(|| self.habit(self.get(*member.needs.first()?)?)?.wait())?;
        let had = f64::from(member.followers);
        // What has gone on for so long without an end will go on for as long again, if nothing else is known.
        let so_far = || habit.usual().max(had).max(f64::from(member.depth) + 1.0);
        let more = match self.outlook(member) {
            // A source may be silent in the midst of a family: what comes then depends on what came before.
            Some(Outlook::Usual(usual)) => usual - had,
            Some(Outlook::Open) => so_far(),
            Some(Outlook::Ended) => 0.0,
            None if habit.usual() >= LIKELY && now <= member.last + wait * PATIENCE => so_far(),
            None => 0.0,
        };
        (more >= LIKELY).then(|| wait.mul_f64(more))
    }

    fn habit(&self, member: &Member) -> Option<&Habit> {
        self.kinds.get(&member.kind)
    }

    /// What `needs` depend on, over any number of steps, and themselves: of those remembered, the nearest first.
    fn above(&self, needs: &[BlockId]) -> Vec<BlockId> {
        let mut found: Vec<BlockId> = Vec::new();
        let mut seen: BTreeSet<BlockId> = BTreeSet::new();
        let mut todo: VecDeque<BlockId> = needs.iter().copied().collect();
        while let Some(next) = todo.pop_front()
            && found.len() < REACH
        {
            if let Some(member) = self.get(next).filter(|_| seen.insert(next)) {
                found.push(next);
                todo.extend(&member.needs);
            }
        }
        found
    }

    fn get(&self, id: BlockId) -> Option<&Member> {
        self.recent.get(usize::try_from(id.0.checked_sub(self.first)?).ok()?)
    }

    fn forget_first(&mut self) {
        let Some(member) = self.recent.pop_front() else { return };
        self.first += 1;
        if let Some(seat) = member.family {
            self.families.forget(seat.kind);
        }
        let Some(habit) = self.kinds.get_mut(&member.kind) else { return };
        habit.blocks -= 1;
        habit.followers -= u64::from(member.followers);
        if let Some(wait) = member.wait {
            habit.wait -= wait;
            habit.waits -= 1;
        }
        if habit.blocks == 0 {
            self.kinds.remove(&member.kind);
        }
    }
}

impl Habit {
    /// How many followers a block of this kind has on average. As some of them have yet to come, that is about half of what
    /// the first of a family will have, and what the one in its middle will.
    fn usual(&self) -> f64 {
        self.followers as f64 / f64::from(self.blocks.max(1))
    }

    /// How long it takes until the first comes that depends on one of this kind, if one has.
    fn wait(&self) -> Option<Duration> {
        self.wait.checked_div(self.waits)
    }
}

fn habit<'a>(kinds: &'a mut BTreeMap<Kind, Habit>, member: &Member) -> Option<&'a mut Habit> {
    kinds.get_mut(&member.kind)
}

/// Of `recent`, which begins with `first`, one.
fn at(recent: &mut VecDeque<Member>, first: u64, id: BlockId) -> Option<&mut Member> {
    recent.get_mut(usize::try_from(id.0.checked_sub(first)?).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Kind = (Some(Channel(1)), 1, false);
    const VIDEO: Kind = (Some(Channel(1)), 1, true);
    const AUDIO: Kind = (None, 0, false);
    const FRAME: Duration = Duration::from_millis(20);

    fn ids(list: &[u64]) -> Vec<BlockId> {
        list.iter().map(|&n| BlockId(n)).collect()
    }

    /// Frames, each of which depends on the one before, but every `gop`th; and audio between them.
    fn stream(kin: &mut Kin, start: Instant, frames: u64, gop: u64) {
        for frame in 0..frames {
            let now = start + FRAME * frame as u32;
            let (kind, needs) = if frame % gop == 0 { (FIRST, vec![]) } else { (VIDEO, ids(&[2 * frame - 2])) };
            kin.insert(BlockId(2 * frame), kind, 1, needs, now);
            kin.insert(BlockId(2 * frame + 1), AUDIO, 1, vec![], now);
        }
    }

    #[test]
    fn what_is_usual_is_learnt_by_kind() {
        let mut kin = Kin::default();
        let start = Instant::now();
        // The first family has not ended, so of its places nothing is known.
        stream(&mut kin, start, 10, 10);
        assert_eq!(kin.followers(BlockId(0)), 9, "it has them");
        assert_eq!(kin.followers(BlockId(18)), 4, "the others have eight to none");
        assert_eq!(kin.followers(BlockId(19)), 0);
        // As many again are likely to come as have by now.
        let last = start + FRAME * 9;
        assert_eq!(kin.to_come(BlockId(18), last), Some(FRAME * 10));
        assert_eq!(kin.to_come(BlockId(19), last), None);
    }

    #[test]
    fn a_source_may_be_silent_in_the_midst_of_a_family() {
        for frames in [10, 44] {
            let mut kin = Kin::default();
            let start = Instant::now();
            stream(&mut kin, start, frames, 10);
            let last = BlockId(2 * frames - 2);
            let to_come = kin.to_come(last, start + FRAME * frames as u32);
            assert!(to_come.is_some());
            let later = start + Duration::from_secs(60);
            assert_eq!(kin.to_come(last, later), to_come, "the next would depend on it");
            kin.insert(BlockId(2 * frames), FIRST, 1, vec![], later);
            assert_eq!(kin.to_come(last, later), None, "another has begun");
        }
    }

    /// Who makes a key frame only when asked to has families of any length.
    #[test]
    fn a_family_that_outlasts_those_before_goes_on() {
        let mut kin = Kin::default();
        let start = Instant::now();
        let insert = |kin: &mut Kin, n: u64, first: bool| {
            let (kind, needs) = if first { (FIRST, vec![]) } else { (VIDEO, ids(&[n - 1])) };
            kin.insert(BlockId(n), kind, 1, needs, start + FRAME * n as u32);
        };
        // Ten, then thirty and more.
        (0..40).for_each(|n| insert(&mut kin, n, n == 0 || n == 10));
        let later = start + Duration::from_secs(60);
        assert!(kin.to_come(BlockId(39), later).is_some());
        insert(&mut kin, 40, true);
        assert_eq!(kin.to_come(BlockId(39), later), None);
    }

    #[test]
    fn after_the_last_block_none_is_to_come() {
        let mut kin = Kin::default();
        let start = Instant::now();
        stream(&mut kin, start, 44, 10);
        assert!(kin.to_come(BlockId(86), start + FRAME * 44).is_some());
        kin.complete();
        assert_eq!(kin.to_come(BlockId(86), start + FRAME * 44), None);
    }

    #[test]
    fn who_follows_the_first_will_be_followed() {
        let mut kin = Kin::default();
        let start = Instant::now();
        kin.insert(BlockId(0), FIRST, 1, vec![], start);
        assert_eq!(kin.to_come(BlockId(0), start), None, "nobody has ever depended on another");
        kin.insert(BlockId(1), VIDEO, 1, ids(&[0]), start + FRAME);
        assert!(kin.to_come(BlockId(1), start + FRAME).is_some());
    }

    #[test]
    fn a_family_without_end_is_known_when_its_first_is_forgotten() {
        let mut kin = Kin::default();
        let start = Instant::now();
        let frames = 3 * RECENT as u64;
        stream(&mut kin, start, frames, u64::MAX);
        let (last, later) = (BlockId(2 * frames - 2), start + FRAME * 2 * frames as u32);
        assert!(kin.to_come(last, later) > Some(FRAME * RECENT as u32), "it has gone on for so long");
        assert_eq!(kin.families.len(), 2, "and that of the audio");
        kin.insert(BlockId(2 * frames), FIRST, 1, vec![], later);
        assert_eq!(kin.to_come(last, later), None);
    }

    #[test]
    fn a_place_in_a_family_tells_how_many_are_to_come() {
        let mut kin = Kin::default();
        let start = Instant::now();
        stream(&mut kin, start, 44, 10);
        let at = |frame: u64| BlockId(2 * frame);
        assert_eq!([40, 41, 43].map(|frame| kin.followers(at(frame))), [9, 8, 6]);
        assert_eq!([30, 38, 39].map(|frame| kin.followers(at(frame))), [9, 1, 0], "the next family has begun");
        let now = start + FRAME * 43;
        assert_eq!(kin.to_come(at(43), now), Some(FRAME * 6));
        assert_eq!(kin.to_come(at(40), now), Some(FRAME * 6), "three have come");
        assert_eq!(kin.to_come(at(39), now), None);
        let price = |frame| kin.price(at(frame));
        assert!((31..40).all(|frame| price(frame) > price(frame - 1)), "the last are the dearest");
        assert!(kin.is_of_family(at(30)) && kin.is_of_family(at(39)) && !kin.is_of_family(BlockId(81)));
        let ended = |kin: &mut Kin, id| kin.insert(BlockId(id), FIRST, 1, vec![], now).ended;
        assert_eq!(ended(&mut kin, 88), [40, 41, 42, 43].map(at));
        assert!(ended(&mut kin, 89).is_empty(), "it was alone");
    }

    #[test]
    fn of_families_that_go_on_side_by_side_nothing_is_concluded() {
        let mut kin = Kin::default();
        let start = Instant::now();
        // Two streams that cannot be told apart, each with a family of ten, half a family apart.
        let mut last: [Option<u64>; 2] = [None; 2];
        for n in 0..400 {
            let (which, frame) = ((n % 2) as usize, n / 2 + 5 * (n % 2));
            let needs = last[which].filter(|_| frame % 10 > 0).map(BlockId);
            let kind = (None, 1, needs.is_some());
            kin.insert(BlockId(n), kind, 1, needs.into_iter().collect(), start + FRAME * n as u32 / 2);
            last[which] = Some(n);
        }
        assert!((380..400).all(|n| !kin.is_of_family(BlockId(n))));
        let soon = start + FRAME * 200 + FRAME * (PATIENCE - 1);
        assert!(kin.to_come(BlockId(399), soon).is_some());
        assert_eq!(kin.to_come(BlockId(399), soon + FRAME * 2), None, "its time is over");
        assert!(kin.followers(BlockId(399)) > 0, "some usually come");
    }

    #[test]
    fn what_is_still_needed_passes_through_those_that_were_delivered() {
        let mut kin = Kin::default();
        let now = Instant::now();
        for id in 0..5 {
            let needs = if id == 0 { vec![] } else { ids(&[id - 1]) };
            kin.insert(BlockId(id), VIDEO, 1, needs, now);
        }
        assert_eq!(kin.with_open(&ids(&[4])), ids(&[4]));
        kin.on_delivered(BlockId(2), ids(&[1]));
        kin.on_delivered(BlockId(4), ids(&[3]));
        kin.on_delivered(BlockId(3), ids(&[1]));
        assert_eq!(kin.with_open(&ids(&[4])), ids(&[1, 3, 4]));
        assert_eq!(kin.with_open(&ids(&[9])), ids(&[9]), "unknown");
    }

    proptest! {
        #[test]
        fn sums_are_those_of_what_is_remembered(steps in prop::collection::vec((0u8..3, 1u64..90, any::<bool>()), 1..1500)) {
            let mut kin = Kin::default();
            let start = Instant::now();
            for ((kind, back, depends), n) in steps.into_iter().zip(0u64..) {
                let needs = n.checked_sub(back).filter(|_| depends).map(BlockId).into_iter().collect();
                let leaders = kin.insert(BlockId(n), (None, kind, depends), 1, needs, start + FRAME * n as u32).leaders;
                prop_assert!(leaders.len() <= REACH);
            }
            prop_assert!(kin.recent.len() <= RECENT);
            for (kind, habit) in &kin.kinds {
                let members: Vec<_> = kin.recent.iter().filter(|member| member.kind == *kind).collect();
                prop_assert_eq!(habit.blocks as usize, members.len());
                prop_assert_eq!(habit.followers, members.iter().map(|member| u64::from(member.followers)).sum::<u64>());
                prop_assert_eq!(habit.wait, members.iter().filter_map(|member| member.wait).sum::<Duration>());
                prop_assert_eq!(habit.waits as usize, members.iter().filter(|member| member.wait.is_some()).count());
            }
        }
    }
}
