//! How much block data a CPU carries over loopback, beside QUIC datagrams without Punctual over the same sockets.
//!
//! `cargo bench -p punctual --features yardstick --bench goodput -- [--json] [--megabytes 256] [--block 65536] [--window 512]
//! [--rounds 3]`
//!
//! Both ends run in one thread, so that the figures are those of one CPU. The window is the same for both, and fixed: it is
//! small enough for the sockets' buffers, so that nothing is lost.
//!
//! Nothing is lost, so redundancy has nothing to do. What it costs all the same is the difference between `auto`, blocks that all have a
//! deadline, and `retransmit`, the same blocks without redundancy. `--only` and one of the names is for a profiler.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory},
};
use punctual::{Block, Config, Endpoint, Identity, Outcome, Redundancy, yardstick::Yardstick};
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
    only: Option<String>,
}

impl Options {
    fn from_args() -> Result<Self, String> {
        let mut options =
            Self { bytes: 256 << 20, block: 65_536, window: 512 << 10, rounds: 3, json: false, only: None };
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
                "--only" => options.only = arguments.next(),
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
}

impl Figures {
    fn mbps(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.elapsed.as_secs_f64()
    }

    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 * 1e-9)
    }

    fn json(&self) -> serde_json::Value {
        json!({ "mbps": self.mbps(), "cpu_s_per_gb": self.cpu_per_gigabyte(), "packets_lost": self.lost })
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
const CONTENDERS: [(&str, Contender); 4] = [
    ("raw", Contender::Raw),
    ("punctual", Contender::Blocks(None)),
    ("auto", Contender::Blocks(Some(Redundancy::Auto))),
    ("retransmit", Contender::Blocks(Some(Redundancy::Retransmit))),
];

#[derive(Debug, Clone, Copy)]
enum Contender {
    /// QUIC datagrams without Punctual.
    Raw,
    /// Blocks; with a deadline, if they have a mode of redundancy.
    Blocks(Option<Redundancy>),
}

/// Further away than any run takes.
const DEADLINE: Duration = Duration::from_secs(3_600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut runs: [Vec<Figures>; CONTENDERS.len()] = Default::default();
    for _ in 0..options.rounds {
        for ((name, contender), runs) in CONTENDERS.iter().zip(&mut runs) {
            if options.only.as_deref().is_none_or(|only| only == *name) {
                runs.push(match contender {
                    Contender::Raw => runtime.block_on(run_raw(&options)),
                    Contender::Blocks(mode) => runtime.block_on(run_library(&options, *mode))?,
                });
            }
        }
    }
    let best = runs.map(|runs| runs.iter().copied().max_by(|a, b| a.mbps().total_cmp(&b.mbps())));
    let [raw, library, auto, retransmit] = best;
    let ratio = library.zip(raw).map(|(library, raw)| library.mbps() / raw.mbps());
    // The steadier of the two on a machine that does other things, too.
    let by_cpu = |of: Option<Figures>, to: Option<Figures>| {
        of.zip(to).map(|(of, to)| to.cpu_per_gigabyte() / of.cpu_per_gigabyte())
    };
    let (cpu_ratio, idle_ratio) = (by_cpu(library, raw), by_cpu(auto, retransmit));
    if options.json {
        let mut out = json!({
            "block_bytes": options.block,
            "window_bytes": options.window,
            "total_bytes": options.bytes,
            "ratio": ratio,
            "cpu_ratio": cpu_ratio,
            "idle_redundancy_cpu_ratio": idle_ratio,
        });
        for ((name, _), figures) in CONTENDERS.iter().zip(best) {
            out[name] = figures.map(|figures| figures.json()).into();
        }
        println!("{out}");
        return Ok(());
    }
    for ((name, _), figures) in CONTENDERS.iter().zip(best) {
        let Some(figures) = figures else { continue };
        println!(
            "{name:10} {:7.0} Mbit/s  {:5.2} CPU s/GB  {} packets lost",
            figures.mbps(),
            figures.cpu_per_gigabyte(),
            figures.lost
        );
    }
    if let Some((goodput, cpu)) = ratio.zip(cpu_ratio) {
        println!("punctual to raw: {goodput:.2} of the goodput, {cpu:.2} by CPU time");
    }
    if let Some(ratio) = idle_ratio {
        println!("auto to retransmit: {ratio:.2} by CPU time");
    }
    Ok(())
}

fn config(options: &Options) -> Config {
    let window = options.window;
    let mut config = Config::default();
    config.session.congestion = Arc::new(move |_| Arc::new(Fixed(window)));
    config
}

async fn run_raw(options: &Options) -> Figures {
    let config = config(options);
    let mut yardstick =
        Yardstick::new(Arc::new(Fixed(options.window)), config.receive_buffer, config.session.max_ack_delay);
    // The handshake, and the search for the path's MTU.
    yardstick.run(options.bytes / 16).await;
    let (start, cpu) = (Instant::now(), cpu_time());
    yardstick.run(options.bytes).await;
    Figures { bytes: options.bytes, elapsed: start.elapsed(), cpu: cpu_time() - cpu, lost: yardstick.lost() }
}

async fn run_library(options: &Options, mode: Option<Redundancy>) -> Result<Figures, Box<dyn std::error::Error>> {
    let identity = Identity::self_signed(["localhost"])?;
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind("127.0.0.1".parse()?).config(config(options)).build()?;
    let client = Endpoint::client().trust(fingerprint).bind("127.0.0.1".parse()?).config(config(options)).build()?;
    let connecting = client.connect(server.local_address(), "localhost");
    let (sender, receiver) = tokio::join!(std::future::IntoFuture::into_future(connecting), server.accept());
    let (sender, receiver) = (sender?, receiver.ok_or("the server is closed")?);

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
    transfer(options.bytes / 16).await?;
    let (start, cpu) = (Instant::now(), cpu_time());
    let bytes = transfer(options.bytes).await?;
    let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu);
    let lost = sender.path_stats().iter().map(|path| path.packets_lost).sum();
    // That all is well otherwise, too.
    let last = sender.send(Block::new("last")).await?;
    receiver.recv().await?;
    assert!(matches!(last.await, Outcome::Delivered(_)));
    sender.finish(Duration::from_secs(5)).await;
    client.wait_idle().await;
    Ok(Figures { bytes, elapsed, cpu, lost })
}
