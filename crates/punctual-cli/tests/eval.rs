//! `punctual eval` as a person meets it: what it prints, what it leaves behind, and how it exits.

mod common;

use std::fs;

use common::Place;
use serde_json::Value;

impl Place {
    fn write(&self, name: &str, content: &str) {
        fs::write(self.path().join(name), content).unwrap();
    }

    /// What `punctual eval` printed, which has to go well.
    fn prints(&self, args: &str) -> String {
        let output = self.eval(args);
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Objects printed, one a line.
    fn objects(&self, args: &str) -> Vec<Value> {
        self.prints(args).lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
    }

    /// Fails with this code and one line that says so much.
    fn fails(&self, args: &str, code: i32, word: &str) {
        let output = self.eval(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {text}");
        assert!(text.starts_with("punctual: ") && text.contains(word) && text.lines().count() == 1, "{args}: {text:?}");
    }
}

/// A user's own experiment: blocks and network from files beside it, two contenders, one threshold that can be met.
const MINE: &str = r#"
title = "Mine"
duration = "1s"
seeds = 2
contenders = ["ads", "quic"]

[[path]]
trace = "mine.down"
delay = "10ms"

[[workload]]
kind = "csv"
file = "mine.csv"
deadline = "300ms"

[[must]]
say = "ads has most blocks on time"
of = "ads"
measure = "on_time"
at-least = 0.5

[[must]]
say = "ads is not behind quic"
of = "ads"
measure = "on_time"
at-least-that-of = "quic"
tolerance = 0.5
"#;

fn mine() -> Place {
    let place = Place::new();
    place.write("mine.toml", MINE);
    place.write("mine.csv", "0.0,20000\n0.1,20000\n0.25,5000\n0.5,1200\n");
    // A packet every other millisecond: 6 Mbit/s.
    place.write("mine.down", &(1..=50).map(|n| format!("{}\n", 2 * n)).collect::<String>());
    place
}

#[test]
fn experiments_are_listed_and_shown() {
    let place = Place::new();
    let names: Vec<String> =
        place.objects("list --json").iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.len() >= 10 && names.contains(&"dtp-bandwidth".to_owned()));
    let table = place.prints("list");
    assert!(names.iter().all(|name| table.contains(name)), "{table}");
    // What is shown can be made one's own experiment from.
    let shown = place.prints("show alpha");
    place.write("again.toml", &shown);
    let again = place.prints("show again.toml");
    assert_eq!(again.lines().skip(1).collect::<Vec<_>>(), shown.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn results_are_an_object_a_line() {
    let place = Place::new();
    let cells = place.objects("run dtp-bandwidth --smoke --set duration=1s --set contenders=ads,quic --json");
    assert_eq!(cells.len(), 4, "two bandwidths, two contenders");
    for cell in &cells {
        assert_eq!(cell["experiment"], "dtp-bandwidth");
        assert!(["ads", "quic"].contains(&cell["scheduler"].as_str().unwrap()));
        assert!([3.0, 5.0].contains(&cell["params"]["bandwidth"].as_f64().unwrap()));
        assert_eq!(cell["seeds"], 1);
        assert!((0.0..=1.0).contains(&cell["on_time"].as_f64().unwrap()));
        assert_eq!(cell["on_time_by_priority"].as_array().unwrap().len(), 3);
        assert!(cell["share_of_bound"].as_f64().unwrap() <= 1.0 + 1e-9);
        let keys = ["bound", "p50_ms", "p99_ms", "p999_ms", "goodput_mbps", "redundancy_ratio"];
        assert!(keys.iter().all(|key| cell.get(key).is_some_and(|value| value.is_number() || value.is_null())));
    }
    let left: Vec<_> = fs::read_dir(place.path().join("punctual-eval")).unwrap().collect();
    assert_eq!(left.len(), 1);
    let directory = left[0].as_ref().unwrap().path();
    for file in ["report.html", "results.json", "runs.parquet", "blocks.parquet"] {
        assert!(directory.join(file).metadata().unwrap().len() > 100, "{file}");
    }
}

#[test]
fn an_own_experiment_finds_its_files_beside_it() {
    let place = mine();
    let cells = place.objects("run ./mine.toml --json");
    let of: Vec<_> = cells.iter().map(|cell| (cell["scheduler"].as_str().unwrap(), &cell["seeds"])).collect();
    assert_eq!(of, [("ads", &2.into()), ("quic", &2.into())]);
    assert_eq!(cells[0]["on_time"], 1.0);
    assert_eq!(place.objects("run mine.toml --json"), cells, "nothing is run again");
    // From elsewhere as well.
    let other = Place::new();
    let path = place.path().join("mine.toml");
    assert_eq!(other.objects(&format!("run {} --json", path.display())), cells);
    place.write("mine.csv", "0.0,20000\n0.1,900000\n");
    assert_eq!(place.objects("run mine.toml --json")[0]["on_time"], 0.5, "what has changed is run again");
}

#[test]
fn single_things_are_changed() {
    let place = mine();
    let cells = place
        .objects("run mine.toml --seeds 1 --set contenders=ads,edf/cubic --set session.congestion=new-reno --json");
    let names: Vec<_> = cells.iter().map(|cell| cell["scheduler"].as_str().unwrap()).collect();
    assert_eq!(names, ["ads", "edf/cubic"]);
    let lost = place
        .objects("run mine.toml --seeds 1 --set contenders=ads --set path.0.loss=1.0 --set path.0.back.loss=0 --json");
    assert_eq!(lost.len(), 1);
    let [few, many] = [1, 20].map(|rate| {
        let args =
            format!("run dtp-bandwidth --smoke --set bandwidth={rate} --set contenders=ads --set duration=1s --json");
        let cells = place.objects(&args);
        assert_eq!((cells.len(), cells[0]["params"]["bandwidth"].as_f64()), (1, Some(f64::from(rate))));
        cells[0]["on_time"].as_f64().unwrap()
    });
    assert!(few < many, "{few} {many}");
}

#[test]
fn a_check_says_whether_all_thresholds_hold() {
    let place = mine();
    let told = place.prints("check mine.toml");
    assert!(told.contains("2 of 2 thresholds hold") && !told.contains("not judged"), "{told}");
    let verdicts = place.objects("check mine.toml --json");
    assert!(verdicts.len() == 2 && verdicts.iter().all(|of| of["holds"] == true && of["must"].is_string()));
    let told = place.prints("check mine.toml --set contenders=ads");
    assert!(told.contains("1 of 1 thresholds hold") && told.contains("1 thresholds not judged"), "{told}");

    place.write("never.toml", &MINE.replace("at-least = 0.5", "at-least = 1.5"));
    let output = place.eval("check never.toml --json");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "punctual: 1 of 2 thresholds do not hold\n");
    // To run it is no failure.
    assert!(place.eval("run never.toml").status.success());
}

#[test]
fn documents_get_markdown() {
    let place = mine();
    let told = place.prints("check mine.toml --markdown");
    assert!(told.starts_with("### `mine`\n\nOn time, %: means of 2 seeds"), "{told}");
    assert!(told.contains("\n| bound | `ads` | `quic` |\n| ---: | ---: | ---: |\n| 100.0 | 100.0 |"), "{told}");
    assert!(told.contains("| yes | ads has most blocks on time | 100.0 % | ≥ 50.0 % |"), "{told}");
    assert!(!told.contains("report"), "nothing else: {told}");
    assert_eq!(place.prints("run mine.toml --markdown"), told);
    assert_eq!(place.eval("check mine.toml --markdown --json").status.code(), Some(2), "one or the other");

    place.write("never.toml", &MINE.replace("at-least = 0.5", "at-least = 1.5"));
    let output = place.eval("check never.toml --markdown");
    assert_eq!(output.status.code(), Some(1), "the exit code is as ever");
    assert!(String::from_utf8_lossy(&output.stdout).contains("| **no** | ads has most blocks on time |"));
}

#[test]
fn two_results_are_compared() {
    let place = mine();
    place.prints("run mine.toml --out a");
    place.prints("run mine.toml --out b --set session.congestion=cubic");
    let b = fs::read_dir(place.path().join("b")).unwrap().next().unwrap().unwrap().file_name();
    let args = format!("compare a/mine b/{}", b.display());
    let table = place.prints(&args);
    assert!(table.contains("ads") && table.contains("on_time A"), "{table}");
    assert_eq!(place.objects(&format!("{args} --json --measure p99_ms")).len(), 2);
    place.prints("run mine.toml --out c --set contenders=edf");
    let c = fs::read_dir(place.path().join("c")).unwrap().next().unwrap().unwrap().file_name();
    place.fails(&format!("compare a/mine c/{}", c.display()), 2, "no cell in common");
    place.fails("compare a/mine nowhere", 3, "nowhere");
}

#[test]
fn what_is_unknown_is_told_with_what_there_is() {
    let place = mine();
    for (args, word) in [
        ("run dtp-bandwith", "dtp-bandwidth"),
        ("show dtp-bandwith", "dtp-bandwidth"),
        ("run mine.toml --set contenders=best", "choose one of: admission, ads"),
        ("run mine.toml --set contenders=ads/reno", "new-reno"),
        ("run mine.toml --set session.congestion=reno", "new-reno"),
        ("run mine.toml --set session.scheduler=best", "choose one of: admission, ads"),
        ("run mine.toml --set session.path-scheduler=best", "earliest"),
        ("run mine.toml --set sesion.congestion=cubic", "session"),
        ("run mine.toml --set path.3.loss=0.1", "1 elements"),
        ("run mine.toml --set workload.0.kind=film", "video"),
        ("run mine.toml --set must.0.measure=speed", "on_time"),
        ("run cellular --set link=Starlink", "T-Mobile"),
    ] {
        place.fails(args, 2, word);
    }
}

#[test]
fn missing_files_are_told() {
    let place = mine();
    place.fails("run nowhere.toml", 3, "nowhere.toml");
    place.fails("run cellular --smoke --quiet", 3, "mahimahi/TMobile-LTE-short.down");
    fs::remove_file(place.path().join("mine.csv")).unwrap();
    place.fails("run mine.toml", 3, "mine.csv");
    // Where to look can be told.
    let data = place.path().join("elsewhere");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("mine.csv"), "0,1000\n").unwrap();
    assert_eq!(place.objects("run mine.toml --data elsewhere --json").len(), 2);
}

#[test]
fn a_session_that_dies_is_told() {
    let place = mine();
    assert!(place.objects("run mine.toml --json").iter().all(|cell| cell["ended"].is_null()));
    place.write("dead.toml", &MINE.replace("delay = \"10ms\"", "delay = \"10ms\"\ndies = [[\"0.3s\", \"1000s\"]]"));
    let dead = "run dead.toml --seeds 1 --set contenders=ads --set drain=40s";
    let cells = place.objects(&format!("{dead} --json"));
    let told = cells[0]["ended"][0].as_str().unwrap().to_owned();
    assert!(told.starts_with("seed 1: 3") && told.ends_with("the peer fell silent"), "{told}");
    let table = place.prints(dead);
    assert!(table.contains('†') && table.contains(&format!("ads, {told}")), "{table}");
    assert!(place.prints(&format!("{dead} --markdown")).contains(&format!("- ads, {told}")));
    let directory = fs::read_dir(place.path().join("punctual-eval")).unwrap().map(|one| one.unwrap().path());
    let directory = directory.into_iter().find(|path| path.display().to_string().contains("dead")).unwrap();
    let report = fs::read_to_string(directory.join("report.html")).unwrap();
    assert!(report.contains("In one run a session ended before its time") && report.contains("†</abbr>"));
}

#[test]
fn thresholds_of_what_was_not_run_are_told_to_machines_too() {
    let place = mine();
    let verdicts = place.objects("check mine.toml --set contenders=ads --json");
    assert_eq!((&verdicts[0]["holds"], &verdicts[1]["holds"]), (&true.into(), &Value::Null));
    assert_eq!(verdicts[1]["must"], "ads is not behind quic");
    // One about somebody who is not in the file at all is a slip.
    place.write("slip.toml", &MINE.replace("at-least-that-of = \"quic\"", "at-least-that-of = \"quicc\""));
    place.fails("check slip.toml", 2, "no contender is called `quicc`");
    place.write("none.toml", MINE.split("[[must]]").next().unwrap());
    place.fails("check none.toml", 2, "nothing to check");
    place.fails("check mine.toml --set must=[]", 2, "nothing to check");
    place.prints("run none.toml");
}

#[test]
fn results_have_a_place_of_their_own() {
    let place = mine();
    place.write("...toml", MINE);
    place.fails("run ...toml", 2, "no name");
    assert!(!place.path().join("results.json").exists());
    fs::create_dir(place.path().join("other")).unwrap();
    place.write("other/mine.toml", MINE);
    place.fails("run mine.toml other/mine.toml", 2, "would go to one place");
    // Rows of an earlier time are not left beside other runs.
    let blocks = place.path().join("punctual-eval/mine/blocks.parquet");
    place.prints("run mine.toml");
    assert!(blocks.exists());
    place.prints("run mine.toml --no-blocks --fresh");
    assert!(!blocks.exists());
}

#[test]
fn measures_that_nobody_takes_are_not_compared() {
    let place = mine();
    place.prints("run mine.toml");
    let both = "compare punctual-eval/mine punctual-eval/mine";
    place.fails(&format!("{both} --measure speed"), 2, "no measure `speed`");
    assert!(place.prints(&format!("{both} --measure on_time:0")).contains("100.0"));
}

/// A run that is under way.
#[cfg(unix)]
struct UnderWay(std::process::Child, std::io::BufReader<std::process::ChildStderr>);

#[cfg(unix)]
impl UnderWay {
    fn start(place: &Place, args: &str) -> Self {
        let mut command = place.command(args);
        let piped = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        Self(child, std::io::BufReader::new(stderr))
    }

