//! Where a receiver puts blocks.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{cli::RecvArgs, exit::Failure};

/// A file, a directory, or standard output.
pub(crate) struct Sink {
    kind: Kind,
    /// Whether each block goes behind its length.
    framed: bool,
}

enum Kind {
    Stream { name: PathBuf, to: Box<dyn Write + Send> },
    Dir(PathBuf),
}

impl Sink {
    /// Opens what the command line names; a file that is there is begun anew.
    pub(crate) fn open(args: &RecvArgs) -> Result<Self, Failure> {
        let kind = match (&args.dir, args.out.as_deref().filter(|path| *path != Path::new("-"))) {
            (Some(dir), _) => {
                fs::create_dir_all(dir).map_err(|error| Failure::file("make the directory", dir, error))?;
                Kind::Dir(dir.clone())
            }
            (None, Some(path)) => {
                let file = File::create(path).map_err(|error| Failure::file("write", path, error))?;
                Kind::Stream { name: path.to_owned(), to: Box::new(BufWriter::new(file)) }
            }
            (None, None) => Kind::Stream { name: "standard output".into(), to: Box::new(io::stdout()) },
        };
        Ok(Self { kind, framed: args.framed })
    }

    /// Puts a block away. `number` is the sender's.
    pub(crate) fn put(&mut self, number: u64, block: &[u8]) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Dir(dir) => {
                let path = dir.join(format!("{number:08}.block"));
                fs::write(&path, block).map_err(|error| Failure::file("write", &path, error))
            }
            Kind::Stream { name, to } => {
                let length = u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes();
                let head = if self.framed { &length[..] } else { &[] };
                to.write_all(head)
                    .and_then(|()| to.write_all(block))
                    .map_err(|error| Failure::file("write", name, error))
            }
        }
    }

    /// Lets go of what is held back. To be called when nothing more is there for the moment.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Dir(_) => Ok(()),
            Kind::Stream { name, to } => to.flush().map_err(|error| Failure::file("write", name, error)),
        }
    }
}
