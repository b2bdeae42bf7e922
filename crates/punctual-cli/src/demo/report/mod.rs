//! The report of a demo: one HTML page that needs nothing else, in light and dark.

mod plots;
mod scale;

use std::{fmt::Write as _, time::Duration};

use punctual_eval::{h264::Kind, svg::escape};

use super::{Run, stage::Stage, table};
use plots::{Scene, percent};

/// The page.
pub(super) fn page(stage: &Stage, runs: &[Run], command: &str) -> String {
    let scene = Scene { stage, runs };
    let deadline = stage.scenario.deadline.as_millis();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Punctual: the demo</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         <h1>{headline}</h1>\n<p class=\"lead\">{lead}</p>\n\
         <section><div class=\"scroll\">{table}</div></section>\n\
         <section><h2>Delay of every frame</h2>\n<p class=\"note\">From hand-over to the moment it can be decoded. Above the dashed line \
         ({deadline} ms) a frame is late; × never came. In the shaded seconds path A has little capacity. A pointer on a dot names the frame.</p>\n{delays}</section>\n\
         <section><h2>The network</h2>\n<p class=\"note\">What the two paths could carry, stacked, and what the clip needs (line, over half a second). \
         <span class=\"key\">{path_key}</span></p>\n{network}</section>\n\
         <section><h2>What each run sent where</h2>\n<p class=\"note\">Bytes that left the client, resent and duplicate ones included. <span class=\"key\">{path_key}</span></p>\n{shares}</section>\n\
         <div class=\"pair\">\n<section><h2>Share of frames by delay</h2>\n<p class=\"key\">{run_key}</p>\n{distribution}</section>\n\
         <section>{fine_print}</section>\n</div>\n\
         <section><h2>Do it again</h2>\n<pre>{command}</pre></section>\n</body>\n</html>\n",
        style = include_str!("style.css"),
        headline = headline(runs),
        lead = lead(stage),
        table = figures(runs, stage.interval),
        delays = scene.delays(),
        network = scene.network(),
        shares = scene.shares(),
        distribution = scene.distribution(),
        path_key = path_key(stage),
        run_key = run_key(runs),
        fine_print = fine_print(stage),
        command = escape(command),
    )
}

fn headline(runs: &[Run]) -> String {
    let share = |run: &Run| format!("{} {}", run.title(), percent(run.summary.on_time));
    let all: Vec<String> = runs.iter().rev().map(share).collect();
    format!("Frames on time: {}", escape(&all.join(", ")))
}

fn lead(stage: &Stage) -> String {
    let seconds = (stage.interval * stage.frames.len() as u32).as_secs_f64();
    let bits: usize = stage.frames.iter().map(|frame| frame.data.len() * 8).sum();
    format!(
        "One {seconds:.0} s video clip ({:.2} Mbit/s, {:.0} frames/s), one deadline ({} ms), one bad network, one clock. Only the transport differs.",
        bits as f64 / seconds / 1e6,
        1.0 / stage.interval.as_secs_f64(),
        stage.scenario.deadline.as_millis(),
    )
}

/// The figures, in the words of the table on screen.
fn figures(runs: &[Run], interval: Duration) -> String {
    let mut html = String::from("<table>\n<tr>");
    for column in table::COLUMNS {
        let _ = write!(html, "<th>{}</th>", escape(column));
    }
    html.push_str("<th>to watch</th></tr>\n");
    for run in runs {
        let cells = table::cells(run, interval);
        let [_, on_time, others @ ..] = &cells;
        let _ = write!(
            html,
            "<tr><td class=\"name\"><span class=\"swatch bg-{}\"></span>{}</td><td class=\"big\">{}</td>",
            run.name,
            escape(run.title()),
            escape(on_time)
        );
        for cell in others {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        let file = run.clip.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(html, "<td><a href=\"{0}\">{0}</a></td></tr>", escape(&file));
    }
    html + "</table>"
}

fn path_key(stage: &Stage) -> String {
    let key = |(path, n): (&super::scenario::PathSpec, usize)| {
        format!("<span><span class=\"swatch bg-path-{n}\"></span>path {}</span>", escape(path.name))
    };
    stage.scenario.paths.iter().zip(0..).map(key).collect()
}

fn run_key(runs: &[Run]) -> String {
    let key = |run: &Run| format!("<span><span class=\"swatch bg-{}\"></span>{}</span>", run.name, escape(run.title()));
    runs.iter().map(key).collect()
}

fn fine_print(stage: &Stage) -> String {
    let count = |kind| stage.frames.iter().filter(|frame| frame.kind == kind).count();
    let paths: String = stage
        .scenario
        .describe()
        .iter()
        .map(|line| format!("<li>{}</li>", escape(line).replace(" %", "&nbsp;%")))
        .collect();
    format!(
        "<h2>How it was measured</h2>\n<p class=\"note\">Over real UDP sockets on this host's loopback, impaired in user space \
         (rates include IP and UDP headers; loss seeded with {seed}, the same for every run):</p>\n<ul class=\"note\">{paths}</ul>\n\
         <p class=\"note\">QUIC and multipath QUIC are noq with its defaults, one stream for each frame, first in, first out; \
         plain QUIC has path A, the better one. Punctual knows each frame's deadline, priority and the frames it refers to \
         ({i} I, {p} P, {b} B frames, read from the bitstream); frames that others refer to may take twice the time, for late \
         they still save those.</p>\n\
         <p class=\"note\">A frame is on time if it and all frames it refers to are with the receiver {deadline} ms after its hand-over. \
         Play-out lags the hand-over by as much; a stall begins when a frame is not there at its instant and lasts while the \
         following ones are not either. The clips show a late frame when it came.</p>",
        seed = stage.scenario.seed,
        i = count(Kind::I),
        p = count(Kind::Reference),
        b = count(Kind::Disposable),
        deadline = stage.scenario.deadline.as_millis(),
    )
}

#[cfg(test)]
mod tests;
