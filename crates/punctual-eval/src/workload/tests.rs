use std::{fs, time::Duration};

use punctual_proto::Redundancy;

use super::*;
use crate::plan::{Bulk as PlannedBulk, HandOver, Plan};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(serde::Deserialize, Debug)]
struct Sources {
    workload: Vec<Source>,
}

fn parse(text: &str) -> Vec<Source> {
    toml::from_str::<Sources>(text).unwrap_or_else(|error| panic!("{error}")).workload
}

/// Why a source with these keys cannot be.
fn refusal(keys: &str) -> String {
    toml::from_str::<Sources>(&format!("[[workload]]\n{keys}")).unwrap_err().to_string()
}

fn planned(text: &str) -> Plan {
    plan_with(text, MINUTE, 1, &Files::default())
}

fn plan_with(text: &str, duration: Duration, seed: u64, files: &Files) -> Plan {
    let plan = plan(&parse(text), duration, seed, files).unwrap_or_else(|error| panic!("{error}"));
    // What holds of every plan.
    assert!(plan.blocks.is_sorted_by_key(|block| block.at));
    for (index, block) in plan.blocks.iter().enumerate() {
        assert!(block.at < duration && block.size >= 1 && usize::from(block.source) < plan.sources.len());
        assert!(block.depends_on.iter().all(|&on| (on as usize) < index), "{index}: {block:?}");
    }
    plan
}

fn seconds(plan: &Plan, source: u16) -> Vec<f64> {
    plan.blocks.iter().filter(|block| block.source == source).map(|block| block.at.as_secs_f64()).collect()
}

fn bytes(plan: &Plan) -> u64 {
    plan.blocks.iter().map(|block| u64::from(block.size)).sum()
}

const EVERYTHING: &str = r#"
    [[workload]]
    name = "blocks"
    size = "200 KB"
    every = "100ms"
    priority = [0, 1, 2]
    deadline = "200ms"

    [[workload]]
    name = "sensor"
    copies = 3
    start = { uniform = ["0s", "1s"] }
    stop = "50s"
    size = { pareto = { minimum = 100, shape = 1.5 } }
    every = { exponential = { mean = "50ms" } }
    depends = "previous"

    [[workload]]
    name = "camera"
    kind = "video"
    fps = 30
    bit-rate = "2 Mbit/s"
    gop = "IBBPBBP"
    variation = 0.3
    on-off = { on = { exponential = { mean = "5s" } }, off = "1s" }

    [[workload]]
    name = "speech"
    size = { normal = { mean = 160, deviation = 20 } }
    every = { gilbert-elliott = { on = "20ms", off = { exponential = { mean = "1s" } }, on-run = 50, off-run = 1 } }
    depends = { source = "camera" }

    [[workload]]
    kind = "bulk"
"#;

#[test]
fn blocks_of_several_priorities_come_together_in_order() {
    let plan = planned("[[workload]]\nsize = '200 KB'\nevery = '100ms'\npriority = [0, 1, 2]\ndeadline = '200ms'");
    assert_eq!(plan.blocks.len(), 3 * 600);
    for (index, block) in plan.blocks.iter().enumerate() {
        assert_eq!(block.at, Duration::from_millis(100) * (index / 3) as u32);
        assert_eq!((block.size, block.priority), (200_000, (index % 3) as u8));
        assert_eq!(block.deadline, Some(Duration::from_millis(200)));
    }
    assert_eq!(plan.sources[0].name, "source-1");
    assert_eq!(plan.sources[0].hand_over, HandOver { queue: None, blocking: false });
}

#[test]
fn the_seed_decides() {
    let with = |seed| plan_with(EVERYTHING, MINUTE, seed, &Files::default());
    assert_eq!(with(1), with(1));
    assert_ne!(with(1).blocks, with(2).blocks);
}

