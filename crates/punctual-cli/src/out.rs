//! Results on standard output.

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _, stdout},
};

use crate::exit::Failure;

/// Prints a line. A reader that has read enough (`| head`) is no failure.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::File(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
