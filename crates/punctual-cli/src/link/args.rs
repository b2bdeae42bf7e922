//! The command line of `punctual link`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use crate::config::parse_wait;

const LINK_HELP: &str = "\
Whoever sends UDP to --listen speaks with --to, over links as bad as is said: those of the simulator, so a program meets what an experiment's hosts met, with the same losses for the
same seed. All who send share the links of a path. Schedules, traces and deaths begin with the first datagram. As root on Linux, --tun has it between two network namespaces instead:
there the kernel's TCP, or anything else, meets it.

Where a value is said to have steps, it may change: 0s:4Mbit/s,10s:1Mbit/s.

Examples:
  punctual link --listen 127.0.0.1:5000 --to 127.0.0.1:4433 --rate 4Mbit/s --delay 40ms --loss 1%
  punctual link --listen 127.0.0.1:5000 --to 127.0.0.1:4433 --jitter 30ms --loss 5% --burst 8 --dies 10s..12s
  punctual link --listen 127.0.0.1:5000 --listen 127.0.0.1:5001 --to 127.0.0.1:4433 --spec two-paths.toml --json --for 1min
  punctual link --listen 127.0.0.1:5000 --to 127.0.0.1:4433 --trace TMobile-LTE-short.down --back 'rate = \"2 Mbit/s\"'
  punctual link --tun left,10.9.0.1/24 --tun right,10.9.0.2/24 --rate 10Mbit/s --delay 20ms

How late it sends what is due is in the summary; on a busy host that is part of what was carried over it.";

/// `punctual link`.
#[derive(Debug, Args)]
#[command(after_help = LINK_HELP)]
pub(crate) struct LinkArgs {
    /// Where to take datagrams in, one for each path.
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "tun", requires = "to")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Where they go: one for all paths, or one for each.
    #[arg(long, value_name = "HOST:PORT", requires = "listen")]
    pub(crate) to: Vec<String>,
    /// Between two network namespaces instead: a namespace (of `ip netns`) and the address that the new device in it has, twice for each path. Needs root, and Linux.
    #[arg(long, value_name = "NETNS,ADDRESS/LENGTH", conflicts_with = "listen")]
    pub(crate) tun: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkFlags,
    /// Of all that is left to chance.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// End by itself after so long; otherwise when told to, by a signal.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_wait)]
    pub(crate) duration: Option<Duration>,
    /// Print a summary as one JSON object at the end.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing on the way.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What the links are like. Flags go for all paths, there and back, and outrank the file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Links")]
pub(crate) struct LinkFlags {
    /// A TOML file with [[path]] and [[link]] tables as experiments have them (see docs/evaluation.md); an experiment's own file will do.
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// How much a link carries (4Mbit/s, 500KB/s); may have steps.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// How long it takes one way; may have steps.
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<String>,
    /// What comes on top, packet by packet: anything up to a time, exponential:MEAN, or normal:MEAN,DEVIATION. The order is kept.
    #[arg(long, value_name = "JITTER")]
    pub(crate) jitter: Option<String>,
    /// The share of packets that are lost; may have steps.
    #[arg(long, value_name = "SHARE")]
    pub(crate) loss: Option<String>,
    /// How many are lost on end, on average, in bursts.
    #[arg(long, value_name = "PACKETS")]
    pub(crate) burst: Option<f64>,
    /// How much may wait for the rate (64KB) [default: rate times twice the delay].
    #[arg(long, value_name = "SIZE")]
    pub(crate) queue: Option<String>,
    /// A Mahimahi trace for the rate, of the way there.
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pub(crate) trace: Option<String>,
    /// The share of packets that come twice.
    #[arg(long, value_name = "SHARE")]
    pub(crate) duplication: Option<String>,
    /// The share of packets that come damaged.
    #[arg(long, value_name = "SHARE")]
    pub(crate) corruption: Option<String>,
    /// The largest packet, bytes with the IP header.
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// When it dies and lives again, counted from the first datagram; may be repeated.
    #[arg(long, value_name = "FROM..TO")]
    pub(crate) dies: Vec<String>,
    /// Where the way back differs: keys of a [[path]] table, with commas between them.
    #[arg(long, value_name = "KEY = VALUE")]
    pub(crate) back: Option<String>,
}
