//! `punctual tunnel`.

mod settings;

use std::{path::Path, sync::Arc, time::Duration};

use punctual::{Config, Endpoint, Session};
use punctual_gateway::tunnel::{self, Ended, StartError, Tunnel, session_limits};
use tokio::task::JoinSet;

use crate::{
    cli::{CommonArgs, TunnelArgs},
    connect::{Caller, not_built, trust, ways},
    display::Display,
    exit::{Failure, Shown},
    identity::{self, Loaded},
    metrics,
    notify::ServiceManager,
    route,
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

/// Carries ports until it is told to stop.
pub(crate) async fn run(flags: &TunnelArgs) -> Result<(), Failure> {
    let (args, config) = settings::load(flags)?;
    let mut endpoint_config = args.session.endpoint_config(args.qlog.as_deref())?;
    endpoint_config.session.limits = session_limits(endpoint_config.session.limits);
    // Without a file there is nothing to read again, and SIGHUP is that of a terminal that goes away.
    let (interrupt, hangups) = match &args.config {
        Some(_) => (Interrupt::listen_but_for_hangups()?, Some(Hangups::listen()?)),
        None => (Interrupt::listen()?, None),
    };
    let tunnel = Arc::new(Tunnel::start(config).await?);
    let gateway = Gateway { tunnel, args: &args, interrupt };
    gateway.announce().await;
    let asked = match args.metrics {
        Some(address) => {
            let listener = metrics::bind(address).await?;
            gateway.say(&format!("metrics at http://{}/metrics", listener.local_addr().unwrap_or(address)));
            Some(listener)
        }
        None => None,
    };
    let mut manager = ServiceManager::from_environment();
    let told = async {
        match asked {
            Some(listener) => metrics::serve(listener, gateway.tunnel.clone()).await,
            None => std::future::pending().await,
        }
    };
    let reloading = async {
        match hangups {
            Some(hangups) => gateway.keep_reloading(flags, hangups).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = gateway.carry_all(endpoint_config, &mut manager) => ended,
        never = told => never,
        never = reloading => never,
    }
}

/// Says what is wrong with a settings file.
pub(crate) fn check(file: &Path) -> Result<(), Failure> {
    let flags = TunnelArgs::of_file(file);
    let (args, config) = settings::load(&flags)?;
    args.session.endpoint_config(None)?;
    if let Some(to) = &args.to {
        ways(&args.session, to)?;
    }
    // What it refers to is there, and is what it should be.
    trust(&args.session)?;
    if let Some(said) = &args.session.token {
        token::all(std::slice::from_ref(said))?;
    }
    if let Some(authorities) = &args.door.client_ca {
        identity::authorities(authorities)?;
    }
    eprintln!("{}: {} to listen at, {} to forward", file.display(), config.listen.len(), config.forward.len());
    Ok(())
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Config(error) => Self::Usage(error.to_string()),
            error => Self::Path(error.to_string()),
        }
    }
}

struct Gateway<'a> {
    tunnel: Arc<Tunnel>,
    args: &'a TunnelArgs,
    interrupt: Interrupt,
}

