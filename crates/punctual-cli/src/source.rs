//! What a sender reads: a file or a pipe, cut into blocks.
//!
//! Reading blocks a thread of its own, so that a pipe that says nothing holds up nobody; at most [`AHEAD`] blocks wait to be sent.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use bytes::Bytes;
use punctual_eval::h264::{AccessUnit, Kind, Splitter};
use tokio::sync::mpsc;

use crate::exit::Failure;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cut {
    /// A frame, at a given rate or the stream's own.
    H264 { fps: Option<f64> },
    /// So many bytes.
    Chunks(usize),
    /// A line with its end.
    Lines,
    /// A message behind its length.
    Framed,
}

/// A block-to-be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    /// What kind of picture it is, if it is one.
    pub(crate) picture: Option<Kind>,
    /// Positions of the pieces that this one needs.
    pub(crate) dependencies: Vec<u64>,
    /// Not to be sent sooner than this after the one before it.
    pub(crate) spacing: Option<Duration>,
}

/// Pieces that may wait to be sent.
const AHEAD: usize = 16;
/// Bytes read at once.
const READ: usize = 1 << 16;
/// A line, message or frame longer than this is no block.
const MAX_PIECE: usize = 16 << 20;

/// Starts reading `path`, or standard input. The channel ends with the input, or with the reason why it could not be read on.
///
/// # Errors
/// If the file cannot be opened.
pub(crate) fn open(path: Option<&Path>, cut: Cut) -> Result<mpsc::Receiver<Result<Piece, Failure>>, Failure> {
    let path = path.filter(|path| *path != Path::new("-"));
    let input: Box<dyn Read + Send> = match path {
        Some(path) => {
            let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
                true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
                false => Ok(file),
            });
            Box::new(file.map_err(|error| Failure::file("read", path, error))?)
        }
        None => Box::new(io::stdin()),
    };
    let name = path.map_or_else(|| PathBuf::from("standard input"), Path::to_owned);
    let (tell, pieces) = mpsc::channel(AHEAD);
    let read = move || {
        let end = cut.read(input, &name, &mut |piece| tell.blocking_send(Ok(piece)).is_ok());
        if let Err(failure) = end {
            // Nobody there to hear it: then nobody needs to know.
            let _ = tell.blocking_send(Err(failure));
        }
    };
    let thread = thread::Builder::new().name("source".into()).spawn(read);
    thread.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
    Ok(pieces)
}

/// Takes a piece; `false` once no more are wanted.
type Take<'a> = &'a mut dyn FnMut(Piece) -> bool;

impl Cut {
    fn read(self, input: impl Read, name: &Path, take: Take<'_>) -> Result<(), Failure> {
        let input = BufReader::with_capacity(READ, input);
        let unreadable = |error| Failure::file("read", name, error);
        match self {
            Self::H264 { fps } => h264(input, name, fps, take),
            Self::Chunks(size) => chunks(input, size, take).map_err(unreadable),
            Self::Lines => lines(input, name, take),
            Self::Framed => framed(input, name, take),
        }
    }
}

fn plain(data: Vec<u8>) -> Piece {
    Piece { data: data.into(), picture: None, dependencies: Vec::new(), spacing: None }
}

fn chunks(mut input: impl BufRead, size: usize, take: Take<'_>) -> io::Result<()> {
    loop {
        let mut data = Vec::with_capacity(size.min(READ));
        input.by_ref().take(size as u64).read_to_end(&mut data)?;
        if data.is_empty() || !take(plain(data)) {
            return Ok(());
        }
    }
}

fn lines(mut input: impl BufRead, name: &Path, take: Take<'_>) -> Result<(), Failure> {
    loop {
        let mut line = Vec::new();
        let limit = MAX_PIECE as u64 + 1;
        input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(|error| Failure::file("read", name, error))?;
        if line.len() > MAX_PIECE {
            return Err(too_long(name, "a line"));
        }
        if line.is_empty() || !take(plain(line)) {
            return Ok(());
        }
    }
}

fn framed(mut input: impl BufRead, name: &Path, take: Take<'_>) -> Result<(), Failure> {
    loop {
        let mut head = Vec::new();
        let unreadable = |error| Failure::file("read", name, error);
        input.by_ref().take(4).read_to_end(&mut head).map_err(unreadable)?;
        let length = match head[..] {
            [] => return Ok(()),
            [a, b, c, d] => u32::from_be_bytes([a, b, c, d]) as usize,
            _ => return Err(cut_short(name)),
        };
        if length > MAX_PIECE {
            return Err(too_long(name, "a message"));
        }
        let mut message = Vec::new();
        input.by_ref().take(length as u64).read_to_end(&mut message).map_err(unreadable)?;
        if message.len() < length {
            return Err(cut_short(name));
        }
        // There are no empty blocks, and an empty message says nothing.
        if !message.is_empty() && !take(plain(message)) {
            return Ok(());
        }
    }
}

