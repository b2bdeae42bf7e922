//! The command line: what there is to say, and what it is called.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
#[cfg(target_os = "linux")]
use ipnet::IpNet;
use punctual::Fingerprint;
use punctual_gateway::tunnel;
#[cfg(target_os = "linux")]
use punctual_gateway::vpn::AcceptRoutes;

use crate::{
    config::{SessionSettings, Settings, parse_deadline, parse_latency},
    eval::EvalArgs,
    exit::EXIT_CODES,
    link::args::LinkArgs,
    scope::{self, ScopeError},
    source::{Coding, Cut, MAX_PIECE, Video},
};

/// Delivers blocks before their deadlines, over several network paths at once.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what makes a shell complete this command line.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Show what it does: one video clip over one bad network, as plain QUIC, as multipath QUIC, and as Punctual.
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Run experiments in virtual time: schedulers, controllers and baselines over any network, against the clairvoyant bound.
    Eval(EvalArgs),
    /// Be a bad link: a relay of UDP, or a pair of devices between network namespaces, with rate, delay, jitter, losses and deaths as the simulator has them.
    Link(Box<LinkArgs>),
    /// Write manual pages, one for the program and one for each subcommand.
    Man {
        /// Where to put them.
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Receive blocks: wait for a sender, and write what it sends to a file, a directory or standard output.
    #[command(after_help = RECV_HELP)]
    Recv(RecvArgs),
    /// Send blocks: a video by frames, a file by chunks, or standard input by lines or messages.
    #[command(after_help = SEND_HELP)]
    Send(Box<SendArgs>),
    /// Check a settings file of `punctual tunnel` or `punctual vpn`, and say what is wrong with it.
    CheckConfig {
        /// The file (TOML).
        file: PathBuf,
    },
    /// Carry UDP and TCP ports to another host, for programs that know nothing of Punctual.
    #[command(after_help = TUNNEL_HELP)]
    Tunnel(Box<TunnelArgs>),
    /// Carry IP packets to another host by a network device (Linux): several links become one, with an address that stays.
    #[cfg(target_os = "linux")]
    #[command(after_help = VPN_HELP)]
    Vpn(Box<VpnArgs>),
}

const COMPLETIONS_HELP: &str = "\
Examples:
  punctual completions bash > ~/.local/share/bash-completion/completions/punctual
  punctual completions fish > ~/.config/fish/completions/punctual.fish
  punctual completions zsh > ~/.zfunc/_punctual       a directory in fpath";

const DEMO_HELP: &str = "\
It needs no network, no root and no files, takes about 35 seconds, and leaves in the directory of --out
  report.html           the figures and the plots; a browser shows it, nothing else is needed
  NAME.mp4, NAME.h264   what arrived, for each of the three runs: the .mp4 shows it as a viewer would have seen it

Examples:
  punctual demo
  punctual demo --out /tmp/demo --deadline 150ms --seed 7
  punctual demo --json | jq '.runs[] | {name, on_time}'";

const RECV_HELP: &str = "\
It says on standard error where it listens and which fingerprint the sender has to know, and ends when the sender does. A sender
that comes while there is no output for it is refused: it ends with code 9, and none of its blocks counts as delivered.

Examples:
  punctual recv --out film.h264
  punctual recv | ffplay -f h264 -          watch it
  punctual recv --framed | consume          4 bytes of length (big endian), then the block
  punctual recv --dir blocks                each block as a file
  punctual recv --out 'clip-{number}.h264'  many senders at once: clip-0001.h264, clip-0002.h264, …
  punctual recv --keep-going --dir blocks   many senders at once: blocks/0001-192.0.2.7-51234, …
  punctual recv --keep-going --out all.log  one after the other; who comes meanwhile is refused
  punctual recv --identity server.pem --out film.h264
                                            keep the certificate, and so the fingerprint
  punctual recv --client-fingerprint 77c0… --out film.h264
                                            only from the sender with that certificate
  punctual recv --token tokens --out film.h264
                                            only from senders that show a token in this file
  joystick | punctual recv --reply - --reply-deadline 50ms | ffplay -f h264 -
                                            watch, and steer: the sender takes the lines by --receive
  punctual recv --listen 192.0.2.7:4433 --listen 198.51.100.7:4433
                                            an address on each of two networks";

