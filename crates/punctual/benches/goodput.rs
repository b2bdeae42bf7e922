//! How much block data a CPU carries over loopback, beside QUIC datagrams without Punctual over the same sockets.
//!
//! `cargo bench -p punctual --features yardstick --bench goodput -- [--json] [--megabytes 256] [--block 65536] [--window 512]
//! [--rounds 5] [--only raw,punctual]`
//!
//! Both ends run in one thread, so that the figures are those of one CPU. Of the contenders, which run by turns:
//!
//! - `raw`, `punctual`, `auto`, `retransmit`, `paths` have the same window, and a fixed one: it is small enough for the sockets' buffers, so
//!   that nothing is lost and redundancy has nothing to do. What that costs all the same is the difference between `auto`, blocks that all have
//!   a deadline, and `retransmit`, the same blocks without redundancy. `paths` is `punctual` with a second path open.
//! - `steady` and `cubic` are sessions driven by these controllers, `raw-cubic` and `stream-cubic` QUIC's datagrams and a QUIC stream, without
//!   Punctual, under CUBIC.
//!
//! `--only` is for a profiler.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory},
};
use punctual::{
    Block, Config, Endpoint, Identity, Outcome, Redundancy,
    congestion::{self, Congestion},
    yardstick::{Carrier, Yardstick},
};
use serde_json::json;

/// A congestion window that stays as it is.
#[derive(Debug, Clone)]
struct Fixed(u64);

impl Controller for Fixed {
    fn on_ack(&mut self, _: Instant, _: Instant, _: u64, _: u64, _: bool, _: &RttEstimator) {}
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}
    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for Fixed {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new((*self).clone())
    }
}

struct Options {
    bytes: u64,
    block: usize,
    window: u64,
    rounds: usize,
    json: bool,
    /// All, if empty.
    only: Vec<String>,
}

impl Options {
    fn from_args() -> Result<Self, String> {
        let mut options =
            Self { bytes: 256 << 20, block: 65_536, window: 512 << 10, rounds: 5, json: false, only: Vec::new() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                text.parse::<u64>().map_err(|error| format!("{argument} {text}: {error}"))
            };
            match argument.as_str() {
                "--megabytes" => options.bytes = number()? << 20,
                "--block" => options.block = number()?.max(1) as usize,
                "--window" => options.window = number()? << 10,
                "--rounds" => options.rounds = number()?.max(1) as usize,
                "--json" => options.json = true,
                "--only" => {
                    options.only = arguments.next().iter().flat_map(|names| names.split(',')).map(Into::into).collect()
                }
                // What cargo adds.
                "--bench" => {}
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(options)
    }
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
struct Figures {
    bytes: u64,
    elapsed: Duration,
    cpu: Duration,
    lost: u64,
    /// UDP payload that went back, and what of it were reports of arrivals.
    back: u64,
    reports: u64,
}

impl Figures {
    fn mbps(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.elapsed.as_secs_f64()
    }

    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 * 1e-9)
    }

    fn back_per_kilobyte(&self) -> f64 {
        self.back as f64 * 1e3 / self.bytes as f64
    }

    fn reports_per_kilobyte(&self) -> f64 {
        self.reports as f64 * 1e3 / self.bytes as f64
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "mbps": self.mbps(),
            "cpu_s_per_gb": self.cpu_per_gigabyte(),
            "packets_lost": self.lost,
            "back_bytes_per_kb": self.back_per_kilobyte(),
            "report_bytes_per_kb": self.reports_per_kilobyte(),
        })
    }
}

/// CPU time of the whole process, user and system.
#[cfg(target_os = "linux")]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(target_os = "linux"))]
fn cpu_time() -> Duration {
    Duration::ZERO
}

/// What is measured by turns, so that what else the machine does hits all alike.
const CONTENDERS: [(&str, Contender); 9] = [
    ("raw", Contender::Raw(None, Carrier::Datagrams)),
    ("punctual", Contender::Blocks { controller: None, mode: None, paths: 1 }),
    ("auto", Contender::Blocks { controller: None, mode: Some(Redundancy::Auto), paths: 1 }),
    ("retransmit", Contender::Blocks { controller: None, mode: Some(Redundancy::Retransmit), paths: 1 }),
    ("paths", Contender::Blocks { controller: None, mode: None, paths: 2 }),
    ("steady", Contender::Blocks { controller: Some("steady"), mode: None, paths: 1 }),
    ("cubic", Contender::Blocks { controller: Some("cubic"), mode: None, paths: 1 }),
    ("raw-cubic", Contender::Raw(Some("cubic"), Carrier::Datagrams)),
    ("stream-cubic", Contender::Raw(Some("cubic"), Carrier::Stream)),
];

