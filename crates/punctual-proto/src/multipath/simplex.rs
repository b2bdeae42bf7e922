//! The simplex method on the program of [`plan`](super::plan).

use super::{
    MAX_PATHS,
    plan::{Link, Way},
};

/// Revised primal simplex: it begins with nothing sent, and at each step takes up the column that promises most. The columns of ways are not written down: that
/// of the best second try is found for each first one from the prices of the rows.
///
/// ```text
/// row 0        Σ x + dropped            = 1
/// row 1        Σ x P + short − surplus  = q
/// row 2 + k    load of k + spare        = room of k
/// ```
///
/// What is dropped and what falls short cost so much that both are 0 where they can be, and the least otherwise. After each step the plan can be
/// carried out, so to stop early costs optimality alone. It takes some nine steps for 8 paths, of a third of a microsecond (`cargo bench -p punctual-proto
/// --bench plan`): a solver for programs of any kind takes some thirty times as long, and in the tests comes to the same.
pub(super) struct Simplex<'a> {
    links: &'a [Link],
    deadline: f64,
    /// For each path those on which second tries would be in time, as bits.
    in_time: [u16; MAX_PATHS],
    /// The inverse of the basis' columns.
    inverse: [[f64; ROWS]; ROWS],
    /// What the basis' variables are at, never negative.
    level: [f64; ROWS],
    basis: [Column; ROWS],
    /// What a unit of each row's right-hand side is worth.
    prices: [f64; ROWS],
    /// No step is worth less.
    least: f64,
}

const ROWS: usize = MAX_PATHS + 2;
/// The row whose shares add up to 1.
const WHOLE: usize = 0;
/// That of what is in time.
const QUALITY: usize = 1;
/// The first path's.
const ROOM: usize = 2;

/// A variable of the program.
#[derive(Debug, Clone, Copy)]
enum Column {
    Way(usize, Option<usize>),
    Dropped,
    Short,
    Surplus,
    Spare(usize),
}

/// What dropping all costs, and having nothing in time, in units of the dearest path: more than anything that it could be worth to avoid.
const DROPPED_COST: f64 = 1e4;
const SHORT_COST: f64 = 1e6;
/// What passes for nothing, in the same unit.
const LEAST_GAIN: f64 = 1e-8;
/// Entries of a column that are nothing but rounding.
const LEAST_ENTRY: f64 = 1e-9;
/// Random sets of 16 paths need no more than half of it.
const MOST_STEPS: usize = 100;

impl<'a> Simplex<'a> {
    /// `room` of a path: what it can carry, as a share of all that is sent.
    pub(super) fn new(links: &'a [Link], deadline: f64, quality: f64, room: impl Fn(&Link) -> f64) -> Self {
        let dearest = links.iter().map(|link| link.cost).fold(0.0, f64::max);
        let unit = if dearest > 0.0 { dearest } else { 1.0 };
        let mut simplex = Self {
            links,
            deadline,
            in_time: [0; MAX_PATHS],
            inverse: [[0.0; ROWS]; ROWS],
            level: [0.0; ROWS],
            basis: [Column::Dropped; ROWS],
            prices: [0.0; ROWS],
            least: LEAST_GAIN * unit,
        };
        (0..ROWS).for_each(|row| simplex.inverse[row][row] = 1.0);
        simplex.level[WHOLE] = 1.0;
        (simplex.level[QUALITY], simplex.basis[QUALITY]) = (quality, Column::Short);
        (simplex.prices[WHOLE], simplex.prices[QUALITY]) = (DROPPED_COST * unit, SHORT_COST * unit);
        for (i, link) in links.iter().enumerate() {
            (simplex.level[ROOM + i], simplex.basis[ROOM + i]) = (room(link), Column::Spare(i));
            let in_time = |again: &Link| link.loss > 0.0 && link.has_time_for(again, deadline);
            simplex.in_time[i] = links.iter().rev().fold(0, |bits, again| bits << 1 | u16::from(in_time(again)));
        }
        simplex
    }

