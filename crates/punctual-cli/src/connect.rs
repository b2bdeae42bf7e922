//! From settings to a session: whom to trust, from where, and what may be wrong if nothing comes of it.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use punctual::{
    Bind, CloseReason, ConnectError, Endpoint, Fingerprint, Route, RouteError, Routes, Session, TlsError, Trust,
    duration::spoken,
};

use crate::{
    config::SessionSettings,
    display::Display,
    exit::Failure,
    identity,
    route::{self, From, Way},
    watch::Watch,
};

/// The ways to the receiver.
pub(crate) fn ways(settings: &SessionSettings, to: &str) -> Result<Vec<Way>, Failure> {
    let ways: Vec<Way> = match &settings.path[..] {
        [] => vec![Way::of_system(to)],
        paths => paths.iter().map(|path| Way::parse(path, to)).collect::<Result<_, _>>()?,
    };
    ways.iter().try_for_each(|way| route::host(&way.to).map(drop))?;
    Ok(ways)
}

/// Who calls whom, and how.
pub(crate) struct Caller<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) ways: &'a [Way],
    /// The name that the receiver's certificate bears.
    pub(crate) name: &'a str,
    pub(crate) display: &'a Display,
    /// What runs there: `recv`, `tunnel`.
    pub(crate) command: &'static str,
}

impl Caller<'_> {
    /// Starts a session.
    pub(crate) async fn connect(&self, within: Duration) -> Result<(Session, Watch), Failure> {
        self.connect_by(self.look_up(within).await?).await
    }

    /// What there is to be tried, by the names as they are resolved now.
    pub(crate) async fn look_up(&self, within: Duration) -> Result<Choices, Failure> {
        choices(self.ways, within, self.display).await
    }

    /// Starts a session by what was found.
    pub(crate) async fn connect_by(&self, choices: Choices) -> Result<(Session, Watch), Failure> {
        connect(self, choices).await
    }
}

/// What to try, one after the other.
pub(crate) struct Choices {
    routes: Vec<Routes>,
    /// Addresses of the far side to which the system chooses the way: by no interface that was named.
    pub(crate) by_system: Vec<IpAddr>,
    /// How long there is for all of them, and until when.
    within: Duration,
    due: Instant,
}

/// What the receiver's certificate has to be.
pub(crate) fn trust(settings: &SessionSettings) -> Result<Trust, Failure> {
    if let Some(text) = &settings.fingerprint {
        let fingerprint: Fingerprint =
            text.parse().map_err(|error| Failure::Usage(format!("--fingerprint: {error}")))?;
        return Ok(fingerprint.into());
    }
    settings.ca.as_deref().map_or(Ok(Trust::system()), identity::authorities)
}

/// That no endpoint could be built, in terms of the flags that help.
pub(crate) fn not_built(error: punctual::BuildError) -> Failure {
    match error {
        punctual::BuildError::Tls(TlsError::NoSystemRoots(reason)) => Failure::Certificate(format!(
            "this system has no certificates to trust ({reason}); give --fingerprint, as `punctual recv` prints it, or --ca"
        )),
        error => error.into(),
    }
}

/// Starts the session over the first of the ways that answers, and has all of them kept as its paths. Of a receiver with several addresses
/// that a way leads to, one is tried after the other.
async fn connect(caller: &Caller<'_>, choices: Choices) -> Result<(Session, Watch), Failure> {
    let Caller { endpoint, name, display, command, .. } = *caller;
    let Choices { routes: choices, within, due, .. } = choices;
    let mut failure = None;
    for (routes, left) in choices.iter().zip((1..=choices.len() as u32).rev()) {
        let share = due.saturating_duration_since(Instant::now()) / left;
        let attempt = endpoint.connect_over(routes.clone(), name).timeout(share);
        let mut watch = Watch::new(attempt.events());
        let connected = async {
            let mut attempt = std::pin::pin!(attempt.into_future());
            loop {
                tokio::select! {
                    connected = &mut attempt => return connected,
                    line = watch.next() => display.say(&line),
                }
            }
        };
        match connected.await {
            // Routes are kept without their handle.
            Ok((session, _)) => return Ok((session, watch)),
            // A server that answers with the wrong certificate is not to be asked again.
            Err(error @ (ConnectError::Fingerprint { .. } | ConnectError::Certificate(_))) => {
                return Err(not_connected(error, command));
            }
            // What finding the address took is told, too: all the time that there was.
            Err(ConnectError::NoRoute { failures, .. }) if choices.len() == 1 => {
                failure = Some(no_route(within, &failures, command));
            }
            Err(error) => failure = Some(not_connected(error, command)),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::Unreachable("there is no way to the receiver".into())))
}

/// What to try, one after the other: all ways at once, to the first, the second, … of the addresses that each can lead to.
async fn choices(ways: &[Way], within: Duration, display: &Display) -> Result<Choices, Failure> {
    let due = Instant::now() + within;
    let (mut lists, mut failure, mut by_system) = (Vec::new(), None, Vec::new());
    for way in ways {
        let found = route::resolve(way, within).await;
        if !matches!(way.from, From::Bind(Bind::Interface(_))) {
            by_system.extend(found.iter().flatten().map(SocketAddr::ip));
        }
        match found.and_then(|found| leading(way, &found)) {
            Ok(routes) => lists.push(routes),
            Err(error) => {
                if ways.len() > 1 {
                    display.say(&format!("going on without a path: {error}"));
                }
                failure.get_or_insert(error);
            }
        }
    }
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    match failure {
        Some(failure) if longest == 0 => Err(failure),
        _ => {
            let at = |n| lists.iter().filter_map(|list| list.get(n).or(list.last())).fold(Routes::new(), merged);
            by_system.sort_unstable();
            by_system.dedup();
            Ok(Choices { routes: (0..longest).map(at).collect(), by_system, within, due })
        }
    }
}

