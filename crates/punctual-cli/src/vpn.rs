//! `punctual vpn`.

mod settings;

use std::{io, net::IpAddr, path::Path, sync::Arc};

use punctual::{Session, Trust};
use punctual_gateway::vpn::{Ended, StartError, Tun, Vpn, session_limits};

use crate::{
    cli::VpnArgs,
    exit::Failure,
    gateway::{Carrier, Gateway, signals},
    identity::{self, Loaded},
    say::say,
};

pub(crate) use settings::is_of;

/// What the device is called if nothing is said of it.
const DEVICE: &str = "punctual0";

/// Carries packets until it is told to stop.
pub(crate) async fn run(flags: &VpnArgs) -> Result<(), Failure> {
    let (args, config) = settings::load(flags)?;
    args.gateway.check(args.to.as_deref())?;
    let mut endpoint_config = args.gateway.session.endpoint_config(args.gateway.qlog.as_deref())?;
    endpoint_config.session.limits = session_limits(endpoint_config.session.limits);
    let (interrupt, hangups) = signals(args.config.as_deref())?;
    let door = settings::door(&args);
    if let (Some(_), Some(path)) = (&args.to, &args.identity) {
        let Loaded { identity, .. } = identity::load_or_make(path, &args.name)?;
        if !args.gateway.quiet {
            // Who runs the server has to know it before we are let in; and may ask again.
            say!("our fingerprint, for the server to let us in: {}", identity.fingerprint());
        }
    }
    let name = args.device.as_deref().unwrap_or(DEVICE);
    let device = Tun::open(name).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => " (that takes root, or CAP_NET_ADMIN and access to /dev/net/tun)",
            _ => "",
        };
        Failure::Path(format!("cannot make the device {name}: {error}{hint}"))
    })?;
    let vpn = Vpn::start(device, config).await?;
    let clients = args.to.is_none().then(|| Trust::from(vpn.access_list()));
    let gateway = Gateway {
        carrier: Arc::new(vpn),
        command: "vpn",
        to: args.to.as_deref(),
        door: &door,
        clients,
        args: &args.gateway,
        interrupt,
    };
    gateway.say(&format!("device {}", gateway.carrier.device().name()));
    let reload = async || {
        let (new, config) = settings::load(flags)?;
        gateway.carrier.reload(config).await?;
        match &settings::take_a_restart(&new, &args)[..] {
            [] => {}
            changed => gateway.say(&format!("{} changed, which takes a restart", changed.join(", "))),
        }
        Ok(())
    };
    gateway.run(endpoint_config, hangups, reload).await
}

/// Says what is wrong with a settings file.
pub(crate) fn check(file: &Path) -> Result<(), Failure> {
    let (args, config) = settings::load(&VpnArgs::of_file(file))?;
    args.gateway.check(args.to.as_deref())?;
    match &args.identity {
        Some(identity) => identity::check(identity, &args.name)?,
        None => drop(identity::make(&args.name)?),
    }
    match config.server {
        Some(server) => {
            let (clients, routes) = (server.clients.len(), server.routes.len());
            say!("{}: a server of {clients} clients, with {routes} routes", file.display());
        }
        None => say!("{}: a client", file.display()),
    }
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

impl Carrier for Vpn<Tun> {
    async fn calling(&self, by_system: &[IpAddr]) {
        self.lead_around(by_system).await;
    }

    async fn call(&self, session: Session) -> Failure {
        match Self::call(self, session).await {
            Ended::Closed(reason) => Failure::lost(&reason),
            Ended::Device(error) => Failure::Path(format!("the device cannot be set up: {error}")),
            ended => Failure::SessionLost(ended.to_string()),
        }
    }

    async fn answer(&self, session: Session) -> String {
        Self::answer(self, session).await.to_string()
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }

    async fn broken(&self) -> Failure {
        let why = self.gone().await;
        Failure::Path(format!("the device is gone, as if somebody had deleted it: {why}"))
    }
}
