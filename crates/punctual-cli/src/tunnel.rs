//! `punctual tunnel`.

mod settings;

use std::{path::Path, sync::Arc};

use punctual::Session;
use punctual_gateway::tunnel::{Ended, StartError, Tunnel, session_limits};

use crate::{
    cli::TunnelArgs,
    connect::{trust, ways},
    exit::Failure,
    gateway::{Carrier, Gateway},
    identity,
    signals::{Hangups, Interrupt},
    token,
};

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
    let gateway = Gateway {
        carrier: Arc::new(Tunnel::start(config).await?),
        command: "tunnel",
        to: args.to.as_deref(),
        serve: &args.serve,
        door: &args.door,
        clients: None,
        session: &args.session,
        quiet: args.quiet,
        interrupt,
    };
    announce(&gateway).await;
    let reload = async || {
        let (new, config) = settings::load(flags)?;
        if !settings::same_but_for_ports(&new, &args) {
            gateway.say("what was changed beside ports, classes, rules and limits takes a restart");
        }
        gateway.carrier.reload(config).await?;
        announce(&gateway).await;
        Ok(())
    };
    gateway.run(endpoint_config, args.metrics, hangups, reload).await
}

/// Says which ports there are.
async fn announce(gateway: &Gateway<'_, Tunnel>) {
    for (protocol, address, name) in gateway.carrier.ports().await {
        gateway.say(&format!("{name} at {protocol}:{address}"));
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

impl Carrier for Tunnel {
    async fn call(&self, session: Session) -> Failure {
        match Self::call(self, session).await {
            Ended::Closed(reason) => Failure::lost(&reason),
            ended => Failure::SessionLost(ended.to_string()),
        }
    }

    async fn answer(&self, session: Session) -> String {
        Self::answer(self, session).await.to_string()
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }
}
