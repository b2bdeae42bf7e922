//! From settings to a session: whom to trust, from where, and what may be wrong if nothing comes of it.

use std::time::{Duration, Instant};

use punctual::{
    Bind, CloseReason, ConnectError, Endpoint, Fingerprint, LocalId, OpenPathError, Path, Session, TlsError, Trust,
};

use crate::{
    config::{Settings, spoken},
    exit::Failure,
    identity,
    route::{self, Route},
};

/// The ways to the receiver, the first one first.
pub(super) fn routes(settings: &Settings, to: &str) -> Result<Vec<Route>, Failure> {
    let routes: Vec<Route> = match &settings.path[..] {
        [] => vec![Route { local: None, to: to.to_owned() }],
        paths => paths.iter().map(|path| Route::parse(path, to)).collect::<Result<_, _>>()?,
    };
    routes.iter().try_for_each(|route| route::host(&route.to).map(drop))?;
    Ok(routes)
}

/// Our ends of these ways, each once.
pub(super) fn distinct_binds(routes: &[Route]) -> Vec<Bind> {
    let mut binds = Vec::new();
    for bind in routes.iter().filter_map(|route| route.local.as_ref()) {
        if !binds.contains(bind) {
            binds.push(bind.clone());
        }
    }
    binds
}

/// What the receiver's certificate has to be.
pub(super) fn trust(settings: &Settings) -> Result<Trust, Failure> {
    if let Some(text) = &settings.fingerprint {
        let fingerprint: Fingerprint =
            text.parse().map_err(|error| Failure::Usage(format!("--fingerprint: {error}")))?;
        return Ok(fingerprint.into());
    }
    settings.ca.as_deref().map_or(Ok(Trust::system()), identity::authorities)
}

/// That no endpoint could be built, in terms of the flags that help.
pub(super) fn not_built(error: punctual::BuildError) -> Failure {
    match error {
        punctual::BuildError::Tls(TlsError::NoSystemRoots(reason)) => Failure::Certificate(format!(
            "this system has no certificates to trust ({reason}); give --fingerprint, as `punctual recv` prints it, or --ca"
        )),
        error => error.into(),
    }
}

/// Starts the session over the first route, trying one address of the receiver after the other.
pub(super) async fn connect(
    endpoint: &Endpoint,
    route: &Route,
    name: &str,
    within: Duration,
) -> Result<Session, Failure> {
    let due = Instant::now() + within;
    let addresses = route::resolve(&route.to, within).await?;
    let mut failure = None;
    for (&address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let mut attempt = endpoint.connect(address, name).timeout(due.saturating_duration_since(Instant::now()) / left);
        if let Some(bind) = &route.local {
            let Some(local) = endpoint.local(bind, address) else {
                failure.get_or_insert(ConnectError::NoLocal(address).into());
                continue;
            };
            attempt = attempt.from(local);
        }
        match attempt.await {
            Ok(session) => return Ok(session),
            // A server that answers with the wrong certificate is not to be asked again.
            Err(error @ (ConnectError::Fingerprint { .. } | ConnectError::Certificate(_))) => {
                return Err(not_connected(error));
            }
            Err(error) => failure = Some(not_connected(error)),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::Unreachable(format!("{} has no address", route.to))))
}

/// Why there is no session, and which flag or which look at the other side helps.
fn not_connected(error: ConnectError) -> Failure {
    match error {
        ConnectError::TimedOut { remote, after, cause } => {
            let (after, port) = (spoken(after), remote.port());
            let heard = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            Failure::Unreachable(format!(
                "no answer from {remote} within {after}{heard}: is `punctual recv` running there, on port {port}, and does a firewall let UDP through?"
            ))
        }
        ConnectError::Certificate(reason) => Failure::Certificate(format!(
            "the receiver's certificate is not trusted ({reason}); give --fingerprint, as `punctual recv` prints it, or --ca"
        )),
        ConnectError::Fingerprint { presented } => Failure::Certificate(format!(
            "the receiver's certificate has fingerprint {presented}, which is not the one expected: give that with --fingerprint only if \
             `punctual recv` there prints it (a receiver without --identity has a new one each time)"
        )),
        error => error.into(),
    }
}

/// Opens another path of the session.
pub(super) async fn open_path(
    session: &Session,
    endpoint: &Endpoint,
    route: &Route,
    within: Duration,
) -> Result<Path, Failure> {
    let addresses = route::resolve(&route.to, within).await?;
    let local_to =
        |address| -> Option<(LocalId, _)> { Some((endpoint.local(route.local.as_ref()?, address)?, address)) };
    let Some((local, address)) = addresses.iter().find_map(|&address| local_to(address)) else {
        return Err(ConnectError::NoLocal(addresses[0]).into());
    };
    session.open_path(local, address).await.map_err(|error| {
        Failure::Path(match error {
            OpenPathError::TimedOut { remote, after } => {
                format!("nothing came back from {remote} over it within {}", spoken(after))
            }
            error => error.to_string(),
        })
    })
}

/// The session ended before its time.
pub(super) fn lost(reason: &CloseReason, idle_timeout: Duration) -> Failure {
    match reason {
        CloseReason::TimedOut => Failure::SessionLost(format!(
            "the session was lost: nothing was heard from the receiver for {} (--idle-timeout)",
            spoken(idle_timeout)
        )),
        reason => Failure::lost(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_used_for_two_paths_is_bound_once() {
        let settings = Settings { path: vec!["eth0".into(), "eth0=b:2".into(), "wlan0".into()], ..Settings::default() };
        let routes = routes(&settings, "a:1").unwrap();
        assert_eq!(routes.iter().map(|route| &route.to[..]).collect::<Vec<_>>(), ["a:1", "b:2", "a:1"]);
        assert_eq!(distinct_binds(&routes).len(), 2);
    }

    #[test]
    fn what_helps_is_named() {
        let remote = "192.0.2.7:4433".parse().unwrap();
        let after = Duration::from_nanos(4_999_992_689);
        let text = not_connected(ConnectError::TimedOut { remote, after, cause: None }).to_string();
        assert!(text.starts_with("no answer from 192.0.2.7:4433 within 5 s: is `punctual recv` running"), "{text}");
        let failure = not_connected(ConnectError::Certificate("UnknownIssuer".into()));
        assert_eq!(failure.code(), 5);
        let text = failure.to_string();
        assert!(["UnknownIssuer", "--fingerprint", "--ca"].iter().all(|word| text.contains(word)), "{text}");
        let text = lost(&CloseReason::TimedOut, Duration::from_secs(10)).to_string();
        assert!(text.ends_with("for 10 s (--idle-timeout)"), "{text}");
    }
}
