//! Settings of a VPN, from flags and from a TOML file.

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf};

use ipnet::IpNet;
use punctual_gateway::{
    class::ClassSettings,
    vpn::{AcceptRoutes, Client, Config, DEFAULT_MTU, Limits, Rule, Server, check_device_name},
};
use serde::Deserialize;

use crate::{
    cli::{DoorArgs, GatewayArgs, VpnArgs, parse_listen},
    config::{FOR_CALLERS, SessionSettings, check_waiting, read_file, senseless, wrong},
    exit::Failure,
    route,
    scope::parse_with_port,
};

/// What a file says: for flags, by their names; `session` has those that `punctual send --config` takes for its session, too.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    to: Option<String>,
    serve: Vec<String>,
    identity: Option<PathBuf>,
    name: Vec<String>,
    metrics: Option<String>,
    session: SessionSettings,
    vpn: Table,
    client: Vec<Client>,
    class: BTreeMap<String, ClassSettings>,
    rule: Vec<Rule>,
    limits: Limits,
}

/// The table by which a file is known to be of a VPN.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Table {
    device: Option<String>,
    address: Vec<IpNet>,
    route: Vec<IpNet>,
    accept_routes: Option<AcceptRoutes>,
    mtu: Option<u16>,
    client_to_client: bool,
}

/// Whether a file is of a VPN: it has a table `vpn`.
pub(crate) fn is_of(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("vpn"))
}

/// The flags over what the file says, if there is one; and what is to be carried.
pub(super) fn load(flags: &VpnArgs) -> Result<(VpnArgs, Config), Failure> {
    let path = flags.config.as_deref();
    let file: File = read_file(path)?;
    let wrong = |what: &str, error: &dyn std::fmt::Display| wrong(path, what, error);
    let mut args = flags.clone();
    if args.to.is_none() && args.gateway.serve.is_empty() && args.address.is_empty() {
        args.to = file.to;
        if let Some(to) = &args.to {
            route::host(to).map_err(|error| wrong("to", &error))?;
        }
    }
    if args.gateway.serve.is_empty() {
        let serve: Result<_, _> = file.serve.iter().map(|text| parse_listen(text)).collect();
        args.gateway.serve = serve.map_err(|error| wrong("serve", &error))?;
    }
    let Table { device, address, route, accept_routes, mtu, client_to_client } = file.vpn;
    args.device = args.device.take().or(device);
    if let Some(device) = &args.device {
        check_device_name(device).map_err(|error| wrong("vpn.device", &error))?;
    }
    if args.address.is_empty() {
        args.address = address;
    }
    args.route.extend(route);
    if args.accept_routes.is_empty() {
        args.accept_routes = accept_routes.into_iter().collect();
    }
    args.identity = args.identity.take().or(file.identity);
    if !file.name.is_empty() && args.name == DoorArgs::default_names() {
        args.name = file.name;
    }
    if args.gateway.metrics.is_none() {
        let metrics = file.metrics.as_deref().map(parse_with_port).transpose();
        args.gateway.metrics = metrics.map_err(|error| wrong("metrics", &error))?;
    }
    if args.to.is_none() {
        check_waiting(&file.session).map_err(|name| wrong(name, &FOR_CALLERS))?;
    }
    args.gateway.session = args.gateway.session.or(file.session);
    let mut clients = file.client;
    clients.extend(args.client.iter().copied().map(Client::new));
    let of_server =
        !args.gateway.serve.is_empty() || !args.address.is_empty() || !args.route.is_empty() || !clients.is_empty();
    let server = match &args.to {
        Some(_) if of_server || mtu.is_some() || client_to_client => {
            return Err(wrong(
                "to",
                &"one side calls and the other waits: a client is given its addresses, routes and MTU by the server",
            ));
        }
        None if !args.accept_routes.is_empty() => {
            return Err(wrong("vpn.accept-routes", &"that is for a client to say: a server gives routes"));
        }
        Some(_) if args.identity.is_none() => {
            return Err(wrong(
                "identity",
                &"a client is known by its certificate: say where to keep it (--identity FILE)",
            ));
        }
        Some(_) => None,
        None => Some(Server {
            addresses: args.address.clone(),
            routes: args.route.clone(),
            mtu: mtu.unwrap_or(DEFAULT_MTU),
            clients,
            client_to_client,
        }),
    };
    let accept_routes = if args.accept_routes.is_empty() {
        Ok(AcceptRoutes::None)
    } else {
        AcceptRoutes::all_of(args.accept_routes.clone())
    };
    let accept_routes = accept_routes.map_err(|error| wrong("vpn.accept-routes", &error))?;
    let config = Config { server, accept_routes, classes: file.class, rules: file.rule, limits: file.limits };
    config.check().map_err(|error| senseless(path, error.setting().as_deref(), &error))?;
    let checked = args.gateway.check_ports(args.to.is_none(), []);
    checked.map_err(|error| wrong("serve", &error))?;
    Ok((args, config))
}

/// What has changed that is not read again while a VPN runs, by the names of its settings.
pub(super) fn take_a_restart(new: &VpnArgs, old: &VpnArgs) -> Vec<&'static str> {
    let gateway = |args: &VpnArgs| GatewayArgs { serve: Vec::new(), metrics: None, ..args.gateway.clone() };
    let all = [
        ("to", new.to != old.to),
        ("device", new.device != old.device),
        ("address", new.address != old.address),
        ("identity", new.identity != old.identity),
        ("name", new.name != old.name),
        ("serve", new.gateway.serve != old.gateway.serve),
        ("metrics", new.gateway.metrics != old.gateway.metrics),
        ("session", gateway(new) != gateway(old)),
    ];
    all.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect()
}

