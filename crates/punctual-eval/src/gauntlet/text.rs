//! A cell as the text of an experiment.

use std::fmt::Write as _;

use super::{
    VERSION,
    cell::Cell,
    path::{Cross, Jitter, Loss, MTU, Path, Pattern, Rate},
    source::{Priority, Source, Traffic},
};

/// What the text is run with unless told otherwise.
const CONTENDERS: [&str; 4] = ["ads", "admission", "quic-by-priority", "mpquic-by-priority"];

/// Of the shared link.
const SHARED: &str = "shared";

/// The least important of all.
const BULK_PRIORITY: u8 = 200;

impl Cell {
    /// The experiment that is this cell, in TOML.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let contenders = if self.paths.len() > 1 { &CONTENDERS[..] } else { &CONTENDERS[..3] };
        let mut add = |part: String| text.push_str(&part);
        add(format!("title = \"Gauntlet {VERSION}, cell {}\"\n", self.number));
        add(format!("about = \"{}\"\n", self.describe()));
        add(format!("seeds = 2\nduration = \"{}s\"\ncontenders = {contenders:?}\n", self.seconds));
        if let Some(shared) = self.shared {
            add(format!("\n[[link]]\nname = \"{SHARED}\"\n"));
            add(format!("rate = \"{}\"\ndelay = \"{}ms\"\n", rate(shared.rate), shared.delay));
            add(format!("queue = {}\n", shared.queue.bytes));
        }
        for (index, path) in self.paths.iter().enumerate() {
            let through = self.shared.is_some_and(|shared| shared.paths.contains(&index));
            add(path_table(path, self.seconds, through));
        }
        self.sources.iter().for_each(|source| add(source_table(source)));
        if self.bulk {
            add(format!("\n[[workload]]\nname = \"bulk\"\nkind = \"bulk\"\npriority = {BULK_PRIORITY}\n"));
        }
        text
    }
}

fn path_table(path: &Path, seconds: f64, through: bool) -> String {
    let mut text = "\n[[path]]\n".to_owned();
    let mut add = |key: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    };
    let mut back: Vec<String> = Vec::new();
    match &path.rate {
        Rate::Steps(steps) => add("rate", changing(&stalled(steps, &path.stalls, seconds), rate)),
        Rate::Recorded(recorded) => {
            let [there, returning] = recorded.files();
            add("trace", format!("\"{there}\""));
            add("trace-from", format!("\"{}s\"", recorded.from));
            back.push(format!("trace = \"{returning}\", trace-from = \"{}s\"", recorded.from));
        }
    }
    let delays: Vec<(f64, f64)> = path.delay.iter().map(|(at, ms)| (at * seconds, *ms)).collect();
    add("delay", changing(&delays, |ms| format!("{ms}ms")));
    add("queue", path.queue.bytes.to_string());
    if path.loss != Loss::None {
        add("loss", loss(path.loss));
        // A recorded path's way back does not take the loss over.
        match (path.loses_back, matches!(path.rate, Rate::Recorded(_)), path.back.loss) {
            (false, false, None) => back.push("loss = 0".into()),
            (true, true, None) => back.push(format!("loss = {}", loss(path.loss))),
            _ => {}
        }
    }
    if let Some(spec) = path.jitter {
        add("jitter", jitter(spec));
    }
    if let Some((share, ms)) = path.reordering {
        add("reordering", format!("{{ probability = {share}, delay = \"{ms}ms\" }}"));
    }
    if let Some((bits, burst)) = path.policer {
        add("policer", format!("{{ rate = \"{}\", burst = {burst} }}", rate(bits)));
    }
    if path.mtu != MTU {
        add("mtu", path.mtu.to_string());
    }
    if let Some(bytes) = path.ecn_threshold {
        add("ecn-threshold", bytes.to_string());
    }
    if let Some(traffic) = path.cross {
        add("cross", cross(traffic, path.mtu));
    }
    if let Some((at, lasts)) = path.dies {
        let from = at * seconds;
        add("dies", format!("[[\"{from:.3}s\", \"{:.3}s\"]]", from + lasts));
    }
    if through {
        add("through", format!("\"{SHARED}\""));
    }
    if let Some((bits, queue)) = path.back.rate {
        back.push(format!("rate = \"{}\", queue = {queue}", rate(bits)));
    }
    if let Some(spec) = path.back.jitter {
        back.push(format!("jitter = {}", jitter(spec)));
    }
    if let Some(share) = path.back.loss {
        back.push(format!("loss = {share}"));
    }
    if let Some(traffic) = path.back.cross {
        back.push(format!("cross = {}", cross(traffic, path.mtu)));
    }
    if !back.is_empty() {
        add("back", format!("{{ {} }}", back.join(", ")));
    }
    text
}