#[test]
fn another_source_changes_nothing_about_the_others() {
    let all = planned(EVERYTHING);
    let more = format!("{EVERYTHING}\n[[workload]]\nsize = {{ uniform = [1, 1000] }}\nevery = '7ms'");
    let mut more = planned(&more);
    let strange = more.sources.len() as u16 - 1;
    more.blocks.retain(|block| block.source != strange);
    // Places in the plan are others, all else is the same.
    let bare = |plan: Plan| plan.blocks.into_iter().map(|block| (block.at, block.size, block.priority, block.source));
    assert!(bare(all).eq(bare(more)));
}

#[test]
fn a_shorter_run_is_the_beginning_of_a_longer_one() {
    let long = planned(EVERYTHING);
    let short = plan_with(EVERYTHING, Duration::from_secs(20), 1, &Files::default());
    assert_eq!(short.blocks[..], long.blocks[..short.blocks.len()]);
}

#[test]
fn copies_differ_and_keep_to_their_time() {
    let plan = planned(EVERYTHING);
    let names: Vec<_> = plan.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["blocks", "sensor-1", "sensor-2", "sensor-3", "camera", "speech", "source-5"]);
    let times: Vec<_> = (1..4).map(|source| seconds(&plan, source)).collect();
    assert!(times.iter().all(|times| times[0] < 1.0 && *times.last().unwrap() < 50.0));
    assert!(times[0] != times[1] && times[1] != times[2]);
    // Exponential with a mean of 50 ms: 20 a second.
    for times in times {
        assert!((850..1130).contains(&times.len()), "{}", times.len());
    }
}

#[test]
fn the_latest_block_of_another_source() {
    let plan = planned(
        "[[workload]]\nname = 'data'\nstart = '15ms'\nsize = 1\nevery = '10ms'\ndepends = { source = 'meta' }\n
         [[workload]]\nname = 'meta'\ncopies = 2\nstart = '20ms'\nsize = 1\nevery = '100ms'",
    );
    let data: Vec<_> = plan.blocks.iter().filter(|block| block.source == 0).take(12).collect();
    assert!(data[0].depends_on.is_empty(), "there is none yet");
    // 15 ms is the first in the plan, then both copies of `meta` at 20 ms.
    assert!(data[1..9].iter().all(|block| block.depends_on == [2]));
    assert_eq!(plan.blocks[data[9].depends_on[0] as usize].at, Duration::from_millis(20));
    let later = data[11].depends_on[0] as usize;
    assert_eq!((plan.blocks[later].at, plan.blocks[later].source), (Duration::from_millis(120), 2));
}

#[test]
fn previous_is_the_sources_own() {
    let plan = planned(EVERYTHING);
    let mut last = [None; 7];
    for (index, block) in (0u32..).zip(&plan.blocks) {
        if (1..4).contains(&block.source) {
            assert_eq!(block.depends_on, Vec::from_iter(last[usize::from(block.source)]));
        }
        last[usize::from(block.source)] = Some(index);
    }
}

#[test]
fn a_video_has_its_bit_rate() {
    for (gop, variation) in [("'IBBPBBP'", 0.0), ("{ length = 30, b-frames = 2 }", 0.3), ("'I'", 0.3), ("'IPPP'", 0.5)]
    {
        let plan = planned(&format!(
            "[[workload]]\nkind = 'video'\nfps = 60\nbit-rate = '8 Mbit/s'\ngop = {gop}\nvariation = {variation}"
        ));
        assert_eq!(plan.blocks.len(), 3600);
        let rate = bytes(&plan) as f64 * 8.0 / 60.0;
        assert!((rate / 8e6 - 1.0).abs() < 0.02, "{gop}: {rate} bit/s");
    }
}

#[test]
fn frames_have_sizes_and_priorities_by_type() {
    let plan = planned(
        "[[workload]]\nkind = 'video'\nfps = 25\nbit-rate = '1 Mbit/s'\ngop = 'IBP'\nratio = [5, 3, 2]\npriority = { i = 0, p = 1, b = 9 }",
    );
    // 5,000 bytes a frame on average, 15,000 a group, coded I P B.
    let group: Vec<_> = plan.blocks[..3].iter().map(|block| (block.size, block.priority)).collect();
    assert_eq!(group, [(7500, 0), (4500, 1), (3000, 9)]);
    assert_eq!(plan.blocks[1].depends_on, [0]);
    assert_eq!(plan.blocks[2].depends_on, [0, 1]);
    assert!(plan.blocks[3].depends_on.is_empty());
    assert_eq!(plan.blocks[25].at, Duration::from_secs(1));
}

