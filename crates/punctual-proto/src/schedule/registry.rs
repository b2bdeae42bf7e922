//! Schedulers by name, with their parameters in the name: `ads:alpha=0.3,beta=255`.

/// A scheduler that can be chosen by name.
///
/// `F` is what the name leads to: a [`SchedulerFactory`](super::SchedulerFactory) or a
/// [`PathSchedulerFactory`](crate::multipath::PathSchedulerFactory).
#[derive(Debug, Clone, Copy)]
pub struct Entry<F: 'static> {
    /// The name it is chosen by.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// The parameters that may follow the name.
    pub parameters: &'static [Parameter],
    /// Makes the factory; the values are those of `parameters`, in that order, each within its bounds.
    pub(crate) make: fn(&[f64]) -> F,
}

/// A number that tunes a scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Its value if none is given.
    pub default: f64,
    /// The smallest value it takes.
    pub min: f64,
    /// The largest value it takes.
    pub max: f64,
}

/// Why a name leads to no scheduler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerError {
    /// No scheduler has this name.
    #[error("no scheduler is called `{name}`; choose one of: {}", known.join(", "))]
    UnknownName {
        /// The name that was asked for.
        name: String,
        /// Those there are.
        known: Vec<&'static str>,
    },
    /// The scheduler has no such parameter.
    #[error("scheduler `{scheduler}` has no parameter `{parameter}`; it takes: {}", list(known))]
    UnknownParameter {
        /// The scheduler.
        scheduler: &'static str,
        /// The parameter that was given.
        parameter: String,
        /// Those it has.
        known: Vec<&'static str>,
    },
    /// The value is no number, or out of bounds.
    #[error("`{parameter}={value}` does not do for scheduler `{scheduler}`: give {expected}")]
    BadValue {
        /// The scheduler.
        scheduler: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What was given, empty if nothing was.
        value: String,
        /// What would do.
        expected: String,
    },
}

fn list(known: &[&str]) -> String {
    if known.is_empty() { "none".into() } else { known.join(", ") }
}

impl<F> Entry<F> {
    /// The factory with every parameter at its default.
    pub fn with_defaults(&self) -> F {
        (self.make)(&self.defaults())
    }

    fn defaults(&self) -> Vec<f64> {
        self.parameters.iter().map(|parameter| parameter.default).collect()
    }

    fn parse(&self, settings: &str) -> Result<F, SchedulerError> {
        let mut values = self.defaults();
        for setting in settings.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let index = self.parameters.iter().position(|parameter| parameter.name == key.trim()).ok_or_else(|| {
                SchedulerError::UnknownParameter {
                    scheduler: self.name,
                    parameter: key.trim().to_owned(),
                    known: self.parameters.iter().map(|parameter| parameter.name).collect(),
                }
            })?;
            let parameter = &self.parameters[index];
            values[index] = parameter.parse(value.trim()).ok_or_else(|| SchedulerError::BadValue {
                scheduler: self.name,
                parameter: parameter.name,
                value: value.trim().to_owned(),
                expected: format!("a number from {} to {}", parameter.min, parameter.max),
            })?;
        }
        Ok((self.make)(&values))
    }
}

impl Parameter {
    fn parse(&self, value: &str) -> Option<f64> {
        value.parse().ok().filter(|value| (self.min..=self.max).contains(value))
    }
}

/// The factory `spec` (`name` or `name:parameter=value,…`; of a parameter given twice the last counts) stands for.
pub(crate) fn find<F>(registry: &[Entry<F>], spec: &str) -> Result<F, SchedulerError> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    match registry.iter().find(|entry| entry.name == name.trim()) {
        Some(entry) => entry.parse(settings),
        None => Err(SchedulerError::UnknownName {
            name: name.trim().to_owned(),
            known: registry.iter().map(|entry| entry.name).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Entry<Vec<f64>>] = &[
        Entry { name: "plain", about: "", parameters: &[], make: <[f64]>::to_vec },
        Entry {
            name: "tuned",
            about: "",
            parameters: &[
                Parameter { name: "x", about: "", default: 0.5, min: 0.0, max: 1.0 },
                Parameter { name: "y", about: "", default: 7.0, min: 0.0, max: 100.0 },
            ],
            make: <[f64]>::to_vec,
        },
    ];

    #[test]
    fn parameters_replace_their_defaults() {
        assert_eq!(find(TABLE, "plain"), Ok(vec![]));
        assert_eq!(find(TABLE, "tuned"), Ok(vec![0.5, 7.0]));
        assert_eq!(find(TABLE, " tuned : y = 8 "), Ok(vec![0.5, 8.0]));
        assert_eq!(find(TABLE, "tuned:x=1,y=0"), Ok(vec![1.0, 0.0]));
        assert_eq!(TABLE[1].with_defaults(), vec![0.5, 7.0]);
    }

    #[test]
    fn errors_say_what_would_do() {
        let message = |spec: &str| find(TABLE, spec).unwrap_err().to_string();
        assert_eq!(message("other"), "no scheduler is called `other`; choose one of: plain, tuned");
        assert_eq!(message("plain:x=1"), "scheduler `plain` has no parameter `x`; it takes: none");
        assert_eq!(message("tuned:z=1"), "scheduler `tuned` has no parameter `z`; it takes: x, y");
        for bad in ["2", "-1", "NaN", "inf", "", "one"] {
            let error = message(&format!("tuned:x={bad}"));
            assert_eq!(error, format!("`x={bad}` does not do for scheduler `tuned`: give a number from 0 to 1"));
        }
    }
}
