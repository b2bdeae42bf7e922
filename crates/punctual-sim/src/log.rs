//! What happened, for equality tests and for looking closely.

use std::{
    fmt::{self, Write},
    hash::Hasher,
    time::Duration,
};

use punctual_proto::{BlockId, DropReason, Event, Outcome, PathEvent, SessionId};
use siphasher::sip::SipHasher13;

use crate::world::{HostId, LinkId};

/// How much a world remembers of what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogMode {
    /// Nothing; the fastest.
    #[default]
    Off,
    /// A running hash: enough to tell whether two runs were the same, in no memory.
    Hash,
    /// Every event.
    Full,
}

/// What happens to a datagram on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEvent {
    /// It was handed to the link.
    Offered,
    /// It came out.
    Delivered,
    /// It came out with a bit flipped.
    Damaged,
    /// A copy of it was made.
    Duplicated,
    /// It was marked with ECN CE.
    Marked,
    /// It was dropped.
    Dropped(DropCause),
}

/// Why a link dropped a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// By chance.
    Loss,
    /// A policer dropped it.
    Policer,
    /// The queue was full.
    Queue,
    /// It was too large.
    Mtu,
    /// The link was dead, or died.
    Death,
}

/// What an application did or heard. Nothing that depends on contents or on a host's own clock's zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppEvent {
    /// A session is there.
    Connected,
    /// A block was handed over.
    Sent {
        /// Which.
        id: BlockId,
        /// Its size.
        bytes: u64,
    },
    /// A block was taken.
    Received {
        /// Which.
        id: BlockId,
        /// Its size.
        bytes: u64,
    },
    /// A block ended.
    Outcome {
        /// Which.
        id: BlockId,
        /// How.
        outcome: Outcome,
    },
    /// The peer dropped a block.
    PeerDropped {
        /// Which.
        id: BlockId,
        /// Why.
        reason: DropReason,
    },
    /// A block was passed over, for what follows it in its channel was due.
    Skipped {
        /// Which.
        id: BlockId,
    },
    /// The peer told what it expected of a block.
    Expected {
        /// Which.
        id: BlockId,
        /// Actual minus expected, microseconds.
        micros: i64,
    },
    /// A path changed.
    Path {
        /// Which.
        id: u32,
        /// How.
        event: PathEvent,
    },
    /// The session is over.
    Closed,
}

impl AppEvent {
    /// What is to be remembered of a session's event, if anything.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        Some(match *event {
            Event::Connected { .. } => Self::Connected,
            Event::Outcome { id, outcome } => Self::Outcome { id, outcome },
            Event::PeerDropped { id, reason, .. } => Self::PeerDropped { id, reason },
            Event::Skipped { id, .. } => Self::Skipped { id },
            Event::Expected { id, delta } => Self::Expected { id, micros: delta.as_micros() },
            Event::Path { id, event } => Self::Path { id: id.0, event },
            Event::Closed(_) => Self::Closed,
            // What only wakes somebody up is not remembered.
            _ => return None,
        })
    }
}

/// One line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Virtual time.
    pub at: Duration,
    /// What happened where.
    pub what: What,
}

/// What happened where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// To a datagram.
    Link {
        /// Where.
        link: LinkId,
        /// What.
        event: LinkEvent,
        /// Bytes of the datagram's UDP payload.
        bytes: u32,
    },
    /// To an application.
    App {
        /// Where.
        host: HostId,
        /// In which session.
        session: SessionId,
        /// What.
        event: AppEvent,
    },
}

/// What happened in a world since its links were shaped, in order.
///
/// Its text is one line a record, `seconds place what bytes`; its hash is that of the text, so both mean the same
/// on every machine.
#[derive(Debug, Clone)]
pub struct EventLog {
    mode: LogMode,
    hash: SipHasher13,
    records: Vec<Record>,
}

impl EventLog {
    pub(crate) fn new(mode: LogMode) -> Self {
        Self { mode, hash: SipHasher13::new(), records: Vec::new() }
    }