/// What is set beside what.
const RATIOS: [(&str, &str); 6] = [
    ("punctual", "raw"),
    ("auto", "retransmit"),
    ("paths", "punctual"),
    ("steady", "cubic"),
    ("steady", "raw-cubic"),
    ("steady", "stream-cubic"),
];

/// The controller is a fixed window, if it has no name.
#[derive(Debug, Clone, Copy)]
enum Contender {
    /// QUIC without Punctual.
    Raw(Option<&'static str>, Carrier),
    /// Blocks; with a deadline, if they have a mode of redundancy.
    Blocks { controller: Option<&'static str>, mode: Option<Redundancy>, paths: usize },
}

/// Further away than any run takes.
const DEADLINE: Duration = Duration::from_secs(3_600);

/// A contender's runs.
struct Runs {
    name: &'static str,
    list: Vec<Figures>,
}

impl Runs {
    fn best(&self) -> Option<Figures> {
        self.list.iter().copied().max_by(|a, b| a.mbps().total_cmp(&b.mbps()))
    }

    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        let mut values: Vec<f64> = self.list.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "best": self.best().map(|best| best.json()),
            "median_mbps": self.median(Figures::mbps),
            "median_cpu_s_per_gb": self.median(Figures::cpu_per_gigabyte),
        })
    }
}

/// How one contender does beside another: best goodput, median goodput, and CPU time (median), which is the steadiest of the three on a machine
/// that does other things, too.
fn ratio(runs: &[Runs], of: &str, to: &str) -> Option<[f64; 3]> {
    let find = |name| runs.iter().find(|runs| runs.name == name);
    let (of, to) = find(of).zip(find(to))?;
    let cpu = |runs: &Runs| runs.median(Figures::cpu_per_gigabyte);
    Some([
        of.best()?.mbps() / to.best()?.mbps(),
        of.median(Figures::mbps) / to.median(Figures::mbps),
        cpu(to) / cpu(of),
    ])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let chosen = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let contenders: Vec<_> = CONTENDERS.into_iter().filter(|(name, _)| chosen(name)).collect();
    let mut runs: Vec<_> = contenders.iter().map(|&(name, _)| Runs { name, list: Vec::new() }).collect();
    for _ in 0..options.rounds {
        for ((_, contender), runs) in contenders.iter().zip(&mut runs) {
            runs.list.push(match *contender {
                Contender::Raw(controller, carrier) => runtime.block_on(run_raw(&options, controller, carrier)),
                Contender::Blocks { controller, mode, paths } => {
                    runtime.block_on(run_library(&options, controller, mode, paths))?
                }
            });
        }
    }
    let ratios = RATIOS.map(|(of, to)| (of, to, ratio(&runs, of, to)));
    if options.json {
        let mut out = json!({
            "block_bytes": options.block,
            "window_bytes": options.window,
            "total_bytes": options.bytes,
        });
        for runs in &runs {
            out[runs.name] = runs.json();
        }
        for (of, to, ratio) in ratios {
            out[format!("{of} to {to}")] =
                ratio.map(|[best, median, cpu]| json!({ "best": best, "median": median, "cpu": cpu })).into();
        }
        println!("{out}");
        return Ok(());
    }
    println!("{:12}  Mbit/s: best  median   CPU s/GB: best  median     lost  back, B/kB  reports, B/kB", "");
    for runs in &runs {
        let Some(best) = runs.best() else { continue };
        println!(
            "{:12} {:13.0} {:7.0} {:16.2} {:7.2} {:8} {:11.2} {:14.2}",
            runs.name,
            best.mbps(),
            runs.median(Figures::mbps),
            best.cpu_per_gigabyte(),
            runs.median(Figures::cpu_per_gigabyte),
            best.lost,
            best.back_per_kilobyte(),
            best.reports_per_kilobyte(),
        );
    }
    for (of, to, ratio) in ratios {
        if let Some([best, median, cpu]) = ratio {
            println!("{of} to {to}: best {best:.2}, median {median:.2}, by CPU time {cpu:.2}");
        }
    }
    Ok(())
}