#[test]
fn a_video_by_default() {
    let plan = planned("[[workload]]\nkind = 'video'\nfps = 30\nbit-rate = '1 Mbit/s'");
    let keys: Vec<_> =
        (0..).zip(&plan.blocks).filter(|(_, block)| block.depends_on.is_empty()).map(|(at, _)| at).collect();
    assert!(keys.iter().zip((0..).step_by(60)).all(|(&at, every)| at == every), "an I frame every two seconds");
}

#[test]
fn segments_have_the_bit_rate() {
    let plan = planned(
        "[[workload]]\nkind = 'video'\nbit-rate = '6.6 Mbit/s'\nsegment = '200ms'\nhand-over = { queue = '1 MB', blocking = true }",
    );
    assert_eq!(plan.blocks.len(), 300);
    assert!(plan.blocks.iter().all(|block| block.size == 165_000 && block.depends_on.is_empty()));
    assert_eq!(plan.sources[0].hand_over, HandOver { queue: Some(1_000_000), blocking: true });
}

#[test]
fn silences_leave_the_share_of_time_they_should() {
    let plan = plan_with(
        "[[workload]]\nsize = 160\nevery = '20ms'\non-off = { on = { exponential = { mean = '1s' } }, off = { exponential = { mean = '1.35s' } } }",
        MINUTE * 60,
        1,
        &Files::default(),
    );
    let share = plan.blocks.len() as f64 / (3600.0 * 50.0);
    assert!((share - 1.0 / 2.35).abs() < 0.03, "on for {share}");
}

#[test]
fn what_is_drawn_is_kept_within_what_makes_sense() {
    let plan = planned(
        "[[workload]]\nsize = { normal = { mean = '8 MB', deviation = '100 MB' } }\nevery = { normal = { mean = '10ms', deviation = '10ms' } }",
    );
    assert!(plan.blocks.iter().any(|block| block.size == 1) && plan.blocks.iter().any(|block| block.size == MAX_BLOCK));
    assert!(plan.blocks.windows(2).all(|pair| pair[1].at - pair[0].at >= Duration::from_micros(1)));
}

#[test]
fn a_count_ends_a_source() {
    let plan = planned("[[workload]]\nsize = 1\nevery = '1ms'\ncount = 5\npriority = [1, 0]");
    assert_eq!(plan.blocks.len(), 10);
}

#[test]
fn bulk_traffic_is_no_block() {
    let plan = planned("[[workload]]\nkind = 'bulk'\ntotal = '5 MB'\nstart = '2s'\nstop = '100s'\npriority = 255");
    assert!(plan.blocks.is_empty());
    let expected = PlannedBulk {
        block: 64_000,
        backlog: 16_000_000,
        priority: 255,
        start: Duration::from_secs(2),
        stop: MINUTE,
        total: Some(5_000_000),
    };
    assert_eq!(plan.sources[0].bulk, Some(expected));
}

/// A folder with one file, `blocks.csv`.
fn folder(content: &str) -> (tempfile::TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("blocks.csv"), content).unwrap();
    let files = Files::new([dir.path()]);
    (dir, files)
}

