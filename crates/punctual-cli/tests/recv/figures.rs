//! What is seen while it runs, and at the end.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::processes::{Receiver, Said, wait_for};

/// The second line of JSON on standard error that has carried blocks: the first may have no window to speak of.
fn statistics(said: &Said) -> Value {
    wait_for("statistics", || {
        let text = said.text();
        let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|object| object["blocks"].as_u64() > Some(0)).nth(1)
    })
}

#[test]
fn statistics_have_all_that_is_known_of_paths_and_the_last_second() {
    let mut receiver = Receiver::start(&["--stats-json"]);
    let mut sender = receiver.sender(&["--stats-json"]);
    sender.say("a line");
    for said in [&sender.0.stderr, &receiver.process.stderr] {
        let object = statistics(said);
        assert_eq!((&object["blocks"], &object["on_time"]), (&1.into(), &1.into()), "{object}");
        assert_eq!(object["last"]["blocks"], 0, "it was the second before: {object}");
        assert!(object["last"]["seconds"].as_f64() > Some(0.0), "{object}");
        let path = &object["paths"][0];
        assert_eq!(path["health"], "active");
        assert!(path["remote"].as_str().is_some_and(|remote| remote.starts_with("127.0.0.1:")), "{path}");
        let numbers = [
            "id",
            "rtt_ms",
            "min_rtt_ms",
            "one_way_delay_ms",
            "window",
            "in_flight",
            "loss",
            "loss_burst",
            "source_bytes",
            "resent_bytes",
            "copied_bytes",
            "repair_bytes",
            "report_bytes",
            "bytes_sent",
            "bytes_received",
            "packets_sent",
            "packets_lost",
            "mtu",
            "suspected",
            "cost",
        ];
        for key in numbers {
            assert!(path[key].is_number(), "{key}: {path}");
        }
        assert!(path["bottleneck"].is_null(), "there is but one path: {path}");
        for key in ["sent_per_second", "received_per_second", "packets_sent", "packets_lost", "source_bytes"] {
            assert!(object["last"]["paths"][0][key].is_number(), "{key}: {object}");
        }
    }
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn a_log_has_a_line_now_and_then_and_when_a_path_changes() {
    let mut receiver = Receiver::start(&[]);
    // Loopback has as many addresses as one likes on Linux only.
    let second = if cfg!(target_os = "linux") { "127.0.0.2" } else { "127.0.0.1" };
    let mut sender = receiver.sender(&["--path", "127.0.0.1", "--path", second]);
    sender.say("a line");
    sender.0.stderr.after(if cfg!(target_os = "linux") { "path 127.0.0.2 is open" } else { " is open" });
    receiver.process.stderr.after("path 1 is open");
    // The line after ten seconds.
    sender.0.stderr.after("1 block: 1 on time, 0 late, 0 dropped | 127.0.0.1 ok ");
    receiver.process.stderr.after("1 block: 1 on time, 0 late, 0 dropped | path 0 ok ");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn who_wants_it_quiet_has_it() {
    let mut receiver = Receiver::start(&[]);
    let mut sender = receiver.sender(&["--quiet"]);
    sender.say("a line");
    assert_eq!((sender.end(), sender.said()), (Some(0), String::new()));
    assert_eq!(receiver.end(), Some(0));
}

#[test]
fn of_several_senders_each_has_its_summary() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(&["--json", "--out", dir.path().join("{number}").to_str().unwrap()]);
    for lines in 1..=2 {
        let mut sender = receiver.sender(&[]);
        (0..lines).for_each(|_| sender.say("a line"));
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
    }
    receiver.serves(2);
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let summaries: Vec<Value> =
        receiver.process.stdout.text().lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let blocks: Vec<_> = summaries.iter().map(|summary| summary["blocks"].as_u64().unwrap()).collect();
    assert_eq!(blocks.iter().sum::<u64>(), 3, "{summaries:?}");
    assert!(
        summaries.iter().all(|summary| summary["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")))
    );
}

/// Lines that the sender hands over at once are written a second later, by the receiver's word or the sender's.
#[test]
fn blocks_are_written_at_a_fixed_latency() {
    for (recv, send) in [(&["--latency", "1s"][..], &[][..]), (&[][..], &["--latency", "1s"][..])] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("lines");
        let mut args = vec!["--json", "--out", out.to_str().unwrap()];
        args.extend(recv);
        let mut receiver = Receiver::start(&args);
        let mut sender = receiver.sender(send);
        // Of lines that come before the sender's wish is known something might be written at once.
        receiver.serves(1);
        let begun = Instant::now();
        (0..20).for_each(|n| sender.say(&format!("line {n}")));
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
        assert!(begun.elapsed() > Duration::from_millis(900), "it ends when all is written, {:?}", begun.elapsed());
        assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
        let lines = std::fs::read_to_string(&out).unwrap();
        assert_eq!(
            lines.lines().map(str::to_owned).collect::<Vec<_>>(),
            (0..20).map(|n| format!("line {n}")).collect::<Vec<_>>()
        );
        let summary: Value = serde_json::from_str(&receiver.process.stdout.text()).unwrap();
        let released = &summary["released"];
        // A host that is busy for a second makes them late, which is no defect.
        assert_eq!(released["waited"].as_u64().unwrap() + released["late"].as_u64().unwrap(), 20, "{summary}");
        assert_eq!((&released["skipped"], &summary["blocks"]), (&0.into(), &20.into()), "{summary}");
        assert!(receiver.said().is_empty() || released["p99_ms"].is_number(), "{summary}");
    }
}
