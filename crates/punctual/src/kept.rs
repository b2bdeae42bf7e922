//! One route that is kept: what it is now, and what is to be done about it.

use std::time::{Duration, Instant};

use punctual_proto::{LocalId, PathId, multipath::PathHealth};
use tokio::task::AbortHandle;

use crate::{
    backoff::Backoff,
    interfaces::Sight,
    local::{Bind, without_port},
    route::{DownReason, Route, RouteChange, RouteError, RouteEvent},
    terms::RouteTerms,
};

/// How long a path may be silent before another one is tried beside it, from a socket of its own. The session itself no longer relies on it
/// after a round trip and a half, and probes it; but if a network has come to refuse this one flow, probes will not bring it back.
const SILENCE: Duration = Duration::from_secs(5);

/// How long a path must have lived for the next failure to count as the first.
const STEADY: Duration = Duration::from_secs(10);

/// One route that is kept.
pub(crate) struct Kept {
    pub(crate) route: Route,
    pub(crate) terms: RouteTerms,
    /// Whether it is there because an interface leads to the peer, and not because it was named.
    pub(crate) auto: bool,
    /// What its end was like when last looked at.
    pub(crate) sight: Option<Sight>,
    /// The interface last seen, which an address that is gone no longer tells.
    interface: Option<String>,
    pub(crate) path: Option<KeptPath>,
    pub(crate) attempt: Attempt,
    /// A socket left from an attempt that another one made unnecessary.
    pub(crate) spare: Option<LocalId>,
    /// What went wrong last.
    pub(crate) failure: Option<RouteError>,
    backoff: Backoff,
}

/// A path of the session over a kept route.
#[derive(Debug)]
pub(crate) struct KeptPath {
    pub(crate) id: PathId,
    pub(crate) local: LocalId,
    since: Instant,
    silent_since: Option<Instant>,
    /// The application was told that it is down.
    told_silent: bool,
    /// A better one is wanted, though this one may do.
    outdated: bool,
}

/// What is done about a route that is no path.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Nothing, until something changes.
    Idle,
    /// It will be tried then.
    Due(Instant),
    /// It is tried now.
    Running { number: u64, local: LocalId, task: AbortHandle },
}

impl Kept {
    pub(crate) fn new(route: Route, terms: RouteTerms, auto: bool) -> Self {
        Self {
            route,
            terms,
            auto,
            sight: None,
            interface: None,
            path: None,
            attempt: Attempt::Idle,
            spare: None,
            failure: None,
            backoff: Backoff::default(),
        }
    }

    /// The name of the interface that it takes, or took last, if it is known.
    pub(crate) fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Takes note of what its end is like now; what it was like before.
    pub(crate) fn see(&mut self, sight: Option<Sight>) -> Option<Sight> {
        if let Some(interface) = sight.as_ref().and_then(|sight| sight.interface.as_ref()) {
            self.interface = Some(interface.clone());
        }
        std::mem::replace(&mut self.sight, sight)
    }

    /// Whether that is what the application calls it.
    pub(crate) fn is_over(&self, name: &str) -> bool {
        let bound_to = match &self.route.bind {
            Bind::Address(address) if address.port() == 0 => without_port(address),
            bind => bind.to_string(),
        };
        self.interface() == Some(name) || bound_to == name
    }

    pub(crate) fn event(&self, change: RouteChange) -> RouteEvent {
        RouteEvent { route: self.route.clone(), interface: self.interface().map(str::to_owned), change }
    }

    /// It is a path from now on.
    pub(crate) fn opened(&mut self, id: PathId, local: LocalId, now: Instant) -> RouteChange {
        self.path = Some(KeptPath { id, local, since: now, silent_since: None, told_silent: false, outdated: false });
        self.attempt = Attempt::Idle;
        self.failure = None;
        RouteChange::Up { path: id }
    }

