//! Where QUIC's own qlog events go.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Instant};

use noq_proto::{ConnectionId, QlogConfig, QlogFactory, Side};

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
        (self.0)(&session).map(QlogConfig::new)
    }
}
