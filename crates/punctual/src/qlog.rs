//! What happens to blocks, for the record: a JSON-SEQ qlog file beside the one QUIC writes. `docs/qlog.md` defines it.

use std::{
    collections::HashMap,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use punctual_proto::{
    Block, BlockId, BlockUpdate, CloseReason, Delta, DropReason, Observer, Outcome, PathEvent, PathId, Qlog,
    ReceivedBlock, Redundancy, SessionConfig, SessionId,
};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

use self::watch::Watch;
use crate::scribe::{Scribe, ScribeFile};

mod watch;

/// Names the events' definitions.
pub(crate) const SCHEMA: &str = "urn:punctual:qlog:blocks-02";

/// Which side of a session we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The logs of an endpoint's sessions.
pub(crate) struct Logs {
    dir: PathBuf,
    role: Role,
    open: Mutex<HashMap<SessionId, Arc<SharedLog>>>,
    /// Behind the files, which have something to say when they go.
    scribe: Scribe,
}

impl Logs {
    /// In `dir`, which is made if need be.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn start(dir: PathBuf, role: Role) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        Ok(Arc::new(Self { dir, role, scribe: Scribe::start()?, open: Mutex::default() }))
    }

    /// Has sessions with these settings write what they do.
    pub(crate) fn watch(self: &Arc<Self>, session: &mut SessionConfig) {
        let (logs, role) = (self.clone(), self.role.name());
        session.qlog = Some(Qlog::new(move |session| {
            let name = format!("{role}-{}-{}-quic.sqlog", unix_millis(SystemTime::now()), session.connection_id);
            Some(Box::new(logs.scribe.file(logs.dir.join(name))))
        }));
        let (logs, theirs) = (self.clone(), session.observer.take());
        session.observer = Some(Arc::new(move |id| {
            let inner = theirs.as_ref().map(|make| make(id));
            Box::new(Watch::new(logs.clone(), id, inner)) as Box<dyn Observer>
        }));
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SharedLog>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of a session: `<role>-<start in Unix milliseconds>-<session>-blocks.sqlog`, made with its first event.
    pub(crate) fn of(&self, session: SessionId) -> Arc<SharedLog> {
        let make = || {
            let wall = SystemTime::now();
            let name = format!("{}-{}-{}-blocks.sqlog", self.role.name(), unix_millis(wall), session.0);
            let mut log = BlockLog::new(self.scribe.file(self.dir.join(name)), Instant::now());
            log.header = Some(header(self.role, session, wall));
            Arc::new(SharedLog(Mutex::new(log)))
        };
        self.open().entry(session).or_insert_with(make).clone()
    }

    /// Nothing more happens in a session.
    fn forget(&self, session: SessionId) {
        self.open().remove(&session);
    }

    /// Waits until the files hold what has happened.
    pub(crate) async fn caught_up(&self) {
        // If the thread is gone, there is nothing to wait for.
        let _ = self.scribe.caught_up().await;
    }
}

fn unix_millis(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// A session's log, which both the protocol and the handles write to, one after the other.
pub(crate) struct SharedLog(Mutex<BlockLog>);

impl SharedLog {
    pub(crate) fn get(&self) -> MutexGuard<'_, BlockLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log of one session's blocks.
pub(crate) struct BlockLog<W: Write = ScribeFile> {
    out: W,
    start: Instant,
    /// To be written before the first event.
    header: Option<Value>,
    failed: bool,
}

impl<W: Write> BlockLog<W> {
    fn new(out: W, start: Instant) -> Self {
        Self { out, start, header: None, failed: false }
    }

    /// `block_sent`: the application handed a block over.
    pub(crate) fn sent(&mut self, now: Instant, id: BlockId, block: &SentInfo) {
        self.event(now, "block_sent", with_id(id, block));
    }

    /// `block_updated`: the application changed what it said of a block.
    pub(crate) fn updated(&mut self, now: Instant, id: BlockId, update: &BlockUpdate) {
        let mut data = json!({ "block_id": id.0 });
        if let Some(priority) = update.priority {
            data["priority"] = priority.into();
        }
        if let Some(deadline) = update.deadline {
            data["deadline"] = deadline.map_or(Value::Null, |d| millis(d).into());
        }
        if let Some(dependencies) = &update.dependencies {
            data["dependencies"] = ids(dependencies);
        }
        self.event(now, "block_updated", data);
    }

    /// `block_outcome`: one of our blocks ended.
    pub(crate) fn outcome(&mut self, now: Instant, id: BlockId, outcome: &Outcome) {
        let data = match outcome {
            Outcome::Delivered(delivery) => json!({
                "block_id": id.0,
                "outcome": if delivery.on_time() { "on_time" } else { "late" },
                "completion": millis(delivery.completion),
                "delta": delivery.delta.map(delta_millis),
                "good_bytes": delivery.good_bytes,
            }),
            Outcome::Dropped { reason, good_bytes } => json!({
                "block_id": id.0,
                "outcome": "dropped",
                "reason": reason_name(*reason),
                "good_bytes": good_bytes,
            }),
        };
        self.event(now, "block_outcome", data);
    }

    /// `block_received`: one of the peer's blocks was given to the application.
    pub(crate) fn received(&mut self, now: Instant, block: &ReceivedBlock) {
        let data = json!({
            "block_id": block.id.0,
            "size": block.data.len(),
            "deadline": block.meta.deadline.map(millis),
            "priority": block.meta.priority,
            "channel": block.meta.channel.map(|c| c.0),
            "completed_at": millis(block.completed_at.saturating_duration_since(self.start)),
            "completion": block.completion.map(millis),
            "delta": block.delta().map(delta_millis),
        });
        self.event(now, "block_received", data);
    }

    /// `block_peer_dropped`: the peer dropped one of its blocks.
    pub(crate) fn peer_dropped(&mut self, now: Instant, id: BlockId, reason: DropReason, received_bytes: u64) {
        let data = json!({ "block_id": id.0, "reason": reason_name(reason), "received_bytes": received_bytes });
        self.event(now, "block_peer_dropped", data);
    }

    /// `block_skipped`: a block of the peer's was not whole when what follows it in its channel was due.
    pub(crate) fn skipped(&mut self, now: Instant, id: BlockId, received_bytes: u64) {
        self.event(now, "block_skipped", json!({ "block_id": id.0, "received_bytes": received_bytes }));
    }

    /// `block_expected`: the peer's application said by how much a block missed what it expected.
    pub(crate) fn expected(&mut self, now: Instant, id: BlockId, delta: Delta) {
        self.event(now, "block_expected", json!({ "block_id": id.0, "delta": delta_millis(delta) }));
    }

    /// `path_opened`, `path_suspected`, `path_recovered`, `path_closed`.
    pub(crate) fn path(&mut self, now: Instant, id: PathId, event: PathEvent) {
        let (name, data) = match event {
            PathEvent::Opened => ("path_opened", json!({ "path_id": id.0 })),
            PathEvent::Suspected { silent } => ("path_suspected", json!({ "path_id": id.0, "silent": millis(silent) })),
            PathEvent::Recovered => ("path_recovered", json!({ "path_id": id.0 })),
            PathEvent::Closed => ("path_closed", json!({ "path_id": id.0 })),
            other => ("path_changed", json!({ "path_id": id.0, "change": format!("{other:?}") })),
        };
        self.event(now, name, data);
    }

    /// `session_closed`, the last event; writes out what is buffered.
    pub(crate) fn closed(&mut self, now: Instant, reason: &CloseReason) {
        self.event(now, "session_closed", json!({ "reason": reason.to_string() }));
        if let Err(error) = self.out.flush() {
            self.fail(&error);
        }
    }

    fn event(&mut self, now: Instant, name: &str, data: Value) {
        let time = millis(now.saturating_duration_since(self.start));
        if let Some(header) = self.header.take() {
            self.record(&header);
        }
        self.record(&json!({ "time": time, "name": format!("punctual:{name}"), "data": data }));
    }

    /// One record of a JSON text sequence (RFC 7464).
    fn record(&mut self, value: &Value) {
        if self.failed {
            return;
        }
        let written = self
            .out
            .write_all(b"\x1e")
            .and_then(|()| serde_json::to_writer(&mut self.out, value).map_err(io::Error::from))
            .and_then(|()| self.out.write_all(b"\n"));
        if let Err(error) = written {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = true;
        warn!(%error, "a qlog file of blocks ends here");
    }
}

/// The first record of a log.
fn header(role: Role, session: SessionId, wall: SystemTime) -> Value {
    json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "title": format!("Punctual blocks, {} session {}", role.name(), session.0),
        "trace": {
            "vantage_point": { "type": role.name() },
            "event_schemas": [SCHEMA],
            "common_fields": {
                "time_format": "relative_to_epoch",
                "reference_time": {
                    "clock_type": "monotonic",
                    "epoch": "unknown",
                    "wall_clock_time": humantime::format_rfc3339_millis(wall).to_string(),
                },
            },
        },
    })
}

/// What is worth noting of a block that is being handed over, taken before the protocol takes the block.
#[derive(Debug, Serialize)]
pub(crate) struct SentInfo {
    size: usize,
    deadline: Option<f64>,
    priority: u8,
    dependencies: Vec<u64>,
    channel: Option<u32>,
    /// Of its own; null if it is left to its channel or the session.
    redundancy: Option<&'static str>,
    /// How long the application waited for room.
    waited: Option<f64>,
}

impl SentInfo {
    pub(crate) fn of(block: &Block, now: Instant) -> Self {
        Self {
            size: block.data.len(),
            deadline: block.deadline.map(millis),
            priority: block.priority,
            dependencies: block.dependencies.iter().map(|id| id.0).collect(),
            channel: block.channel.map(|c| c.0),
            redundancy: block.redundancy.map(Redundancy::name),
            waited: block.begin.map(|begin| millis(now.saturating_duration_since(begin))),
        }
    }
}

fn with_id(id: BlockId, info: &SentInfo) -> Value {
    let mut data = json!(info);
    data["block_id"] = id.0.into();
    data
}

fn ids(ids: &[BlockId]) -> Value {
    ids.iter().map(|id| id.0).collect()
}

/// qlog counts time in milliseconds; three digits behind the point are microseconds.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

fn delta_millis(delta: Delta) -> f64 {
    delta.as_micros() as f64 / 1e3
}

fn reason_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Expired => "expired",
        DropReason::Cancelled => "cancelled",
        DropReason::DependencyDropped => "dependency_dropped",
        DropReason::Refused => "refused",
        DropReason::SessionClosed => "session_closed",
        DropReason::Lost => "lost",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::Delivery;

    use super::*;

    #[test]
    fn a_log_is_a_json_text_sequence_that_names_its_schema() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut log = BlockLog::new(Vec::new(), start);
        log.header = Some(header(Role::Server, SessionId(7), SystemTime::UNIX_EPOCH));
        let block = Block::new(vec![0; 10])
            .deadline(Duration::from_millis(100))
            .priority(3)
            .depends_on(BlockId(1))
            .redundancy(Redundancy::Fec);
        log.sent(at(1_500), BlockId(2), &SentInfo::of(&block, at(1_500)));
        let delivery = Delivery::new(Duration::from_micros(40_250), Some(Delta::from_micros(-59_750)), 10);
        log.outcome(at(90_000), BlockId(2), &Outcome::Delivered(delivery));
        log.path(at(91_000), PathId(1), PathEvent::Suspected { silent: Duration::from_millis(70) });
        log.closed(at(92_000), &CloseReason::Local);

        let text = String::from_utf8(log.out).expect("UTF-8");
        let records: Vec<Value> = text
            .split('\u{1e}')
            .skip(1)
            .map(|record| serde_json::from_str(record.strip_suffix('\n').expect("a line feed")).expect("JSON"))
            .collect();
        assert_eq!(records[0]["trace"]["event_schemas"], json!([SCHEMA]));
        assert_eq!(records[0]["trace"]["vantage_point"]["type"], "server");
        assert_eq!(
            records[0]["trace"]["common_fields"]["reference_time"]["wall_clock_time"],
            "1970-01-01T00:00:00.000Z"
        );
        assert_eq!(records[1]["time"], 1.5);
        assert_eq!(records[1]["name"], "punctual:block_sent");
        assert_eq!(records[1]["data"]["dependencies"], json!([1]));
        assert_eq!(records[1]["data"]["redundancy"], "fec");
        assert_eq!(records[2]["data"]["outcome"], "on_time");
        assert_eq!(records[2]["data"]["delta"], -59.75);
        assert_eq!(records[3]["data"], json!({ "path_id": 1, "silent": 70.0 }));
        assert_eq!(records.last().expect("some")["name"], "punctual:session_closed");
    }
}
