//! What an experiment cannot mean is refused before anything is run, in one line that says where it is and what is wrong.

use punctual_eval::{experiment::Experiment, files::Files};

/// An experiment that makes sense.
const SOUND: &str = "\
title = 'x'
duration = '1s'
contenders = ['ads', 'quic', { name = 'own', like = 'ads', set = { 'session.probing' = 'all' } }]

[[path]]
name = 'a'
rate = '8 Mbit/s'
delay = '10ms'

[[path]]
rate = '2 Mbit/s'

[[workload]]
size = 1000
every = '100ms'
deadline = '80ms'

[[axis]]
name = 'bandwidth'
unit = 'MB/s'
set = 'path.0.rate'
template = '{} MB/s'
values = [1, 2]

[[axis]]
name = 'link'
values = [{ label = 'wifi', set = {} }]

[[must]]
say = 'ads is good'
of = 'ads'
measure = 'on_time'
at-least-that-of = 'quic'
where = 'bandwidth > 1 and link = wifi'

[[figure]]
title = 'Drawn'
kind = 'lines'
measure = 'on_time'
x = 'bandwidth'
at = { link = 'wifi' }
contenders = ['ads']
";

/// All that is looked at before a run: its text, and its network and workload.
fn look(text: &str) -> Result<(), String> {
    let experiment = Experiment::parse("x", text).map_err(|error| error.to_string())?;
    let cells = experiment.cells().map_err(|error| error.to_string())?;
    let stage = |setup| punctual_eval::carry::Stage::new(setup, &Files::default(), 1);
    cells.iter().try_for_each(|cell| stage(&cell.setup).map(drop).map_err(|error| error.to_string()))
}

/// With one piece of the sound text replaced, it is refused in one line that says all these words.
fn refused(piece: &str, instead: &str, words: &[&str]) {
    assert!(SOUND.contains(piece), "{piece}");
    let error = look(&SOUND.replacen(piece, instead, 1)).expect_err(instead);
    assert!(words.iter().all(|word| error.contains(word)), "{instead}: {error}");
    assert_eq!(error.trim().lines().count(), 1, "{instead}: {error:?}");
}

#[test]
fn what_makes_sense_is_taken() {
    look(SOUND).unwrap();
}

#[test]
fn thresholds_and_figures_are_about_what_is_there() {
    refused("of = 'ads'", "of = 'adss'", &["must `ads is good`", "no contender", "`adss`", "ads, quic, own"]);
    refused("at-least-that-of = 'quic'", "at-least-that-of = 'quicc'", &["`quicc`"]);
    refused("where = 'bandwidth > 1", "where = 'nix > 1", &["no axis is called `nix`", "bandwidth, link"]);
    refused("where = 'bandwidth > 1", "where = 'bandwidth > 2", &["must `ads is good`", "holds in no cell"]);
    refused("where = 'bandwidth > 1", "where = 'bandwidth == 1", &["no comparison"]);
    refused("where = 'bandwidth > 1", "where = 'link > wifi", &["`wifi` is no number"]);
    refused("at-least-that-of = 'quic'", "at-least = nan", &["NaN"]);
    refused("at-least-that-of = 'quic'", "at-least = 1\ntimes = 2", &["`times`", "at-least-that-of"]);
    refused("at-least-that-of = 'quic'", "at-most-that-of = 'quic'\ntolerance = inf", &["inf"]);
    refused("x = 'bandwidth'", "x = 'width'", &["figure `Drawn`", "`width`"]);
    refused("at = { link = 'wifi' }", "at = { link = 'lte' }", &["figure `Drawn`", "no value `lte`", "wifi"]);
    refused("at = { link = 'wifi' }", "at = { lnk = 'wifi' }", &["`lnk`"]);
    refused("\ncontenders = ['ads']", "\ncontenders = ['nobody']", &["`nobody`"]);
}

#[test]
fn who_changes_an_experiment_need_not_change_its_thresholds() {
    let experiment = Experiment::parse("x", SOUND).unwrap();
    for (key, value) in [("contenders", "quic"), ("bandwidth", "1"), ("contenders", "ads")] {
        experiment.with(key, value).unwrap();
    }
    // But who changes them has to get them right.
    assert!(experiment.with("must.0.of", "nobody").unwrap_err().to_string().contains("`nobody`"));
}

#[test]
fn keys_are_named_as_they_are_set() {
    refused("rate = '2 Mbit/s'", "rate = 'fast'", &["`path.1`: `rate`: `fast` does not begin with a number"]);
    refused("rate = '2 Mbit/s'", "rate = '2 Mbit'", &["`rate`", "`Mbit` is not a unit"]);
    refused(
        "delay = '10ms'",
        "delay = [['0s', '10ms'], ['1s', '5 furlongs']]",
        &["`path.0`: `delay`", "`1.1`", "furlongs"],
    );
    refused("delay = '10ms'", "loss = '120 %'", &["`loss`", "more than all"]);
    refused("delay = '10ms'", "loss = { mean = '5 %', bursts = 2 }", &["`loss`", "`bursts`"]);
    refused("delay = '10ms'", "back = { trace-from = '1s' }", &["path `a`", "`back`", "`trace-from`"]);
    refused("delay = '10ms'", "queue = { bpd = 1.0 }", &["`queue`", "`bpd`"]);
    let brust = look(&SOUND.replacen("delay = '10ms'", "loss = { mean = '5 %', brust = 8 }", 1)).unwrap_err();
    assert!(!brust.contains("`cost`"), "of the path's keys none is meant: {brust}");
    refused("delay = '10ms'", "nmae = 'b'", &["`nmae`", "`rate`", "`budget`", "`dies`"]);
    refused("size = 1000", "size = 'large'", &["`workload.0", "large"]);
    refused("[[workload]]", "[workload]", &["`[workload]` is one table", "`[[workload]]`"]);
    refused("'session.probing'", "'sesion.probing'", &["`sesion`"]);
    refused("'session.probing'", "'session.porbing'", &["`session", "`porbing`"]);
    refused("set = 'path.0.rate'", "set = 'path.0.rat'", &["`path.0`", "`rat`"]);
    refused("kind = 'lines'", "kind = 'line'", &["`figure.0", "`line`"]);
}

