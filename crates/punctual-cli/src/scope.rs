//! What becomes of who names an address on one link wrongly.

pub(crate) use punctual::scope::{OnLink, ScopeError, check, on_link_of, parse_with_port, without_port};

use crate::exit::Failure;

impl From<ScopeError> for Failure {
    fn from(error: ScopeError) -> Self {
        let text = error.to_string();
        match error {
            ScopeError::Unknown { .. } => Self::Path(text),
            _ => Self::Usage(text),
        }
    }
}

/// A mistake, with what it was found in.
pub(crate) fn in_flag(error: ScopeError, flag: &str) -> Failure {
    match error.into() {
        Failure::Path(text) => Failure::Path(format!("{flag}: {text}")),
        Failure::Usage(text) => Failure::Usage(format!("{flag}: {text}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_what_is_not_there_and_who_says_too_little_have_codes_of_their_own() {
        for bad in ["fe80::1%no-such-if0", "fe80::1%", "[fe80::1%4294967295]:1"] {
            let error = punctual::scope::parse(bad).unwrap().unwrap_err();
            assert_eq!(Failure::from(error).code(), 6, "{bad}");
        }
        let loose = check("[fe80::1]:4433".parse().unwrap()).unwrap_err();
        assert_eq!(Failure::from(loose).code(), 2);
        assert_eq!(in_flag(ScopeError::NoAddress, "--path x").code(), 2);
    }
}
