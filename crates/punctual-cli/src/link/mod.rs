//! `punctual link`: bad links for everyone.
//!
//! [`spec`] reads what they are to be like, [`wires`] puts the simulator's links together, [`relay`] carries UDP datagrams over them, [`tun`] what the kernel sends between two network namespaces.

pub(crate) mod args;
mod lateness;
pub(crate) mod relay;
mod report;
mod spec;
#[cfg(target_os = "linux")]
mod tun;
pub(crate) mod wires;

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    time::Duration,
};

use crate::{exit::Failure, out::line, say::say, signals::Interrupt};
use args::LinkArgs;
use relay::{Ends, Relay};
use report::{PathReport, Report};
use wires::Plan;

/// How often there is something to be read of a link that runs.
const EVERY: Duration = Duration::from_secs(10);

/// What carries packets over wires.
enum Carrier {
    Udp(Relay),
    #[cfg(target_os = "linux")]
    Tun(tun::Devices),
}

/// Runs until the time is over or a signal comes, and tells what was carried.
pub(crate) async fn run(args: &LinkArgs) -> Result<(), Failure> {
    let plan = spec::plan(&args.link)?;
    let interrupt = Interrupt::listen()?;
    let mut carrier = start(args, plan)?;
    let over = async {
        match args.duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    let tell = async {
        loop {
            tokio::time::sleep(EVERY).await;
            if !args.quiet {
                carrier.report(args.seed).lines().iter().for_each(|line| say!("{line}"));
            }
        }
    };
    tokio::select! {
        () = over => {}
        // To run until it is told to stop is what it was asked for.
        _ = interrupt.first() => {}
        () = tell => {}
    }
    carrier.stop();
    let report = carrier.report(args.seed);
    if args.json {
        let json = serde_json::to_string(&report).map_err(|error| Failure::Other(error.to_string()))?;
        return line(json);
    }
    if !args.quiet {
        report.lines().iter().for_each(|line| say!("{line}"));
    }
    Ok(())
}

fn start(args: &LinkArgs, plan: Plan) -> Result<Carrier, Failure> {
    if !args.tun.is_empty() {
        return start_tun(args, plan);
    }
    let ends = ends(&args.listen, &args.to, plan.paths.len())?;
    let relay = Relay::start(plan, &ends, args.seed, true)
        .map_err(|error| Failure::Path(format!("cannot open a socket to listen on: {error}")))?;
    if !args.quiet {
        relay.entrances().iter().zip(&ends).for_each(|(at, ends)| say!("listening on {at}, for {}", ends.to));
    }
    Ok(Carrier::Udp(relay))
}

#[cfg(target_os = "linux")]
fn start_tun(args: &LinkArgs, plan: Plan) -> Result<Carrier, Failure> {
    let devices = tun::Devices::open(&args.tun, plan, args.seed)?;
    if !args.quiet {
        devices.lines().iter().for_each(|line| say!("{line}"));
    }
    Ok(Carrier::Tun(devices))
}

#[cfg(not(target_os = "linux"))]
fn start_tun(_: &LinkArgs, _: Plan) -> Result<Carrier, Failure> {
    Err(Failure::Usage("--tun is for Linux".into()))
}

impl Carrier {
    fn stop(&mut self) {
        match self {
            Self::Udp(relay) => relay.stop(),
            #[cfg(target_os = "linux")]
            Self::Tun(devices) => devices.stop(),
        }
    }

    fn report(&self, seed: u64) -> Report {
        match self {
            Self::Udp(relay) => relay.look(|wires, lateness, traffic, since| Report {
                seconds: seconds(since),
                seed,
                clients: Some(traffic.clients),
                turned_away: Some(traffic.turned_away),
                refused: wires.refused,
                paths: PathReport::all(wires),
                late: lateness.figures(),
            }),
            #[cfg(target_os = "linux")]
            Self::Tun(devices) => devices.look(|wires, lateness, since| Report {
                seconds: seconds(since),
                seed,
                clients: None,
                turned_away: None,
                refused: wires.refused,
                paths: PathReport::all(wires),
                late: lateness.figures(),
            }),
        }
    }
}

fn seconds(since: Option<Duration>) -> f64 {
    (since.unwrap_or_default().as_secs_f64() * 1e3).round() / 1e3
}

/// Where each path begins and ends.
fn ends(listen: &[SocketAddr], to: &[String], paths: usize) -> Result<Vec<Ends>, Failure> {
    if listen.len() != paths {
        let noun = if paths == 1 { "path" } else { "paths" };
        return Err(Failure::Usage(format!(
            "there are {paths} {noun}, and {} of --listen: give one for each",
            listen.len()
        )));
    }
    let to: Vec<SocketAddr> = to.iter().map(|to| resolve(to)).collect::<Result<_, _>>()?;
    if let Some(to) = to.iter().find(|to| listen.iter().any(|listen| is_there(listen, to))) {
        return Err(Failure::Usage(format!("--to {to} is where it listens itself: what comes would go in circles")));
    }
    match to[..] {
        [to] => Ok(listen.iter().map(|&listen| Ends { listen, to }).collect()),
        _ if to.len() == paths => Ok(listen.iter().zip(to).map(|(&listen, to)| Ends { listen, to }).collect()),
        _ => Err(Failure::Usage(format!("give one --to for all paths, or one for each of the {paths}"))),
    }
}

/// Whether what is sent to an address comes in at this one.
fn is_there(listen: &SocketAddr, to: &SocketAddr) -> bool {
    // What is sent to no address in particular goes to this host, too.
    let [at, to_ip] = [listen.ip().to_canonical(), to.ip().to_canonical()];
    let own = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    let same = at == to_ip || own(at) && own(to_ip) && (at.is_unspecified() || to_ip.is_unspecified());
    // At port 0 it listens at another, which nobody knows yet.
    listen.port() != 0 && listen.port() == to.port() && same
}

fn resolve(to: &str) -> Result<SocketAddr, Failure> {
    if let Some((_, port)) = to.rsplit_once(':')
        && port.parse::<u16>().is_ok_and(|port| port > 0)
    {
        let mut addresses = to.to_socket_addrs().map_err(|error| Failure::Unreachable(format!("{to}: {error}")))?;
        return addresses.next().ok_or_else(|| Failure::Unreachable(format!("{to}: no address")));
    }
    Err(Failure::Usage(format!("--to {to}: expected HOST:PORT")))
}
