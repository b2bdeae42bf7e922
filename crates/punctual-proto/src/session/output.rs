//! What goes out: the pipeline from live blocks to the next packet.
//!
//! QUIC is asked for one packet at a time, behind a [`Gate`] that says which path may send what. First comes what QUIC
//! itself has to say (ACKs, the control stream, probes), then at most one datagram, which is filled only once a path
//! is known to have room for it.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::Transmit as QuicTransmit;

use super::{Phase, Session, queued::Datagram, restraint::Restraint, ride::Ride};
use crate::{
    base::{PathHealth, PathId, PathView},
    block::BlockId,
    clock::wire,
    congestion::steering::{Gate, Slot},
    frame::DatagramWriter,
    multipath::{FragmentView, Outlook, Outstanding, PathChoice, PathScheduler, PathSet, Turn},
    network::{BASE_PACKET, EcnCodepoint, LocalId, NetworkPath, Transmit},
    noq,
    path::{Path, sent::SentBytes},
    schedule::{SendContext, usable},
    send::{
        groups::Groups,
        last_chance::Kind,
        live::LiveBlock,
        packetize::{self, Contents, Preface},
        recovery,
    },
};

/// How large a client's first datagram on a path is, bytes,
const FIRST: usize = 128;
/// if there is more than this of the block to be sent. What is little longer than that datagram would hardly gain by being sent in two.
const FIRST_OF: u64 = 300;
/// How many blocks a path scheduler may make wait, at most, before the session stops looking for one that need not: so that a burst of
/// packets costs no more than this, however small the blocks are.
const MAX_HELD: usize = 256;
/// Who has sent block data within this time counts as a sender, whose paths all stay open to QUIC.
const SENDER_MEMORY: Duration = Duration::from_secs(1);

/// The state of the pipeline's end.
pub(super) struct Output {
    path_scheduler: Box<dyn PathScheduler>,
    /// In QUIC's queue.
    pub(super) queued: Option<Datagram>,
    /// Copies that follow on other paths.
    copies: VecDeque<(Datagram, Bytes)>,
    /// Blocks the path scheduler made wait.
    held: Vec<BlockId>,
    /// What they have to send.
    held_bytes: u64,
    views: Vec<PathView>,
    /// What is expected of periodic sources.
    turns: Vec<Turn>,
    /// QUIC may have something of its own to send.
    stirred: bool,
    /// The largest datagram, once asked for; only what comes in can change it.
    pub(super) capacity: Option<usize>,
    /// When pacing lets the next packet go.
    wake_at: Option<Instant>,
    /// Until when answers rest.
    rests_until: Option<Instant>,
    /// What goes along with data.
    pub(super) ride: Ride,
    /// When pacing or the spreading of repair fragments lets the next of these go.
    pub(super) repair_at: Option<Instant>,
    /// When pacing lets the next copy go.
    pub(super) copy_at: Option<Instant>,
    /// Some block waits so that room is left for others, until then at the latest.
    reserved_until: Option<Instant>,
    /// What has no deadline waits for shorter queues.
    pub(super) restraint: Restraint,
    /// When block data left last, and came.
    last_data: Option<Instant>,
    last_heard: Option<Instant>,
    /// The packet that left last, in the latest poll of QUIC.
    pub(super) last_sent: Option<(PathId, u64)>,
    /// Payload bytes, by why they left.
    pub(super) sent: SentBytes,
}

/// Where QUIC sends what it has of its own.
struct Own {
    control: Option<Slot>,
    /// The one path that its answers keep to, if the session merely receives.
    quiet_but: Option<Slot>,
}

impl Output {
    pub(super) fn new(path_scheduler: Box<dyn PathScheduler>) -> Self {
        Self {
            path_scheduler,
            queued: None,
            copies: VecDeque::new(),
            held: Vec::new(),
            held_bytes: 0,
            views: Vec::new(),
            turns: Vec::new(),
            stirred: true,
            capacity: None,
            wake_at: None,
            rests_until: None,
            ride: Ride::default(),
            repair_at: None,
            copy_at: None,
            reserved_until: None,
            restraint: Restraint::default(),
            last_data: None,
            last_heard: None,
            last_sent: None,
            sent: SentBytes::default(),
        }
    }

    /// Something came in: QUIC may have an answer.
    pub(super) fn stir(&mut self) {
        self.stirred = true;
        self.capacity = None;
    }