/// Who we are. Whom we let in is for the VPN to say.
pub(super) fn door(args: &VpnArgs) -> DoorArgs {
    DoorArgs { identity: args.identity.clone(), name: args.name.clone(), ..DoorArgs::default() }
}

impl VpnArgs {
    /// What only a file says.
    pub(super) fn of_file(file: &Path) -> Self {
        Self {
            to: None,
            device: None,
            address: Vec::new(),
            route: Vec::new(),
            accept_routes: Vec::new(),
            client: Vec::new(),
            identity: None,
            name: DoorArgs::default_names(),
            config: Some(file.to_owned()),
            gateway: GatewayArgs::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<(VpnArgs, Config), Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vpn.toml");
        fs::write(&path, text).unwrap();
        super::load(&VpnArgs::of_file(&path))
    }

    fn whole() -> String {
        format!(
            "serve = ['4433']
identity = 'server.pem'

[vpn]
device = 'vpn0'
address = ['10.9.0.1/24', 'fd09::1/64']
route = ['192.168.0.0/16']

[[client]]
fingerprint = '{}'
name = 'van'
address = ['10.9.0.7']
rate = 1000000

[class.voice]
deadline = '150ms'

[[rule]]
class = 'voice'
dscp = 'ef'

[limits]
clients = 10
",
            "ab".repeat(32)
        )
    }

    #[test]
    fn a_file_says_all_there_is() {
        let (args, config) = load(&whole()).unwrap();
        assert_eq!((args.device.as_deref(), args.gateway.serve.len()), (Some("vpn0"), 1));
        let server = config.server.unwrap();
        assert_eq!((server.addresses.len(), server.routes.len(), server.mtu), (2, 1, 1_500));
        assert_eq!((server.clients[0].name(), server.clients[0].rate), ("van".to_owned(), Some(1_000_000)));
        assert_eq!((config.rules.len(), config.limits.clients), (1, 10));
        let (args, config) = load("to = 'h:1'\nidentity = 'me.pem'\n[vpn]").unwrap();
        assert_eq!((args.to.as_deref(), config.server), (Some("h:1"), None));
        assert_eq!(config.accept_routes, AcceptRoutes::None, "unless more is said");
        let (_, config) =
            load("to = 'h:1'\nidentity = 'me.pem'\n[vpn]\naccept-routes = ['10.0.0.0/8', '::/0']").unwrap();
        let networks = ["10.0.0.0/8", "::/0"].map(|network| network.parse().unwrap());
        assert_eq!(config.accept_routes, AcceptRoutes::Within(networks.to_vec()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, word) in [
            ("[vpn]\ncolour = 1", "colour"),
            ("[vpn]\naddress = ['10.9.0.1']", ":2: "),
            ("[session]\ndeadlin = '1s'", ":2: unknown field `deadlin`"),
            ("", "needs an address"),
            ("[vpn]\naddress = ['10.9.0.1/24']", "nobody is let in"),
            ("to = 'h:1'\n[vpn]", "known by its certificate"),
            ("to = 'h:1'\nidentity = 'x'\n[vpn]\nroute = ['10.0.0.0/8']", "the other waits"),
            ("[vpn]\naddress = ['10.9.0.1/24']\naccept-routes = 'all'", "for a client to say"),
            ("to = 'h:1'\nidentity = 'x'\n[vpn]\naccept-routes = 'most'", ":4: "),
            ("to = 'h:1'\nidentity = 'x'\n[vpn]\naccept-routes = ['10.0.0.0/8', 'all']", "stand alone"),
            ("serve = ['here']\n[vpn]", ":1: serve"),
            ("to = 'h'\nidentity = 'x'\n[vpn]", ":1: to: `h` is not HOST:PORT"),
            ("identity = 'x'\n[vpn]\ndevice = 'no/name'", ":3: vpn.device: "),
            (&format!("{}[[rule]]\nclass = 'voice'\nport = 0", whole()), ":24: it makes no sense: rule 2 never holds"),
            (&whole().replace("clients = 10", "clients = 0"), ":23: it makes no sense: limits.clients"),
            (&whole().replace("route =", "mtu = 100\nroute ="), ":7: it makes no sense: the MTU is 100"),
            (&whole().replace("[vpn]", "[session]\nca = 'ca.pem'\n[vpn]"), ":5: session.ca: that is for who calls"),
            ("[limits]\nflows = 5000\n[vpn]\naddress = ['10.9.0.1/24']\n[[client]]\nfingerprint = 'xy'", ":6: "),
        ] {
            let failure = load(text).map(drop).unwrap_err();
            assert!(failure.code() == 2 && failure.to_string().contains(word), "{text}: {failure}");
        }
    }

    #[test]
    fn flags_overrule_the_file_and_add_clients() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vpn.toml");
        fs::write(&path, whole()).unwrap();
        assert!(is_of(&path));
        let client = "cd".repeat(32).parse().unwrap();
        let flags = VpnArgs { client: vec![client], device: Some("other0".into()), ..VpnArgs::of_file(&path) };
        let (args, config) = super::load(&flags).unwrap();
        assert_eq!((args.device.as_deref(), config.server.unwrap().clients.len()), (Some("other0"), 2));
        let none = [""; 0];
        assert_eq!(take_a_restart(&args, &VpnArgs { client: Vec::new(), route: Vec::new(), ..args.clone() }), none);
        let gateway = GatewayArgs { quiet: true, serve: Vec::new(), ..args.gateway.clone() };
        let other = VpnArgs { device: None, name: vec![], gateway, ..args.clone() };
        assert_eq!(take_a_restart(&args, &other), ["device", "name", "serve", "session"]);
    }
}