#[test]
fn names_and_values_tell_things_apart() {
    refused("name = 'link'", "name = 'bandwidth'", &["two axes are called `bandwidth`"]);
    refused("values = [1, 2]", "values = [1, 2, 1]", &["axis `bandwidth`", "`1` twice"]);
    refused("values = [1, 2]", "values = []", &["axis `bandwidth`", "no values"]);
    refused("rate = '2 Mbit/s'", "name = 'a'", &["two paths are called `a`"]);
    refused("values = [1, 2]", "values = [1, 1.0]", &["axis `bandwidth`", "`1.0` twice"]);
    refused("'{} MB/s'", "'3 MB/s'", &["axis `bandwidth`", "`template`"]);
    refused("set = 'path.0.rate'", "set = 'seeds'", &["axis `bandwidth`", "`seeds`", "whole experiment's"]);
    refused("'session.probing' = 'all'", "'must.0.of' = 'ads'", &["contender `own`", "`must.0.of`"]);
}

#[test]
fn times_come_in_order() {
    let rate = |steps: &str, words: &[&str]| refused("rate = '2 Mbit/s'", &format!("rate = {steps}"), words);
    rate("[['1s', 1000]]", &["path `path 1`", "`rate`", "first step is at 1 s"]);
    rate("[['0s', 1000], ['2s', 5], ['1s', 7]]", &["a step at 1 s comes after one at 2 s"]);
    rate("[['0s', 1000], ['2s', 5], ['2s', 7]]", &["a step at 2 s"]);
    rate("[]", &["no steps"]);
    rate("{ steps = [['0s', 1000], ['2s', 5]], repeat = '2s' }", &["begin anew after 2 s"]);
    rate("{ steps = [['0s', 1000]], repeat = '2ns' }", &["begin anew", "1 ms at least"]);
    let twice = "dies = [['3s', '5s'], ['1s', '3500ms']]";
    refused("delay = '10ms'", twice, &["dead until 3.5 s", "dies again at 3 s"]);
    refused("size = 1000", "size = 1000\nstart = '2s'\nstop = '1s'", &["`stop`", "not after `start`"]);
    refused("[[axis]]", "[measure]\nwindow = ['2s', '1s']\n[[axis]]", &["[measure] window"]);
}

#[test]
fn what_would_take_for_ever_is_not_begun() {
    let cross = |traffic: &str, words: &[&str]| refused("delay = '10ms'", &format!("cross = [{traffic}]"), words);
    cross("{ rate = '1 Mbit/s', packet = 0 }", &["path `a`", "packets without bytes"]);
    cross("{ rate = '1000 Gbit/s' }", &["a million"]);
    cross("{ rate = '1 Mbit/s', on-off = ['0s', '1s'] }", &["on for no time"]);
    cross("{ rate = '1 Mbit/s', start = '3s', stop = '2s' }", &["stops at 2 s"]);
    let rival = |count: u32| format!("[[rival]]\nlike = 'quic'\ncount = {count}\n[[axis]]");
    refused("[[axis]]", &rival(0), &["rival `quic`", "`count` of 0"]);
    refused("[[axis]]", &rival(20_000), &["rival `quic`", "1000"]);
    refused("duration = '1s'", "duration = '30h'", &["`duration`", "at most"]);
    refused("duration = '1s'", "duration = '1s'\ndrain = '1000000h'", &["`drain`", "at most"]);
    let paths = "[[path]]\n".repeat(7) + "[[workload]]";
    refused("[[workload]]", &paths, &["there are 9 [[path]]s", "1 to 8"]);
}

#[test]
fn what_would_do_nothing_is_no_key() {
    refused("delay = '10ms'", "trace-from = '1s'", &["path `a`", "`trace-from`"]);
    refused("rate = '2 Mbit/s'", "scale = 2", &["path `path 1`", "`scale`"]);
    refused("delay = '10ms'", "mtu = 0", &["path `a`", "`mtu` of 0"]);
    refused("delay = '10ms'", "trace = 'lte.down'", &["path `a`", "neither `rate` nor `aitrans`"]);
}

#[test]
fn a_deadline_of_years_is_waited_for_for_an_hour() {
    let text = SOUND.replace("deadline = '80ms'", "deadline = '100000h'");
    let cells = Experiment::parse("x", &text).unwrap().cells().unwrap();
    let stage = punctual_eval::carry::Stage::new(&cells[0].setup, &Files::default(), 1).unwrap();
    assert_eq!(stage.end.as_secs(), 3_601);
    let record = punctual_eval::carry::attempt(&stage, &cells[0].contender, 1);
    assert!(record.blocks.iter().all(|block| block.on_time()));
}