const SEND_HELP: &str = "\
Examples:
  punctual send server.example:4433 --fingerprint 3f9a… film.h264 --h264 --deadline 150ms
  punctual send server.example:4433 --ca ca.pem film.ts --chunks 64K --path eth0 --path wlan0
  punctual send 192.0.2.7:4433 --fingerprint 3f9a… film.h264 --h264 --path eth0 --path wlan0=198.51.100.7:4433
  punctual send server.example:4433 --fingerprint 3f9a… --h264 --path auto
                                            over whatever leads there, now and later: a modem plugged in an hour from now, too
  punctual send server.example:4433 --fingerprint 3f9a… --h264 --path auto --path wwan0,backup
                                            the same, but wwan0 only while nothing else leads there
  ffmpeg -i /dev/video0 -tune zerolatency -f h264 - | punctual send 192.0.2.7:4433 --fingerprint 3f9a… --h264
  camera | punctual send operator.example:4433 --ca ca.pem --h264 --deadline 150ms --path auto --receive - | motors
                                            a video one way, commands the other, in one session
  tail -f sensor.log | punctual send server.example:4433 --lines --deadline 100ms --priority 10
  printf 'priority=0 deadline=50ms\\n\\0\\0\\0\\4stop' | punctual send 192.0.2.7:4433 --fingerprint 3f9a… --framed-headers
  punctual send 192.0.2.7:4433 --fingerprint 3f9a… film.h264 --h264 --deadline 80ms --redundancy both --redundancy-policy risk:target=0.0001

A settings file:
  deadline = \"150ms\"
  scheduler = \"ads:alpha=0.3\"
  redundancy = \"auto\"
  path = [\"eth0\", \"wlan0=198.51.100.7:4433\"]";

const TUNNEL_HELP: &str = "\
Of two hosts, one waits and the other, with HOST:PORT, calls. Either may listen for programs beside it, and forward to others. What one side
listens for by a name, the other forwards by the same name.

Examples:
  punctual tunnel --forward camera=udp:192.0.2.9:5000 --identity server.pem
  punctual tunnel server.example:4433 --fingerprint 3f9a… --path eth0 --path wwan0 --listen udp:127.0.0.1:5000=camera
                                            what comes to port 5000 here leaves there for 192.0.2.9:5000, over two links; answers come back
  punctual tunnel server.example:4433 --fingerprint 3f9a… --listen udp:127.0.0.1:27015=game,deadline=80ms,priority=0
                                            a datagram that cannot be there within 80 ms is dropped
  punctual tunnel server.example:4433 --fingerprint 3f9a… --forward ssh=tcp:127.0.0.1:22
                                            the other side reaches our port 22, with --listen tcp:127.0.0.1:2222=ssh
  punctual tunnel --config /etc/punctual/tunnel.toml --metrics 127.0.0.1:9100
                                            as a service; see docs/gateway.md";

#[cfg(target_os = "linux")]
const VPN_HELP: &str = "\
Of two hosts, one waits and the other, with HOST:PORT, calls. The one that waits lets in clients by the fingerprints of their certificates, and gives them
addresses and routes. It takes root, or CAP_NET_ADMIN: setcap cap_net_admin+ep punctual.

Examples:
  punctual vpn host.example:4433 --fingerprint 3f9a… --identity me.pem --path eth0 --path wwan0 --accept-routes 192.168.0.0/16
                                            everything to that network, as far as the server names it, over two links
  punctual vpn host.example:4433 --fingerprint 3f9a… --identity me.pem --path eth0 --path wwan0 --accept-routes all
                                            whatever the server names: all traffic, if it says --route 0.0.0.0/0
  punctual vpn --identity server.pem --address 10.9.0.1/24 --address fd09::1/64 --client 77c0…
                                            the other side, which lets in whoever has that certificate
  punctual vpn --identity server.pem --address 10.9.0.1/24 --client 77c0… --route 192.168.0.0/16
                                            and tells it that a network is to be reached through us
  punctual vpn --config /etc/punctual/vpn.toml --metrics 127.0.0.1:9100
                                            as a service; see docs/gateway.md";

/// `punctual demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to put the report and the received clips.
    #[arg(long, value_name = "DIR", default_value = "punctual-demo")]
    pub(crate) out: PathBuf,
    /// How long a frame may take from hand-over to the receiver.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_deadline, allow_hyphen_values = true)]
    pub(crate) deadline: Duration,
    /// Stream only so many seconds of the clip.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub(crate) seconds: u32,
    /// Seed of the network's losses.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the result as one JSON object and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What `send` and `recv` have in common.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct CommonArgs {
    /// Print a summary as one JSON object at the end.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the statistics as one JSON object each second, on standard error: totals, and under `last` what happened since the one
    /// before. Without this, and without a terminal to keep a line up to date on, there is a line every 10 s and when a path changes.
    #[arg(long)]
    pub(crate) stats_json: bool,
    /// Show no statistics.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Exit with code 8 unless every block was delivered on time: by its own deadline, on which both sides agree. (Frames that others
    /// refer to have twice --deadline.) So for what the receiver sends back, both ways with what is not known to be taken.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write qlog traces of every session to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

/// The name that a certificate bears if nothing is said of it.
const CERTIFIED: &str = "localhost";

/// Who we are, and whom we let in.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct DoorArgs {
    /// The certificate and its key (PEM) to show; made and kept there if there is no such file. Without this, a new one each time.
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Let in only senders whose certificate (`punctual send --identity`) is signed by one of the authorities in this file (PEM). Without
    /// this and --client-fingerprint, whoever can reach us may send.
    #[arg(long, value_name = "FILE", conflicts_with = "client_fingerprint")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Let in only senders whose certificate has this fingerprint; may be repeated.
    #[arg(long, value_name = "HEX")]
    pub(crate) client_fingerprint: Vec<Fingerprint>,
    /// A name or address for a new certificate to bear, for senders that check it; may be repeated.
    #[arg(long, value_name = "NAME", default_value = CERTIFIED)]
    pub(crate) name: Vec<String>,
}

