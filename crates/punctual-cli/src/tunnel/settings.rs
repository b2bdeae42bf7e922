//! Settings of a tunnel, from flags and from a TOML file.

use std::{collections::BTreeMap, path::Path, path::PathBuf};

use punctual::Fingerprint;
use punctual_gateway::{
    class::{ClassSettings, Rule},
    tunnel::{Config, Forward, Limits, Listen},
};
use serde::Deserialize;

use crate::{
    cli::{DoorArgs, GatewayArgs, TunnelArgs, parse_listen},
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
    client_ca: Option<PathBuf>,
    client_fingerprint: Vec<String>,
    name: Vec<String>,
    metrics: Option<String>,
    session: SessionSettings,
    listen: Vec<Listen>,
    forward: Vec<Forward>,
    class: BTreeMap<String, ClassSettings>,
    rule: Vec<Rule>,
    limits: Limits,
}

/// The flags over what the file says, if there is one; and what is to be carried.
pub(super) fn load(flags: &TunnelArgs) -> Result<(TunnelArgs, Config), Failure> {
    let path = flags.config.as_deref();
    let file: File = read_file(path)?;
    let wrong = |what: &str, error: &dyn std::fmt::Display| wrong(path, what, error);
    let mut args = flags.clone();
    if args.to.is_none() && args.gateway.serve.is_empty() {
        args.to = file.to;
        if let Some(to) = &args.to {
            route::host(to).map_err(|error| wrong("to", &error))?;
        }
        let serve: Result<_, _> = file.serve.iter().map(|text| parse_listen(text)).collect();
        args.gateway.serve = serve.map_err(|error| wrong("serve", &error))?;
        if args.to.is_some() && !args.gateway.serve.is_empty() {
            return Err(wrong("to", &"one gateway calls and the other waits: say either `to` or `serve`"));
        }
    }
    let door = &mut args.door;
    let said = door.client_ca.is_some() || !door.client_fingerprint.is_empty();
    if !said {
        door.client_ca = file.client_ca;
        for text in &file.client_fingerprint {
            let fingerprint: Result<Fingerprint, _> = text.parse();
            door.client_fingerprint.push(fingerprint.map_err(|error| wrong("client-fingerprint", &error))?);
        }
        if door.client_ca.is_some() && !door.client_fingerprint.is_empty() {
            return Err(wrong("client-ca", &"say either client-ca or client-fingerprint"));
        }
    }
    door.identity = door.identity.take().or(file.identity);
    if !file.name.is_empty() && door.name == DoorArgs::default_names() {
        door.name = file.name;
    }
    if args.gateway.metrics.is_none() {
        let metrics = file.metrics.as_deref().map(parse_with_port).transpose();
        args.gateway.metrics = metrics.map_err(|error| wrong("metrics", &error))?;
    }
    if args.to.is_none() {
        check_waiting(&file.session).map_err(|name| wrong(name, &FOR_CALLERS))?;
    }
    args.gateway.session = args.gateway.session.or(file.session);
    args.listen.extend(file.listen);
    args.forward.extend(file.forward);
    let (classes, rules, limits) = (file.class, file.rule, file.limits);
    let config = Config { listen: args.listen.clone(), forward: args.forward.clone(), classes, rules, limits };
    let ports = config.listen.iter().map(|listen| (listen.protocol, listen.address));
    let checked = config.check().and_then(|()| args.gateway.check_ports(args.to.is_none(), ports));
    checked.map_err(|error| senseless(path, error.setting().as_deref(), &error))?;
    Ok((args, config))
}

/// Whether nothing has changed but what is read again while a gateway runs.
pub(super) fn same_but_for_ports(new: &TunnelArgs, old: &TunnelArgs) -> bool {
    let rest = |args: &TunnelArgs| TunnelArgs { listen: Vec::new(), forward: Vec::new(), ..args.clone() };
    rest(new) == rest(old)
}

