//! `punctual demo`: one clip, one bad network, three ways to send.

mod clip;
mod json;
mod metrics;
mod mp4;
mod progress;
mod punctual;
mod quic;
mod report;
mod scenario;
mod stage;
mod table;

use std::{
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use punctual_eval::h264;

use crate::{cli::DemoArgs, exit::Failure, link::relay::Carried, out::line, say::say};
use metrics::Summary;
use scenario::Scenario;
use stage::{Recording, Stage};

/// The clip that the demo streams; see `assets/README.md`.
pub(crate) const CLIP: &[u8] = include_bytes!("../../assets/clip.h264");

/// How the clip is sent.
#[derive(Debug, Clone, Copy)]
enum Transport {
    Quic(quic::Paths),
    Punctual,
}

const TRANSPORTS: [Transport; 3] =
    [Transport::Quic(quic::Paths::First), Transport::Quic(quic::Paths::All), Transport::Punctual];

/// A run that is over.
struct Run {
    /// As in the JSON object, in file names and in the report's classes.
    name: &'static str,
    summary: Summary,
    /// Of each frame, from hand-over until it could be decoded.
    delays: Vec<Option<Duration>>,
    /// Of each path.
    carried: Vec<Carried>,
    clip: PathBuf,
}

impl Run {
    /// The name for people.
    fn title(&self) -> &'static str {
        match self.name {
            "quic" => "QUIC, one path",
            "multipath-quic" => "multipath QUIC",
            _ => "Punctual",
        }
    }
}

/// Streams the clip three times and tells how it went.
pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    let stage = stage(args);
    fs::create_dir_all(&args.out).map_err(|error| Failure::file("make the directory", &args.out, error))?;
    let talk = !args.json && !args.quiet;
    if talk {
        introduce(&stage);
    }
    let mut runs = Vec::new();
    let visible = talk && std::io::stderr().is_terminal();
    for transport in TRANSPORTS {
        runs.push(perform(&stage, transport, &args.out, visible).await?);
    }
    if visible {
        // The last progress line stays; what follows begins a new one.
        say!();
    }
    let report = args.out.join("report.html");
    let page = report::page(&stage, &runs, &command(args));
    fs::write(&report, page).map_err(|error| Failure::file("write", &report, error))?;
    conclude(args, &stage, &runs, &report)
}

fn stage(args: &DemoArgs) -> Stage {
    let (mut frames, rate) = h264::split(CLIP, 16 << 20);
    let interval = Duration::from_secs_f64(1.0 / rate.unwrap_or(30.0));
    frames.truncate((f64::from(args.seconds) / interval.as_secs_f64()).round() as usize);
    Stage { frames: frames.into(), interval, scenario: Scenario::new(args.deadline, args.seed), live: Arc::default() }
}

async fn perform(stage: &Stage, transport: Transport, out: &Path, visible: bool) -> Result<Run, Failure> {
    let name = match transport {
        Transport::Quic(quic::Paths::First) => "quic",
        Transport::Quic(quic::Paths::All) => "multipath-quic",
        Transport::Punctual => "punctual",
    };
    let line = progress::Line::show(name, stage.frames.len(), stage.live.clone(), visible);
    let recording = match transport {
        Transport::Quic(paths) => quic::run(stage, paths).await?,
        Transport::Punctual => punctual::run(stage).await?,
    };
    drop(line);
    let delays = metrics::delays(&stage.frames, &recording.frames);
    let summary = metrics::summarize(&delays, stage.scenario.deadline, recording.bytes_sent());
    let Recording { frames, carried } = recording;
    let clip = clip::write(stage, &frames, out, name)?;
    Ok(Run { name, summary, delays, carried, clip })
}

fn introduce(stage: &Stage) {
    let seconds = (stage.interval * stage.frames.len() as u32).as_secs_f64();
    say!(
        "A video clip of {seconds:.0} s, {} frames, each due {} ms after it is sent, three times over this network:",
        stage.frames.len(),
        stage.scenario.deadline.as_millis()
    );
    for line in stage.scenario.describe() {
        say!("  {line}");
    }
    say!();
}

fn conclude(args: &DemoArgs, stage: &Stage, runs: &[Run], report: &Path) -> Result<(), Failure> {
    if args.json {
        let output = serde_json::to_string(&json::Output::new(runs, report));
        return line(output.map_err(|error| Failure::Other(error.to_string()))?);
    }
    line(table::render(runs, stage.interval))?;
    line(format_args!("the report: {}", report.display()))?;
    runs.iter().try_for_each(|run| line(format_args!("to watch:   {}", run.clip.display())))
}

/// The command that makes this demo again.
fn command(args: &DemoArgs) -> String {
    let DemoArgs { deadline, seconds, seed, .. } = args;
    let seconds = if *seconds == 10 { String::new() } else { format!(" --seconds {seconds}") };
    format!("punctual demo --deadline {}{seconds} --seed {seed}", format_args!("{deadline:?}"))
}