    /// Its path is gone, and it is tried again: at once if it had lived for long.
    pub(crate) fn lost(&mut self, reason: DownReason, now: Instant) -> Option<RouteChange> {
        let path = self.path.take()?;
        if now.saturating_duration_since(path.since) >= STEADY {
            self.backoff.reset();
        }
        if matches!(self.attempt, Attempt::Idle) {
            self.attempt = Attempt::Due(now + self.backoff.next(now));
        }
        (!path.told_silent).then_some(RouteChange::Down { path: path.id, reason })
    }

    /// A try has failed.
    pub(crate) fn failed(&mut self, reason: RouteError, now: Instant) -> RouteChange {
        let again_in = reason.may_pass().then(|| self.backoff.next(now));
        self.attempt = again_in.map_or(Attempt::Idle, |pause| Attempt::Due(now + pause));
        self.failure = Some(reason.clone());
        RouteChange::Failed { reason, again_in }
    }

    /// What stood in the way is gone: whatever was waited for, it is tried now, if there is need.
    pub(crate) fn encourage(&mut self, now: Instant) {
        self.backoff.reset();
        if let Some(path) = &mut self.path {
            path.outdated |= path.silent_since.is_some();
        }
        if self.wants_path() {
            self.attempt = Attempt::Due(now);
        }
    }

    /// Another path is wanted, since the interface's address is another.
    pub(crate) fn outdate(&mut self) {
        if let Some(path) = &mut self.path {
            path.outdated = true;
        }
    }

    /// Takes note of its path's health.
    pub(crate) fn hear(&mut self, health: PathHealth, now: Instant) -> Option<RouteChange> {
        let path = self.path.as_mut()?;
        if health != PathHealth::Suspect {
            path.silent_since = None;
            let down = std::mem::take(&mut path.told_silent);
            return down.then_some(RouteChange::Up { path: path.id });
        }
        let since = *path.silent_since.get_or_insert(now);
        if path.told_silent || now.saturating_duration_since(since) < SILENCE {
            return None;
        }
        path.told_silent = true;
        if now.saturating_duration_since(path.since) >= STEADY {
            self.backoff.reset();
        }
        let down = RouteChange::Down { path: path.id, reason: DownReason::Silent };
        if matches!(self.attempt, Attempt::Idle) {
            self.attempt = Attempt::Due(now);
        }
        Some(down)
    }

    /// Whether there is no path, or only one that another should replace.
    pub(crate) fn wants_path(&self) -> bool {
        self.path.as_ref().is_none_or(|path| path.outdated || path.told_silent)
    }

