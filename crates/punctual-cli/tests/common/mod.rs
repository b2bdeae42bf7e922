//! What the tests of `punctual eval` share.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A working directory of its own for a test.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// `punctual eval` there, with these arguments.
    pub(crate) fn eval(&self, args: &str) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// The same, to be started.
    pub(crate) fn command(&self, args: &str) -> Command {
        let program = env!("CARGO_BIN_EXE_punctual");
        let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { program });
        if cfg!(target_os = "linux") {
            // Whoever runs the tests in the background may have these signals ignored, and so would the program.
            command.args(["--default-signal=HUP,INT,TERM", program]);
        }
        command.env_remove("RUST_LOG").env_remove("PUNCTUAL_DATA").stdin(Stdio::null()).current_dir(self.path());
        command.arg("eval").args(args.split(' '));
        command
    }
}