impl DoorArgs {
    /// The names that a certificate bears if nothing is said of them.
    pub(crate) fn default_names() -> Vec<String> {
        vec![CERTIFIED.to_owned()]
    }
}

/// `punctual recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// Where to listen: a port on all addresses, or an address with port ([fe80::1%eth0]:4433 for one on a link); may be repeated [default: 4433, or the UDP sockets that a service manager hands over
    /// (LISTEN_FDS, from a .socket unit of systemd)].
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,
    #[command(flatten)]
    pub(crate) door: DoorArgs,
    /// Let in only senders that show one of these tokens (their --token): the file that they are in, one a line, or, with `@` before the name, the variable of the
    /// environment; may be repeated. `openssl rand -hex 32` makes one. May go together with the two above: then both must be right.
    #[arg(long, value_name = "FILE|@NAME")]
    pub(crate) token: Vec<String>,
    /// Go on after the first sender, until told to stop (Ctrl-C, SIGTERM). With --dir, or with a placeholder in the name, any number of
    /// senders at once; else one after the other.
    #[arg(long, conflicts_with = "once")]
    pub(crate) keep_going: bool,
    /// End with the first sender: the default, unless the output's name has a placeholder.
    #[arg(long)]
    pub(crate) once: bool,
    /// Write the blocks to this file, one after the other. Without it, or with `-`, to standard output. In the name, {number} stands for the
    /// sender's number (0001, 0002, …, passing over files that are there) and {peer} for its address (192.0.2.7-51234, and behind that -2, -3, … if
    /// the same comes again): then each sender has a file of its own.
    #[arg(long, short, value_name = "FILE", conflicts_with = "dir")]
    pub(crate) out: Option<PathBuf>,
    /// Write each block to a file of its own in this directory. The name may have placeholders, as that of --out; with --keep-going and
    /// none, each sender has the directory {number}-{peer} in it.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Put 4 bytes of length (big endian) before each block.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) framed: bool,
    /// Write each block so long after the sender handed it over: early ones wait, and one that is not there when the next is due is passed over. So what is written keeps the sender's beat, however
    /// the network jitters. Without it, blocks are written as they come, or as the sender wishes (its --latency). Longer than the sender's --deadline, or what comes in time may be passed over.
    #[arg(long, value_name = "TIME", value_parser = parse_latency, allow_hyphen_values = true)]
    pub(crate) latency: Option<Duration>,
    /// Send this back, in the same session, to a sender that takes it (its --receive): a file, to each sender from its beginning, or a pipe or `-`, standard
    /// input, to one sender at a time: what one has not got, and is not too late, goes to the next (--keep-going). It ends for itself: a sender may go on.
    #[arg(long, value_name = "FILE")]
    pub(crate) reply: Option<PathBuf>,
    /// What a block of the reply is, by the names that `punctual send` has: lines, framed, framed-headers, h264, h265, or chunks=SIZE.
    #[arg(long, value_name = "WHAT", requires = "reply", default_value = "lines", value_parser = parse_reply)]
    pub(crate) reply_as: Cut,
    /// How long a block of the reply may take from being read to being delivered; without it, as long as it takes.
    #[arg(long, value_name = "TIME", requires = "reply", value_parser = parse_deadline, allow_hyphen_values = true)]
    pub(crate) reply_deadline: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The heading of what only a sender has.