impl TunnelArgs {
    /// What only a file says.
    pub(super) fn of_file(file: &Path) -> Self {
        Self {
            to: None,
            listen: Vec::new(),
            forward: Vec::new(),
            door: DoorArgs { name: DoorArgs::default_names(), ..DoorArgs::default() },
            config: Some(file.to_owned()),
            gateway: GatewayArgs::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const WHOLE: &str = "\
to = 'host.example:4433'
metrics = '127.0.0.1:9100'

[session]
fingerprint = '3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a'
path = ['eth0', 'wwan0,backup']

[[listen]]
name = 'camera'
udp = '127.0.0.1:5000'
format = 'mpegts'
class = 'video'

[[forward]]
name = 'ssh'
tcp = '127.0.0.1:22'

[class.video]
deadline = '300ms'

[class.small]
priority = 0

[[rule]]
class = 'small'
max-size = 100

[limits]
flows = 10
idle = '30s'
";

    const RULES: &str = "\
[[listen]]
name = 'x'
udp = '127.0.0.1:1'
[class.c]
priority = 1
[[rule]]
class = 'c'
name = 'y'
";

    fn load(text: &str) -> Result<(TunnelArgs, Config), Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tunnel.toml");
        fs::write(&path, text).unwrap();
        super::load(&TunnelArgs::of_file(&path))
    }

    #[test]
    fn a_file_says_all_there_is() {
        let (args, config) = load(WHOLE).unwrap();
        assert_eq!(args.to.as_deref(), Some("host.example:4433"));
        assert_eq!(
            (args.gateway.session.path.len(), args.gateway.session.fingerprint.map(|text| text.len())),
            (2, Some(64))
        );
        assert_eq!((config.listen.len(), config.forward.len(), config.rules.len()), (1, 1, 1));
        assert_eq!((config.limits.flows, config.limits.clients), (10, Limits::default().clients));
    }

    /// The example in `docs/gateway.md` is read, and its limits are those there are by default.
    #[test]
    fn the_file_in_the_documentation_says_what_the_defaults_are() {
        const DOCUMENT: &str = include_str!("../../../../docs/gateway.md");
        let after = DOCUMENT.split("## A file with many ports").nth(1).and_then(|text| text.split("```toml\n").nth(1));
        let (_, config) = load(after.and_then(|text| text.split("```").next()).unwrap()).unwrap();
        assert_eq!(config.rules.len(), 1);
        assert_eq!(format!("{:?}", config.limits), format!("{:?}", Limits::default()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, word) in [
            ("[[listen]]\nname = 'x'\nudp = '127.0.0.1:1'\ncolour = 1", "colour"),
            ("[session]\ndeadlin = '1s'", ":2: unknown field `deadlin`"),
            ("[session]\nreconnect = '1s'", "unknown field `reconnect`"),
            ("colour = 1", ":1: "),
            (
                "[[forward]]\nname = 'x'\nudp = 'h:1'\n[[forward]]\nname = 'y'\nudp = 'nope'",
                ":4: port `y`: `nope` is not",
            ),
            ("[[listen]]\nname = 'x'\nudp = '127.0.0.1:1'\nredundancy = 'dup'", ":1: port `x`: redundancy"),
            ("\nto = 'host.example'", ":2: to: `host.example` is not HOST:PORT"),
            ("[session]\nfingerprint = '3f9a'", ":2: fingerprint: "),
            ("serve = ['1']\n[session]\npath = ['eth0']", ":3: session.path: that is for who calls"),
            ("\nserve = ['here']", ":2: serve: "),
            ("\nmetrics = 'here'", ":2: metrics: "),
            ("[[listen]]\nname = 'x'\nudp = '127.0.0.1:1'\n[limits]\nflows = 0", ":5: it makes no sense: limits.flows"),
            (RULES, ":6: it makes no sense: rule 1 never holds: no port is called `y`"),
            (&RULES.replace("name = 'y'", "port = 0"), ":6: it makes no sense: rule 1 never holds: no program"),
            (&RULES.replace("name = 'y'", "payload-type = 128"), "rule 1 never holds: a payload type"),
            (&RULES.replace("name = 'y'", "min-size = 300\nmax-size = 200"), "min-size is more than max-size"),
            ("[limits]\nidle = '0s'", ":2: "),
            ("", "nothing to do"),
            ("to = 'h:1'\nserve = ['4433']\n[[listen]]\nname = 'x'\nudp = '127.0.0.1:1'", "either `to` or `serve`"),
            (
                "serve = ['127.0.0.1:5000']\n[[listen]]\nname = 'x'\nudp = '0.0.0.0:5000'",
                "udp:0.0.0.0:5000 and udp:127.0.0.1:5000 cannot both be listened at",
            ),
            (
                "serve = ['5000']\n[[listen]]\nname = 'x'\nudp = '[::1]:5000'",
                "udp:[::1]:5000 and udp:[::]:5000 cannot both",
            ),
            ("[[listen]]\nname = 'x'\nudp = '127.0.0.1:4433'", "udp:0.0.0.0:4433 cannot both"),
            (
                "serve = ['1', '1']\n[[listen]]\nname = 'x'\nudp = '127.0.0.1:2'",
                "two ports are to listen at udp:0.0.0.0:1",
            ),
            (
                "metrics = '127.0.0.1:5000'\n[[listen]]\nname = 'x'\ntcp = '127.0.0.1:5000'",
                "two ports are to listen at tcp:127.0.0.1:5000",
            ),
            ("serve = ['here']\n[[listen]]\nname = 'x'\nudp = '127.0.0.1:1'", "serve"),
            ("[[listen]]\nname = 'x'\nudp = '127.0.0.1:1'\nclass = 'y'", "no class `y`"),
        ] {
            let failure = load(text).map(drop).unwrap_err();
            assert!(failure.code() == 2 && failure.to_string().contains(word), "{text}: {failure}");
        }
        assert_eq!(super::load(&TunnelArgs::of_file(Path::new("/no/such/file"))).unwrap_err().code(), 3);
    }

    #[test]
    fn flags_overrule_the_file_and_add_ports() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tunnel.toml");
        fs::write(&path, WHOLE).unwrap();
        let flags = TunnelArgs {
            to: Some("other:1".into()),
            listen: vec!["udp:127.0.0.1:6000=game".parse().unwrap()],
            ..TunnelArgs::of_file(&path)
        };
        let (args, config) = super::load(&flags).unwrap();
        assert_eq!((args.to.as_deref(), config.listen.len()), (Some("other:1"), 2));
        assert!(same_but_for_ports(&args, &TunnelArgs { listen: Vec::new(), ..args.clone() }));
        assert!(!same_but_for_ports(&args, &TunnelArgs { to: None, ..args.clone() }));
    }
}
