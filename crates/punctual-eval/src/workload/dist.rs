//! The distributions of sizes and of the time between messages.

use std::fmt;

use rand_distr::{Distribution as _, Exp, LogNormal, Normal, Pareto, Poisson, Uniform};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, IntoDeserializer, value::MapAccessDeserializer},
};

use super::{error::Problem, files::Files, random::Random};
use crate::units::{Size, Time};

/// A quantity, fixed or drawn at random.
///
/// In TOML either the quantity itself (`size = "200 KB"`) or a table with one key, the name of a [`Shape`]:
/// `every = { exponential = { mean = "20ms" } }`.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution<T> {
    /// Always the same.
    Constant(T),
    /// Another each time.
    Drawn(Shape<T>),
}

/// How a quantity is drawn.
#[derive(Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, bound = "T: Quantity")]
pub enum Shape<T> {
    /// `uniform = ["1 KB", "5 KB"]`: anything from the first to the second alike.
    Uniform([T; 2]),
    /// `normal = { mean = "20 KB", deviation = "5 KB" }`. What is drawn below the smallest that makes sense is raised to that.
    Normal {
        /// Mean.
        mean: T,
        /// Standard deviation.
        deviation: T,
    },
    /// `exponential = { mean = "20ms" }`. Between messages: they are a Poisson process.
    Exponential {
        /// Mean.
        mean: T,
    },
    /// `pareto = { minimum = "1 KB", shape = 1.5 }`: heavy-tailed. The mean is minimum·shape/(shape − 1) if shape > 1, and infinite
    /// else.
    Pareto {
        /// Nothing is smaller (the scale parameter).
        minimum: T,
        /// The tail index: the smaller, the heavier the tail.
        shape: f64,
    },
    /// `poisson = { mean = "20 KB", unit = "1 KB" }`: a whole number of units; a unit is 1 byte or 1 ms unless given. Not a Poisson
    /// process, in which the time between messages is exponential.
    Poisson {
        /// Mean, as a quantity and not as a number of units.
        mean: T,
        /// What is counted.
        unit: Option<T>,
    },
    /// `log-normal = { mean = "20 KB", sigma = 0.5 }`.
    LogNormal {
        /// Mean of the quantity itself; the median is `mean·exp(−sigma²/2)`.
        mean: T,
        /// Standard deviation of the quantity's logarithm.
        sigma: f64,
    },
    /// `gilbert-elliott = { on = "20ms", off = "1s", on-run = 50, off-run = 1 }`: on and off by turns, with a distribution in each.
    GilbertElliott(Box<GilbertElliott<T>>),
    /// `file = "sizes.txt"`: one of the quantities in the file, one a line, each as likely as every other.
    File(String),
    /// `replay = "sizes.txt"`: the quantities in the file, one after the other, and again from its beginning.
    Replay(String),
}

/// A chain of two states, in each of which the next quantity is drawn differently (Gilbert 1960, Elliott 1963). It starts `on`.
#[derive(Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, bound = "T: Quantity")]
pub struct GilbertElliott<T> {
    /// What is drawn while on.
    pub on: Distribution<T>,
    /// What is drawn while off.
    pub off: Distribution<T>,
    /// How many are drawn in a row while on, on average; at least 1. The number is geometrically distributed.
    pub on_run: f64,
    /// The same while off.
    pub off_run: f64,
}

/// Something that distributions are of.
pub trait Quantity: DeserializeOwned + Copy + fmt::Debug {
    /// What a [`Shape::Poisson`] counts unless told otherwise.
    const UNIT: f64;

    /// In bytes or seconds.
    fn value(self) -> f64;
}

impl Quantity for Size {
    const UNIT: f64 = 1.0;

    fn value(self) -> f64 {
        self.0 as f64
    }
}

impl Quantity for Time {
    const UNIT: f64 = 1e-3;

    fn value(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl<'de, T: Quantity> Deserialize<'de> for Distribution<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);

        impl<T: Quantity> Visitor<T> {
            fn constant<'de, E: de::Error>(self, value: impl IntoDeserializer<'de, E>) -> Result<Distribution<T>, E> {
                T::deserialize(value.into_deserializer()).map(Distribution::Constant)
            }
        }

        impl<'de, T: Quantity> de::Visitor<'de> for Visitor<T> {
            type Value = Distribution<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a quantity such as \"20 KB\" or \"20ms\", or a distribution such as { uniform = [.., ..] }",
                )
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                self.constant(value)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
                self.constant(value)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
                self.constant(value)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
                self.constant(value)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Shape::deserialize(MapAccessDeserializer::new(map)).map(Distribution::Drawn)
            }
        }

        deserializer.deserialize_any(Visitor(std::marker::PhantomData))
    }
}

