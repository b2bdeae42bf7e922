//! What the links are to be like: from a file, as experiments have it, and from flags.

use std::{
    fs,
    path::{Path, PathBuf},
};

use punctual_eval::{
    files::Files,
    network::{LinkTable, Network, PathSpec},
};
use toml::{Table, Value};

use super::{args::LinkFlags, wires::Plan};
use crate::exit::Failure;

/// The links that the command line asks for; without a file, one path.
pub(super) fn plan(flags: &LinkFlags) -> Result<Plan, Failure> {
    let (mut paths, links) = match &flags.spec {
        Some(file) => read(file)?,
        None => (vec![Table::new()], Vec::new()),
    };
    let own = table(flags)?;
    paths.iter_mut().for_each(|path| own.iter().for_each(|(key, value)| merge(path, key, value)));
    let paths: Vec<PathSpec> = convert(paths, "path")?;
    let links: Vec<LinkTable> = convert(links, "link")?;
    let network = Network::build(&paths, &links, &files(flags.spec.as_deref())).map_err(|error| {
        match error.is_about_a_file() {
            true => Failure::File(error.to_string()),
            false => unusable(error),
        }
    })?;
    Plan::new(network).map_err(Failure::Usage)
}

/// The `[[path]]` and `[[link]]` tables of a file. The rest of an experiment is of no concern here.
fn read(file: &Path) -> Result<(Vec<Table>, Vec<Table>), Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file("read", file, error))?;
    let mut all: Table = text.parse().map_err(|error| unusable(format!("{}: {error}", file.display())))?;
    let mut tables = |key: &str| match all.remove(key) {
        None => Ok(Vec::new()),
        Some(value) => value.try_into().map_err(|_| unusable(format!("{}: no [[{key}]] tables", file.display()))),
    };
    let (paths, links): (Vec<Table>, _) = (tables("path")?, tables("link")?);
    match paths.is_empty() {
        true => Err(unusable(format!("{}: there is no [[path]] in it", file.display()))),
        false => Ok((paths, links)),
    }
}

/// What flags say, as a `[[path]]` table has it.
fn table(flags: &LinkFlags) -> Result<Table, Failure> {
    let mut table = Table::new();
    let plain = [
        ("rate", &flags.rate),
        ("delay", &flags.delay),
        ("queue", &flags.queue),
        ("duplication", &flags.duplication),
        ("corruption", &flags.corruption),
        ("loss", &flags.loss),
    ];
    for (key, text) in plain {
        if let Some(text) = text {
            table.insert(key.into(), value(text));
        }
    }
    if let Some(trace) = &flags.trace {
        table.insert("trace".into(), trace.as_str().into());
    }
    if let Some(burst) = flags.burst {
        let mean = table.remove("loss").ok_or_else(|| unusable("--burst goes with --loss"))?;
        if mean.is_array() {
            return Err(unusable(
                "--burst: of a --loss with steps the losses are single ones; give one share, or leave --burst out",
            ));
        }
        let model = Table::from_iter([("mean".into(), mean), ("burst".into(), burst.into())]);
        table.insert("loss".into(), Value::Table(model));
    }
    if let Some(jitter) = &flags.jitter {
        table.insert("jitter".into(), Value::Table(self::jitter(jitter)?));
    }
    if let Some(mtu) = flags.mtu {
        table.insert("mtu".into(), Value::Integer(mtu.into()));
    }
    if !flags.dies.is_empty() {
        let dies = flags.dies.iter().map(|span| {
            let (from, to) =
                span.split_once("..").ok_or_else(|| unusable(format!("--dies {span}: expected FROM..TO")))?;
            Ok(Value::Array(vec![from.into(), to.into()]))
        });
        table.insert("dies".into(), Value::Array(dies.collect::<Result<_, Failure>>()?));
    }
    if let Some(back) = &flags.back {
        let parsed: Table =
            format!("back = {{ {back} }}").parse().map_err(|error| unusable(format!("--back: {error}")))?;
        table.extend(parsed);
    }
    Ok(table)
}

/// A value, or steps of it: `4Mbit/s`, or `0s:4Mbit/s,10s:1Mbit/s`. As everywhere on the command line, a time without a unit is none.
fn value(text: &str) -> Value {
    let one = |text: &str| Value::String(text.trim().into());
    let step = |step: &str| {
        let (at, value) = step.split_once(':')?;
        Some(Value::Array(vec![Value::String(at.trim().into()), one(value)]))
    };
    let steps: Option<Vec<_>> = text.split(',').map(step).collect();
    steps.map_or_else(|| one(text), Value::Array)
}

/// `30ms` for anything up to that, `exponential:10ms`, or `normal:15ms,5ms`.
fn jitter(text: &str) -> Result<Table, Failure> {
    let entry = |key: &str, value: Value| Table::from_iter([(key.to_owned(), value)]);
    match text.split_once(':') {
        None => Ok(entry("uniform", text.into())),
        Some((kind @ ("uniform" | "exponential"), time)) => Ok(entry(kind, time.into())),
        Some(("normal", times)) => {
            let (mean, deviation) = times
                .split_once(',')
                .ok_or_else(|| unusable(format!("--jitter {text}: expected normal:MEAN,DEVIATION")))?;
            let normal = Table::from_iter([("mean".into(), mean.into()), ("deviation".into(), deviation.into())]);
            Ok(entry("normal", Value::Table(normal)))
        }
        Some((kind, _)) => {
            Err(unusable(format!("--jitter {kind}: expected a time, exponential:MEAN or normal:MEAN,DEVIATION")))
        }
    }
}