    /// Whether its path is not one to rely on.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.told_silent || path.silent_since.is_some())
    }

    /// When something is to be done though nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        let silence = self.path.as_ref().filter(|path| !path.told_silent).and_then(|path| path.silent_since);
        let attempt = match self.attempt {
            Attempt::Due(at) => Some(at),
            Attempt::Idle | Attempt::Running { .. } => None,
        };
        attempt.into_iter().chain(silence.map(|since| since + SILENCE)).min()
    }

    /// Gives up what is under way; the socket that it had.
    pub(crate) fn stop_attempt(&mut self) -> Option<LocalId> {
        match std::mem::replace(&mut self.attempt, Attempt::Idle) {
            Attempt::Running { local, task, .. } => {
                task.abort();
                Some(local)
            }
            Attempt::Idle | Attempt::Due(_) => None,
        }
    }

    /// Whether this is the attempt that is under way.
    pub(crate) fn awaits(&self, attempt: u64) -> bool {
        matches!(self.attempt, Attempt::Running { number, .. } if number == attempt)
    }

    /// The sockets it uses.
    pub(crate) fn locals(&self) -> impl Iterator<Item = LocalId> {
        let running = match self.attempt {
            Attempt::Running { local, .. } => Some(local),
            Attempt::Idle | Attempt::Due(_) => None,
        };
        self.path.as_ref().map(|path| path.local).into_iter().chain(self.spare).chain(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let route = Route::new("w0".parse().expect("a name"), ([10, 0, 0, 1], 1).into());
        Kept::new(route, RouteTerms::new(), false)
    }

    #[test]
    fn a_path_that_falls_silent_is_replaced_after_a_while_unless_it_speaks_again() {
        let (mut kept, start) = (kept(), Instant::now());
        assert_eq!(kept.opened(PathId(3), LocalId(1), start), RouteChange::Up { path: PathId(3) });
        assert!(!kept.wants_path());
        assert_eq!(kept.hear(PathHealth::Suspect, start), None);
        assert!(!kept.wants_path() && kept.is_in_doubt());
        assert_eq!(kept.due(), Some(start + SILENCE));
        assert_eq!(kept.hear(PathHealth::Active, start), None);
        assert_eq!((kept.due(), kept.is_in_doubt()), (None, false));

        kept.hear(PathHealth::Suspect, start);
        let down = RouteChange::Down { path: PathId(3), reason: DownReason::Silent };
        assert_eq!(kept.hear(PathHealth::Suspect, start + SILENCE), Some(down));
        assert!(kept.wants_path());
        assert_eq!(kept.due(), Some(start + SILENCE), "now");
        assert_eq!(kept.hear(PathHealth::Suspect, start + 2 * SILENCE), None, "it is said once");
        assert_eq!(kept.hear(PathHealth::Active, start + 2 * SILENCE), Some(RouteChange::Up { path: PathId(3) }));
        assert!(!kept.wants_path());
        // That it is gone is told; but not twice.
        kept.hear(PathHealth::Suspect, start);
        kept.hear(PathHealth::Suspect, start + SILENCE);
        assert_eq!(kept.lost(DownReason::Closed, start), None);
    }

    #[test]
    fn failures_that_may_pass_are_tried_again_and_others_wait() {
        let (mut kept, now) = (kept(), Instant::now());
        let RouteChange::Failed { again_in: Some(first), .. } = kept.failed(RouteError::NoAnswer { cause: None }, now)
        else {
            panic!("it may pass")
        };
        assert_eq!(kept.due(), Some(now + first));
        let change = kept.failed(RouteError::NoInterface, now);
        assert_eq!(change, RouteChange::Failed { reason: RouteError::NoInterface, again_in: None });
        assert_eq!(kept.due(), None);
        kept.encourage(now);
        assert_eq!(kept.due(), Some(now), "it came up");
    }

    #[test]
    fn a_path_in_good_health_needs_no_encouragement_and_one_in_doubt_does() {
        let (mut kept, now) = (kept(), Instant::now());
        kept.opened(PathId(1), LocalId(1), now);
        kept.encourage(now);
        assert_eq!(kept.due(), None);
        kept.hear(PathHealth::Suspect, now);
        kept.encourage(now);
        assert_eq!(kept.due(), Some(now));
        kept.opened(PathId(2), LocalId(2), now);
        kept.outdate();
        assert!(kept.wants_path(), "its address is another");
    }

    #[test]
    fn so_is_the_first_one_beside_a_path_that_fell_silent_after_a_long_life() {
        let now = Instant::now();
        let pause_after = |lived| {
            let mut kept = kept();
            for _ in 0..10 {
                kept.failed(RouteError::GivenUp, now);
            }
            kept.opened(PathId(1), LocalId(1), now);
            kept.hear(PathHealth::Suspect, now + lived);
            let silent = now + lived + SILENCE;
            kept.hear(PathHealth::Suspect, silent).expect("told");
            kept.failed(RouteError::NoAnswer { cause: None }, silent);
            kept.due().expect("it is tried again") - silent
        };
        assert!(pause_after(STEADY) < Duration::from_secs(1));
        assert!(pause_after(Duration::ZERO) > Duration::from_secs(10));
    }

    #[test]
    fn the_first_failure_after_a_long_life_is_a_first_one() {
        let now = Instant::now();
        let pause_after = |lived| {
            let mut kept = kept();
            for _ in 0..10 {
                kept.failed(RouteError::GivenUp, now);
            }
            kept.opened(PathId(1), LocalId(1), now);
            kept.lost(DownReason::Closed, now + lived).expect("told");
            kept.due().expect("it is tried again") - (now + lived)
        };
        assert!(pause_after(STEADY) < Duration::from_secs(1));
        assert!(pause_after(Duration::ZERO) > Duration::from_secs(10));
    }
}