/// The rates over time, in seconds, with nothing at all in between.
fn stalled(steps: &[(f64, f64)], stalls: &[(f64, f64)], seconds: f64) -> Vec<(f64, f64)> {
    let stalls: Vec<(f64, f64)> = stalls.iter().map(|(at, ms)| (at * seconds, at * seconds + ms / 1e3)).collect();
    let stands = |time: f64| stalls.iter().any(|(from, to)| (*from..*to).contains(&time));
    let at = |time: f64| steps.iter().rev().find(|step| step.0 * seconds <= time).map_or(steps[0].1, |step| step.1);
    let moments = steps.iter().map(|step| step.0 * seconds).chain(stalls.iter().flat_map(|(from, to)| [*from, *to]));
    let mut moments: Vec<f64> = moments.collect();
    moments.sort_by(f64::total_cmp);
    moments.dedup();
    let mut timeline = Vec::new();
    for time in moments {
        let rate = if stands(time) { 0.0 } else { at(time) };
        if timeline.last().is_none_or(|(_, last)| *last != rate) {
            timeline.push((time, rate));
        }
    }
    timeline
}

/// A value that may change over time, in seconds. Of what changes twice within a millisecond the last is told.
fn changing(steps: &[(f64, f64)], value: impl Fn(f64) -> String) -> String {
    let mut told: Vec<(String, f64)> = Vec::new();
    for (at, of) in steps {
        let at = format!("{at:.3}s");
        match told.last_mut() {
            Some(last) if last.0 == at => last.1 = *of,
            _ => told.push((at, *of)),
        }
    }
    match told.as_slice() {
        [(_, only)] => format!("\"{}\"", value(*only)),
        _ => {
            let step = |(at, of): &(String, f64)| format!("[\"{at}\", \"{}\"]", value(*of));
            format!("[{}]", told.iter().map(step).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A rate as text that reads back as it was.
fn rate(bits: f64) -> String {
    match bits {
        bits if bits >= 1e6 => format!("{} Mbit/s", thousandths(bits / 1e3)),
        bits => format!("{} kbit/s", thousandths(bits)),
    }
}

/// A whole number, over a thousand.
fn thousandths(value: f64) -> f64 {
    value.round() / 1e3
}

fn loss(loss: Loss) -> String {
    match loss {
        Loss::None => "0".into(),
        Loss::Random(share) => share.to_string(),
        Loss::Bursts(mean, burst) => format!("{{ mean = {mean}, burst = {burst} }}"),
    }
}

fn jitter(jitter: Jitter) -> String {
    match jitter {
        Jitter::Uniform(ms) => format!("{{ uniform = \"{ms}ms\" }}"),
        Jitter::Exponential(ms) => format!("{{ exponential = \"{ms}ms\" }}"),
        Jitter::Normal(mean, deviation) => {
            format!("{{ normal = {{ mean = \"{mean}ms\", deviation = \"{deviation}ms\" }} }}")
        }
    }
}

fn cross(traffic: Cross, mtu: u32) -> String {
    let pattern = match traffic.pattern {
        Pattern::Constant => String::new(),
        Pattern::Poisson => ", poisson = true".into(),
        Pattern::OnOff(on, off) => format!(", on-off = [\"{on}ms\", \"{off}ms\"]"),
    };
    format!("[{{ rate = \"{}\", packet = {mtu}{pattern} }}]", rate(traffic.rate))
}

fn source_table(source: &Source) -> String {
    let mut text = format!("\n[[workload]]\nname = \"{}\"\n", source.name);
    let mut add = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    match &source.traffic {
        Traffic::Messages { size, sigma, every_ms } => {
            add(
                "size",
                match sigma {
                    Some(sigma) => format!("{{ log-normal = {{ mean = {size}, sigma = {sigma} }} }}"),
                    None => size.to_string(),
                },
            );
            add("every", format!("\"{every_ms}ms\""));
            if source.copies > 1 {
                add("start", format!("{{ uniform = [\"0s\", \"{every_ms}ms\"] }}"));
            }
        }
        Traffic::Video { bit_rate, fps, gop, ratio, variation, depends } => {
            add("kind", "\"video\"".into());
            add("bit-rate", format!("\"{}\"", rate(*bit_rate)));
            add("fps", fps.to_string());
            add("gop", format!("{{ length = {gop}, b-frames = 0 }}"));
            add("ratio", format!("[{ratio}, 1, 1]"));
            add("variation", variation.to_string());
            if !depends {
                add("depends", "\"none\"".into());
            }
            if source.copies > 1 {
                // Anywhere in the group, so that I frames do not come together.
                add("start", format!("{{ uniform = [\"0s\", \"{:.3}s\"] }}", f64::from(*gop) / f64::from(*fps)));
            }
        }
    }
    if source.copies > 1 {
        add("copies", source.copies.to_string());
    }
    add(
        "priority",
        match source.priority {
            Priority::Same(priority) => priority.to_string(),
            Priority::Each(count) => format!("{:?}", (0..count).collect::<Vec<_>>()),
            Priority::Frames(i, p) => format!("{{ i = {i}, p = {p}, b = {p} }}"),
        },
    );
    add("deadline", format!("\"{}ms\"", source.deadline_ms));
    text
}
