//! Room kept in congestion windows for messages that are expected.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    FragmentView, Outlook, Outstanding, PathChoice, PathHealth, PathId, PathScheduler, PathSet, PathView, Turn,
};
use crate::{block::BlockId, schedule::BlockView};

/// CWR and CWR+RED, congestion window reservation (Noroozi et al., 2023, III-D).
///
/// Bytes that leave now are in flight for a round trip. So that a message of a periodic source finds room at once when its turn comes, at `t`, what
/// is less important may leave on a path with round trip `rtt` only if for every turn `now ≤ t < now + rtt` what it adds leaves that room:
///
/// ```text
/// window − (in flight at t: what left after t − rtt) − length  ≥  sizes of the turns from now up to t
/// ```
///
/// on the path with the lowest round trip of those that allow it, or else it waits. The message itself takes the path with the lowest round trip that has
/// room. CWR reserves on that path only. CWR+RED reserves on all paths, and copies to the others a message for which all of them had room
/// when it began; what found no room then is not copied later.
///
/// What differs from the paper. It takes a window that is idle where the example begins; here bytes count by when their answers are due. There an unfilled window
/// does not grow, which costs the background its throughput (its table I); here what is left for a turn counts as used ([`PathChoice::Reserve`]). The sources are
/// declared, or recognised by their regularity; a turn that is overdue keeps its room until the next is, and no longer. Path and message are a matter of
/// priorities, not of one bit: a block waits for the turns of sources more important than itself.
pub(super) struct Reservation {
    copies: bool,
    turns: Vec<Turn>,
    /// For each path, the bytes that will be in flight at each turn that matters to it, as things are: in the order of time.
    ahead: Vec<(PathId, Vec<Claim>)>,
    /// The latest messages that are copied.
    copied: VecDeque<BlockId>,
}

/// A turn within a path's round trip.
#[derive(Debug, Clone, Copy)]
struct Claim {
    at: Instant,
    size: u64,
    priority: u8,
    in_flight: u64,
}

/// Messages of as many sources may be on their way at once.
const MOST_COPIED: usize = 32;

/// Of a source whose period is much shorter than a round trip no more turns are looked at.
const MOST_TURNS: usize = 64;

impl Reservation {
    pub(super) fn new(copies: bool) -> Self {
        Self { copies, turns: Vec::new(), ahead: Vec::new(), copied: VecDeque::new() }
    }

    /// Whether it is among what room is kept for.
    fn is_message(&self, block: &BlockView) -> bool {
        self.turns.iter().any(|turn| block.priority <= turn.priority)
    }

    /// Until when `len` bytes of a block must stay off a path, if they must.
    fn kept_until(&self, path: &PathView, block: &BlockView, len: u64) -> Option<Instant> {
        let (_, claims) = self.ahead.iter().find(|(id, _)| *id == path.id)?;
        let mut reserved = 0;
        for claim in claims.iter().filter(|claim| claim.priority < block.priority) {
            reserved += claim.size;
            if claim.in_flight + len + reserved > path.window {
                return Some(claim.at);
            }
        }
        None
    }

    /// The path on which the answer comes back soonest, of those that are well.
    fn fastest(paths: &[PathView]) -> Option<&PathView> {
        paths.iter().filter(|path| is_well(path)).min_by_key(|path| (path.rtt, path.id))
    }

    /// Whether it is worth having a message on a path: not if it comes too late there.
    fn is_of_use(path: &PathView, turn: &Turn) -> bool {
        turn.deadline.is_none_or(|deadline| path.min_one_way_delay < deadline)
    }
}

fn is_well(path: &PathView) -> bool {
    path.ready || path.health == PathHealth::Active
}