    /// Whether QUIC has a datagram that it would not let go yet.
    pub(super) fn is_held_up(&self) -> bool {
        self.queued.is_some()
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.rests_until
    }

    pub(super) fn views(&self) -> &[PathView] {
        &self.views
    }

    pub(super) fn views_mut(&mut self) -> &mut [PathView] {
        &mut self.views
    }

    /// Block data leaves.
    pub(super) fn note_data(&mut self, now: Instant) {
        self.last_data = Some(now);
        self.ride.on_data(now);
    }

    /// Block data came.
    pub(super) fn note_heard(&mut self, now: Instant) {
        self.last_heard = Some(now);
    }

    /// Whether block data came just now.
    pub(super) fn is_answering(&self, now: Instant) -> bool {
        self.last_heard.is_some_and(|last| now.saturating_duration_since(last) < SENDER_MEMORY)
    }

    /// The path for a group's repair fragments.
    pub(super) fn protect(&mut self, majority: PathId, due: Option<Instant>, now: Instant) -> PathId {
        self.path_scheduler.protect(majority, due, &self.views, now)
    }

    pub(super) fn choose(&mut self, fragment: &FragmentView, now: Instant) -> PathChoice {
        let choice = self.path_scheduler.choose(fragment, &self.views, now);
        self.reserve(choice, now)
    }

    /// Takes note if room is left for what is to come.
    pub(super) fn reserve(&mut self, choice: PathChoice, now: Instant) -> PathChoice {
        if let PathChoice::Reserve(until) = choice
            && until > now
        {
            self.reserved_until = self.reserved_until.into_iter().chain([until]).min();
        }
        choice
    }

    /// Whether the path scheduler makes copies of what is on its way.
    pub(super) fn makes_copies(&self) -> bool {
        self.path_scheduler.makes_copies()
    }

    /// Whether it wants one of `packet` on `path`.
    pub(super) fn wants_copy(
        &mut self,
        packet: &Outstanding,
        path: &PathView,
        next: Option<&FragmentView>,
        now: Instant,
    ) -> bool {
        self.path_scheduler.copy(packet, path, next, &self.views, now)
    }

    /// Whether all paths together have a round trip's worth to do before a block that is not held would be due to wait, too.
    fn holds_enough(&self) -> bool {
        let views = || usable(&self.views);
        let rate: f64 = views().map(|view| view.rate).sum();
        let round_trip = views().map(|view| view.rtt).max().unwrap_or_default();
        self.held_bytes as f64 > rate * round_trip.as_secs_f64()
    }

    /// Nothing can go now; `for_room`: though there is something.
    pub(super) fn wait(&mut self, for_room: bool) {
        let ready_at = self.views.iter().filter(|_| for_room).filter_map(|view| view.ready_at);
        self.wake_at = ready_at.chain(self.reserved_until).min();
    }

    pub(super) fn on_sent(&mut self, path: &Path, pn: u64) {
        self.last_sent = Some((path.id, pn));
    }
}

/// What the data pipeline may do now.
enum Next {
    /// This fragment's block, on these paths.
    Send(BlockId, PathSet),
    /// Wait, for no path has room for what there is to send.
    Wait,
    /// Nothing: there is nothing to send.
    Nothing,
}

