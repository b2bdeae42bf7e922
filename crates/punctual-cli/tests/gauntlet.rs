//! `punctual eval gauntlet` as a person meets it.

mod common;

use std::fs;

use common::Place;
use serde_json::Value;

/// Two cells of two slow paths each, without recordings: what they cost is little.
const CHEAP: &str = "--first 56 --cells 2 --seeds 1 --contenders ads,quic-by-priority@each";

impl Place {
    /// Results of the gauntlet, whatever holds of them.
    fn results(&self, args: &str) -> Value {
        let output = self.eval(&format!("gauntlet {args} --json"));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one object")
    }

    fn fails(&self, args: &str, code: i32, word: &str) {
        let output = self.eval(&format!("gauntlet {args}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {text}");
        assert!(text.contains(word), "{args}: {text:?}");
    }
}

/// Of a run: who, in which cell, and its share on time with a seed.
fn on_time(results: &Value, cell: usize, contender: &str, seed: u64) -> Option<f64> {
    let runs = results["cells"][cell]["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["contender"] == contender && run["seed"] == seed)?;
    run["on_time"].as_f64()
}

#[test]
fn cells_are_run_judged_and_kept() {
    let place = Place::new();
    let results = place.results(CHEAP);
    assert_eq!((&results["first"], &results["seeds"]), (&56.into(), &1.into()));
    assert_eq!(results["cells"].as_array().unwrap().len(), 2);
    for cell in 0..2 {
        for contender in ["ads", "quic-by-priority@0", "quic-by-priority@1"] {
            assert!((0.0..=1.0).contains(&on_time(&results, cell, contender, 1).unwrap()), "{contender}");
        }
        let scores = results["cells"][cell]["scores"].as_array().unwrap();
        assert_eq!((scores.len(), &scores[0]["contender"]), (1, &"ads".into()));
        let standing = &scores[0]["all"];
        assert!(standing["baseline"]["than"].as_str().unwrap().starts_with("quic-by-priority@"));
        assert!(standing["average"].as_f64() <= standing["bound"].as_f64() && scores[0]["start"].is_object());
    }
    assert_eq!(results["verdicts"].as_array().unwrap().len(), 6);
    let left = place.path().join("punctual-eval/gauntlet-56-2");
    for file in ["report.html", "results.json", "runs.parquet"] {
        assert!(left.join(file).metadata().unwrap().len() > 1000, "{file}");
    }
    // Nothing is run again, and nothing else comes of it; a person reads the same.
    assert_eq!(place.results(CHEAP), results);
    let told = String::from_utf8(place.eval(&format!("gauntlet {CHEAP}")).stdout).unwrap();
    assert!(told.contains("cells 56 to 57") && told.contains("points behind") && told.contains("HELD"), "{told}");
    let told = String::from_utf8(place.eval(&format!("gauntlet {CHEAP} --markdown")).stdout).unwrap();
    assert!(told.starts_with("### Gauntlet, cells 56 to 57\n") && told.contains("| `ads` |"), "{told}");

    // Others are not run again when one's own are tuned.
    let against = "--first 57 --cells 1 --seeds 1 --contenders admission --against punctual-eval/gauntlet-56-2";
    let tuned = place.results(against);
    assert_eq!(on_time(&tuned, 0, "quic-by-priority@1", 1), on_time(&results, 1, "quic-by-priority@1", 1));
    let who = |tuned: &Value| {
        let all = tuned["contenders"].as_array().unwrap();
        all.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one["earlier"] == true)).collect::<Vec<_>>()
    };
    assert_eq!(
        who(&tuned),
        [("admission", false), ("ads", true), ("quic-by-priority", true)]
            .map(|(name, earlier)| (name.to_owned(), earlier))
    );
    place.fails("--first 58 --cells 1 --seeds 1 --against punctual-eval/gauntlet-56-2", 2, "no cell 58");
    place.fails("--first 56 --cells 1 --against punctual-eval/gauntlet-56-2", 2, "--seeds 1");
    let other = fs::read_to_string(left.join("results.json")).unwrap().replacen("\"gauntlet\":", "\"gauntlet\":99", 1);
    fs::write(place.path().join("other.json"), other).unwrap();
    place.fails("--first 56 --cells 1 --seeds 1 --against other.json", 2, "version");
}

#[test]
fn a_cell_is_an_experiment() {
    let place = Place::new();
    let shown = place.eval("gauntlet --show 57");
    assert!(shown.status.success());
    fs::write(place.path().join("cell.toml"), &shown.stdout).unwrap();
    let run = place.eval("run cell.toml --seeds 1 --set contenders=ads --json");
    let cell: Value = serde_json::from_slice(&run.stdout).expect("one cell");
    let results = place.results("--first 57 --cells 1 --seeds 1 --contenders ads");
    assert_eq!(on_time(&results, 0, "ads", 1), cell["on_time"].as_f64(), "the same run");
    // Its frames depend on each other: what could be decoded is the limit.
    assert_eq!(results["cells"][0]["limits"][0]["bound"].as_f64(), cell["bound_decodable"].as_f64());
    assert!(cell["bound_decodable"].as_f64() <= cell["bound"].as_f64());
}

#[test]
fn every_cell_can_be_changed() {
    let place = Place::new();
    let changed = place.results("--first 57 --cells 1 --seeds 1 --contenders ads --set workload.*.deadline=1ms");
    assert_eq!(on_time(&changed, 0, "ads", 1), Some(0.0), "no block is that fast");
    assert_eq!(changed["changes"], serde_json::json!(["workload.*.deadline=1ms"]));
    assert_eq!(changed["cells"][0]["hard"][0], "it is not as drawn");
    // What was run as drawn is not taken for it, nor the other way round.
    let drawn = place.results("--first 57 --cells 1 --seeds 1 --contenders ads");
    assert!(on_time(&drawn, 0, "ads", 1) > Some(0.0));
    let against = "--first 57 --cells 1 --seeds 1 --contenders ads --against punctual-eval/gauntlet-57-1";
    place.fails(&format!("{against} --set workload.*.deadline=1ms"), 2, "--set");
    let shown = place.eval("gauntlet --show 57 --set path.*.loss=0.125");
    assert!(String::from_utf8(shown.stdout).unwrap().contains("loss = 0.125"));
    place.fails("--cells 1 --set workload.*.colour=red", 2, "colour");
    place.fails("--cells 1 --set contenders=ads", 2, "--contenders");
}

#[test]
fn what_makes_no_sense_is_told() {
    let place = Place::new();
    place.fails("--contenders best --cells 1", 2, "choose one of");
    place.fails("--contenders ads@x --cells 1", 2, "`each`");
    place.fails("--cells 1 --against nowhere.json", 3, "nowhere.json");
    place.fails("--cells 0", 2, "--cells");
    place.fails("--first 56 --cells 2 --contenders ads@9", 2, "`ads@9`: none of these cells has so many paths");
    place.fails("--first 56 --cells 1 --contenders ads@each,ads@1", 2, "`ads@1`: it would run twice");
    place.fails("--first 18446744073709551615 --cells 2", 2, "64 bits");
    place.fails("--first 56 --cells 1 --contenders ads:alpha=0.3,beta=x", 2, "`ads:alpha=0.3,beta=x`");
    place.fails("--show 1 --cells 2", 2, "--show");
    // Recordings are not part of the repository.
    place.fails("--first 14 --cells 1 --seeds 1", 3, "mahimahi");
}