impl<T: Quantity> Distribution<T> {
    /// Whether this can be drawn from, as far as can be told without reading files. `key` is for the message.
    pub(super) fn check(&self, key: &'static str) -> Result<(), Problem> {
        let shape = match self {
            Self::Constant(_) => return Ok(()),
            Self::Drawn(shape) => shape,
        };
        let wrong = |problem: &str| Err(Problem::value(key, problem));
        match shape {
            Shape::Uniform([low, high]) if low.value() > high.value() => {
                wrong("`uniform` goes from the smaller to the larger")
            }
            Shape::Exponential { mean } if mean.value() <= 0.0 => wrong("the mean of `exponential` is above zero"),
            Shape::Pareto { minimum, shape } if !(minimum.value() > 0.0 && *shape > 0.0 && shape.is_finite()) => {
                wrong("`minimum` and `shape` of `pareto` are above zero")
            }
            Shape::Poisson { mean, unit } => {
                let unit = unit.map_or(T::UNIT, T::value);
                match mean.value() / unit {
                    units if units > 0.0 && units <= Poisson::<f64>::MAX_LAMBDA => Ok(()),
                    _ => wrong(
                        "`mean` and `unit` of `poisson` are above zero, the one not too much larger than the other",
                    ),
                }
            }
            Shape::LogNormal { mean, sigma } if !(mean.value() > 0.0 && (0.0..=MAX_SIGMA).contains(sigma)) => {
                wrong("the mean of `log-normal` is above zero, and its sigma from 0 to 5")
            }
            Shape::GilbertElliott(chain) => {
                chain.on.check(key)?;
                chain.off.check(key)?;
                let fine = |run: f64| run >= 1.0 && run.is_finite();
                match fine(chain.on_run) && fine(chain.off_run) {
                    true => Ok(()),
                    false => wrong("`on-run` and `off-run` of `gilbert-elliott` are 1 or more"),
                }
            }
            _ => Ok(()),
        }
    }

    /// Something to draw from. `key` is for messages.
    pub(super) fn sampler(&self, key: &'static str, files: &Files) -> Result<Sampler, Problem> {
        self.check(key)?;
        let shape = match self {
            Self::Constant(value) => return Ok(Sampler::Constant(value.value())),
            Self::Drawn(shape) => shape,
        };
        // `check` has excluded what the constructors refuse; whatever it has missed is still no panic.
        fn fine<D, E: fmt::Display>(key: &'static str, made: Result<D, E>) -> Result<D, Problem> {
            made.map_err(|error| Problem::value(key, error.to_string()))
        }
        Ok(match shape {
            Shape::Uniform([low, high]) => {
                Sampler::Uniform(fine(key, Uniform::new_inclusive(low.value(), high.value()))?)
            }
            Shape::Normal { mean, deviation } => {
                Sampler::Normal(fine(key, Normal::new(mean.value(), deviation.value()))?)
            }
            Shape::Exponential { mean } => Sampler::Exponential(fine(key, Exp::new(1.0 / mean.value()))?),
            Shape::Pareto { minimum, shape } => Sampler::Pareto(fine(key, Pareto::new(minimum.value(), *shape))?),
            Shape::Poisson { mean, unit } => {
                let unit = unit.map_or(T::UNIT, T::value);
                Sampler::Poisson { units: fine(key, Poisson::new(mean.value() / unit))?, unit }
            }
            Shape::LogNormal { mean, sigma } => Sampler::LogNormal(fine(key, log_normal(mean.value(), *sigma))?),
            Shape::GilbertElliott(chain) => Sampler::GilbertElliott(Box::new(Chain {
                samplers: [chain.on.sampler(key, files)?, chain.off.sampler(key, files)?],
                leave: [1.0 / chain.on_run, 1.0 / chain.off_run],
                state: 0,
            })),
            Shape::File(name) => Sampler::OneOf(read::<T>(name, files)?),
            Shape::Replay(name) => Sampler::Replay { values: read::<T>(name, files)?, next: 0 },
        })
    }
}

/// Beyond this the mean of a log-normal distribution is made by draws too rare to come up in any run.
pub(super) const MAX_SIGMA: f64 = 5.0;

/// A log-normal distribution with this mean of its own, not of its logarithm.
pub(super) fn log_normal(mean: f64, sigma: f64) -> Result<LogNormal<f64>, rand_distr::NormalError> {
    LogNormal::new(mean.ln() - sigma * sigma / 2.0, sigma)
}