/// Flags outrank the file; of the way back, key by key.
fn merge(path: &mut Table, key: &str, value: &Value) {
    if let (Some(Value::Table(old)), Value::Table(new), "back") = (path.get_mut(key), value, key) {
        old.extend(new.clone());
        return;
    }
    path.insert(key.into(), value.clone());
}

fn convert<T: serde::de::DeserializeOwned>(tables: Vec<Table>, key: &str) -> Result<Vec<T>, Failure> {
    let convert = |(table, index): (Table, usize)| {
        table.try_into().map_err(|error: toml::de::Error| unusable(format!("[[{key}]] {index}: {}", error.message())))
    };
    tables.into_iter().zip(0..).map(convert).collect()
}

/// Where traces are looked for: as they are named from here, beside the file, and in the usual places of recordings.
fn files(spec: Option<&Path>) -> Files {
    let beside = spec.and_then(Path::parent).map(Path::to_path_buf);
    let told = std::env::var_os("PUNCTUAL_DATA").map(PathBuf::from);
    let usual = ["data", "../shared/data"].map(PathBuf::from);
    Files::new([PathBuf::from(".")].into_iter().chain(beside).chain(told).chain(usual))
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use punctual_sim::{Jitter, LinkSpec, Loss, Rate, Schedule};

    use super::*;

    const fn ms(ms: u64) -> std::time::Duration {
        std::time::Duration::from_millis(ms)
    }

    fn links(flags: &LinkFlags) -> Result<Vec<LinkSpec>, String> {
        let mut links = Vec::new();
        let mut plan = plan(flags).map_err(|failure| failure.to_string())?;
        plan.each_link(|link| links.push(link.clone()));
        Ok(links)
    }

    #[test]
    fn what_makes_no_link_is_refused() {
        let with = |loss: &str, burst, dies: &[&str]| LinkFlags {
            loss: Some(loss.into()),
            burst,
            dies: dies.iter().map(|&span| span.into()).collect(),
            ..LinkFlags::default()
        };
        for (flags, word) in [
            (with("0s:1%,5s:2%", Some(3.0), &[]), "a --loss with steps"),
            (with("1%", Some(0.0), &[]), "a burst of 0 packets"),
            (with("1%", None, &["12s..10s"]), "dies at 12 s"),
            (LinkFlags { delay: Some("1".into()), ..LinkFlags::default() }, "`delay`: `1` has no unit"),
            (LinkFlags { delay: Some("0s:1ms,5:2ms".into()), ..LinkFlags::default() }, "`5` has no unit"),
            (LinkFlags { mtu: Some(0), ..LinkFlags::default() }, "`mtu` of 0"),
        ] {
            let error = links(&flags).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn flags_say_what_a_file_could() {
        let flags = LinkFlags {
            rate: Some("0s:4Mbit/s,10s:1Mbit/s".into()),
            delay: Some("40ms".into()),
            jitter: Some("30ms".into()),
            loss: Some("5 %".into()),
            burst: Some(8.0),
            dies: vec!["1s..2s".into()],
            back: Some("rate = '1 Mbit/s', loss = 0".into()),
            ..LinkFlags::default()
        };
        let links = links(&flags).unwrap();
        let like = LinkSpec::unlimited(ms(40)).jitter(Jitter::Uniform(ms(30)));
        let rate = Schedule::fixed(4_000_000).then(ms(10_000), 1_000_000);
        assert_eq!(links[0], like.clone().rate(Rate::Steps(rate)).loss(Loss::bursts(0.05, 8.0)));
        assert_eq!(links[1], like.rate(Rate::mbps(1.0)).loss(Loss::None));
    }

    #[test]
    fn flags_outrank_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("experiment.toml");
        fs::write(
            &file,
            "title = 'x'\n[[path]]\ndelay = '5ms'\nrate = '2 Mbit/s'\n[[path]]\nback = { delay = '1ms' }\n",
        )
        .unwrap();
        let flags = LinkFlags {
            spec: Some(file),
            delay: Some("9ms".into()),
            back: Some("loss = '1 %'".into()),
            ..LinkFlags::default()
        };
        let links = links(&flags).unwrap();
        let delays: Vec<_> = links.iter().map(|link| link.delay.clone()).collect();
        assert_eq!(delays, [9, 9, 9, 1].map(|delay| Schedule::fixed(ms(delay))));
        assert_eq!(links[0].rate, Rate::mbps(2.0));
        assert_eq!(links[3].loss, Schedule::fixed(Loss::Bernoulli(0.01)));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let flags = LinkFlags::default;
        for (flags, word) in [
            (LinkFlags { rate: Some("fast".into()), ..flags() }, "`rate`"),
            (LinkFlags { burst: Some(4.0), ..flags() }, "--loss"),
            (LinkFlags { jitter: Some("gamma:3ms".into()), ..flags() }, "gamma"),
            (LinkFlags { dies: vec!["1s".into()], ..flags() }, "FROM..TO"),
            (LinkFlags { back: Some("rte = 1".into()), ..flags() }, "rte"),
            (LinkFlags { trace: Some("nowhere".into()), ..flags() }, "nowhere"),
            (LinkFlags { spec: Some("nothing.toml".into()), ..flags() }, "nothing.toml"),
        ] {
            let error = links(&flags).unwrap_err();
            assert!(error.contains(word) && !error.contains('\n'), "{word}: {error}");
        }
    }
}
