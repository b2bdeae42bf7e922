//! How the program ends when it cannot do what it was asked: one clear line, and an exit code for each kind of reason.

use std::{fmt, path::Path, process::ExitCode};

use punctual::{BuildError, CloseReason, ConnectError, Fingerprint, ProtocolError, TlsError};
use thiserror::Error;

use crate::say::say;
use crate::signals::Signal;

/// The codes with which `recv` and `send` close a session before its time; 0 is the end that both wanted.
pub(crate) mod close {
    /// This side cannot do its work any more: its disk is full, say.
    pub(crate) const FAILED: u32 = 1;
    /// The session is turned away at the door, and nothing of it was kept. The words say why.
    pub(crate) const REFUSED: u32 = 2;
    /// Somebody told this side to stop.
    pub(crate) const STOPPED: u32 = 3;
}

/// Why the program gave up. The message is the line a person reads, so it says what to look at.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Something that should not happen on a working machine.
    #[error("{0}")]
    Other(String),
    /// The command line, the configuration file or the input make no sense.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{0}")]
    File(String),
    /// The name did not resolve, or nobody answered.
    #[error("{0}")]
    Unreachable(String),
    /// The certificate is not the one that was asked for, or is not to be trusted.
    #[error("{0}")]
    Certificate(String),
    /// A local interface or address cannot be used.
    #[error("{0}")]
    Path(String),
    /// The session broke off.
    #[error("{0}")]
    SessionLost(String),
    /// `--strict`, and not every block was delivered on time.
    #[error("{0}")]
    NotDelivered(String),
    /// The receiver would not have the session, and has kept nothing of it.
    #[error("the receiver refused the session: {0}")]
    Refused(String),
    /// The receiver does not know the certificate that we showed, or wants to see one.
    #[error("the receiver does not let this sender in: {0}")]
    NotLetIn(String),
    /// The receiver lets in who shows a token that it knows.
    #[error("the receiver does not let this sender in: {0}")]
    WrongToken(String),
    /// A signal came before everything was done.
    #[error("ended by {} before everything was done", .0.name())]
    Interrupted(Signal),
    /// The same, and what is done need not be done again.
    #[error("ended by {}; the same command goes on where it stopped", .0.name())]
    Paused(Signal),
}

/// What a sender has shown of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// Of its certificate.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Whether it was a token.
    pub(crate) token: bool,
}

