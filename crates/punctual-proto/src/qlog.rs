//! Where QUIC's own qlog events go.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Instant};

use noq_proto::{ConnectionId, QlogConfig, QlogFactory, Side};

use crate::noq::UNPACED;

/// A session for which somewhere to write is sought.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QlogSession {
    /// QUIC's first connection id of it, which both sides know, in hexadecimal digits.
    pub connection_id: String,
    /// Whether this side accepted it.
    pub is_server: bool,
    /// The peer's address.
    pub remote: SocketAddr,
}

/// Writes QUIC's events of each session ([qlog](https://datatracker.ietf.org/doc/draft-ietf-quic-qlog-main-schema/), JSON text sequences).
///
/// What makes the writers decides where they lead. They are called from within the session's own calls, so they should be short: behind the lock of an
/// endpoint one does not wait for a disk.
///
/// ```
/// use punctual_proto::{Qlog, SessionConfig};
///
/// let (to, lines) = std::sync::mpsc::channel::<Vec<u8>>();
/// struct Lines(std::sync::Mutex<std::sync::mpsc::Sender<Vec<u8>>>);
/// impl std::io::Write for Lines {
///     fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
///         // Whoever reads may be gone.
///         let _ = self.0.get_mut().map(|to| to.send(bytes.to_vec()));
///         Ok(bytes.len())
///     }
///     fn flush(&mut self) -> std::io::Result<()> {
///         Ok(())
///     }
/// }
/// let qlog = Qlog::new(move |_session| Some(Box::new(Lines(std::sync::Mutex::new(to.clone())))));
/// let config = SessionConfig { qlog: Some(qlog), ..SessionConfig::default() };
/// # drop((config, lines));
/// ```
#[derive(Clone)]
pub struct Qlog(Arc<dyn QlogFactory>);

impl Qlog {
    /// With what makes the writer of a session, or says that it is to have none.
    pub fn new(
        make: impl Fn(&QlogSession) -> Option<Box<dyn io::Write + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Writers(make)))
    }

    pub(crate) fn factory(&self) -> Arc<dyn QlogFactory> {
        self.0.clone()
    }
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Qlog")
    }
}

struct Writers<F>(F);

impl<F: Fn(&QlogSession) -> Option<Box<dyn io::Write + Send + Sync>> + Send + Sync + 'static> QlogFactory
    for Writers<F>
{
    fn for_connection(&self, side: Side, remote: SocketAddr, id: ConnectionId, _: Instant) -> Option<QlogConfig> {
        let session = QlogSession { connection_id: id.to_string(), is_server: side.is_server(), remote };
        let writer = (self.0)(&session)?;
        Some(QlogConfig::new(Box::new(Truthful { writer, record: Vec::new() })))
    }
}

/// Hands on whole records, and leaves out of them the window that noq's pacer is told: it says that the pacer is off, and nothing of the path.
struct Truthful<W> {
    writer: W,
    record: Vec<u8>,
}

impl<W: io::Write> io::Write for Truthful<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.record.extend_from_slice(part);
            if part.ends_with(b"\n") {
                leave_out(&mut self.record, &format!("\"congestion_window\":{UNPACED}"));
                let written = self.writer.write_all(&self.record);
                self.record.clear();
                written?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Takes a member out of a JSON object, wherever it stands in it.
fn leave_out(record: &mut Vec<u8>, member: &str) {
    let found = record.windows(member.len()).position(|bytes| bytes == member.as_bytes());
    let Some(start) = found else { return };
    let mut end = start + member.len();
    // noq may write it as a number with a fraction.
    if record[end..].starts_with(b".0") {
        end += 2;
    }
    match (record.get(end), record[..start].last()) {
        (Some(b','), _) => _ = record.drain(start..=end),
        (Some(b'}'), Some(b',')) => _ = record.drain(start - 1..end),
        (Some(b'}'), _) => _ = record.drain(start..end),
        // Another number that begins with the same digits.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_window_that_turns_the_pacer_off_is_left_out() {
        let false_window = format!("\"congestion_window\":{UNPACED}");
        let mut truthful = Truthful { writer: Vec::new(), record: Vec::new() };
        let text = format!(
            "\x1e{{\"a\":{{{false_window},\"b\":1}}}}\n\x1e{{\"a\":{{\"b\":1,{false_window}}}}}\n\x1e{{\"a\":{{{false_window}.0}}}}\n\x1e{{{false_window}7}}\n"
        );
        // However it comes.
        text.as_bytes().chunks(7).for_each(|bytes| truthful.write_all(bytes).expect("a vector"));
        assert_eq!(
            String::from_utf8(truthful.writer).expect("UTF-8"),
            format!(
                "\x1e{{\"a\":{{\"b\":1}}}}\n\x1e{{\"a\":{{\"b\":1}}}}\n\x1e{{\"a\":{{}}}}\n\x1e{{{false_window}7}}\n"
            )
        );
    }
}