impl Gateway<'_> {
    /// Says which ports there are.
    async fn announce(&self) {
        for (protocol, address, name) in self.tunnel.ports().await {
            self.say(&format!("{name} at {protocol}:{address}"));
        }
    }

    fn say(&self, text: &str) {
        if !self.args.quiet {
            eprintln!("{text}");
        }
    }

    /// Carries what there is, whichever side calls.
    async fn carry_all(&self, config: Config, manager: &mut ServiceManager) -> Result<(), Failure> {
        match &self.args.to {
            Some(to) => self.call(to, config, manager).await,
            None => self.wait(config, manager).await,
        }
    }

    /// Reads the settings file again whenever it is asked to, and never returns.
    async fn keep_reloading<Never>(&self, flags: &TunnelArgs, mut hangups: Hangups) -> Never {
        let manager = ServiceManager::from_environment();
        loop {
            hangups.next().await;
            manager.reloading();
            match self.reload(flags).await {
                Ok(()) => self.say("settings read again"),
                Err(failure) => eprintln!("punctual: settings not read again: {failure}"),
            }
            manager.ready();
        }
    }

    async fn reload(&self, flags: &TunnelArgs) -> Result<(), Failure> {
        let (args, config) = settings::load(flags)?;
        if !settings::same_but_for_ports(&args, self.args) {
            self.say("what was changed beside ports, classes, rules and limits takes a restart");
        }
        self.tunnel.reload(config).await?;
        self.announce().await;
        Ok(())
    }

    /// Calls the other gateway, and again whenever the session is lost.
    async fn call(&self, to: &str, config: Config, manager: &mut ServiceManager) -> Result<(), Failure> {
        let Self { args, interrupt, .. } = self;
        let ways = ways(&args.session, to)?;
        let mut builder = Endpoint::client().trust(trust(&args.session)?).config(config);
        let mut shown = Shown { fingerprint: None, token: args.session.token.is_some() };
        if let Some(said) = &args.session.token {
            builder = builder.token(token::one(said)?);
        }
        if let Some(path) = &args.door.identity {
            let Loaded { identity, .. } = identity::load_or_make(path, &args.door.name)?;
            shown.fingerprint = Some(identity.fingerprint());
            builder = builder.identity(identity);
        }
        let endpoint = builder.build().map_err(not_built)?;
        let display = Display::new(&CommonArgs { quiet: args.quiet, ..CommonArgs::default() });
        let caller =
            Caller { endpoint: &endpoint, ways: &ways, name: route::host(to)?, display: &display, command: "tunnel" };
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
        let mut pause = RETRY;
        let mut was_there = false;
        loop {
            let failure = match caller.connect(self.args.session.connect_timeout()).await {
                Ok((session, watch)) => {
                    self.say("connected");
                    (pause, was_there) = (RETRY, true);
                    self.carry(session, watch, caller.display).await
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

    /// Carries what there is by one session, to its end.
    async fn carry(&self, session: Session, mut watch: Watch, display: &Display) -> Failure {
        let lines = async {
            loop {
                let line = watch.next().await;
                display.say(&line);
            }
        };
        tokio::select! {
            ended = self.tunnel.call(session) => failure(ended),
            never = lines => never,
        }
    }

    /// Waits for other gateways.
    async fn wait(&self, config: Config, manager: &mut ServiceManager) -> Result<(), Failure> {
        let Self { args, interrupt, tunnel } = self;
        let identity = server::identity(&args.door)?;
        let tokens =
            args.session.token.as_ref().map_or(Ok(Vec::new()), |said| token::all(std::slice::from_ref(said)))?;
        let server = Server { listen: &args.serve, door: &args.door, config };
        let endpoint = server::listen(server, identity, tokens, args.quiet)?;
        manager.ready();
        let serve = async {
            let mut sessions = JoinSet::new();
            loop {
                tokio::select! {
                    session = endpoint.accept() => match session {
                        Some(session) => {
                            let tunnel = tunnel.clone();
                            sessions.spawn(async move { tunnel.answer(session).await });
                        }
                        None => return Err(Failure::Other("the endpoint has ended".into())),
                    },
                    Some(Ok(ended)) = sessions.join_next() => {
                        // The far side's words go to a terminal.
                        let why = ended.to_string().replace(char::is_control, " ");
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

/// Ends all sessions, and gives the far gateways the time to hear of it.
async fn end(endpoint: &Endpoint) {
    endpoint.close(tunnel::close::STOPPED, "the gateway was told to stop");
    let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
}

/// How a session ended, as the program has it.
fn failure(ended: Ended) -> Failure {
    match ended {
        Ended::Closed(reason) => Failure::lost(&reason),
        ended => Failure::SessionLost(ended.to_string()),
    }
}
