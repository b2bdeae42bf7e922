//! What can be chosen by name, with its parameters in the name: `ads:alpha=0.3,beta=255`.

/// Something that can be chosen by name.
///
/// `F` is what the name leads to: a [`SchedulerFactory`](crate::schedule::SchedulerFactory), a
/// [`PathSchedulerFactory`](crate::multipath::PathSchedulerFactory), a [`PolicyFactory`](crate::redundancy::PolicyFactory) or a
/// [`Congestion`](crate::congestion::Congestion).
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

/// A number that tunes what was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
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

/// Why a name leads to nothing. One kind of error for all that is chosen by name: schedulers, path schedulers, controllers, policies and modes of
/// redundancy, and roles of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// There is none of this name.
    #[error("no {kind} is called `{name}`; choose one of: {}", known.join(", "))]
    #[non_exhaustive]
    UnknownName {
        /// What was looked for: "scheduler", "path scheduler", …
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// Those there are.
        known: Vec<&'static str>,
    },
    /// It has no such parameter.
    #[error("{kind} `{name}` has no parameter `{parameter}`; it takes: {}", list(known))]
    #[non_exhaustive]
    UnknownParameter {
        /// What was looked for.
        kind: &'static str,
        /// Its name.
        name: &'static str,
        /// The parameter that was given.
        parameter: String,
        /// Those it has.
        known: Vec<&'static str>,
    },
    /// The value is no number, or out of bounds.
    #[error("`{parameter}={value}` does not do for {kind} `{name}`: give {expected}")]
    #[non_exhaustive]
    BadValue {
        /// What was looked for.
        kind: &'static str,
        /// Its name.
        name: &'static str,
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

    fn parse(&self, kind: &'static str, settings: &str) -> Result<F, LookupError> {
        let mut values = self.defaults();
        for setting in settings.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let index = self.parameters.iter().position(|parameter| parameter.name == key.trim()).ok_or_else(|| {
                LookupError::UnknownParameter {
                    kind,
                    name: self.name,
                    parameter: key.trim().to_owned(),
                    known: self.parameters.iter().map(|parameter| parameter.name).collect(),
                }
            })?;
            let parameter = &self.parameters[index];
            let parsed = value.trim().parse().ok().filter(|&value| parameter.takes(value));
            values[index] = parsed.ok_or_else(|| self.bad_value(kind, parameter, value.trim()))?;
        }
        Ok((self.make)(&values))
    }

    fn bad_value(&self, kind: &'static str, parameter: &Parameter, value: &str) -> LookupError {
        LookupError::BadValue {
            kind,
            name: self.name,
            parameter: parameter.name,
            value: value.to_owned(),
            expected: format!("a number from {} to {}", parameter.min, parameter.max),
        }
    }
}

impl Parameter {
    fn takes(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// What `spec` (`name` or `name:parameter=value,…`; of a parameter given twice the last counts) stands for.
pub(crate) fn find<F>(registry: &[Entry<F>], kind: &'static str, spec: &str) -> Result<F, LookupError> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    entry(registry, kind, name.trim())?.parse(kind, settings)
}

/// What a name stands for with these values of its parameters, in the order of the registry.
pub(crate) fn with<F>(registry: &[Entry<F>], kind: &'static str, name: &str, values: &[f64]) -> Result<F, LookupError> {
    let entry = entry(registry, kind, name)?;
    match entry.parameters.iter().zip(values).find(|(parameter, value)| !parameter.takes(**value)) {
        Some((parameter, value)) => Err(entry.bad_value(kind, parameter, &value.to_string())),
        None => Ok((entry.make)(values)),
    }
}

fn entry<'a, F>(registry: &'a [Entry<F>], kind: &'static str, name: &str) -> Result<&'a Entry<F>, LookupError> {
    registry.iter().find(|entry| entry.name == name).ok_or_else(|| LookupError::UnknownName {
        kind,
        name: name.to_owned(),
        known: registry.iter().map(|entry| entry.name).collect(),
    })
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
        assert_eq!(find(TABLE, "scheduler", "plain"), Ok(vec![]));
        assert_eq!(find(TABLE, "scheduler", "tuned"), Ok(vec![0.5, 7.0]));
        assert_eq!(find(TABLE, "scheduler", " tuned : y = 8 "), Ok(vec![0.5, 8.0]));
        assert_eq!(find(TABLE, "scheduler", "tuned:x=1,y=0"), Ok(vec![1.0, 0.0]));
        assert_eq!(TABLE[1].with_defaults(), vec![0.5, 7.0]);
    }

    #[test]
    fn values_are_checked_however_they_come() {
        assert_eq!(with(TABLE, "scheduler", "tuned", &[0.25, 9.0]), Ok(vec![0.25, 9.0]));
        let error = with(TABLE, "scheduler", "tuned", &[0.25, -1.0]).unwrap_err();
        assert_eq!(error.to_string(), "`y=-1` does not do for scheduler `tuned`: give a number from 0 to 100");
        assert!(with(TABLE, "scheduler", "tuned", &[f64::NAN, 0.0]).is_err());
    }

    #[test]
    fn errors_say_what_would_do() {
        let message = |spec: &str| find(TABLE, "scheduler", spec).unwrap_err().to_string();
        assert_eq!(message("other"), "no scheduler is called `other`; choose one of: plain, tuned");
        assert_eq!(message("plain:x=1"), "scheduler `plain` has no parameter `x`; it takes: none");
        assert_eq!(message("tuned:z=1"), "scheduler `tuned` has no parameter `z`; it takes: x, y");
        for bad in ["2", "-1", "NaN", "inf", "", "one"] {
            let error = message(&format!("tuned:x={bad}"));
            assert_eq!(error, format!("`x={bad}` does not do for scheduler `tuned`: give a number from 0 to 1"));
        }
    }
}