const SENDING: &str = "Sending";

/// `punctual send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The receiver: its name or address, and the port. An address on one link needs the interface to it: [fe80::1%eth0]:4433.
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: String,
    /// What to send; without it, or with `-`, standard input.
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// A TOML file with any of what stands under Settings and Session, by the same names; flags overrule it.
    #[arg(long, value_name = "FILE", help_heading = SENDING)]
    pub(crate) config: Option<PathBuf>,
    /// The certificate and its key (PEM) to show a receiver that asks who we are (`punctual recv --client-ca`, `--client-fingerprint`); made
    /// and kept there if there is no such file.
    #[arg(long, value_name = "FILE", help_heading = SENDING)]
    pub(crate) identity: Option<PathBuf>,
    /// Keep a live video (a pipe) to its frame rate, too, as a file is kept to it; a deadline counts from the frame's turn then. Without it, a live frame goes as soon as it is complete.
    #[arg(long, help_heading = SENDING)]
    pub(crate) pace: bool,
    /// Write what the receiver sends back (its --reply) to this file, `-` for standard output, one block after the other. The session then lasts until both
    /// have no more to send.
    #[arg(long, value_name = "FILE", help_heading = SENDING)]
    pub(crate) receive: Option<PathBuf>,
    /// Put 4 bytes of length (big endian) before each block that comes back.
    #[arg(long, requires = "receive", help_heading = SENDING)]
    pub(crate) receive_framed: bool,
    /// Let the receiver have blocks as they come. Without it, each waits for those before it, until they are there or known to be dropped.
    #[arg(long, help_heading = SENDING)]
    pub(crate) unordered: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What a block is.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
#[command(next_help_heading = "What a block is (one of)")]
pub(crate) struct SourceArgs {
    /// A frame of an H.264 stream (Annex B): from a file at the stream's own rate, from a pipe as soon as it is complete.
    #[arg(long)]
    pub(crate) h264: bool,
    /// A frame of an H.265 stream (HEVC, Annex B), likewise.
    #[arg(long, alias = "hevc")]
    pub(crate) h265: bool,
    /// So many bytes (`1200`, `64K`, `1M`).
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) chunks: Option<usize>,
    /// A line, its end included.
    #[arg(long)]
    pub(crate) lines: bool,
    /// A message behind 4 bytes of its length (big endian).
    #[arg(long)]
    pub(crate) framed: bool,
    /// A message behind a line of its own settings, and 4 bytes of its length. The line has fields with spaces between them, any or none of
    /// priority=0-255, channel=NUMBER|none, deadline=TIME|none, needs=N[,N…] (the messages so many before it without which it is of no use).
    /// There may be 256 channels; what is on one more is left out.
    #[arg(long)]
    pub(crate) framed_headers: bool,
}

