use std::{sync::Arc, time::Duration};

use punctual_eval::h264;

use super::*;
use crate::{
    demo::{CLIP, metrics, progress::Live, scenario::Scenario},
    link::relay::Carried,
};

fn stage() -> Stage {
    let (frames, _) = h264::split(CLIP, 16 << 20);
    Stage {
        frames: frames.into(),
        interval: Duration::from_secs(1) / 30,
        scenario: Scenario::new(Duration::from_millis(150), 1),
        live: Arc::new(Live::default()),
    }
}

fn run(name: &'static str, delays: Vec<Option<Duration>>) -> Run {
    let carried = vec![Carried { bins: vec![10_000; 100], ..Carried::default() }, Carried::default()];
    let summary = metrics::summarize(&delays, Duration::from_millis(150), 1_000_000);
    Run { name, summary, delays, carried, clip: format!("out/{name}.mp4").into() }
}

fn runs() -> Vec<Run> {
    let delays = |n: u64| (0..300).map(|i| (i % 7 != 3).then(|| Duration::from_millis(40 + n * i))).collect();
    vec![run("quic", delays(3)), run("multipath-quic", delays(1)), run("punctual", vec![None; 300])]
}

#[test]
fn the_page_is_well_formed() {
    let page = page(&stage(), &runs(), "punctual demo --out \"a <b> & c\"");
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        match tag.as_bytes()[0] {
            b'!' => {}
            b'/' => assert_eq!(open.pop(), Some(name), "</{name}> closes what was opened last"),
            _ if tag.ends_with('/') || name == "meta" => {}
            _ => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    assert!(page.contains("a &lt;b&gt; &amp; c"));
}

#[test]
fn the_page_asks_nobody_for_anything() {
    let page = page(&stage(), &runs(), "punctual demo");
    for outside in ["http:", "https:", "//", "@import", "url(", "<script", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    let links: Vec<_> = page.match_indices("href=\"").map(|(at, _)| &page[at + 6..at + 16]).collect();
    assert_eq!(links.len(), 3, "the clips beside it, and nothing else: {links:?}");
}

#[test]
fn every_frame_of_every_run_is_drawn() {
    let page = page(&stage(), &runs(), "punctual demo");
    let drawn = |what: &str| page.matches(what).count();
    assert_eq!(drawn("<circle") + drawn("<path class=\"lost\""), 900);
    assert!(!page.contains("NaN") && !page.contains("inf"));
}