impl Session {
    /// Writes the session's next datagram into `buf`, which is empty.
    pub(crate) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        debug_assert!(buf.is_empty(), "the buffer must be empty");
        self.catch_up();
        loop {
            let transmit = self.poll_next(now, buf);
            // What is to leave may have been found to be too late, or had its last chance: that is told now, and may leave room for others.
            if transmit.is_some() || !self.store.has_notices() {
                return transmit;
            }
            self.settle(now);
        }
    }

    fn poll_next(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.output.rests_until = None;
        if self.phase != Phase::Open {
            self.steering.set_gate(Gate::Open);
            return self.poll_parting(now, buf);
        }
        if self.has_no_path() {
            return None;
        }
        if let Some((path, datagram)) = self.knocks.pop_front() {
            buf.extend_from_slice(&datagram);
            return Some(Transmit { path, size: datagram.len(), ecn: None });
        }
        if self.output.queued.is_none() && self.output.stirred {
            let own = self.choose_own(now);
            if !self.answers_rest(now) {
                if let Some(transmit) = self.poll_own(own, now, buf) {
                    if let Some(path) = self.paths.on_network(transmit.path) {
                        path.thinning.on_answer(now);
                    }
                    return Some(transmit);
                }
                self.output.stirred = false;
                self.output.ride.on_said();
            }
        }
        match self.punctual {
            Some(false) => self.poll_fallback(now, buf),
            _ => self.poll_blocks(now, buf),
        }
    }

    /// Whether QUIC has no path at all, and is not to be asked for packets.
    pub(super) fn has_no_path(&self) -> bool {
        let has_some = self.phase == Phase::Open && self.paths.iter().next().is_some();
        !has_some && noq::has_no_path(&self.conn)
    }

    /// Whether answers to blocks, and what else QUIC has to say, wait for more, because they fill the way on which they leave, or for data. Some go along with data.
    fn answers_rest(&mut self, now: Instant) -> bool {
        if let Some(until) = self.rides_by(now) {
            self.output.rests_until = Some(until);
            return true;
        }
        let control = self.paths.control().filter(|_| self.output.is_answering(now)).and_then(|id| self.paths.get(id));
        let Some(path) = control.filter(|path| path.thinning.is_on()) else { return false };
        self.output.rests_until = path.thinning.rests_until(now);
        // A report has room for answers.
        self.output.rests_until.is_some() || path.report_due().is_some_and(|due| due <= now)
    }

    /// Whether block data leaves, or did just now.
    pub(super) fn is_sending(&self, now: Instant) -> bool {
        self.output.last_data.is_some_and(|last| now.saturating_duration_since(last) < SENDER_MEMORY)
    }

    /// Chooses where QUIC may send what it has of its own, and tells it so: whether that leaves now or rests, it is to let data go where the sender wants it.
    fn choose_own(&mut self, now: Instant) -> Own {
        let sending = self.is_sending(now);
        let control = self.paths.choose_control(now);
        self.paths.set_statuses(&mut self.conn);
        let quiet_but = control.filter(|_| !sending);
        self.steering.keep_quiet_but(quiet_but);
        Own { control, quiet_but }
    }

    /// What QUIC has to send of its own: on the control path as far as it can choose, probes where they belong.
    fn poll_own(&mut self, Own { control, quiet_but }: Own, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(slot) = control.and_then(|control| self.paths.choose_for_words(control)) {
            self.steering.set_gate(Gate::Only(slot));
            if let Some(transmit) = self.poll_quic(now, buf) {
                let is_stray = |path: &&mut Path| quiet_but.is_some_and(|quiet| ![quiet, slot].contains(&path.slot()));
                let stray = self.paths.on_network(transmit.path).filter(is_stray);
                if let Some(path) = stray {
                    // Its bucket was full; a ping keeps it quiet from now on.
                    let _ = self.conn.ping_path(path.quic);
                }
                return Some(transmit);
            }
            if quiet_but.is_none() || self.paths.is_single() {
                // No path was kept from its probes.
                return None;
            }
        }
        self.steering.set_gate(Gate::Probes);
        self.poll_quic(now, buf)
    }

    /// The data pipeline: which block, which path, fill, send.
    fn poll_blocks(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        // What is still queued may have been thrown away since.
        self.output.last_sent = None;
        self.note_departure(now);
        self.clear_queue(now);
        loop {
            if self.output.queued.is_none() && !self.queue_next(now) {
                self.release_held();
                return None;
            }
            let queued = self.output.queued.as_ref()?;
            let Some(path) = self.paths.get(queued.path).filter(|path| path.is_available()) else {
                // The path was lost under it.
                return self.poll_anywhere(now, buf);
            };
            let (slot, id) = (path.slot(), path.id);
            self.steering.set_gate(Gate::Only(slot));
            let transmit = self.poll_quic(now, buf);
            self.note_departure(now);
            if transmit.is_some() {
                return transmit;
            }
            if self.output.queued.is_some() && self.doubt_validation(now, id) {
                // Hardly anything may be sent there before it is validated, if it ever is.
                return self.poll_anywhere(now, buf);
            }
            if self.output.queued.is_some() {
                // QUIC will not let it go now (it may be closing, or short of connection ids); a later input will.
                return None;
            }
        }
    }

    /// Lets QUIC send what it has wherever it can.
    fn poll_anywhere(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.steering.set_gate(Gate::Open);
        let transmit = self.poll_quic(now, buf);
        self.note_departure(now);
        transmit
    }

    /// A datagram that tells the peer when its own arrived: by the path on which they did, for then both ends learn of it, unless that
    /// is in doubt.
    pub(super) fn next_report(&mut self, now: Instant) -> Option<(Datagram, Bytes)> {
        let capacity = self.capacity()?;
        let id = self.paths.iter().find(|path| path.report_due().is_some_and(|due| due <= now))?.id;
        let carrier =
            self.paths.get(id).filter(|path| path.is_doubted()).and_then(|_| self.paths.control()).unwrap_or(id);
        let micros = self.micros(now);
        let carrier_path = self.paths.get_mut(carrier)?;
        let stamp = wire(carrier_path.stamp(micros));
        carrier_path.thinning.on_report_left(now);
        let path = self.paths.get_mut(id)?;
        let mut writer = DatagramWriter::new(capacity);
        writer.timestamp(stamp);
        packetize::add_report(&mut writer, path.number(), &mut path.feedback, capacity, now);
        Some((Datagram::new(carrier, stamp, Contents::default()), writer.finish()))
    }

    /// A copy of a datagram that left on another path; it goes if it can go now, or not at all.
    pub(super) fn next_copy(&mut self, now: Instant) -> Option<(Datagram, Bytes)> {
        while let Some((copy, payload)) = self.output.copies.pop_front() {
            self.refresh_views(now);
            if self.output.views.iter().any(|view| view.id == copy.path && view.ready) {
                return Some((copy, payload));
            }
        }
        None
    }

    /// A datagram filled with what should go next.
    pub(super) fn next_fill(&mut self, now: Instant) -> Option<(Datagram, Bytes)> {
        let (id, paths, chance, kind) = loop {
            let (id, paths) = match self.next_fragment(now) {
                Next::Send(id, paths) => (id, paths),
                Next::Wait => return None,
                // Nothing is there to join the group, either.
                Next::Nothing if self.close_idle_group(now) => return self.next_repair(now),
                Next::Nothing => return None,
            };
            let chance = self.chance(now, paths.iter().next()?)?;
            let kind = chance.kind(self.store.get(id)?, &self.store.groups);
            // If a group had to be closed for it, blocks may have ended by it.
            if !self.make_way(now, kind) {
                break (id, paths, chance, kind);
            }
        };
        let (all, mut paths) = (paths, paths.iter());
        let first = paths.next()?;
        let capacity = self.capacity_on(first, id)?;
        let member = self.join_group(id, &chance, kind, capacity);
        // If it is lost it is to fit into one datagram again.
        let capacity = match member {
            None if self.store.get(id).is_some_and(|block| chance.is_last_but_one(block)) => {
                packetize::fits_group(capacity, self.store.groups.next_number())
            }
            _ => capacity,
        };
        let stamp = self.stamp(now);
        let micros = stamp.micros(now);
        let path = self.paths.get_mut(first)?;
        let sent = path.stamp(micros);
        let rtt = path.rtt();
        let report = Some((path.number(), &mut path.feedback)).filter(|(_, feedback)| feedback.goes_along(now, rtt));
        let preface = Preface { stamp, sent, report, member };
        let cx = context(now, &self.output.views);
        // What goes without a group takes along nothing that should have one.
        let company = |block: &LiveBlock, groups: &Groups| {
            let other = chance.kind(block, groups);
            other == kind || other == Kind::Plain && kind == Kind::Group
        };
        let filled = packetize::fill(&mut self.store, &cx, id, capacity, preface, company);
        debug_assert!(!filled.contents.is_empty(), "a block that may be sent has something to send");
        let views = self.output.views.iter().filter(|view| all.contains(view.id));
        if let Some(delay) = views.map(PathView::delay).min() {
            filled.contents.iter().for_each(|piece| self.store.on_its_way(now, piece.id, now + delay));
        }
        self.time_second_tries(now, &filled.contents, first);
        self.output.note_data(now);
        self.steering.keep_quiet_but(None);
        for path in paths {
            let copy = Datagram::new(path, wire(sent), filled.contents.copy());
            self.output.copies.push_back((copy, filled.payload.clone()));
        }
        if let Some(member) = member {
            self.add_to_group(&chance, kind, member, &filled);
        }
        Some((Datagram::new(first, wire(sent), filled.contents), filled.payload))
    }

    /// The size of the largest datagram.
    pub(super) fn capacity(&mut self) -> Option<usize> {
        if self.output.capacity.is_none() {
            self.output.capacity = self.conn.datagrams().max_size();
        }
        self.output.capacity
    }

    /// The size of the largest datagram with bytes of that block on that path.
    ///
    /// A client's first of a block with a deadline is small, unless all is. It tells how long the path is without the time that a large one takes on a slow link, which clocks would take for a longer way there than back where
    /// there are no small ones; and with the one behind it, how long that time is.
    fn capacity_on(&mut self, path: PathId, id: BlockId) -> Option<usize> {
        let most = self.capacity()?;
        let path = self.paths.get(path)?;
        let block = self.store.get(id)?;
        let (range, _) = block.next_range()?;
        let is_first = self.conn.side().is_client()
            && !path.is_stamped()
            && block.due().is_some()
            && range.end - range.start > FIRST_OF;
        Some(path.datagram(most).min(if is_first { FIRST } else { most }))
    }

    /// Which block, on which paths.
    fn next_fragment(&mut self, now: Instant) -> Next {
        self.output.wake_at = None;
        self.output.restraint.begin();
        self.refresh_views(now);
        self.note_unmet();
        loop {
            let cx = context(now, &self.output.views);
            let Some(id) = recovery::next_worthwhile(&mut self.store, &cx) else {
                let held = !self.output.held.is_empty();
                // Repair fragments that wait for pacing are something to send.
                self.note_limits(!held && !self.store.groups.has_waiting());
                self.output.wait(held);
                return if held { Next::Wait } else { Next::Nothing };
            };
            if !self.output.views.iter().any(|view| view.ready) && !self.lend_window(id) {
                self.output.wait(true);
                self.note_limits(false);
                return Next::Wait;
            }
            let Some(fragment) = self.fragment_view(id, now) else {
                self.store.withdraw(id);
                continue;
            };
            if self.output.path_scheduler.looks_ahead() {
                self.look_ahead(now);
            }
            let hidden = self.hide_busy_paths(&fragment, now);
            let choice = self.output.choose(&fragment, now);
            let choice = self.show_busy_paths(hidden, choice, now);
            if let Some(observer) = &mut self.observer {
                observer.path_chosen(now, &fragment, &self.output.views, &choice);
            }
            if let PathChoice::Send(paths) = choice
                && let Some(first) = paths.iter().next().and_then(|first| self.output.views.iter().find(|v| v.id == first))
                && first.ready
                // What comes too late anyway, as far as one can tell, is not to keep up a queue that makes others late.
                && !(first.is_busy() && self.store.is_in_vain(now, id))
            {
                self.output.restraint.on_sent(now, fragment.block.deadline.is_some());
                return Next::Send(id, paths);
            }
            self.hold(id);
            self.store.pass_over(id);
            if self.output.held.len() >= MAX_HELD || self.output.holds_enough() || self.output.restraint.keeps_enough()
            {
                self.output.wait(true);
                self.note_limits(false);
                return Next::Wait;
            }
        }
    }

    /// A first window that data without a deadline has taken would keep a block with one waiting for a round trip. It gets as much again.
    ///
    /// Not later: what a window that has been measured does not hold would only queue.
    fn lend_window(&mut self, id: BlockId) -> bool {
        if self.store.get(id).is_none_or(|block| block.due().is_none()) {
            return false;
        }
        for view in &mut self.output.views {
            let full = !view.ready && view.ready_at.is_none() && view.health == PathHealth::Active;
            let Some(path) = self.paths.get(view.id).filter(|_| full) else { continue };
            if view.in_flight + BASE_PACKET <= view.window + path.lent() {
                view.ready = true;
            }
        }
        self.output.views.iter().any(|view| view.ready)
    }

    pub(super) fn fragment_view(&self, id: BlockId, now: Instant) -> Option<FragmentView> {
        let block = self.store.get(id)?;
        let (range, again) = block.next_range()?;
        Some(FragmentView {
            block: self.store.view(id)?,
            len: usize::try_from(range.end - range.start).unwrap_or(usize::MAX),
            lost_on: block.lost_on.filter(|_| again),
            ahead: self.output.held_bytes,
            behind: if self.output.makes_copies() { self.store.waiting_beside(id, &self.output.held) } else { 0 },
            redundancy: block.redundancy,
            wanted: self.store.leaves_to_others(now, block, &self.output.views),
        })
    }

    /// Shows the path scheduler what is to be expected.
    fn look_ahead(&mut self, now: Instant) {
        self.store.sources.turns(now, &mut self.output.turns);
        let paths = &self.paths;
        let in_flight = |path: PathId, at: Instant| paths.get(path).map_or(0, |path| path.in_flight_at(at));
        let outlook = Outlook::new(&self.output.turns, &in_flight);
        self.output.path_scheduler.look_ahead(&outlook, &self.output.views, now);
    }

    /// Takes a block out of the competition for this round.
    pub(super) fn hold(&mut self, id: BlockId) {
        self.output.held_bytes += self.store.view(id).map_or(0, |view| view.unsent);
        self.store.hold(id);
        self.output.held.push(id);
    }

    /// Lets the blocks that had to wait compete again.
    pub(super) fn release_held(&mut self) {
        self.output.held_bytes = 0;
        self.output.reserved_until = None;
        for id in std::mem::take(&mut self.output.held) {
            self.store.unhold(id);
        }
    }

    pub(super) fn refresh_views(&mut self, now: Instant) {
        self.paths.iter_mut().for_each(|path| path.refill_budget(now));
        self.paths.views(now, self.clocks.offset_without_drift(), &mut self.output.views);
        if self.store.groups.has_any() {
            self.store.groups.set_one_way_delay(context(now, &self.output.views).one_way_delay);
        }
    }

    /// Blocks have expired of which something never left: there was more to send to paths on which they would have been in time, had these been faster.
    fn note_unmet(&mut self) {
        let Some(longest) = self.store.take_unmet() else { return };
        for (path, view) in self.paths.iter_mut().zip(&self.output.views) {
            if view.health == PathHealth::Active && view.min_one_way_delay < longest {
                path.starve();
            }
        }
    }

    /// Tells the controllers whether their path could have carried more than there was. Room that is left for what is to come is as good as used.
    fn note_limits(&mut self, ran_dry: bool) {
        let reserved = !ran_dry && self.output.reserved_until.is_some();
        for (path, view) in self.paths.iter_mut().zip(&self.output.views) {
            let window_full = !ran_dry && !view.ready && view.ready_at.is_none();
            let left = view.ready && reserved;
            path.set_limited(ran_dry || view.ready && !reserved, window_full || left);
        }
    }

    /// Asks QUIC for one packet, and learns of it.
    pub(super) fn poll_quic(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_quic_for(now, NonZeroUsize::MIN, buf).map(|(transmit, _)| transmit)
    }

    /// The same, for up to so many datagrams, one behind the other; and how long each of them is but the last.
    pub(super) fn poll_quic_for(
        &mut self,
        now: Instant,
        datagrams: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<(Transmit, usize)> {
        self.output.last_sent = None;
        let transmit = self.conn.poll_transmit(now, datagrams, buf)?;
        self.take_fates(now);
        self.note_words();
        self.keep_knock(self.to_network(&transmit).path, &buf[..transmit.size]);
        Some((self.to_network(&transmit), transmit.segment_size.unwrap_or(transmit.size).max(1)))
    }

    /// Notes whether the packet that just left has something of the control stream in it, which matters where there are several paths.
    fn note_words(&mut self) {
        if let Some((id, pn)) = self.output.last_sent
            && !self.paths.is_single()
            && let Some(path) = self.paths.get_mut(id)
            && let Some(stats) = self.conn.path_stats(path.quic)
        {
            path.note_words(pn, stats.frame_tx.stream);
        }
    }

    fn to_network(&self, transmit: &QuicTransmit) -> Transmit {
        let local = transmit.src_ip.and_then(LocalId::from_ip).unwrap_or(self.first_path.local);
        let ecn = transmit.ecn.and_then(EcnCodepoint::from_quic);
        Transmit {
            path: NetworkPath { local, remote: noq::real_address(transmit.destination) },
            size: transmit.size,
            ecn,
        }
    }
}

/// The sender's state as a scheduler sees it.
pub(super) fn context<'a>(now: Instant, views: &'a [PathView]) -> SendContext<'a> {
    let usable = || usable(views);
    SendContext {
        now,
        paths: views,
        rate: usable().map(|view| view.rate).sum::<f64>().max(1.0),
        one_way_delay: usable().map(|view| view.one_way_delay).min().unwrap_or(Duration::ZERO),
    }
}