#[test]
fn times_and_sizes_alone_are_a_file_of_blocks() {
    let (_dir, files) = folder("0.0,22196\n0.04746483335427944,24573\r\n0.10001388759399456,21032\n");
    let text = "[[workload]]\nkind = 'csv'\nfile = 'blocks.csv'\ndeadline = '200ms'\npriority = 1";
    let once = plan_with(text, MINUTE, 1, &files);
    let blocks: Vec<_> = once.blocks.iter().map(|block| (block.size, block.priority, block.deadline)).collect();
    let deadline = Some(Duration::from_millis(200));
    assert_eq!(blocks, [(22196, 1, deadline), (24573, 1, deadline), (21032, 1, deadline)]);
    assert!((once.blocks[1].at.as_secs_f64() - 0.047_464_833).abs() < 1e-8);
    let again = plan_with(&format!("{text}\nrepeat = true"), Duration::from_secs(30), 1, &files);
    // Three in 0.15 s, as far apart at the seam as elsewhere.
    assert!((598..=602).contains(&again.blocks.len()), "{}", again.blocks.len());
}

#[test]
fn a_header_names_columns() {
    let (_dir, files) = folder(
        "size, source, at_s, depends_on, deadline_s, priority, ordered\n\
         # a comment\n\
         100, video, 0.1, 2, 0.5, 3, true\n\
         200, audio, 0,,,,\n\
         300, video, 0.1, 1 2,,,false\n",
    );
    let text = "[[workload]]\nname = 'file'\nkind = 'csv'\nfile = 'blocks.csv'\ndeadline = '1s'\nrepeat = true";
    let plan = plan_with(text, Duration::from_millis(350), 1, &files);
    let names: Vec<_> = plan.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["file-video", "file-audio"]);
    let first: Vec<_> = plan.blocks[..3]
        .iter()
        .map(|block| (block.size, block.source, block.priority, block.ordered, block.deadline.unwrap().as_millis()))
        .collect();
    assert_eq!(first, [(200, 1, 0, false, 1000), (100, 0, 3, true, 500), (300, 0, 0, false, 1000)]);
    let depends: Vec<_> = plan.blocks.iter().map(|block| block.depends_on.clone()).collect();
    let none = vec![];
    assert_eq!(depends, [none.clone(), vec![0], vec![1, 0], none, vec![3], vec![4, 3]], "and so again when it repeats");
    assert_eq!(plan.blocks[3].at, Duration::from_millis(200));
}

#[test]
fn bad_files_of_blocks_are_told_with_their_line() {
    let error = |content: &str, more: &str| {
        let (_dir, files) = folder(content);
        let sources = parse(&format!("[[workload]]\nname = 'file'\nkind = 'csv'\nfile = 'blocks.csv'\n{more}"));
        plan(&sources, MINUTE, 1, &files).unwrap_err().to_string()
    };
    for (content, more, expected) in [
        ("0,1\n1,0\n", "", "blocks.csv, line 2: 0 bytes are no block"),
        ("0,1\n1\n", "", "line 2: 1 columns instead of 2"),
        ("0,1\n-1,5\n", "", "line 2: `at_s` is `-1`, not a number of seconds"),
        ("at_s,size,colour\n", "", "line 1: there is no column `colour`; a header names some of at_s, size"),
        ("at_s,priority\n0,1\n", "", "line 1: the columns `at_s` and `size`"),
        ("at_s,at_s,size\n0,1,2\n", "", "line 1: the column `at_s` is there twice"),
        ("at_s,size,priority\n0,1,256\n", "", "line 2: `priority` is `256`, not from 0 to 255"),
        ("at_s,size,depends_on\n0,1,2\n1,1,\n", "", "line 2: depends on row 2, which is not a row before it"),
        ("at_s,size,depends_on\n0,1,0\n", "", "line 2: depends on row 0"),
        ("at_s,size\n", "", "there are no blocks"),
        ("", "", "there are no blocks"),
        ("0,1\n", "repeat = true", "two different times"),
        ("0,\u{fffd}\n", "", "not a number of bytes"),
        ("at_s,size,depends_on\n1,1,\n0,1,1\n", "", "line 3: depends on row 1, which is not a row before it"),
    ] {
        let error = error(content, more);
        assert!(error.starts_with("source `file`: blocks.csv") && error.contains(expected), "{content:?}: {error}");
    }
    let missing = plan(&parse("[[workload]]\nkind = 'csv'\nfile = 'none.csv'"), MINUTE, 1, &Files::new(["here"]));
    assert_eq!(missing.unwrap_err().to_string(), "source `source-1`: there is no file `none.csv`; looked in: here");
}

