//! What a sender reads: a file or a pipe, cut into blocks.
//!
//! Reading blocks a thread of its own, so that a pipe that says nothing holds up nobody; at most [`AHEAD`] blocks wait to be sent.

mod container;
mod header;
mod input;
mod messages;
mod video;

use std::{
    fs::File,
    io::Read as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual::Channel;
use punctual_eval::annexb::Kind;
use tokio::sync::mpsc;

use crate::exit::Failure;
use input::Input;

pub(crate) use video::{Coding, Video};

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cut {
    /// A frame.
    Video(Video),
    /// So many bytes.
    Chunks(usize),
    /// A line with its end.
    Lines,
    /// A message behind its length, and perhaps behind a line with settings of its own.
    Framed { headers: bool },
}

/// A block-to-be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    /// When its first byte came, if it came by itself: from then on its delay counts, and its deadline unless it keeps a beat.
    pub(crate) begun: Option<Instant>,
    /// What kind of picture it is, if it is one.
    pub(crate) picture: Option<Kind>,
    /// Positions of the pieces that this one needs.
    pub(crate) dependencies: Vec<u64>,
    /// Keeps a beat: not to be sent sooner than this after the one before it. Its deadline counts from when its turn comes.
    pub(crate) spacing: Option<Duration>,
    pub(crate) own: Own,
    /// It has so many bytes, more than any block may have, and they have been skipped.
    pub(crate) too_long: Option<u64>,
}

/// What holds for a piece alone, where it says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) priority: Option<u8>,
    /// `Some(None)`: in none.
    pub(crate) channel: Option<Option<Channel>>,
    /// `Some(None)`: without one.
    pub(crate) deadline: Option<Option<Duration>>,
}

impl Piece {
    fn plain(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            begun: None,
            picture: None,
            dependencies: Vec::new(),
            spacing: None,
            own: Own::default(),
            too_long: None,
        }
    }

    /// One of so many bytes that were skipped.
    fn too_long(size: u64) -> Self {
        Self { too_long: Some(size), ..Self::plain(Bytes::new()) }
    }
}

/// Pieces that may wait to be sent.
const AHEAD: usize = 16;
/// A frame longer than this is no frame; a line or message is left out.
pub(crate) const MAX_PIECE: usize = 16 << 20;

/// An input that is open, and from which nothing has been taken yet.
pub(crate) struct Source {
    input: Input,
    cut: Cut,
    may_be_empty: bool,
}

impl Source {
    /// Opens `path`, or standard input.
    ///
    /// # Errors
    /// If the file cannot be opened, or is certain not to be what it should be.
    pub(crate) fn open(path: Option<&Path>, cut: Cut) -> Result<Self, Failure> {
        let input = Input::open(path)?;
        if let (Cut::Video(video), Some(path), false) = (cut, path, input.live)
            && path != Path::new("-")
        {
            let mut head = Vec::new();
            let read = File::open(path).and_then(|file| file.take(container::ENOUGH as u64).read_to_end(&mut head));
            read.map_err(|error| Input::unreadable(path, error))?;
            video::check_file(video.coding, path, &head)?;
        }
        Ok(Self { input, cut, may_be_empty: false })
    }

    /// Lets it have nothing in it.
    pub(crate) fn maybe_empty(self) -> Self {
        Self { may_be_empty: true, ..self }
    }

    /// Whether it gives bytes at its own pace.
    pub(crate) fn is_live(&self) -> bool {
        self.input.live
    }

    /// Starts reading: not before pieces can be sent, since from when they are read their deadlines count. The channel ends with the input,
    /// or with the reason why it could not be read on.
    pub(crate) fn start(self) -> Result<mpsc::Receiver<Result<Piece, Failure>>, Failure> {
        let (tell, pieces) = mpsc::channel(AHEAD);
        let read = move || {
            let name = self.input.name.clone();
            let end = self.cut.read(self.input, &mut |piece| tell.blocking_send(Ok(piece)).is_ok());
            let end = end.and_then(|any| if any || self.may_be_empty { Ok(()) } else { Err(empty(&name)) });
            if let Err(failure) = end {
                // Nobody there to hear it: then nobody needs to know.
                let _ = tell.blocking_send(Err(failure));
            }
        };
        let thread = thread::Builder::new().name("source".into()).spawn(read);
        thread.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
        Ok(pieces)
    }
}

/// Takes a piece; `false` once no more are wanted.
type Take<'a> = &'a mut dyn FnMut(Piece) -> bool;

impl Cut {
    /// Reads all pieces; whether there were any.
    fn read(self, input: Input, take: Take<'_>) -> Result<bool, Failure> {
        let mut any = false;
        let take: Take<'_> = &mut |piece| {
            any = true;
            take(piece)
        };
        match self {
            Self::Video(video) => video::read(video, input, take),
            Self::Chunks(size) => messages::chunks(input, size, take),
            Self::Lines => messages::lines(input, take),
            Self::Framed { headers } => messages::framed(input, headers, take),
        }?;
        Ok(any)
    }
}

/// That nothing came is seldom what was meant.
fn empty(name: &Path) -> Failure {
    Failure::Usage(format!("{} is empty: there is nothing to send", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a file.
    pub(super) fn read(cut: Cut, input: &[u8]) -> Result<Vec<Piece>, Failure> {
        let input = std::io::Cursor::new(input.to_vec());
        collect(cut, Input { name: "input".into(), from: Box::new(input), live: false })
    }

    pub(super) fn collect(cut: Cut, input: Input) -> Result<Vec<Piece>, Failure> {
        let name = input.name.clone();
        let mut pieces = Vec::new();
        let any = cut.read(input, &mut |piece| {
            pieces.push(piece);
            true
        })?;
        if any { Ok(pieces) } else { Err(empty(&name)) }
    }

    #[test]
    fn nothing_is_an_error() {
        let video = Cut::Video(Video { coding: Coding::H264, fps: None, pace: false });
        for cut in [video, Cut::Chunks(3), Cut::Lines, Cut::Framed { headers: false }, Cut::Framed { headers: true }] {
            let error = read(cut, b"").unwrap_err();
            assert_eq!((error.code(), error.to_string().as_str()), (2, "input is empty: there is nothing to send"));
        }
    }

    #[test]
    fn what_came_by_itself_has_a_time() {
        let live = |live| Input { name: "input".into(), from: Box::new(&b"\0\0\0\x01a"[..]), live };
        for cut in [Cut::Chunks(3), Cut::Lines, Cut::Framed { headers: false }] {
            assert!(collect(cut, live(true)).unwrap().iter().all(|piece| piece.begun.is_some()));
            assert!(collect(cut, live(false)).unwrap().iter().all(|piece| piece.begun.is_none()));
        }
    }
}
