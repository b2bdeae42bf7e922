//! Completions for shells and manual pages, from the same definitions as the command line itself.

use std::{fs, io::Write as _, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{cli::Cli, exit::Failure, out};

const NAME: &str = "punctual";

/// Prints what makes `shell` complete our command line.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    out::line(String::from_utf8_lossy(&script).trim_end())
}

/// Writes a page for the program and one for each of its subcommands into `dir`.
pub(crate) fn pages(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::file("make the directory", dir, error))?;
    let mut command = Cli::command();
    command.build();
    page(&command, dir)
}

fn page(command: &clap::Command, dir: &Path) -> Result<(), Failure> {
    // A subcommand's page is called as one writes it, with hyphens: punctual-send.1.
    let name = command.get_display_name().unwrap_or(NAME).to_owned();
    let path = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut text);
    let written = rendered.and_then(|()| fs::File::create(&path)?.write_all(&text));
    written.map_err(|error| Failure::file("write", &path, error))?;
    let subcommands = command.get_subcommands().filter(|command| command.get_name() != "help");
    subcommands.filter(|command| !command.is_hide_set()).try_for_each(|command| page(command, dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_every_subcommand() {
        let dir = tempfile::tempdir().unwrap();
        pages(&dir.path().join("man")).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join("man").join(name)).unwrap();
        assert!(read("punctual.1").contains("punctual\\-send"));
        assert!(read("punctual-send.1").contains("\\-\\-deadline"));
        assert!(read("punctual-recv.1").contains("\\-\\-listen"));
        assert_eq!(pages(Path::new("/dev/null/x")).unwrap_err().code(), 3);
    }
}
