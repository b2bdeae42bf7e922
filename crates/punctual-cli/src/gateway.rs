//! What `punctual tunnel` and `punctual vpn` have in common: one side calls, again and again, the other waits to be called; what sessions carry is for a [`Carrier`] to do.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use punctual::{Config, Endpoint, Session, Trust};
use punctual_gateway::tunnel::{ConfigError, Protocol, check_beside, close};
use tokio::task::JoinSet;

use crate::{
    activation,
    cli::{CommonArgs, DoorArgs, GatewayArgs},
    connect::{Caller, not_built, trust, ways},
    display::Display,
    exit::{Failure, Shown},
    happenings::Happenings,
    identity::{self, Loaded},
    metrics,
    notify::ServiceManager,
    route,
    say::say,
    server::{self, Server},
    signals::{Hangups, Interrupt},
    token,
    watch::Watch,
};

/// How long the end may take: for what is under way, and for the far gateways to be told.
const END_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait before another call.
const RETRY: Duration = Duration::from_millis(500);
/// The longest wait between calls that are in vain.
const RETRY_AT_MOST: Duration = Duration::from_secs(15);

/// For how long no path may have answered before another call is tried beside the session.
const CUT_OFF: Duration = Duration::from_secs(3);
/// How long the session before may take to be heard of once a call beside it is answered: some tries of its paths.
const GRACE: Duration = Duration::from_secs(1);

/// Carries something by sessions.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// We are about to call the far side at these addresses, by whichever way the system has to them.
    fn calling(&self, by_system: &[IpAddr]) -> impl Future<Output = ()> + Send {
        let _ = by_system;
        std::future::ready(())
    }

    /// By a session that we began, to its end.
    fn call(&self, session: Session) -> impl Future<Output = Failure> + Send;

    /// By a session that another began, to its end: how it ended, in words.
    fn answer(&self, session: Session) -> impl Future<Output = String> + Send;

    /// What has been carried, as OpenMetrics has it.
    fn metrics(&self) -> String;

    /// Waits until nothing can be carried any more, whatever sessions do: why.
    fn broken(&self) -> impl Future<Output = Failure> + Send {
        std::future::pending()
    }
}

/// A gateway: who it is, whom it calls or where it waits.
pub(crate) struct Gateway<'a, C> {
    pub(crate) carrier: Arc<C>,
    /// What runs at the far side: `tunnel`, `vpn`.
    pub(crate) command: &'static str,
    pub(crate) to: Option<&'a str>,
    pub(crate) door: &'a DoorArgs,
    /// Whom the side that waits lets in, if that is not for `door` to say.
    pub(crate) clients: Option<Trust>,
    pub(crate) args: &'a GatewayArgs,
    pub(crate) interrupt: Interrupt,
}