impl PathScheduler for Reservation {
    fn name(&self) -> &'static str {
        if self.copies { "cwr-red" } else { "cwr" }
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn look_ahead(&mut self, outlook: &Outlook<'_>, paths: &[PathView], now: Instant) {
        self.turns.clear();
        self.turns.extend_from_slice(outlook.turns);
        self.ahead.clear();
        let fastest = Self::fastest(paths).map(|path| path.id);
        for path in paths.iter().filter(|path| is_well(path) && (self.copies || Some(path.id) == fastest)) {
            let mut claims = Vec::new();
            for turn in self.turns.iter().filter(|turn| Self::is_of_use(path, turn)) {
                let mut at = turn.at;
                for _ in 0..MOST_TURNS {
                    if at >= now + path.rtt {
                        break;
                    }
                    let in_flight = outlook.in_flight_at(path.id, at);
                    claims.push(Claim { at, size: turn.size, priority: turn.priority, in_flight });
                    at += turn.every;
                }
            }
            claims.sort_by_key(|claim| claim.at);
            self.ahead.push((path.id, claims));
        }
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let block = &fragment.block;
        let is_message = self.is_message(block);
        // The first fragment of a message decides whether it is copied.
        if self.copies && is_message && block.unsent == block.size {
            let room = |path: &PathView| path.in_flight + block.size <= path.window;
            if paths.iter().filter(|path| is_well(path)).all(room) {
                self.copied.push_back(block.id);
                if self.copied.len() > MOST_COPIED {
                    self.copied.pop_front();
                }
            }
        }
        let mut kept: Option<Instant> = None;
        let mut best: Option<&PathView> = None;
        for path in paths.iter().filter(|path| path.ready || is_message && path.ready_at.is_some()) {
            match self.kept_until(path, block, fragment.len.min(FULL_PACKET) as u64) {
                Some(until) => kept = Some(kept.map_or(until, |kept| kept.min(until))),
                None => {
                    // A message waits for the pacer of a path that is so much faster.
                    let cost = |path: &PathView| {
                        path.rtt / 2 + path.ready_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
                    };
                    if best.is_none_or(|best| (cost(path), path.id) < (cost(best), best.id)) {
                        best = Some(path);
                    }
                }
            }
        }
        match (best, kept) {
            (Some(path), _) if path.ready => PathChoice::Send(PathSet::one(path.id)),
            (Some(_), _) | (None, None) => PathChoice::Wait,
            (None, Some(until)) => PathChoice::Reserve(until.max(now + LEAST_WAIT)),
        }
    }

    fn makes_copies(&self) -> bool {
        self.copies
    }

    fn copy(
        &mut self,
        packet: &Outstanding,
        _: &PathView,
        _: Option<&FragmentView>,
        _: &[PathView],
        _: Instant,
    ) -> bool {
        self.copied.contains(&packet.block.id)
    }
}