/// QUIC's controllers of that name, or a fixed window.
fn quic_controllers(options: &Options, name: Option<&str>) -> congestion::CongestionFactory {
    let window = options.window;
    match name {
        Some(name) => congestion::quic(name).expect("a contender's name is in the registry"),
        None => Arc::new(move |_| Arc::new(Fixed(window))),
    }
}

fn config(options: &Options, controller: Option<&str>) -> Config {
    let mut config = Config::default();
    config.session.congestion = match controller {
        Some(name) => congestion::by_name(name).expect("a contender's name is in the registry"),
        None => Congestion::Acks(quic_controllers(options, None)),
    };
    config
}

async fn run_raw(options: &Options, controller: Option<&str>, carrier: Carrier) -> Figures {
    let config = Config::default();
    let window = u64::from(config.session.initial_window_packets) * 1_200;
    let controllers = quic_controllers(options, controller)(window);
    let mut yardstick = Yardstick::new(controllers, carrier, config.receive_buffer, config.session.max_ack_delay);
    // The handshake, and the search for the path's MTU.
    yardstick.run(options.bytes / 16).await;
    let (lost, back) = (yardstick.lost(), yardstick.sent_back());
    let (start, cpu) = (Instant::now(), cpu_time());
    yardstick.run(options.bytes).await;
    let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu);
    let (lost, back) = (yardstick.lost() - lost, yardstick.sent_back() - back);
    Figures { bytes: options.bytes, elapsed, cpu, lost, back, reports: 0 }
}

async fn run_library(
    options: &Options,
    controller: Option<&str>,
    mode: Option<Redundancy>,
    paths: usize,
) -> Result<Figures, Box<dyn std::error::Error>> {
    let config = || config(options, controller);
    let identity = Identity::self_signed(["localhost"])?;
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind("127.0.0.1".parse()?).config(config()).build()?;
    let client = Endpoint::client().trust(fingerprint).bind("127.0.0.1".parse()?).config(config()).build()?;
    let connecting = client.connect(server.local_address(), "localhost");
    let (sender, receiver) = tokio::join!(std::future::IntoFuture::into_future(connecting), server.accept());
    let (sender, receiver) = (sender?, receiver.ok_or("the server is closed")?);
    for _ in 1..paths {
        let local = client.bind("127.0.0.1".parse()?)?.first().ok_or("no second address")?.id;
        sender.open_path(local, server.local_address()).await?;
    }

    let data = bytes::Bytes::from(vec![0x5a; options.block]);
    let block = || match mode {
        Some(mode) => Block::new(data.clone()).deadline(DEADLINE).redundancy(mode),
        None => Block::new(data.clone()),
    };
    let transfer = async |bytes: u64| {
        let blocks = bytes.div_ceil(options.block as u64);
        let send = async {
            for _ in 0..blocks {
                sender.send(block()).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        };
        let receive = async {
            let mut received = 0;
            for _ in 0..blocks {
                received += receiver.recv().await.map_err(|error| error.to_string())?.data.len() as u64;
            }
            Ok(received)
        };
        tokio::try_join!(send, receive).map(|(_, received)| received)
    };
    let counters = || {
        let lost = sender.path_stats().iter().map(|path| path.packets_lost).sum::<u64>();
        let back = receiver.path_stats();
        let reports = back.iter().map(|path| path.report_bytes).sum::<u64>();
        [lost, back.iter().map(|path| path.bytes_sent).sum(), reports]
    };
    transfer(options.bytes / 16).await?;
    let before = counters();
    let (start, cpu) = (Instant::now(), cpu_time());
    let bytes = transfer(options.bytes).await?;
    let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu);
    let after = counters();
    let [lost, back, reports] = std::array::from_fn(|i| after[i] - before[i]);
    // That all is well otherwise, too.
    let last = sender.send(Block::new("last")).await?;
    receiver.recv().await?;
    assert!(matches!(last.await, Outcome::Delivered(_)));
    sender.finish(Duration::from_secs(5)).await;
    client.wait_idle().await;
    Ok(Figures { bytes, elapsed, cpu, lost, back, reports })
}
