//! A cell in a line, for people.

use super::{
    cell::{Cell, Cut},
    dice::rounded,
    path::{Cross, Jitter, Loss, MTU, Path, Queue, QueueBy, Rate},
    source::{Application, Priority, Source, Traffic},
};

impl Cell {
    /// What it is, in a line.
    pub fn describe(&self) -> String {
        let count = self.paths.len();
        let mut text = if count == 1 { "1 path: ".to_owned() } else { format!("{count} paths: ") };
        text.push_str(&self.paths.iter().map(path).collect::<Vec<_>>().join("; "));
        if let Some(shared) = self.shared {
            let [a, b] = shared.paths.map(|index| index + 1);
            text.push_str(&format!("; {a} and {b} share {}, {}", mbps(shared.rate), queue(shared.queue)));
        }
        let blocks = self.sources.iter().map(|of| source(of, self.application)).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("; {blocks}: {} of capacity", rounded(self.load())));
        if self.bulk {
            text.push_str(", beside bulk");
        }
        let Cut { shorter, lighter } = self.cut;
        let cut = [(shorter, ", shortened"), (lighter, ", lightened")]
            .map(|(done, text)| if done { text } else { "" })
            .concat();
        text.push_str(&format!(" ({} s{cut}{})", self.seconds, if self.wide { ", wide" } else { "" }));
        text
    }
}

fn path(path: &Path) -> String {
    let mut parts = Vec::new();
    match &path.rate {
        Rate::Recorded(recorded) => {
            let way = if recorded.up { "uplink" } else { "downlink" };
            parts.push(format!("LTE {} {way} from {} s", recorded.carrier, recorded.from));
        }
        Rate::Steps(steps) => parts.push(list(steps, |rate| format!("{}", rounded(rate / 1e6))) + " Mbit/s"),
    }
    parts.push(list(&path.delay, |ms| ms.to_string()) + " ms");
    parts.push(queue(path.queue));
    match path.loss {
        Loss::None => {}
        Loss::Random(share) => parts.push(format!("loss {}", percent(share))),
        Loss::Bursts(share, burst) => parts.push(format!("loss {} in bursts of {burst}", percent(share))),
    }
    if path.loses_back {
        parts.push("both ways".into());
    }
    parts.extend(path.jitter.map(jitter));
    parts.extend(path.reordering.map(|(share, ms)| format!("{} reordered by {ms} ms", percent(share))));
    if !path.stalls.is_empty() {
        parts.push(format!("stalls of {} ms", list(&path.stalls, |ms| ms.to_string())));
    }
    parts.extend(path.dies.map(|(_, lasts)| format!("dead for {lasts} s")));
    parts.extend(path.policer.map(|(rate, burst)| format!("policed to {} and {} KB", mbps(rate), kb(burst))));
    if path.mtu != MTU {
        parts.push(format!("MTU {}", path.mtu));
    }
    parts.extend(path.ecn_threshold.map(|bytes| format!("ECN above {} KB", kb(bytes))));
    parts.extend(path.cross.map(cross));
    let back = &path.back;
    if back.is_troubled() {
        let mut troubles = Vec::new();
        troubles.extend(back.rate.map(|(rate, _)| mbps(rate)));
        troubles.extend(back.jitter.map(jitter));
        troubles.extend(back.loss.map(|share| format!("loss {}", percent(share))));
        troubles.extend(back.cross.map(cross));
        parts.push(format!("way back: {}", troubles.join(" and ")));
    }
    parts.join(" ")
}

fn source(source: &Source, application: Application) -> String {
    let copies = if source.copies > 1 { format!("{} × ", source.copies) } else { String::new() };
    let deadline = format!("deadline {} ms", source.deadline_ms);
    match &source.traffic {
        Traffic::Messages { size, sigma, every_ms } => {
            let name = if application == Application::Messages { "messages" } else { source.name };
            let about = if sigma.is_some() { "about " } else { "" };
            let each = match source.priority {
                Priority::Each(count) => format!(" in {count} priorities"),
                _ => String::new(),
            };
            format!("{copies}{name} of {about}{size} B every {every_ms} ms{each}, {deadline}")
        }
        Traffic::Video { bit_rate, fps, gop, ratio, variation, depends } => {
            let name = if *depends { "dependent video" } else { "frames" };
            let varied = if *variation > 0.0 { format!(" ± {variation}") } else { String::new() };
            format!("{copies}{name} {} {fps}/s GOP {gop} I:P {ratio}{varied}, {deadline}", mbps(*bit_rate))
        }
    }
}

/// All values, in order of time.
fn list(steps: &[(f64, f64)], value: impl Fn(f64) -> String) -> String {
    steps.iter().map(|step| value(step.1)).collect::<Vec<_>>().join("→")
}

fn queue(queue: Queue) -> String {
    match queue.by {
        QueueBy::Products(products) => format!("queue {products} BDP"),
        QueueBy::Time(ms) => format!("queue {ms} ms"),
        QueueBy::Bytes => format!("queue {} KB", kb(queue.bytes)),
    }
}

fn jitter(jitter: Jitter) -> String {
    match jitter {
        Jitter::Uniform(ms) => format!("jitter up to {ms} ms"),
        Jitter::Exponential(ms) => format!("jitter about {ms} ms"),
        Jitter::Normal(mean, deviation) => format!("jitter {mean} ± {deviation} ms"),
    }
}

fn cross(cross: Cross) -> String {
    use super::path::Pattern::{Constant, OnOff, Poisson};
    let pattern = match cross.pattern {
        Constant => "",
        Poisson => " by chance",
        OnOff(..) => " on and off",
    };
    format!("{} of others{pattern}", mbps(cross.rate))
}

fn mbps(bits: f64) -> String {
    format!("{} Mbit/s", rounded(bits / 1e6))
}

fn kb(bytes: u64) -> f64 {
    rounded(bytes as f64 / 1e3)
}

fn percent(share: f64) -> String {
    format!("{} %", rounded(share * 100.0))
}