fn merged(all: Routes, more: &Routes) -> Routes {
    all.and(more.clone())
}

/// A way to each of the receiver's addresses that it may lead to: those to which it leads now, if there are any.
fn leading(way: &Way, addresses: &[SocketAddr]) -> Result<Vec<Routes>, Failure> {
    let all: Vec<Routes> = addresses.iter().filter_map(|&address| way.routes_to(address)).collect();
    match &all[..] {
        [] => Err(ConnectError::NoLocal(addresses[0]).into()),
        // What is down now may come up later.
        _ if all.iter().any(Routes::any_is_there) => Ok(all.into_iter().filter(Routes::any_is_there).collect()),
        [first, ..] => Ok(vec![first.clone()]),
    }
}

/// Why there is no session, and which flag or which look at the other side helps.
fn not_connected(error: ConnectError, command: &str) -> Failure {
    match error {
        ConnectError::NoRoute { after, failures } => no_route(after, &failures, command),
        ConnectError::NobodyListens { remote } => Failure::Unreachable(format!(
            "no answer from {remote}: its host says that nobody listens at that port; is `punctual {command}` running there, on port {}?",
            remote.port()
        )),
        ConnectError::Certificate(reason) => Failure::Certificate(format!(
            "the receiver's certificate is not trusted ({reason}); give --fingerprint, as `punctual {command}` prints it, or --ca"
        )),
        ConnectError::Fingerprint { presented } => Failure::Certificate(format!(
            "the receiver's certificate has fingerprint {presented}, which is not the one expected: give that with --fingerprint only if \
             `punctual {command}` there prints it (one without --identity has a new one each time)"
        )),
        error => error.into(),
    }
}

/// That nothing came of any route, each for its reason.
fn no_route(after: Duration, failures: &[(Route, RouteError)], command: &str) -> Failure {
    let after = spoken(after);
    let cannot_leave = |(_, why): &(Route, RouteError)| matches!(why, RouteError::NoInterface | RouteError::Bind(_));
    let reasons = failures.iter().map(|(route, why)| format!("{}: {why}", route::name(&route.bind)));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let hint = |port: u16| {
        format!("is `punctual {command}` running there, on port {port}, and does a firewall let UDP through?")
    };
    match failures {
        [] => Failure::Path(format!("within {after}, no interface led to the receiver (--path auto)")),
        _ if failures.iter().all(cannot_leave) => Failure::Path(format!("no path within {after}: {reasons}")),
        [(Route { remote, .. }, RouteError::NoAnswer { cause })] => {
            let heard = cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
            Failure::Unreachable(format!("no answer from {remote} within {after}{heard}: {}", hint(remote.port())))
        }
        [(Route { remote, .. }, _), ..] => {
            Failure::Unreachable(format!("no answer from {remote} within {after} ({reasons}): {}", hint(remote.port())))
        }
    }
}

/// The session ended before its time.
pub(crate) fn lost(reason: &CloseReason, idle_timeout: Duration) -> Failure {
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
    fn each_path_is_a_way_of_its_own() {
        let settings = SessionSettings {
            path: vec!["eth0".into(), "eth0=b:2".into(), "auto".into()],
            ..SessionSettings::default()
        };
        let ways = ways(&settings, "a:1").unwrap();
        assert_eq!(ways.iter().map(|way| &way.to[..]).collect::<Vec<_>>(), ["a:1", "b:2", "a:1"]);
    }

    #[test]
    fn a_way_leads_to_addresses_it_can_reach_and_waits_for_one_if_there_is_none() {
        let addresses = ["[::1]:9".parse().unwrap(), "127.0.0.1:9".parse().unwrap()];
        let leading = |path: &str| leading(&Way::parse(path, "host:9").unwrap(), &addresses);
        assert_eq!(
            leading("127.0.0.1").unwrap(),
            [Way::parse("127.0.0.1", "").unwrap().routes_to(addresses[1]).unwrap()]
        );
        assert_eq!(leading("nosuchif0").unwrap().len(), 1);
        let way = Way::parse("::1", "host:9").unwrap();
        assert!(super::leading(&way, &addresses[1..]).is_err(), "another version of IP");
    }

    #[test]
    fn what_helps_is_named() {
        let after = Duration::from_nanos(4_999_992_689);
        let route = |end: &str| Route::new(end.parse().unwrap(), "192.0.2.7:4433".parse().unwrap());
        let silent = RouteError::NoAnswer { cause: None };
        let told = |failures| not_connected(ConnectError::NoRoute { after, failures }, "recv");
        let text = told(vec![(route("0.0.0.0"), silent.clone())]).to_string();
        assert!(text.starts_with("no answer from 192.0.2.7:4433 within 5 s: is `punctual recv` running"), "{text}");
        let text = told(vec![(route("eth0"), silent), (route("w0"), RouteError::NoInterface)]).to_string();
        assert!(text.starts_with("no answer from 192.0.2.7:4433 within 5 s (eth0: no answer; w0: the inter"), "{text}");
        assert_eq!(told(vec![(route("w0"), RouteError::NoInterface)]).code(), 6);
        assert_eq!(told(vec![]).code(), 6);
        let failure = not_connected(ConnectError::Certificate("UnknownIssuer".into()), "recv");
        assert_eq!(failure.code(), 5);
        let text = failure.to_string();
        assert!(["UnknownIssuer", "--fingerprint", "--ca"].iter().all(|word| text.contains(word)), "{text}");
        let text = lost(&CloseReason::TimedOut, Duration::from_secs(10)).to_string();
        assert!(text.ends_with("for 10 s (--idle-timeout)"), "{text}");
    }
}
