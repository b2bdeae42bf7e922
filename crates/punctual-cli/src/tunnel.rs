//! `punctual tunnel`.

mod settings;

use std::{path::Path, sync::Arc};

use punctual::Session;
use punctual_gateway::tunnel::{Ended, StartError, Tunnel, session_limits};

use crate::{
    cli::TunnelArgs,
    exit::Failure,
    gateway::{Carrier, Gateway, signals},
    identity,
    say::say,
};

/// Carries ports until it is told to stop.
pub(crate) async fn run(flags: &TunnelArgs) -> Result<(), Failure> {
    let (args, config) = settings::load(flags)?;
    let mut endpoint_config = args.gateway.session.endpoint_config(args.gateway.qlog.as_deref())?;
    endpoint_config.session.limits = session_limits(endpoint_config.session.limits);
    let (interrupt, hangups) = signals(args.config.as_deref())?;
    let gateway = Gateway {
        carrier: Arc::new(Tunnel::start(config).await?),
        command: "tunnel",
        to: args.to.as_deref(),
        door: &args.door,
        clients: None,
        args: &args.gateway,
        interrupt,
    };
    announce(&gateway).await;
    let reload = async || {
        let (new, config) = settings::load(flags)?;
        gateway.carrier.reload(config).await?;
        if !settings::same_but_for_ports(&new, &args) {
            gateway.say("what was changed beside ports, classes, rules and limits takes a restart");
        }
        announce(&gateway).await;
        Ok(())
    };
    gateway.run(endpoint_config, hangups, reload).await
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
    args.gateway.check(args.to.as_deref())?;
    if let Some(identity) = &args.door.identity {
        identity::check(identity, &args.door.name)?;
    } else if args.to.is_none() {
        identity::make(&args.door.name)?;
    }
    if let Some(authorities) = &args.door.client_ca {
        identity::authorities(authorities)?;
    }
    say!("{}: {} to listen at, {} to forward", file.display(), config.listen.len(), config.forward.len());
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