impl<C: Carrier> Gateway<'_, C> {
    pub(crate) fn say(&self, text: &str) {
        if !self.args.quiet {
            say!("{text}");
        }
    }

    /// Carries what there is until it is told to stop; meanwhile tells Prometheus, and reads settings again when it is asked to.
    pub(crate) async fn run(
        &self,
        config: Config,
        hangups: Option<Hangups>,
        reload: impl AsyncFn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let asked = match self.args.metrics {
            Some(address) => {
                let listener = metrics::bind(address).await?;
                self.say(&format!("metrics at http://{}/metrics", listener.local_addr().unwrap_or(address)));
                Some(listener)
            }
            None => None,
        };
        let mut manager = ServiceManager::from_environment();
        let told = async {
            match asked {
                Some(listener) => metrics::serve(listener, self.carrier.clone()).await,
                None => std::future::pending().await,
            }
        };
        let reloading = async {
            match hangups {
                Some(hangups) => self.keep_reloading(hangups, reload).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = self.carry_all(config, &mut manager) => ended,
            failure = self.carrier.broken() => Err(failure),
            never = told => never,
            never = reloading => never,
        }
    }

    /// Reads the settings file again whenever it is asked to, and never returns.
    async fn keep_reloading<Never>(
        &self,
        mut hangups: Hangups,
        reload: impl AsyncFn() -> Result<(), Failure>,
    ) -> Never {
        let manager = ServiceManager::from_environment();
        loop {
            hangups.next().await;
            manager.reloading();
            match reload().await {
                Ok(()) => self.say("settings read again"),
                Err(failure) => say!("punctual: settings not read again: {failure}"),
            }
            manager.ready();
        }
    }

    /// Carries what there is, whichever side calls.
    async fn carry_all(&self, config: Config, manager: &mut ServiceManager) -> Result<(), Failure> {
        match self.to {
            Some(to) => self.call(to, config, manager).await,
            None => self.wait(config, manager).await,
        }
    }

    /// Calls the other gateway, and again whenever the session is lost.
    async fn call(&self, to: &str, config: Config, manager: &mut ServiceManager) -> Result<(), Failure> {
        let Self { args: GatewayArgs { session, quiet, .. }, door, interrupt, .. } = self;
        let ways = ways(session, to)?;
        let mut builder = Endpoint::client().trust(trust(session)?).config(config);
        let mut shown = Shown { fingerprint: None, token: session.token.is_some() };
        if let Some(said) = &session.token {
            builder = builder.token(token::one(said)?);
        }
        if let Some(path) = &door.identity {
            let Loaded { identity, .. } = identity::load_or_make(path, &door.name)?;
            shown.fingerprint = Some(identity.fingerprint());
            builder = builder.identity(identity);
        }
        let endpoint = builder.build().map_err(not_built)?;
        let display = Display::new(&CommonArgs { quiet: *quiet, ..CommonArgs::default() });
        let caller = Caller {
            endpoint: &endpoint,
            ways: &ways,
            name: route::host(to)?,
            display: &display,
            command: self.command,
        };
        manager.ready();
        let called = tokio::select! {
            called = self.keep_calling(&caller) => called.map_err(|failure| failure.showing(shown)),
            never = manager.keep_telling() => never,
            _ = interrupt.first() => Ok(()),
        };
        manager.stopping();
        end(&endpoint).await;
        called
    }

    /// Calls, for as long as it makes sense.
    async fn keep_calling(&self, caller: &Caller<'_>) -> Result<(), Failure> {
        let (mut pause, mut was_there, mut next) = (RETRY, false, None);
        loop {
            let connected = match next.take() {
                Some(connected) => Ok(connected),
                None => self.connect(caller).await,
            };
            let failure = match connected {
                Ok((session, watch)) => {
                    self.say("connected");
                    let begun = Instant::now();
                    match self.carry(session, watch, caller).await {
                        Ok(another) => {
                            (was_there, next) = (true, Some(another));
                            continue;
                        }
                        Err(failure) => {
                            // That we are not let in is heard only once the handshake is done. A far side that is busy is there, and may have room later.
                            was_there |= !matches!(failure, Failure::NotLetIn(_) | Failure::WrongToken(_));
                            pause = pause_after(begun.elapsed(), pause);
                            failure
                        }
                    }
                }
                Err(failure) => failure,
            };
            // Whoever is not let in, or is somebody else, will not be otherwise in a moment; unless it was once.
            let hopeless = failure.is_at_the_door() || matches!(failure, Failure::Usage(_) | Failure::Certificate(_));
            if hopeless && !was_there {
                return Err(failure);
            }
            self.say(&format!("{failure}: calling again in {}", punctual::duration::spoken(pause)));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_AT_MOST);
        }
    }

    /// Calls once.
    async fn connect(&self, caller: &Caller<'_>) -> Result<(Session, Watch), Failure> {
        let choices = caller.look_up(self.args.session.connect_timeout()).await?;
        self.carrier.calling(&choices.by_system).await;
        caller.connect_by(choices).await
    }

    /// Carries what there is by one session, to its end; or until it is cut off and another is there to go on with.
    async fn carry(
        &self,
        session: Session,
        mut watch: Watch,
        caller: &Caller<'_>,
    ) -> Result<(Session, Watch), Failure> {
        let names = watch.names();
        let mut happenings = Happenings::new(session.events(), true);
        let lines = async {
            loop {
                let line = tokio::select! {
                    biased;
                    line = watch.next() => line,
                    happening = happenings.next() => happening.line(|id| names.get(id)),
                };
                caller.display.say(&line);
            }
        };
        tokio::select! {
            ended = self.carrier.call(session.clone()) => Err(ended),
            never = lines => never,
            another = self.another(&session, caller) => {
                self.say("the session was cut off, and a call is answered: going on with that");
                session.close(close::STOPPED, "cut off");
                Ok(another)
            }
        }
    }

    /// Calls again while a session is cut off, as it may be for its whole idle timeout: the far side may have been started anew, and know nothing of it.
    /// A session that is heard of again meanwhile goes on.
    async fn another(&self, session: &Session, caller: &Caller<'_>) -> (Session, Watch) {
        let mut pause = RETRY;
        loop {
            session.stranded(CUT_OFF).await;
            if session.close_reason().is_some() {
                // It was not cut off, it has ended; why, whoever carries by it finds out.
                return std::future::pending().await;
            }
            if let Ok((another, watch)) = self.connect(caller).await {
                // Links that come back carry the one and the other; then the first one's connections are worth more. If it is back, this waits for it to be cut off again.
                if tokio::time::timeout(2 * GRACE, session.stranded(GRACE)).await.is_ok() {
                    return (another, watch);
                }
                another.close(close::STOPPED, "the session before goes on");
                pause = RETRY;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_AT_MOST);
        }
    }

    /// Waits for other gateways.
    async fn wait(&self, config: Config, manager: &mut ServiceManager) -> Result<(), Failure> {
        let Self { args: GatewayArgs { serve, session, quiet, .. }, door, interrupt, carrier, .. } = self;
        let identity = server::identity(door)?;
        let tokens = session.token.as_ref().map_or(Ok(Vec::new()), |said| token::all(std::slice::from_ref(said)))?;
        let server = Server { listen: serve, door, clients: self.clients.clone(), config };
        let endpoint = server::listen(server, identity, tokens, *quiet)?;
        manager.ready();
        let serve = async {
            let mut sessions = JoinSet::new();
            loop {
                tokio::select! {
                    session = endpoint.accept() => match session {
                        Some(session) => {
                            let carrier = carrier.clone();
                            sessions.spawn(async move { carrier.answer(session).await });
                        }
                        None => return Err(Failure::Other("the endpoint has ended".into())),
                    },
                    Some(Ok(ended)) = sessions.join_next() => {
                        // The far side's words go to a terminal.
                        let why = ended.replace(char::is_control, " ");
                        self.say(&format!("a session has ended: {why}"));
                    }
                }
            }
        };
        let ended = tokio::select! {
            ended = serve => ended,
            never = manager.keep_telling() => never,
            _ = interrupt.first() => Ok(()),
        };
        manager.stopping();
        end(&endpoint).await;
        ended
    }
}