impl Failure {
    /// Whether the receiver would not let us in, and so has kept nothing.
    pub(crate) fn is_at_the_door(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NotLetIn(_) | Self::WrongToken(_))
    }

    /// Says what the receiver was shown, for its owner to let it in.
    pub(crate) fn showing(self, Shown { fingerprint, token }: Shown) -> Self {
        match (self, fingerprint) {
            (Self::WrongToken(why), _) if token => {
                Self::WrongToken(format!("{why}, and that of --token is not one that it knows"))
            }
            (Self::WrongToken(why), _) => Self::WrongToken(format!("{why}; show one with --token")),
            (Self::NotLetIn(why), Some(fingerprint)) => {
                Self::NotLetIn(format!("{why}, and that of this sender has fingerprint {fingerprint}"))
            }
            (Self::NotLetIn(why), None) => Self::NotLetIn(format!("{why}; show one with --identity")),
            (failure, _) => failure,
        }
    }

    /// A session that ended before its time.
    pub(crate) fn lost(reason: &CloseReason) -> Self {
        // The peer's words go to a terminal.
        let printable = |text: String| text.replace(char::is_control, " ");
        match reason {
            CloseReason::Peer { code, reason } if *code == u64::from(close::REFUSED) => {
                Self::Refused(printable(reason.clone()))
            }
            CloseReason::Peer { code, .. } if *code == ProtocolError::Token.code() => {
                Self::WrongToken("it goes by tokens".into())
            }
            // After the handshake, which is when a sender hears of it, the only thing that a receiver still has to say of TLS is that it does not
            // like our certificate.
            CloseReason::Transport(error) if error.is_by_peer() && error.alert().is_some() => {
                Self::NotLetIn("it goes by certificates".into())
            }
            reason => Self::SessionLost(printable(format!("the session was lost: {reason}"))),
        }
    }

    /// As the failure of one of several sessions.
    pub(crate) fn of(self, peer: Option<&str>) -> Self {
        let Some(peer) = peer else { return self };
        let named = |text: String| format!("{peer}: {text}");
        match self {
            Self::SessionLost(text) => Self::SessionLost(named(text)),
            Self::NotDelivered(text) => Self::NotDelivered(named(text)),
            other => other,
        }
    }

    /// A file that could not be read or written.
    pub(crate) fn file(verb: &str, path: &Path, error: impl fmt::Display) -> Self {
        Self::File(format!("cannot {verb} {}: {error}", path.display()))
    }

    /// The code the process ends with. The list is part of `--help`.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::File(_) => 3,
            Self::Unreachable(_) => 4,
            Self::Certificate(_) => 5,
            Self::Path(_) => 6,
            Self::SessionLost(_) => 7,
            Self::NotDelivered(_) => 8,
            Self::Refused(_) | Self::NotLetIn(_) | Self::WrongToken(_) => 9,
            Self::Interrupted(signal) | Self::Paused(signal) => signal.code(),
        }
    }

    /// Prints the line and gives the code.
    pub(crate) fn report(&self) -> ExitCode {
        say!("punctual: {self}");
        ExitCode::from(self.code())
    }
}

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done; also a receiver that was to keep going and was told to stop by a signal
  1  an unexpected error; with eval check and eval gauntlet: a threshold does not hold
  2  the command line, the configuration or the input makes no sense, or there are blocks in it that cannot be sent; so of a reply (recv --reply)
  3  a file cannot be read or written
  4  the host cannot be resolved, does not answer, or says that nobody listens at that port
  5  the certificate or fingerprint does not match
  6  no path can be bound, or no interface leads to the host
  7  the session was lost midway, and could not be had again (send --reconnect), or the receiver has not taken all at the end
  8  with --strict: some blocks were not delivered on time, or are not known to be taken or written
  9  the receiver refused the session: it is busy, or does not let this sender in
  128 and its number, where a signal came before everything was done: 129 SIGHUP, 130 Ctrl-C, 143 SIGTERM
A first signal ends in order: the peer is told, what is under way is finished, output is flushed. A second ends at once.";

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let text = error.to_string();
        match error {
            BuildError::Bind { .. }
            | BuildError::Interface { .. }
            | BuildError::Interfaces(_)
            | BuildError::Socket { .. } => Self::Path(text),
            BuildError::Qlog { .. } | BuildError::Tls(TlsError::File { .. }) => Self::File(text),
            BuildError::Tls(TlsError::NoSystemRoots(_)) => Self::Certificate(text),
            BuildError::Tls(_) => Self::Usage(text),
            _ => Self::Other(text),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let text = error.to_string();
        match error {
            ConnectError::ServerName(_) | ConnectError::RemoteAddress(_) => Self::Usage(text),
            ConnectError::Fingerprint { .. } | ConnectError::Certificate(_) => Self::Certificate(text),
            ConnectError::NoLocal(_) | ConnectError::UnknownLocal(_) => Self::Path(text),
            // As TLS names its alerts.
            ConnectError::Refused(reason) if reason.contains("client certificate") => Self::NotLetIn(reason),
            ConnectError::Refused(reason) => Self::Refused(reason),
            ConnectError::Failed(reason @ CloseReason::Peer { .. }) => Self::lost(&reason),
            ConnectError::TimedOut { .. } | ConnectError::NobodyListens { .. } | ConnectError::Failed(_) => {
                Self::Unreachable(text)
            }
            _ => Self::Other(text),
        }
    }
}