/// Bytes of a packet, near enough.
const FULL_PACKET: usize = 1_400;
/// An overdue turn is looked for again after this.
const LEAST_WAIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fragment, path},
        *,
    };

    const MS: Duration = Duration::from_millis(1);

    /// Room for four packets and one in flight at `at`, as in the paper's figure 3, with a message of three to come.
    fn turn(at: Instant) -> Turn {
        Turn { at, every: MS * 500, size: 3_000, deadline: None, priority: 0 }
    }

    fn paths() -> [PathView; 2] {
        let with = |id, rtt: u32| PathView { window: 4_000, rtt: MS * rtt, ..path(id) };
        [with(0, 50), with(1, 100)]
    }

    fn of(id: u64, priority: u8) -> FragmentView {
        FragmentView { block: BlockView { id: BlockId(id), priority, ..fragment().block }, ..fragment() }
    }

    fn look(scheduler: &mut Reservation, turns: &[Turn], in_flight: u64, paths: &[PathView], now: Instant) {
        scheduler.look_ahead(&Outlook { turns, in_flight: &|_, _| in_flight }, paths, now);
    }

    fn send(id: u32) -> PathChoice {
        PathChoice::Send(PathSet::one(PathId(id)))
    }

    #[test]
    fn one_packet_of_background_leaves_room_for_three() {
        let now = Instant::now();
        let mut cwr = Reservation::new(false);
        let [fast, _] = paths();
        look(&mut cwr, &[turn(now + MS * 20)], 0, &[fast], now);
        assert_eq!(cwr.choose(&of(0, 9), &[fast], now), send(0));
        look(&mut cwr, &[turn(now + MS * 20)], 1_000, &[fast], now);
        let waits = cwr.choose(&of(0, 9), &[PathView { in_flight: 1_000, ..fast }], now);
        assert_eq!(waits, PathChoice::Reserve(now + MS * 20));
        assert_eq!(cwr.choose(&of(1, 0), &[fast], now), send(0), "the message itself");
    }

    #[test]
    fn bytes_whose_answer_is_due_by_then_do_not_count() {
        let now = Instant::now();
        let mut cwr = Reservation::new(false);
        let [fast, _] = paths();
        let busy = PathView { in_flight: 4_000, ready: true, ..fast };
        look(&mut cwr, &[turn(now + MS * 20)], 0, &[busy], now);
        assert_eq!(cwr.choose(&of(0, 9), &[busy], now), send(0));
        // A turn that is further away than a round trip does not matter yet.
        look(&mut cwr, &[turn(now + MS * 51)], 4_000, &[busy], now);
        assert_eq!(cwr.choose(&of(0, 9), &[busy], now), send(0));
    }

    #[test]
    fn cwr_keeps_room_on_the_fastest_path_and_red_on_all() {
        let now = Instant::now();
        let turns = [turn(now + MS * 20)];
        let (mut cwr, mut red) = (Reservation::new(false), Reservation::new(true));
        for scheduler in [&mut cwr, &mut red] {
            look(scheduler, &turns, 2_000, &paths(), now);
        }
        assert_eq!(cwr.choose(&of(0, 9), &paths(), now), send(1));
        assert_eq!(red.choose(&of(0, 9), &paths(), now), PathChoice::Reserve(now + MS * 20));
        // Too late on the slow path, it is not kept free.
        let urgent = [Turn { deadline: Some(MS * 20), ..turns[0] }];
        let late = paths().map(|path| PathView { min_one_way_delay: path.rtt / 2, ..path });
        look(&mut red, &urgent, 2_000, &[PathView { min_one_way_delay: MS * 10, ..late[0] }, late[1]], now);
        assert_eq!(red.choose(&of(0, 9), &late, now), send(1));
    }

    #[test]
    fn red_copies_a_message_that_had_room_everywhere() {
        let now = Instant::now();
        let mut red = Reservation::new(true);
        look(&mut red, &[turn(now + MS * 20)], 0, &paths(), now);
        let message = |id, size| {
            let block = BlockView { size, unsent: size, ..of(id, 0).block };
            (FragmentView { block, ..of(id, 0) }, Outstanding::new(block, now, PathId(0)))
        };
        for (id, size, copied) in [(1, 3_000, true), (2, 5_000, false)] {
            let (fragment, packet) = message(id, size);
            assert_eq!(red.choose(&fragment, &paths(), now), send(0));
            assert_eq!(red.copy(&packet, &paths()[1], None, &paths(), now), copied, "{size}");
        }
        let (_, background) = message(9, 1_000);
        assert!(!red.copy(&background, &paths()[1], None, &paths(), now));
    }

    #[test]
    fn without_sources_it_is_lowest_rtt() {
        let now = Instant::now();
        let mut red = Reservation::new(true);
        look(&mut red, &[], 4_000, &paths(), now);
        assert_eq!(red.choose(&of(0, 9), &paths(), now), send(0));
        assert_eq!(
            red.choose(&of(0, 9), &paths().map(|path| PathView { ready: false, ..path }), now),
            PathChoice::Wait
        );
    }
}