#[test]
fn a_true_video_has_its_own_frames() {
    let files = Files::new([concat!(env!("CARGO_MANIFEST_DIR"), "/../punctual-cli/assets")]);
    let text = "[[workload]]\nkind = 'h264'\nfile = 'clip.h264'\npriority = { i = 0, p = 1, b = 2 }";
    let once = plan_with(text, MINUTE, 1, &files);
    let content = files.read("clip.h264").unwrap();
    assert_eq!(bytes(&once), content.len() as u64);
    assert_eq!(once.blocks.len(), 300);
    assert_eq!(once.blocks[299].at, Duration::from_secs_f64(299.0 / 30.0));
    let of = |priority| once.blocks.iter().filter(|block| block.priority == priority).count();
    assert_eq!([of(0), of(1), of(2)], [11, 150, 139]);
    assert!(once.blocks.iter().all(|block| block.depends_on.len() == usize::from(block.priority)));

    let again = plan_with(&format!("{text}\nrepeat = true\nfps = 60"), MINUTE, 1, &files);
    assert_eq!(again.blocks.len(), 3600);
    for (first, second) in once.blocks.iter().zip(&again.blocks[300..]) {
        assert_eq!(first.size, second.size);
        assert!(first.depends_on.iter().map(|on| on + 300).eq(second.depends_on.iter().copied()));
    }
}

#[test]
fn what_is_no_video_is_refused() {
    for content in ["", "0,1\n"] {
        let (_dir, files) = folder(content);
        let sources = parse("[[workload]]\nkind = 'h264'\nfile = 'blocks.csv'\nfps = 30");
        let error = plan(&sources, MINUTE, 1, &files).unwrap_err().to_string();
        assert!(error.contains("blocks.csv: is no H.264 byte stream"), "{error}");
    }
}

#[test]
fn the_example_of_the_documentation_works() {
    let (dir, files) = folder("at_s,size,deadline_s\n0,2000,\n0.04,500,0.1\n");
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../punctual-cli/assets/clip.h264");
    fs::copy(clip, dir.path().join("clip.h264")).unwrap();
    let plan = plan_with(include_str!("example.toml"), Duration::from_secs(10), 1, &files);
    let bulk = plan.sources.len() - 1;
    assert_eq!(plan.sources[bulk].name, "download");
    for (index, source) in (0..).zip(&plan.sources[..bulk]) {
        assert!(plan.blocks.iter().any(|block| block.source == index), "{} sends nothing", source.name);
        let redundancy = source.name.starts_with("sensor").then_some(Redundancy::Fec);
        assert_eq!(source.redundancy, redundancy, "{}", source.name);
    }
}