    /// The ways in use, and their shares.
    pub(super) fn solve(mut self) -> impl Iterator<Item = Way> + use<'a> {
        for _ in 0..MOST_STEPS {
            match self.best() {
                Some((column, gain)) if gain > self.least && self.take_up(column, gain) => {}
                _ => break,
            }
        }
        (0..ROOM + self.links.len()).filter_map(move |row| match self.basis[row] {
            Column::Way(first, again) => Some(Way::new(self.links, self.deadline, first, again, self.level[row])),
            _ => None,
        })
    }

    /// The column of which a unit saves most.
    fn best(&self) -> Option<(Column, f64)> {
        let prices = &self.prices;
        let mut best = None;
        let mut offer = |column: Column, gain: f64| {
            if best.is_none_or(|(_, most)| gain > most) {
                best = Some((column, gain));
            }
        };
        offer(Column::Surplus, -prices[QUALITY]);
        // What a second try there gains if it is in time.
        let mut second = [0.0; MAX_PATHS];
        for (j, link) in self.links.iter().enumerate() {
            second[j] = prices[QUALITY] * (1.0 - link.loss) + prices[ROOM + j] - link.cost;
            offer(Column::Spare(j), prices[ROOM + j]);
        }
        for (i, link) in self.links.iter().enumerate() {
            let (mut again, mut most) = (None, 0.0);
            let mut open = self.in_time[i];
            while open != 0 {
                let j = open.trailing_zeros() as usize;
                open &= open - 1;
                if second[j] > most {
                    (again, most) = (Some(j), second[j]);
                }
            }
            let once = prices[QUALITY] * link.once(self.deadline);
            let gain = prices[WHOLE] + once + prices[ROOM + i] - link.cost + link.loss * most;
            offer(Column::Way(i, again), gain);
        }
        best
    }

    /// A column in terms of the basis.
    fn expressed(&self, column: Column) -> [f64; ROWS] {
        let mut entries = [0.0; ROWS];
        for (entry, row) in entries.iter_mut().zip(&self.inverse).take(ROOM + self.links.len()) {
            *entry = match column {
                Column::Way(first, again) => {
                    let way = Way::new(self.links, self.deadline, first, again, 0.0);
                    let second = again.map_or(0.0, |again| self.links[first].loss * row[ROOM + again]);
                    row[WHOLE] + way.chance * row[QUALITY] + row[ROOM + first] + second
                }
                Column::Dropped => row[WHOLE],
                Column::Short => row[QUALITY],
                Column::Surplus => -row[QUALITY],
                Column::Spare(k) => row[ROOM + k],
            };
        }
        entries
    }

    /// Takes a column into the basis, as much of it as there can be; `false` if nothing bounds it.
    fn take_up(&mut self, column: Column, gain: f64) -> bool {
        let rows = ROOM + self.links.len();
        let entries = self.expressed(column);
        let bound = |row: usize| (entries[row] > LEAST_ENTRY).then(|| (self.level[row] / entries[row], row));
        let Some((step, out)) = (0..rows).filter_map(bound).min_by(|(a, _), (b, _)| a.total_cmp(b)) else {
            return false;
        };
        let mut pivot = self.inverse[out];
        pivot[..rows].iter_mut().for_each(|entry| *entry /= entries[out]);
        for row in (0..rows).filter(|row| *row != out) {
            let entry = entries[row];
            self.inverse[row][..rows].iter_mut().zip(&pivot).for_each(|(of, pivot)| *of -= entry * pivot);
            self.level[row] = (self.level[row] - entry * step).max(0.0);
        }
        (self.inverse[out], self.level[out], self.basis[out]) = (pivot, step, column);
        self.prices[..rows].iter_mut().zip(&pivot).for_each(|(price, pivot)| *price -= gain * pivot);
        true
    }
}
