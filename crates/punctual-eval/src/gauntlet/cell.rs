//! A cell: a network and a workload, all from a number.

use super::{
    dice::{Dice, Part, rounded},
    path::{CORE, Path, Queue, WIDE, queue},
    source::{self, Application, PAYLOAD, Room, Source, Way, Workload},
};

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Its number, of which everything else follows.
    pub number: u64,
    /// Whether its rates and delays are from the wide range.
    pub wide: bool,
    /// How long blocks are handed over.
    pub seconds: f64,
    /// Its paths.
    pub paths: Vec<Path>,
    /// What two of them share.
    pub shared: Option<Shared>,
    /// What it is about.
    pub application: Application,
    /// The blocks.
    pub sources: Vec<Source>,
    /// Whether there is a bulk transfer beside them.
    pub bulk: bool,
    /// What was done to have fewer packets than were drawn.
    pub cut: Cut,
}

/// A link behind two paths' own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    /// Which two.
    pub paths: [usize; 2],
    /// Bits per second.
    pub rate: f64,
    /// What it adds to their delays, milliseconds.
    pub delay: f64,
    /// What its queue holds.
    pub queue: Queue,
}

/// What was done to have fewer packets than were drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// The run is shorter.
    pub shorter: bool,
    /// There is less to send.
    pub lighter: bool,
}

/// How long blocks are handed over, seconds; and at least, where there are many packets.
const SECONDS: (f64, f64) = (8.0, 20.0);
const LEAST_SECONDS: f64 = 6.0;

/// Bits of a workload that are less than this of what was drawn are less than was drawn; rounding does not count.
const NOTICED: f64 = 0.9;

/// Packets of a run, about. More would tell little more, and take long.
const MOST_PACKETS: f64 = 120_000.0;

impl Cell {
    /// The cell of this number.
    pub fn draw(number: u64) -> Self {
        let mut dice = Dice::of(number, Part::Shape, 0);
        let wide = dice.chance(0.25);
        let count = match dice.uniform((0.0, 1.0)) {
            share if share < 0.3 => 1,
            share if share < 0.7 => 2,
            share if share < 0.85 => 3,
            _ => 4,
        };
        let seconds = dice.uniform(SECONDS);
        let range = if wide { WIDE } else { CORE };
        let path = |index| Path::draw(&mut Dice::of(number, Part::Path, index), range, seconds);
        let mut paths: Vec<Path> = (0..count).map(path).collect();
        // Somebody has to live.
        if paths.iter().all(|path| path.dies.is_some()) {
            paths[0].dies = None;
        }
        let shared = Shared::draw(&mut Dice::of(number, Part::Shared, 0), &paths);
        let mut dice = Dice::of(number, Part::Workload, 0);
        let way = |(path, delay): (&Path, f64)| Way {
            rate: path.mean_rate(),
            delay,
            jitter: path.jitter.map_or(0.0, |jitter| jitter.most_ms()),
        };
        let ways: Vec<Way> = paths.iter().zip(delays(&paths, shared)).map(way).collect();
        let capacity = capacity(&paths, shared);
        let Workload { application, sources, wanted } = source::draw(&mut dice, Room { ways: &ways, capacity });
        let bulk = dice.chance(0.1) && capacity / 8.0 / PAYLOAD * LEAST_SECONDS < MOST_PACKETS;
        let mut cell = Self { number, wide, seconds, paths, shared, application, sources, bulk, cut: Cut::default() };
        cell.cut();
        cell.cut.lighter = cell.bit_rate() < wanted * NOTICED;
        cell
    }

    /// Has few enough packets from now on.
    fn cut(&mut self) {
        let seconds = MOST_PACKETS / self.packets_per_second();
        if seconds >= self.seconds {
            return;
        }
        // To a tenth.
        self.cut.shorter = true;
        self.seconds = ((seconds * 10.0).floor() / 10.0).max(LEAST_SECONDS);
        if seconds < LEAST_SECONDS {
            let factor = seconds / LEAST_SECONDS;
            self.sources = self.sources.iter().cloned().map(|source| source.lighter(factor)).collect();
        }
    }

    /// About, and at most what the paths carry if there is bulk.
    pub(super) fn packets_per_second(&self) -> f64 {
        let blocks: f64 = self.sources.iter().map(Source::packets_per_second).sum();
        let rest = (self.capacity() - self.bit_rate()).max(0.0) / 8.0 / PAYLOAD;
        if self.bulk { blocks + rest } else { blocks }
    }

    /// Bits per second the paths carry on average, a shared link and policers counted; stalls and deaths are not.
    pub fn capacity(&self) -> f64 {
        capacity(&self.paths, self.shared)
    }

    /// Bits per second of all sources.
    pub fn bit_rate(&self) -> f64 {
        self.sources.iter().map(Source::bit_rate).sum()
    }

    /// The blocks' bits, of what the paths carry.
    pub fn load(&self) -> f64 {
        self.bit_rate() / self.capacity()
    }

    /// Of each path, how long it is one way at the beginning, milliseconds.
    pub fn delays_ms(&self) -> Vec<f64> {
        delays(&self.paths, self.shared)
    }
}

fn delays(paths: &[Path], shared: Option<Shared>) -> Vec<f64> {
    let behind = |index| shared.filter(|shared| shared.paths.contains(&index)).map_or(0.0, |shared| shared.delay);
    paths.iter().enumerate().map(|(index, path)| path.delay_ms() + behind(index)).collect()
}

fn capacity(paths: &[Path], shared: Option<Shared>) -> f64 {
    let of = |behind: bool| {
        let is_behind = |index: &usize| shared.is_some_and(|shared| shared.paths.contains(index)) == behind;
        (0..paths.len()).filter(is_behind).map(|index| paths[index].mean_rate()).sum::<f64>()
    };
    of(false) + of(true).min(shared.map_or(0.0, |shared| shared.rate))
}

impl Shared {
    fn draw(dice: &mut Dice, paths: &[Path]) -> Option<Self> {
        if paths.len() < 2 || !dice.chance(0.1) {
            return None;
        }
        let first = dice.whole(0, paths.len() as u32 - 1) as usize;
        let second = (first + dice.whole(1, paths.len() as u32 - 1) as usize) % paths.len();
        let both = [first.min(second), first.max(second)];
        let rate = rounded(both.map(|index| paths[index].mean_rate()).iter().sum::<f64>() * dice.uniform((0.4, 0.9)));
        let delay = dice.uniform((0.0, 10.0));
        let queue = queue(dice, rate, delay + paths[both[0]].delay_ms());
        Some(Self { paths: both, rate, delay, queue })
    }
}
