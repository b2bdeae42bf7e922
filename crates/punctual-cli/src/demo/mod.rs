//! `punctual demo`: one clip, one bad network, three ways to send.

mod impair;
mod metrics;
mod progress;
mod quic;
mod relay;
mod scenario;
mod stage;

use std::{sync::Arc, time::Duration};

use crate::{exit::Failure, h264};

/// The clip that the demo streams; see `assets/README.md`.
pub(crate) const CLIP: &[u8] = include_bytes!("../../assets/clip.h264");

pub(crate) async fn run() -> Result<(), Failure> {
    let (frames, rate) = h264::split(CLIP, 16 << 20);
    let scenario = scenario::Scenario::new(Duration::from_millis(150), 1);
    for line in scenario.describe() {
        println!("{line}");
    }
    let live = Arc::new(progress::Live::default());
    let stage = stage::Stage {
        frames: frames.into(),
        interval: Duration::from_secs_f64(1.0 / rate.unwrap()),
        scenario,
        live: live.clone(),
    };
    for paths in [quic::Paths::First, quic::Paths::All] {
        let rec = {
            let _line = progress::Line::show(&format!("{paths:?}"), 300, live.clone(), true);
            quic::run(&stage, paths).await?
        };
        let d = metrics::delays(&stage.frames, &rec.frames);
        println!("{:?}", metrics::summarize(&d, stage.scenario.deadline, rec.bytes_sent()));
        for c in &rec.carried {
            println!("{} pkts {} lost {} dropped {}", c.bytes(), c.datagrams, c.lost, c.dropped);
        }
        println!(
            "{}",
            d.iter().map(|d| d.map_or(-1, |d| d.as_millis() as i64).to_string()).collect::<Vec<_>>().join(" ")
        );
    }
    Ok(())
}
