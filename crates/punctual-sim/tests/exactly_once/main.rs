//! Every block ends exactly once, on both sides, whatever the network and the applications do, and nothing is left
//! behind.
//!
//! A thousand worlds of each kind are tried with all other tests, and `make worlds` tries a hundred thousand. One that fails is named:
//! `PUNCTUAL_SEED='wide 7' cargo test -p punctual-sim --test exactly_once one_world` runs it alone, and prints its event log. Those that have failed once are in `seeds.txt`, and are
//! tried each time.

mod narrow;
mod plain;
mod restless;
mod wide;

use std::{
    fmt,
    fs::OpenOptions,
    io::Write as _,
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use punctual_sim::LogMode;

/// Worlds that failed once.
const SEEDS: &str = include_str!("seeds.txt");

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seed {
    Narrow(u64),
    Wide(u64),
    /// A wide one in which the client's addresses change.
    Moving(u64),
    /// A narrow one in which the server speaks plain QUIC.
    Plain(u64),
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Narrow(seed) => write!(f, "narrow {seed}"),
            Self::Wide(seed) => write!(f, "wide {seed}"),
            Self::Moving(seed) => write!(f, "moving {seed}"),
            Self::Plain(seed) => write!(f, "plain {seed}"),
        }
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As they were named when there was one kind.
        let (kind, seed) = text.trim().split_once(' ').unwrap_or(("narrow", text.trim()));
        match (kind, seed.parse()) {
            ("narrow", Ok(seed)) => Ok(Self::Narrow(seed)),
            ("wide", Ok(seed)) => Ok(Self::Wide(seed)),
            ("moving", Ok(seed)) => Ok(Self::Moving(seed)),
            ("plain", Ok(seed)) => Ok(Self::Plain(seed)),
            _ => Err(format!("{text:?} is no world; give `narrow`, `wide`, `moving` or `plain`, and a number")),
        }
    }
}

impl Seed {
    fn run(self, log: LogMode) -> Result<(), String> {
        match self {
            Self::Narrow(seed) => narrow::run(seed, log),
            Self::Wide(seed) => wide::run(seed, false, log),
            Self::Moving(seed) => wide::run(seed, true, log),
            Self::Plain(seed) => plain::run(seed, log),
        }
    }

    /// The same, panics of the code under test included.
    fn outcome(self) -> Result<(), String> {
        std::panic::catch_unwind(|| self.run(LogMode::Off)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or(panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default())
        })
    }
}

/// Runs worlds, as many at once as there are processors, and says of each that fails why.
fn failures(seeds: &[Seed], mut tell: impl FnMut(usize, &Seed, &Result<(), String>) + Send) -> Vec<(Seed, String)> {
    let (next, tell) = (AtomicU64::new(0), Mutex::new((&mut tell, 0, Vec::new())));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let outcome = seed.outcome();
            let mut guard = tell.lock().expect("nobody panics with it");
            let (tell, done, failed) = &mut *guard;
            *done += 1;
            tell(*done, seed, &outcome);
            failed.extend(outcome.err().map(|error| (*seed, error)));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut failed = tell.into_inner().expect("nobody panics with it").2;
    failed.sort();
    failed
}

#[track_caller]
fn all_are_well(seeds: &[Seed]) {
    let failed = failures(seeds, |_, _, _| ());
    let listed: String = failed.iter().take(20).map(|(seed, error)| format!("\n{seed}: {error}")).collect();
    assert!(failed.is_empty(), "{} of {} worlds failed:{listed}", failed.len(), seeds.len());
}

#[test]
fn a_thousand_random_worlds() {
    all_are_well(&(0..1_000).map(Seed::Narrow).collect::<Vec<_>>());
}

#[test]
fn a_thousand_wide_worlds() {
    all_are_well(&(0..1_000).map(Seed::Wide).collect::<Vec<_>>());
}

#[test]
fn a_thousand_moving_worlds() {
    all_are_well(&(0..1_000).map(Seed::Moving).collect::<Vec<_>>());
}

#[test]
fn a_thousand_plain_worlds() {
    all_are_well(&(0..1_000).map(Seed::Plain).collect::<Vec<_>>());
}

#[test]
fn worlds_that_failed_once() {
    let lines = SEEDS.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let seeds: Vec<Seed> = lines.filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect();
    all_are_well(&seeds);
}

/// The world of `PUNCTUAL_SEED`, if that is set.
#[test]
fn one_world() {
    if let Ok(seed) = std::env::var("PUNCTUAL_SEED") {
        seed.parse::<Seed>().unwrap().run(LogMode::Full).unwrap();
    }
}

/// `PUNCTUAL_WORLDS` worlds, a quarter of each kind, from number `PUNCTUAL_FROM` on. Those that fail are told at once, and kept in the file `PUNCTUAL_FAILED`.
#[test]
#[ignore = "takes hours; `make worlds`"]
fn any_number_of_worlds() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect(name));
    let (count, from) = (number("PUNCTUAL_WORLDS", 100_000_u64), number("PUNCTUAL_FROM", 1_000_u64));
    let kept = std::env::var("PUNCTUAL_FAILED").ok();
    let seeds: Vec<Seed> = (from..from + count.div_ceil(4))
        .flat_map(|n| [Seed::Wide(n), Seed::Narrow(n), Seed::Moving(n), Seed::Plain(n)])
        .collect();
    let began = Instant::now();
    let failed = failures(&seeds, |done, seed, outcome| {
        if let Err(error) = outcome {
            println!("FAILED: {seed}: {error}");
            if let Some(path) = &kept {
                let file = OpenOptions::new().create(true).append(true).open(path);
                file.and_then(|mut file| writeln!(file, "{seed}  # {error}")).expect("it can be written");
            }
        }
        if done % 1_000 == 0 || done == seeds.len() {
            println!("{done} of {} worlds in {:.0} s", seeds.len(), began.elapsed().as_secs_f64());
        }
    });
    assert!(failed.is_empty(), "{} of {} worlds failed", failed.len(), seeds.len());
}