impl SourceArgs {
    /// Whether blocks are frames.
    pub(crate) fn is_video(&self) -> bool {
        self.h264 || self.h265
    }
}

/// What `tunnel` and `vpn` have in common.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct GatewayArgs {
    /// Where to wait to be called: a port on all addresses, or an address with port; may be repeated [default: 4433, or the UDP sockets that a service manager
    /// hands over].
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen, conflicts_with = "to")]
    pub(crate) serve: Vec<Listen>,
    /// Tell Prometheus here what is carried, by HTTP: http://ADDRESS:PORT/metrics.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = scope::parse_with_port)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Write qlog traces of every session to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// Say nothing but what goes wrong.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) session: SessionSettings,
}

/// `punctual tunnel`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TunnelArgs {
    /// The gateway to call: its name or address, and the port. Without it, wait to be called.
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: Option<String>,
    /// A port of this host whose traffic the other gateway forwards: `udp:ADDRESS:PORT=NAME` or `tcp:ADDRESS:PORT=NAME`; may be repeated. Behind commas, how its
    /// datagrams are carried: deadline=TIME|none [default: 1s], priority=0-255, redundancy=MODE, ordered=true, latency=TIME, or class=NAME, one of the file's; and what they are:
    /// format=datagrams|mpegts|rtp|rtp-h264|rtp-h265.
    #[arg(long, value_name = "udp:ADDRESS:PORT=NAME")]
    pub(crate) listen: Vec<tunnel::Listen>,
    /// Where traffic of that name is sent to that the other gateway listens for: `NAME=udp:HOST:PORT` or `NAME=tcp:HOST:PORT`; may be repeated. Behind
    /// commas, how answers are carried, as for --listen. Nothing else can be reached from the other side.
    #[arg(long, value_name = "NAME=udp:HOST:PORT")]
    pub(crate) forward: Vec<tunnel::Forward>,
    #[command(flatten)]
    pub(crate) door: DoorArgs,
    /// A TOML file with these settings and more: classes, rules, limits (see docs/gateway.md). Flags overrule it, and add ports to its. `punctual check-config` says
    /// what is wrong with one. SIGHUP has its ports, classes, rules and limits read again; sessions go on.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

/// `punctual vpn`.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct VpnArgs {
    /// The server to call: its name or address, and the port. Without it, wait to be called.
    #[arg(value_name = "HOST:PORT")]
    pub(crate) to: Option<String>,
    /// The name of the device to make [default: punctual0].
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// An address of our own, as server, with its network: clients have addresses of that. One of IPv4, one of IPv6, or both.
    #[arg(long, value_name = "ADDRESS/LENGTH", conflicts_with = "to")]
    pub(crate) address: Vec<IpNet>,
    /// A network that clients are to reach through us; may be repeated. 0.0.0.0/0 is everything. A client takes only what its --accept-routes says.
    #[arg(long, value_name = "NETWORK", conflicts_with = "to")]
    pub(crate) route: Vec<IpNet>,
    /// A network that the server may have us reach through it, or part of it; may be repeated. Or `all`, whatever it says, or `none`, nothing but the
    /// VPN's own network [default: none].
    #[arg(long, value_name = "NETWORK|all|none", conflicts_with_all = ["address", "route", "client"])]
    pub(crate) accept_routes: Vec<AcceptRoutes>,
    /// Let in clients whose certificate has this fingerprint (their `punctual vpn` says it); may be repeated. A file says more of each.
    #[arg(long, value_name = "HEX", conflicts_with = "to")]
    pub(crate) client: Vec<Fingerprint>,
    /// The certificate and its key (PEM) to show; made and kept there if there is no such file. A client needs one; a server without has a new one each time.
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// A name or address for a new certificate to bear, for clients that check it; may be repeated.
    #[arg(long, value_name = "NAME", default_value = CERTIFIED)]
    pub(crate) name: Vec<String>,
    /// A TOML file with these settings and more: clients, classes, rules, limits (see docs/gateway.md). Flags overrule it, and add to its clients and routes.
    /// `punctual check-config` says what is wrong with one. SIGHUP has its clients, routes, MTU, classes, rules and limits read again; sessions go on.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    Port(u16),
    Address(SocketAddr),
}