    /// Waits for something that it does before it ends.
    fn until(&mut self, holds: impl Fn() -> bool) {
        while !holds() {
            assert!(self.0.try_wait().unwrap().is_none(), "it has ended");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    fn interrupt(&self) {
        let id = self.0.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    }

    /// The next line of standard error.
    fn says(&mut self) -> String {
        use std::io::BufRead;
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line
    }
}

#[cfg(unix)]
impl Drop for UnderWay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn one_at_a_time_writes_to_a_place_and_a_signal_ends_it() {
    let place = mine();
    let mut first = UnderWay::start(&place, "run mine.toml --seeds 100000 --jobs 1");
    let journal = place.path().join("punctual-eval/mine/journal");
    // Longer than a header: runs are kept.
    first.until(|| fs::metadata(&journal).is_ok_and(|of| of.len() > 20));
    place.fails("run mine.toml --fresh", 3, "another run writes to");
    first.interrupt();
    assert!(first.says().contains("a second time ends at once"));
    assert!(first.says().contains("ended by Ctrl-C; the same command goes on where it stopped"));
    assert_eq!(first.0.wait().unwrap().code(), Some(130));
    // What was done is kept.
    place.prints("run mine.toml --seeds 1");
    let len = fs::metadata(&journal).unwrap().len();
    place.prints("run mine.toml --seeds 1");
    assert_eq!(fs::metadata(&journal).unwrap().len(), len);
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_a_run_under_way() {
    let place = mine();
    let long = "--seeds 1 --set duration=20h --set workload.0.repeat=true";
    let mut run = UnderWay::start(&place, &format!("run mine.toml {long} --out long"));
    let directory = place.path().join("long");
    run.until(|| fs::read_dir(&directory).is_ok_and(|mut found| found.next().is_some()));
    run.interrupt();
    assert!(run.says().contains("a second time ends at once"));
    run.interrupt();
    assert_eq!(run.0.wait().unwrap().code(), Some(130));
}
