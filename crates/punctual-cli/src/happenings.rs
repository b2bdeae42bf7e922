//! What a session says of its paths, in lines for people: of what it doubts, only what lasts.

use std::time::{Duration, Instant};

use punctual::{Events, PathEvent, PathId, SessionEvent};

use crate::doubts::{Doubt, Doubts};

/// Follows a session's events.
pub(crate) struct Happenings {
    events: Events,
    over: bool,
    /// Routes are followed, too, and say why a path is closed.
    routed: bool,
    doubts: Doubts,
}

/// Something that is to be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    /// The path of which it is told, if it is of one.
    path: Option<PathId>,
    words: String,
}

impl Happening {
    /// The line, with the path called as `name` says.
    pub(crate) fn line(&self, name: impl FnOnce(PathId) -> String) -> String {
        let Self { path, words } = self;
        path.map_or_else(|| words.clone(), |path| format!("{} {words}", called(path, &name(path))))
    }
}

/// A path by its name. One that nobody has named has its id for a name.
pub(crate) fn called(path: PathId, name: &str) -> String {
    if name == path.to_string() { name.to_owned() } else { format!("path {name}") }
}

impl Happenings {
    /// `routed`: a [`Watch`](crate::watch::Watch) tells of the routes.
    pub(crate) fn new(events: Events, routed: bool) -> Self {
        Self { events, over: false, routed, doubts: Doubts::default() }
    }

    /// The next; never returns once there are no more. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Happening {
        loop {
            if let Some((doubt, silent)) = self.doubts.next(Instant::now()) {
                return doubted(doubt, silent);
            }
            let due = self.doubts.due();
            let doubted = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = doubted => {}
                event = self.events.next(), if !self.over => match event {
                    Some(event) => {
                        if let Some(happening) = self.of(&event, Instant::now()) {
                            return happening;
                        }
                    }
                    None => self.over = true,
                },
            }
        }
    }

    /// What is to be told of an event at once.
    fn of(&mut self, event: &SessionEvent, now: Instant) -> Option<Happening> {
        match *event {
            // Told once it has a name; it may also have been open before anybody watched.
            SessionEvent::Path { event: PathEvent::Opened, .. } => None,
            SessionEvent::Path { id, event: PathEvent::Closed } if self.routed => {
                self.doubts.settle(Doubt::Path(id));
                None
            }
            SessionEvent::Path { id, event: PathEvent::Suspected { silent } } => {
                self.doubts.arise(now, Doubt::Path(id), silent);
                None
            }
            SessionEvent::Path { id, event } => {
                let told = self.doubts.settle(Doubt::Path(id));
                (told || event != PathEvent::Recovered).then(|| Happening { path: Some(id), words: words(event) })
            }
            SessionEvent::Stranded => {
                self.doubts.arise(now, Doubt::All, Duration::ZERO);
                None
            }
            SessionEvent::Resumed => {
                let told = self.doubts.settle(Doubt::All);
                told.then(|| Happening { path: None, words: "a path answers".into() })
            }
            _ => None,
        }
    }
}

fn doubted(doubt: Doubt, silent: Duration) -> Happening {
    match doubt {
        Doubt::Path(id) => Happening { path: Some(id), words: words(PathEvent::Suspected { silent }) },
        Doubt::All => Happening { path: None, words: "no path answers: waiting for one".into() },
    }
}

fn words(event: PathEvent) -> String {
    match event {
        PathEvent::Opened => "is open".into(),
        PathEvent::Suspected { silent } => format!("is suspected: silent for {} ms", silent.as_millis()),
        PathEvent::Recovered => "is in use again".into(),
        PathEvent::Closed => "is closed".into(),
        other => format!("has changed: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_called_by_its_name_if_it_has_one() {
        let silent = doubted(Doubt::Path(PathId(1)), Duration::from_millis(250));
        assert_eq!(silent.line(|_| "eth0".into()), "path eth0 is suspected: silent for 250 ms");
        assert_eq!(silent.line(|id| id.to_string()), "path 1 is suspected: silent for 250 ms");
        assert_eq!(doubted(Doubt::All, Duration::ZERO).line(|_| unreachable!()), "no path answers: waiting for one");
    }
}