impl GatewayArgs {
    /// Whether there is room for all that is listened at: where the side that waits does so, where Prometheus asks, and `ports` of what is carried.
    pub(crate) fn check_ports(
        &self,
        waits: bool,
        ports: impl IntoIterator<Item = (Protocol, SocketAddr)>,
    ) -> Result<(), ConfigError> {
        // Where it waits by default, it does not if sockets are handed over.
        let waits = waits && !(self.serve.is_empty() && activation::are_there());
        let serve = if waits { server::addresses(&self.serve) } else { Vec::new() };
        let own = serve.into_iter().map(|address| (Protocol::Udp, address));
        let own = own.chain(self.metrics.map(|address| (Protocol::Tcp, address)));
        let mut all: Vec<_> = ports.into_iter().collect();
        for (protocol, address) in own {
            for &(_, other) in all.iter().filter(|(other, _)| *other == protocol) {
                check_beside(protocol, other, address)?;
            }
            all.push((protocol, address));
        }
        Ok(())
    }

    /// Whether what the settings of the session refer to is there, and is what it should be.
    pub(crate) fn check(&self, to: Option<&str>) -> Result<(), Failure> {
        self.session.endpoint_config(None)?;
        if let Some(to) = to {
            ways(&self.session, to)?;
        }
        trust(&self.session)?;
        if let Some(said) = &self.session.token {
            token::all(std::slice::from_ref(said))?;
        }
        Ok(())
    }
}

/// How long to wait before another call, after a session that lasted so long and the pause before it. What ends soon is likely to do so again: most of all where two
/// have one key, of which each takes the place of the other.
fn pause_after(lasted: Duration, pause: Duration) -> Duration {
    if lasted > RETRY_AT_MOST { RETRY } else { pause }
}

/// Without a file of settings there is nothing to read again, and SIGHUP is that of a terminal that goes away.
pub(crate) fn signals(settings: Option<&Path>) -> Result<(Interrupt, Option<Hangups>), Failure> {
    Ok(match settings {
        Some(_) => (Interrupt::listen_but_for_hangups()?, Some(Hangups::listen()?)),
        None => (Interrupt::listen()?, None),
    })
}

/// Ends all sessions, and gives the far gateways the time to hear of it.
async fn end(endpoint: &Endpoint) {
    endpoint.close(close::STOPPED, "the gateway was told to stop");
    let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_put_out_again_and_again_calls_more_and_more_seldom() {
        let long = RETRY * 8;
        assert_eq!(pause_after(Duration::from_secs(1), long), long);
        assert_eq!(pause_after(RETRY_AT_MOST + RETRY, long), RETRY);
    }
}
