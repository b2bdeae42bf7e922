//! Contenders on the paths and with the settings that their names and tables give them.

use punctual_eval::{
    carry::{self, Stage},
    experiment::Experiment,
    files::Files,
    record::RunRecord,
};

/// Two paths, the second slower and dearer; the first is dead for the second half.
const PATHS: &str = "title = 'x'\nduration = '2s'\n[[path]]\nrate = '20 Mbit/s'\ndelay = '10ms'\ncost = 1\ndies = [['1s', '9s']]\n\
                     [[path]]\nrate = '10 Mbit/s'\ndelay = '20ms'\ncost = 3\n\
                     [[workload]]\nsize = 5000\nevery = '20ms'\ndeadline = '100ms'\n";

fn experiment(contender: &str, more: &str) -> Result<Experiment, String> {
    let text = format!("contenders = ['{contender}']\n{PATHS}{more}");
    Experiment::parse("x", &text).map_err(|error| error.to_string())
}

fn run(contender: &str, more: &str) -> RunRecord {
    let cell = experiment(contender, more).unwrap().cells().unwrap().remove(0);
    let stage = Stage::new(&cell.setup, &Files::default(), 1).unwrap();
    carry::run(&stage, &cell.contender, 1).unwrap()
}

fn on_time(record: &RunRecord) -> f64 {
    record.blocks.iter().filter(|block| block.on_time()).count() as f64 / record.blocks.len() as f64
}

#[test]
fn an_at_gives_one_path_and_no_other() {
    for name in ["ads", "ads/cubic/round-robin", "quic", "quic-by-priority", "mpquic//lowest-rtt"] {
        for path in [0, 1] {
            let record = run(&format!("{name}@{path}"), "");
            let (taken, other) = (&record.paths[path], &record.paths[1 - path]);
            assert_eq!(other.sent.total() + other.offered_bytes, 0, "{name}@{path}");
            assert!(
                taken.sent.source > 250_000 && taken.offered_bytes > taken.sent.total(),
                "{name}@{path}: {taken:?}"
            );
            assert_eq!(taken.cost, [1.0, 3.0][path]);
            // The first path carries half of the run, the second all of it.
            let on_time = on_time(&record);
            let expected = if path == 0 { 0.4..=0.52 } else { 0.99..=1.0 };
            assert!(expected.contains(&on_time), "{name}@{path}: {on_time}");
        }
    }
}

#[test]
fn without_it_all_paths_are_there() {
    for (name, both) in [("ads", true), ("mpquic//round-robin", true), ("quic", false)] {
        let record = run(name, "");
        assert!(record.paths[0].sent.total() > 0, "{name}");
        assert_eq!(record.paths[1].sent.total() > 0, both, "{name}");
    }
}

#[test]
fn a_backup_carries_data_while_the_other_is_dead() {
    let text = format!("contenders = ['ads']\n{}", PATHS.replace("cost = 3", "role = 'backup'"));
    let run = |text: &str| {
        let cell = Experiment::parse("x", text).unwrap().cells().unwrap().remove(0);
        let stage = Stage::new(&cell.setup, &Files::default(), 1).unwrap();
        carry::run(&stage, &cell.contender, 1).unwrap()
    };
    let record = run(&text);
    // The first path dies for the second half.
    let half = 250_000;
    assert!((half - 20_000..half + 20_000).contains(&record.paths[1].sent.source), "{:?}", record.paths[1].sent);
    assert!(on_time(&record) > 0.95, "{}", on_time(&record));
    let alive = run(&text.replace("dies = [['1s', '9s']]", ""));
    assert_eq!((alive.paths[1].sent.total(), on_time(&alive)), (0, 1.0));
    let error = Experiment::parse("x", &text.replace("backup", "spare")).unwrap_err().to_string();
    assert!(error.contains("preferred, normal, backup"), "{error}");
}

#[test]
fn a_path_that_is_not_there_is_refused() {
    let error = |contender, more| experiment(contender, more).unwrap_err();
    assert!(error("ads@2", "").contains("there are 2 paths"));
    assert!(error("mpquic/bbr3/lowest-rtt@7", "").contains("there are 2 paths"));
    assert!(error("ads", "[[rival]]\nlike = 'quic@1'").contains("by `path`"));
    // Also if only some of the cells have no such path.
    let one = "[[axis]]\nname = 'paths'\nvalues = [{ label = 'two', set = {} }, { label = 'one', set = { path = [{ rate = '1 MB/s' }] } }]";
    assert!(error("ads@1", one).contains("there are 1 paths"));
    assert!(experiment("ads@0", one).is_ok());
}

#[test]
fn a_first_window_is_what_the_tables_say() {
    // A block of 60 packets at once: how many of them leave before the first ACK is back after 80 ms.
    let first_flight = |contender: &str, tables: &str| {
        let workload =
            "workload = [{ size = '80 KB', every = '10s' }]\npath = [{ rate = '1 Gbit/s', delay = '40ms' }]\n";
        let text =
            format!("title = 'x'\nduration = '75ms'\ndrain = '0s'\ncontenders = ['{contender}']\n{workload}{tables}");
        let cell = Experiment::parse("x", &text).unwrap().cells().unwrap().remove(0);
        let stage = Stage::new(&cell.setup, &Files::default(), 1).unwrap();
        carry::run(&stage, &cell.contender, 1).unwrap().paths[0].offered_bytes
    };
    for contender in ["ads/cubic", "quic", "mpquic//lowest-rtt"] {
        let flight = |tables: &str| first_flight(contender, tables);
        let near = |bytes: u64, window: u64| (window - 3_000..=window + 1_000).contains(&bytes);
        assert!(near(flight(""), 14_400), "{contender}: {}", flight(""));
        let session = flight("[session]\ninitial-window = '60 KB'");
        assert!(near(session, 60_000), "{contender}: {session}");
        let both = flight("[session]\ninitial-window = '60 KB'\n[quic]\ninitial-window = '12 KB'");
        assert!(near(both, if contender == "ads/cubic" { 60_000 } else { 12_000 }), "{contender}: {both}");
    }
}