#[test]
fn refusals_say_what_would_do() {
    for (keys, expected) in [
        ("every = '1s'", "a source of kind `messages` needs `size`"),
        ("kind = 'video'\nbit-rate = 1000", "needs `fps`"),
        ("kind = 'csv'", "needs `file`"),
        (
            "size = 1\nevery = 1\nfps = 30",
            "`fps` means nothing for a source of kind `messages`, whose own keys are size, every",
        ),
        ("kind = 'bulk'\ndeadline = '1s'", "`deadline` means nothing for a source of kind `bulk`"),
        ("size = 1\nevery = 1\nredundancy = 'much'", "no mode of redundancy is called `much`"),
        ("kind = 'movie'", "unknown variant `movie`, expected one of `messages`, `video`"),
        ("sise = 1\nevery = 1", "unknown field `sise`, expected one of"),
        ("size = 0\nevery = 1", "`size`: 0 bytes are no block"),
        ("size = '20 MB'\nevery = 1", "`size`: 20000000 bytes are no block"),
        ("size = 1\nevery = 0", "`every`: has to be above zero"),
        ("size = '5 furlongs'\nevery = 1", "`furlongs` is not a unit that fits here"),
        ("size = true\nevery = 1", "expected a quantity such as \"20 KB\""),
        ("size = { zipf = 1 }\nevery = 1", "unknown variant `zipf`, expected one of `uniform`, `normal`"),
        ("size = { normal = { mean = 1 } }\nevery = 1", "missing field `deviation`"),
        ("size = { uniform = ['5 KB', '1 KB'] }\nevery = 1", "`size`: `uniform` goes from the smaller"),
        ("size = 1\nevery = 1\npriority = 256", "expected a priority from 0"),
        ("size = 1\nevery = 1\npriority = []", "`priority`: the list is empty"),
        (
            "size = 1\nevery = 1\npriority = { i = 0, p = 1, b = 2 }",
            "`priority`: priorities by frame type are for videos",
        ),
        ("size = 1\nevery = 1\ncopies = 0", "`copies`: has to be above zero"),
        ("size = 1\nevery = 1\ndepends = 'references'", "`depends`: only the frames of a video"),
        ("size = 1\nevery = 1\ndepends = 'all'", "unknown variant `all`, expected one of `none`, `previous`"),
        ("size = 1\nevery = 1\nhand-over = { queue = 0 }", "`hand-over`: has to be above zero"),
        ("kind = 'video'\nfps = 0\nbit-rate = 1000", "`fps`: frames per second are from"),
        ("kind = 'video'\nfps = nan\nbit-rate = 1000", "`fps`: frames per second are from"),
        ("kind = 'video'\nfps = 30\nbit-rate = 0", "`bit-rate`: has to be above zero"),
        ("kind = 'video'\nfps = 30\nbit-rate = 1000\ngop = 'PPI'", "begins with an I frame"),
        ("kind = 'video'\nfps = 30\nbit-rate = 1000\nratio = [1, 0, 1]", "`ratio`: has to be above zero"),
        ("kind = 'video'\nsegment = '1s'\nfps = 30\nbit-rate = 1000", "`fps`: a video with a `segment`"),
        ("kind = 'video'\nfps = 30\nbit-rate = 1000\nvariation = -1", "`variation`: is from 0"),
        ("kind = 'bulk'\nbacklog = '1 KB'", "`backlog`: has to hold a block"),
    ] {
        let refusal = refusal(keys);
        assert!(refusal.contains(expected), "{keys}\n{refusal}");
    }
    // And where it is, or in which source.
    assert!(refusal("name = 'b'\nsize = 1\nevery = 0").contains("source `b`: `every`: has to be"));
    assert!(
        refusal("size = 1\nevery = '5 furlongs'").contains("every = '5 furlongs'"),
        "{}",
        refusal("size = 1\nevery = '5 furlongs'")
    );
}

#[test]
fn names_have_to_tell_sources_apart() {
    let error = |text: &str| plan(&parse(text), MINUTE, 1, &Files::default()).unwrap_err().to_string();
    let named = |name: &str, more: &str| format!("[[workload]]\nname = '{name}'\nsize = 1\nevery = 1\n{more}\n");
    assert_eq!(error(&(named("a", "") + &named("a", "copies = 2"))), "source `a`: another source has the same name");
    assert_eq!(
        error(&(named("a-2", "") + &named("a", "copies = 2"))),
        "source `a-2`: another source has the same name"
    );
    assert_eq!(
        error(&(named("a", "depends = { source = 'c' }") + &named("b", ""))),
        "source `a`: `depends`: there is no other source `c`; the others are `b`"
    );
    assert!(error(&named("a", "depends = { source = 'a' }")).contains("no other source"));
}

#[test]
fn too_much_is_refused_rather_than_tried() {
    let error = |text: &str| plan(&parse(text), MINUTE, 1, &Files::default()).unwrap_err().to_string();
    assert!(error("[[workload]]\nsize = 1\nevery = '1us'").contains("more than 5000000 blocks"));
    assert!(
        error("[[workload]]\nkind = 'bulk'\ncopies = 65535\n[[workload]]\nkind = 'bulk'")
            .contains("more than 65535 sources")
    );
}
