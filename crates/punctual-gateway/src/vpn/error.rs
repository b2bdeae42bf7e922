//! What may go wrong with a VPN, and how its sessions end.

use std::io;

use punctual::{CloseReason, Session};
use thiserror::Error;

use super::{close, config::ConfigError, wire::WireError};

/// A VPN could not be started, or not be made what it is to be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device cannot have its addresses and routes.
    #[error("the device cannot be set up: {0}")]
    Device(#[source] io::Error),
    /// What a server gives from, and what its device is, is not changed while it runs.
    #[error("the addresses of a server, and which side it is, are not changed while it runs: start it again")]
    Restart,
}

/// How a session of a VPN ended.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Ended {
    /// It was closed, or lost.
    #[error("{0}")]
    Closed(CloseReason),
    /// The far side has not greeted: it is no VPN.
    #[error("the far side has not greeted; is it `punctual vpn`?")]
    NoGreeting,
    /// The far side broke the VPN's protocol.
    #[error("the far side broke the VPN's protocol: {0}")]
    Violation(#[from] Violation),
    /// A client has shown no certificate, or one that is not let in.
    #[error("its certificate is not let in")]
    Unknown,
    /// There are as many clients as are allowed.
    #[error("as many clients as are allowed are here already")]
    Full,
    /// All addresses are given to others.
    #[error("no address is left for it")]
    NoAddress,
    /// Our device cannot have the addresses that we were given.
    #[error("the device cannot be set up: {0}")]
    Device(String),
    /// Of the addresses that we were given none is taken.
    #[error("no address that the server gives is taken: {0}")]
    NotAccepted(String),
}

/// What the far side may not say.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A block is no word.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A word is not for this side to hear, or not any more.
    #[error("it greets where it should not")]
    Greeting,
}

/// Tells the far side why a session ends.
pub(super) fn end(session: &Session, ended: &Ended) {
    let code = match ended {
        Ended::Closed(_) => return,
        Ended::Violation(_) => close::VIOLATION,
        _ => close::REFUSED,
    };
    let words = match ended {
        Ended::NoGreeting => "this is a VPN (`punctual vpn`), and was not greeted".into(),
        Ended::Full => "busy: as many clients as are allowed are here already".into(),
        Ended::Device(_) => "the client cannot set up its device".into(),
        Ended::NotAccepted(_) => "the client does not take the addresses that it was given".into(),
        ended => ended.to_string(),
    };
    session.close(code, &words);
}