/// The quantities in a file, one a line; empty lines and what follows a `#` do not count.
fn read<T: Quantity>(name: &str, files: &Files) -> Result<Vec<f64>, Problem> {
    let content = files.read(name)?;
    let text = String::from_utf8_lossy(&content);
    let mut values = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let value = T::deserialize(IntoDeserializer::<de::value::Error>::into_deserializer(text))
            .map_err(|error| Problem::Line { file: name.to_owned(), line, problem: error.to_string() })?;
        values.push(value.value());
    }
    match values.is_empty() {
        true => Err(Problem::Content {
            file: name.to_owned(),
            problem: "there is no quantity in it; it takes one a line".into(),
        }),
        false => Ok(values),
    }
}

/// A distribution being drawn from.
#[derive(Debug, Clone)]
pub(super) enum Sampler {
    Constant(f64),
    Uniform(Uniform<f64>),
    Normal(Normal<f64>),
    Exponential(Exp<f64>),
    Pareto(Pareto<f64>),
    Poisson { units: Poisson<f64>, unit: f64 },
    LogNormal(LogNormal<f64>),
    GilbertElliott(Box<Chain>),
    OneOf(Vec<f64>),
    Replay { values: Vec<f64>, next: usize },
}

#[derive(Debug, Clone)]
pub(super) struct Chain {
    samplers: [Sampler; 2],
    /// Probability of leaving each state after a draw.
    leave: [f64; 2],
    state: usize,
}

