//! What an experiment reads from files is part of it.

use std::{fs, sync::atomic::AtomicBool};

use punctual_eval::{
    experiment::Experiment,
    files::Files,
    run::{self, Options, RunError},
};

const TEXT: &str = "
title = 'x'
duration = '1s'
seeds = 2
contenders = ['ads']
[[path]]
rate = '8 Mbit/s'
delay = '10ms'
[[workload]]
name = 'blocks'
kind = 'csv'
file = 'blocks.csv'
";

#[test]
fn runs_with_another_file_are_other_runs() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment::parse("x", TEXT).unwrap();
    let options = Options { files: Files::new([folder.path()]), ..Options::new(folder.path().join("out")) };
    let run = || run::run(&experiment, &options, &AtomicBool::new(false), &|_| {});
    let error = run().unwrap_err();
    assert!(matches!(&error, RunError::Experiment(error) if error.is_about_a_file()), "{error}");
    for (rows, on_time) in [("0.1,1000\n", 1.0), ("0.1,1000\n0.2,16000000\n", 0.5)] {
        fs::write(folder.path().join("blocks.csv"), rows).unwrap();
        // The second one cannot be there when the run ends.
        assert_eq!(run().unwrap().cells[0].mean("on_time"), Some(on_time));
    }
}

#[test]
fn what_makes_no_sense_is_said_before_anything_runs() {
    let wrong = |more: &str, word: &str| {
        let error = Experiment::parse("x", &format!("{TEXT}\n{more}")).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    wrong("[[must]]\nsay = 'y'\nof = 'ads'\nmeasure = 'speed'\nat-least = 1", "no measure `speed`");
    wrong("[[figure]]\ntitle = 'y'\nkind = 'lines'\nmeasure = 'on_tim:0'", "no measure `on_tim:0`");
    wrong("[[workload]]\nname = 'a'\nkind = 'bulk'\ncopies = 2", "more than one bulk");
    wrong("[[must]]\nsay = 'y'\nof = 'ads'\nmeasure = 'on_time'", "exactly one of");
    let experiment = Experiment::parse("x", TEXT).unwrap();
    for (key, value, word) in [
        ("seeds", "0", "`seeds` of 0"),
        ("duration", "0s", "nothing to send"),
        ("contenders", "ads,quic,ads", "two contenders are called `ads`"),
        ("path.7.loss", "0.1", "cannot set `path.7.loss`: `7` is not one of the 1 elements"),
    ] {
        let error = experiment.with(key, value).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let idle = TEXT.split("[[workload]]").next().unwrap();
    assert!(Experiment::parse("x", idle).unwrap_err().to_string().contains("a [[workload]]"));
}