fn too_long(name: &Path, what: &str) -> Failure {
    Failure::Usage(format!("{}: {what} is longer than {} MiB", name.display(), MAX_PIECE >> 20))
}

fn cut_short(name: &Path) -> Failure {
    Failure::Usage(format!("{}: the input ends in the middle of a message", name.display()))
}

fn h264(mut input: impl BufRead, name: &Path, fps: Option<f64>, take: Take<'_>) -> Result<(), Failure> {
    let mut splitter = Splitter::new(MAX_PIECE);
    let mut first = true;
    loop {
        let bytes = input.fill_buf().map_err(|error| Failure::file("read", name, error))?;
        let (len, end) = (bytes.len(), bytes.is_empty());
        splitter.push(bytes);
        input.consume(len);
        while let Some(unit) = if end { splitter.finish() } else { splitter.next_unit() } {
            if std::mem::take(&mut first) && unit.kind == Kind::Unknown && splitter.frame_rate().is_none() {
                return Err(Failure::Usage(format!(
                    "{} is no H.264 byte stream that begins with its parameter sets (of an MP4 file, make one: ffmpeg -i FILE -c copy -bsf:v h264_mp4toannexb -f h264 -)",
                    name.display()
                )));
            }
            let Some(rate) = fps.or(splitter.frame_rate()) else {
                return Err(Failure::Usage(format!("{} does not say its frame rate; give --fps", name.display())));
            };
            if !take(frame(unit, rate)) {
                return Ok(());
            }
        }
        if end {
            return Ok(());
        }
    }
}

fn frame(unit: AccessUnit, rate: f64) -> Piece {
    let fields = if unit.field { 2.0 } else { 1.0 };
    Piece {
        picture: Some(unit.kind),
        spacing: Some(Duration::from_secs_f64(1.0 / (rate * fields))),
        dependencies: unit.dependencies,
        data: unit.data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::CLIP;

    fn read(cut: Cut, input: &[u8]) -> Result<Vec<Piece>, Failure> {
        let mut pieces = Vec::new();
        cut.read(input, Path::new("input"), &mut |piece| {
            pieces.push(piece);
            true
        })?;
        Ok(pieces)
    }

    fn data(pieces: Vec<Piece>) -> Vec<Vec<u8>> {
        pieces.into_iter().map(|piece| piece.data.to_vec()).collect()
    }

    #[test]
    fn chunks_are_of_a_size_but_for_the_last() {
        assert_eq!(data(read(Cut::Chunks(3), b"abcdefgh").unwrap()), [&b"abc"[..], b"def", b"gh"]);
        assert!(read(Cut::Chunks(3), b"").unwrap().is_empty());
    }

    #[test]
    fn lines_keep_their_ends() {
        assert_eq!(data(read(Cut::Lines, b"one\n\ntwo").unwrap()), [&b"one\n"[..], b"\n", b"two"]);
    }

    #[test]
    fn messages_lose_their_lengths() {
        let input = [&[0, 0, 0, 3][..], b"one", &[0, 0, 0, 0], &[0, 0, 0, 2], b"ab"].concat();
        assert_eq!(data(read(Cut::Framed, &input).unwrap()), [&b"one"[..], b"ab"]);
        for bad in [&input[..2], &input[..6]] {
            assert_eq!(read(Cut::Framed, bad).unwrap_err().code(), 2);
        }
        assert!(read(Cut::Framed, &[255; 8]).unwrap_err().to_string().contains("longer than 16 MiB"));
    }

    #[test]
    fn a_video_comes_by_frames_at_its_rate() {
        let pieces = read(Cut::H264 { fps: None }, CLIP).unwrap();
        assert_eq!(pieces.len(), 300);
        assert!(data(pieces.clone()).concat() == CLIP);
        assert_eq!(pieces[0].spacing, Some(Duration::from_secs(1) / 30));
        assert_eq!([0, 1, 2].map(|n| pieces[n].picture), [Kind::I, Kind::Reference, Kind::Disposable].map(Some));
        assert_eq!(pieces[1].dependencies, [0]);
        let slow = read(Cut::H264 { fps: Some(10.0) }, CLIP).unwrap();
        assert_eq!(slow[0].spacing, Some(Duration::from_millis(100)));
    }

    #[test]
    fn what_is_no_video_is_said_to_be_none() {
        for bad in [&b"hello"[..], &[0; 100], b"\0\0\0\x18ftypmp42\0\0\0\0"] {
            assert_eq!(read(Cut::H264 { fps: Some(30.0) }, bad).unwrap_err().code(), 2);
        }
    }

    #[test]
    fn a_missing_file_is_a_file_error() {
        assert_eq!(open(Some(Path::new("/no/such/file")), Cut::Lines).unwrap_err().code(), 3);
        assert_eq!(open(Some(Path::new("/")), Cut::Lines).unwrap_err().code(), 3);
    }
}