pub(crate) fn parse_listen(text: &str) -> Result<Listen, String> {
    if let Ok(port) = text.parse() {
        return Ok(Listen::Port(port));
    }
    match scope::parse_with_port(text) {
        Ok(address) => Ok(Listen::Address(address)),
        Err(ScopeError::NoPort(_)) => Err("expected a port, or an address with port".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a block of a reply is.
fn parse_reply(text: &str) -> Result<Cut, String> {
    let video = |coding| Cut::Video(Video { coding, fps: None, pace: false });
    match text.split_once('=').unwrap_or((text, "")) {
        ("lines", "") => Ok(Cut::Lines),
        ("framed", "") => Ok(Cut::Framed { headers: false }),
        ("framed-headers", "") => Ok(Cut::Framed { headers: true }),
        ("h264", "") => Ok(video(Coding::H264)),
        ("h265" | "hevc", "") => Ok(video(Coding::H265)),
        ("chunks", size) => parse_size(size).map(Cut::Chunks),
        _ => Err("expected lines, framed, framed-headers, h264, h265, or chunks=SIZE".into()),
    }
}

/// A size in bytes, in binary multiples: 64K is 65,536.
fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => Some(1usize),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        _ => None,
    };
    let size = factor.and_then(|factor| digits.parse::<usize>().ok()?.checked_mul(factor));
    match size.filter(|&size| size > 0) {
        None => Err("expected a number of bytes, such as 1200, 64K or 1M".into()),
        Some(size) if size > MAX_PIECE => Err(format!("a block has {} MiB at most", MAX_PIECE >> 20)),
        Some(size) => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_have_binary_multiples() {
        assert_eq!(
            ["1200", "64K", "64kib", "1M", "2MB"].map(parse_size),
            [1200, 65_536, 65_536, 1 << 20, 2 << 20].map(Ok)
        );
        assert_eq!(parse_size("16M"), Ok(MAX_PIECE));
        assert_eq!(parse_size("17M"), Err("a block has 16 MiB at most".into()));
        for bad in ["", "0", "K", "-1", "1.5M", "1T", "64K4", "99999999999999999999"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_listens_at_a_port_or_an_address() {
        assert_eq!(parse_listen("4433"), Ok(Listen::Port(4433)));
        assert_eq!(parse_listen("[::1]:1"), Ok(Listen::Address("[::1]:1".parse().unwrap())));
        let loopback = if_addrs::get_if_addrs().unwrap().into_iter().find(if_addrs::Interface::is_loopback).unwrap();
        let on_link = format!("[fe80::1%{}]:1", loopback.index.unwrap()).parse().unwrap();
        assert_eq!(parse_listen(&format!("[fe80::1%{}]:1", loopback.name)), Ok(Listen::Address(on_link)));
        assert!(parse_listen("[fe80::1]:1").unwrap_err().contains("say by which interface"));
        assert!(parse_listen("[fe80::1%no-such-if0]:1").unwrap_err().contains("no interface `no-such-if0`"));
        for bad in ["", "eth0", "127.0.0.1", "70000"] {
            assert!(parse_listen(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sender_says_what_a_block_is() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("punctual send host:1 --lines").is_ok());
        assert!(parse("punctual send host:1 film.h264 --h264 --fps 25 --path eth0 --path wlan0=h:2").is_ok());
        assert!(parse("punctual send host:1").is_err(), "not said");
        assert!(parse("punctual send host:1 --lines --framed").is_err(), "said twice");
        assert!(parse("punctual send host:1 --framed-headers --channel 3").is_ok());
        assert!(parse("punctual send host:1 --lines --channel 3 --unordered").is_err(), "a channel keeps an order");
        assert!(parse("punctual send host:1 --h265 --pace").is_ok());
        assert!(parse("punctual send host:1 --lines --fingerprint ab --ca x").is_err(), "two kinds of trust");
        assert!(parse("punctual recv --out x --dir y").is_err(), "two places");
    }
}