impl Sampler {
    /// Bytes or seconds; may be negative or infinite where the distribution is.
    pub(super) fn draw(&mut self, random: &mut Random) -> f64 {
        use rand::RngExt as _;

        match self {
            Self::Constant(value) => *value,
            Self::Uniform(uniform) => uniform.sample(random),
            Self::Normal(normal) => normal.sample(random),
            Self::Exponential(exponential) => exponential.sample(random),
            Self::Pareto(pareto) => pareto.sample(random),
            Self::Poisson { units, unit } => units.sample(random) * *unit,
            Self::LogNormal(log_normal) => log_normal.sample(random),
            Self::GilbertElliott(chain) => {
                let value = chain.samplers[chain.state].draw(random);
                if random.random_bool(chain.leave[chain.state]) {
                    chain.state = 1 - chain.state;
                }
                value
            }
            Self::OneOf(values) => values[random.random_range(0..values.len())],
            Self::Replay { values, next } => {
                let value = values[*next];
                *next = (*next + 1) % values.len();
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::workload::random::{Purpose, generator};

    const DRAWS: usize = 20_000;

    fn parse<T: Quantity>(text: &str) -> Distribution<T> {
        #[derive(Deserialize)]
        #[serde(bound = "T: Quantity")]
        struct Wrapped<T> {
            it: Distribution<T>,
        }
        toml::from_str::<Wrapped<T>>(&format!("it = {text}")).unwrap_or_else(|error| panic!("{error}")).it
    }

    fn draws<T: Quantity>(distribution: &Distribution<T>, seed: u64, files: &Files) -> Vec<f64> {
        let mut sampler = distribution.sampler("it", files).unwrap();
        let mut random = generator(seed, 0, 0, Purpose::Traffic);
        (0..DRAWS).map(|_| sampler.draw(&mut random)).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Draws from what `text` says, of which the mean is checked to be within a tenth of `expected`.
    fn check(text: &str, seed: u64, expected: f64) -> Result<Vec<f64>, TestCaseError> {
        let values = draws::<Size>(&parse(text), seed, &Files::default());
        let mean = mean(&values);
        prop_assert!((mean / expected - 1.0).abs() < 0.1, "{text}: {mean} instead of {expected}");
        Ok(values)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn means_and_supports_are_as_they_should(mean in 1000u32..1_000_000, width in 0u32..1000, sigma in 0.0f64..0.8, shape in 3.0f64..10.0, seed: u64) {
            let expected = f64::from(mean);
            let values = check(&format!("{mean}"), seed, expected)?;
            prop_assert!(values.iter().all(|&value| value == expected));

            let (low, high) = (mean - width, mean + width);
            let values = check(&format!("{{ uniform = [{low}, {high}] }}"), seed, expected)?;
            prop_assert!(values.iter().all(|value| (f64::from(low)..=f64::from(high)).contains(value)));

            let values = check(&format!("{{ normal = {{ mean = {mean}, deviation = {width} }} }}"), seed, expected)?;
            let variance = values.iter().map(|value| (value - expected).powi(2)).sum::<f64>() / DRAWS as f64;
            prop_assert!((variance.sqrt() - f64::from(width)).abs() <= 0.05 * f64::from(width));

            let values = check(&format!("{{ exponential = {{ mean = {mean} }} }}"), seed, expected)?;
            prop_assert!(values.iter().all(|&value| value >= 0.0));
            let above = values.iter().filter(|&&value| value > expected).count() as f64 / DRAWS as f64;
            prop_assert!((above - (-1f64).exp()).abs() < 0.02, "memoryless: {above} above the mean");

            let values = check(&format!("{{ log-normal = {{ mean = {mean}, sigma = {sigma} }} }}"), seed, expected)?;
            let median = expected * (-sigma * sigma / 2.0).exp();
            let above = values.iter().filter(|&&value| value > median).count() as f64 / DRAWS as f64;
            prop_assert!(sigma == 0.0 || (above - 0.5).abs() < 0.02);

            let values = check(&format!("{{ pareto = {{ minimum = {mean}, shape = {shape} }} }}"), seed, expected * shape / (shape - 1.0))?;
            prop_assert!(values.iter().all(|&value| value >= expected * 0.999_999));

            let values = check(&format!("{{ poisson = {{ mean = {mean}, unit = 100 }} }}"), seed, expected)?;
            prop_assert!(values.iter().all(|&value| value >= 0.0 && value % 100.0 == 0.0));
            let variance = values.iter().map(|value| (value - expected).powi(2)).sum::<f64>() / DRAWS as f64;
            prop_assert!((variance / (expected * 100.0) - 1.0).abs() < 0.1, "mean and variance of a count are equal");
        }

        #[test]
        fn the_chain_is_in_each_state_as_long_as_it_should(on_run in 1.0f64..20.0, off_run in 1.0f64..20.0, seed: u64) {
            let text = format!("{{ gilbert-elliott = {{ on = 1, off = 0, on-run = {on_run}, off-run = {off_run} }} }}");
            let values = draws::<Size>(&parse(&text), seed, &Files::default());
            prop_assert_eq!(values[0], 1.0);
            let share = on_run / (on_run + off_run);
            prop_assert!((mean(&values) - share).abs() < 0.1 * share + 0.02, "{} instead of {}", mean(&values), share);
            let runs = values.chunk_by(|a, b| a == b).filter(|run| run[0] == 1.0).count();
            let run = mean(&values) * DRAWS as f64 / runs as f64;
            prop_assert!((run / on_run - 1.0).abs() < 0.2, "runs of {} instead of {}", run, on_run);
        }
    }

    #[test]
    fn a_file_is_drawn_from_or_replayed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("sizes.txt"), "# measured\n100\n\n 2 KB # a key frame\n300\n").unwrap();
        let files = Files::new([dir.path()]);
        let values = draws::<Size>(&parse("{ replay = 'sizes.txt' }"), 1, &files);
        assert_eq!(values[..5], [100.0, 2000.0, 300.0, 100.0, 2000.0]);
        let values = draws::<Size>(&parse("{ file = 'sizes.txt' }"), 1, &files);
        for wanted in [100.0, 2000.0, 300.0] {
            let share = values.iter().filter(|&&value| value == wanted).count() as f64 / DRAWS as f64;
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{wanted} has {share}");
        }
    }

    #[test]
    fn bad_files_are_told_with_their_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bad.txt"), "100\nmany\n").unwrap();
        fs::write(dir.path().join("empty.txt"), "# nothing\n").unwrap();
        let files = Files::new([dir.path()]);
        let error = |name: &str| {
            parse::<Size>(&format!("{{ file = '{name}' }}")).sampler("size", &files).unwrap_err().to_string()
        };
        assert!(error("bad.txt").starts_with("bad.txt, line 2: `many`"), "{}", error("bad.txt"));
        assert!(error("empty.txt").contains("no quantity"));
        assert!(error("none.txt").contains("no file `none.txt`"));
    }

    #[test]
    fn bad_parameters_are_refused_with_the_key() {
        for (text, word) in [
            ("{ uniform = ['2s', '1s'] }", "smaller"),
            ("{ exponential = { mean = 0 } }", "above zero"),
            ("{ pareto = { minimum = '1s', shape = -1 } }", "`shape`"),
            ("{ pareto = { minimum = '1s', shape = nan } }", "`shape`"),
            ("{ poisson = { mean = '1s', unit = 0 } }", "`unit`"),
            ("{ poisson = { mean = 0 } }", "`mean`"),
            ("{ log-normal = { mean = '1s', sigma = -0.5 } }", "sigma"),
            ("{ gilbert-elliott = { on = 1, off = 1, on-run = 0.5, off-run = 2 } }", "`on-run`"),
            (
                "{ gilbert-elliott = { on = { exponential = { mean = 0 } }, off = 1, on-run = 1, off-run = 2 } }",
                "above zero",
            ),
        ] {
            let error = parse::<Time>(text).check("every").unwrap_err().to_string();
            assert!(error.starts_with("`every`: ") && error.contains(word), "{text}: {error}");
        }
    }
}