    /// How much it remembers.
    pub fn mode(&self) -> LogMode {
        self.mode
    }

    /// A hash of all that happened.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// All that happened; empty unless the mode is [`LogMode::Full`].
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn push(&mut self, at: Duration, what: What) {
        if self.mode == LogMode::Off {
            return;
        }
        let record = Record { at, what };
        // Writing into a hasher cannot fail.
        let _ = writeln!(Hashed(&mut self.hash), "{record}");
        if self.mode == LogMode::Full {
            self.records.push(record);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.mode);
    }
}

impl fmt::Display for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} ", self.at.as_secs(), self.at.subsec_nanos())?;
        match self.what {
            What::Link { link, event, bytes } => write!(f, "link {} {event} {bytes}", link.0),
            What::App { host, session, event } => write!(f, "host {} session {} {event}", host.0, session.0),
        }
    }
}

impl fmt::Display for LinkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offered => "offered",
            Self::Delivered => "delivered",
            Self::Damaged => "damaged",
            Self::Duplicated => "duplicated",
            Self::Marked => "marked",
            Self::Dropped(DropCause::Loss) => "lost",
            Self::Dropped(DropCause::Policer) => "policed",
            Self::Dropped(DropCause::Queue) => "overflowed",
            Self::Dropped(DropCause::Mtu) => "oversized",
            Self::Dropped(DropCause::Death) => "died",
        })
    }
}

impl fmt::Display for AppEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Sent { id, bytes } => write!(f, "sent {id} {bytes}"),
            Self::Received { id, bytes } => write!(f, "received {id} {bytes}"),
            Self::Outcome { id, outcome: Outcome::Delivered(delivery) } => {
                write!(f, "outcome {id} delivered after {} us", delivery.completion.as_micros())
            }
            Self::Outcome { id, outcome: Outcome::Dropped { reason, good_bytes } } => {
                write!(f, "outcome {id} dropped ({reason}) with {good_bytes}")
            }
            Self::PeerDropped { id, reason } => write!(f, "peer dropped {id} ({reason})"),
            Self::Skipped { id } => write!(f, "skipped {id}"),
            Self::Expected { id, micros } => write!(f, "expected {id} {micros} us"),
            Self::Path { id, event } => match event {
                PathEvent::Opened => write!(f, "path {id} opened"),
                PathEvent::Suspected { silent } => write!(f, "path {id} suspected after {} us", silent.as_micros()),
                PathEvent::Recovered => write!(f, "path {id} recovered"),
                PathEvent::Closed => write!(f, "path {id} closed"),
                other => write!(f, "path {id}: {other:?}"),
            },
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Text into a hasher.
struct Hashed<'a>(&'a mut SipHasher13);

impl Write for Hashed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_hash_are_stable() {
        let mut full = EventLog::new(LogMode::Full);
        let mut hash = EventLog::new(LogMode::Hash);
        for log in [&mut full, &mut hash] {
            let what = What::Link { link: LinkId(3), event: LinkEvent::Dropped(DropCause::Loss), bytes: 1200 };
            log.push(Duration::from_nanos(1_000_000_007), what);
            let event = AppEvent::Sent { id: BlockId(2), bytes: 9 };
            log.push(Duration::from_secs(2), What::App { host: HostId(1), session: SessionId(0), event });
        }
        assert_eq!(full.to_string(), "1.000000007 link 3 lost 1200\n2.000000000 host 1 session 0 sent #2 9\n");
        assert_eq!(full.hash(), hash.hash());
        // Of the text above; a change here breaks comparison with recorded hashes.
        let mut of_text = SipHasher13::new();
        of_text.write(full.to_string().as_bytes());
        assert_eq!(full.hash(), of_text.finish());
        assert_eq!(hash.records(), []);
    }

    #[test]
    fn off_is_off() {
        let mut log = EventLog::new(LogMode::Off);
        let empty = log.hash();
        log.push(Duration::ZERO, What::Link { link: LinkId(0), event: LinkEvent::Offered, bytes: 1 });
        assert_eq!(log.hash(), empty);
    }
}
