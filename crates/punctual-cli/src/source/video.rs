//! A video, cut into frames: from a file at its own beat, live as soon as a frame is complete.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual_eval::{
    annexb::{AccessUnit, Codec, Splitter},
    h264::H264,
    h265::H265,
};

use super::{
    MAX_PIECE, Piece, Take, container,
    input::{Input, READ},
};
use crate::exit::Failure;
use crate::say::say;

/// How the video is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    H264,
    H265,
}

impl Coding {
    /// What asks for it on the command line.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::H264 => "--h264",
            Self::H265 => "--h265",
        }
    }

    /// What ffmpeg calls the filter that makes a byte stream, and the byte stream.
    pub(super) fn ffmpeg(self) -> (&'static str, &'static str) {
        match self {
            Self::H264 => ("h264_mp4toannexb", "h264"),
            Self::H265 => ("hevc_mp4toannexb", "hevc"),
        }
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H264 => "H.264",
            Self::H265 => "H.265",
        })
    }
}

/// What is to be done with a video.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Video {
    pub(crate) coding: Coding,
    /// Frames per second, if the stream's own word is not to be taken.
    pub(crate) fps: Option<f64>,
    /// Whether frames of a live input keep their beat, too.
    pub(crate) pace: bool,
}

/// A live input that says nothing for so long has said all of a frame.
///
/// In a pipe, the beginning of the next frame, which ends this one, comes a frame later (33 ms at 30 per second): far longer than the network
/// takes. Whoever writes a frame writes it at once, and is held up for some milliseconds at most when the machine is busy: schedulers let
/// others run for about 3 ms. At 120 frames per second, there are 8 ms from one to the next. Where the guess is wrong, a frame goes as two blocks
/// instead of one, and nothing else comes of it.
const QUIET: Duration = Duration::from_millis(5);

/// Reads of a live input that may wait: the time at which bytes came is known even while others wait to be sent.
const READS_AHEAD: usize = 64;

/// Bytes of a live stream in which there must be something that decoding can begin with: ten seconds between key frames at 50 Mbit/s.
const PATIENCE: u64 = 64 << 20;

/// Reads the video to its end.
pub(super) fn read(video: Video, input: Input, take: Take<'_>) -> Result<(), Failure> {
    match video.coding {
        Coding::H264 => Reader::<H264>::new(video, &input).run(input, take),
        Coding::H265 => Reader::<H265>::new(video, &input).run(input, take),
    }
}

/// What comes from the input.
enum Arrival {
    Bytes(Instant, Bytes),
    /// Nothing, for as long as [`QUIET`].
    Nothing,
    End,
}

struct Reader<C: Codec> {
    video: Video,
    name: std::path::PathBuf,
    live: bool,
    splitter: Splitter<C>,
    /// The beginning of the stream, until it is known what it is.
    head: Option<Vec<u8>>,
    clock: Clock,
    /// The number of the access unit that the receiver gets first, once there is one.
    first: Option<u64>,
}

impl<C: Codec> Reader<C> {
    fn new(video: Video, input: &Input) -> Self {
        Self {
            video,
            name: input.name.clone(),
            live: input.live,
            splitter: Splitter::new(MAX_PIECE),
            head: Some(Vec::new()),
            clock: Clock::default(),
            first: None,
        }
    }

    fn run(mut self, input: Input, take: Take<'_>) -> Result<(), Failure> {
        let mut arrivals = Arrivals::of(input)?;
        // Silence is told once: more of it changes nothing.
        let mut told = false;
        loop {
            let arrival = arrivals.next(!told && self.is_waiting());
            let arrival = arrival.map_err(|error| Input::unreadable(&self.name, error))?;
            told = matches!(arrival, Arrival::Nothing);
            match &arrival {
                Arrival::Bytes(at, bytes) => {
                    self.clock.came(bytes.len(), *at);
                    self.push(bytes)?;
                }
                // A few bytes from within a stream tell nothing yet; a start code tells enough.
                Arrival::Nothing if !self.begins_with_start_code() => {}
                Arrival::Nothing => self.settle_head()?,
                Arrival::End => {
                    if self.clock.is_empty() {
                        return Err(super::empty(&self.name));
                    }
                    self.settle_head()?;
                }
            }
            let at_end = matches!(arrival, Arrival::End);
            while let Some(unit) = match arrival {
                Arrival::Bytes(..) => self.splitter.next_unit(),
                Arrival::Nothing => self.splitter.flush(),
                Arrival::End => self.splitter.finish(),
            } {
                if let Some(piece) = self.piece(unit, at_end)?
                    && !take(piece)
                {
                    return Ok(());
                }
            }
            if at_end {
                return if self.first.is_some() { Ok(()) } else { Err(self.no_video()) };
            }
        }
    }

    /// Whether there are bytes in hand that may be all of a frame.
    fn is_waiting(&self) -> bool {
        self.splitter.pending() > 0 || self.head.as_ref().is_some_and(|head| !head.is_empty())
    }

    /// Takes in bytes, unless it is not known yet what they are.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.head {
            None => self.splitter.push(bytes),
            Some(head) => {
                head.extend_from_slice(bytes);
                if head.len() >= container::ENOUGH {
                    self.settle_head()?;
                }
            }
        }
        Ok(())
    }

    fn begins_with_start_code(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.starts_with(&[0, 0, 1]) || head.starts_with(&[0, 0, 0, 1]))
    }

    /// The beginning of the stream is what there is of it: goes by that.
    fn settle_head(&mut self) -> Result<(), Failure> {
        let Some(head) = self.head.take_if(|head| !head.is_empty()) else { return Ok(()) };
        if let Some(found) = container::recognise(&head, self.video.coding) {
            return Err(Failure::Usage(found.advice(&self.name, self.video.coding)));
        }
        self.splitter.push(&head);
        Ok(())
    }

    /// The access unit as a piece; none of those before decoding can begin.
    fn piece(&mut self, unit: AccessUnit, at_end: bool) -> Result<Option<Piece>, Failure> {
        let begun = self.clock.passed(unit.data.len());
        let first = match self.first {
            Some(first) => first,
            None if C::begins_decoding(&unit) => self.begin(&unit),
            None if self.clock.passed > PATIENCE => return Err(self.no_video()),
            None => {
                // At the end, it is an error that says more.
                if self.live && unit.index == 0 && !at_end {
                    say!(
                        "punctual: {} begins in the middle of a stream: waiting for parameter sets and a key frame",
                        self.name.display()
                    );
                }
                return Ok(None);
            }
        };
        let paced = self.video.pace || !self.live;
        let spacing = if paced { Some(self.spacing(&unit)?) } else { None };
        Ok(Some(Piece {
            begun: begun.filter(|_| self.live),
            picture: Some(unit.kind),
            // What was before the first is there for nobody.
            dependencies: unit.dependencies.iter().filter_map(|on| on.checked_sub(first)).collect(),
            spacing,
            ..Piece::plain(unit.data)
        }))
    }

    /// The receiver gets this access unit first. Says so if there were others.
    fn begin(&mut self, unit: &AccessUnit) -> u64 {
        let left_out = self.clock.passed - unit.data.len() as u64;
        if left_out > 0 {
            say!(
                "punctual: {} begins in the middle of a stream: left out {left_out} bytes before the first key frame",
                self.name.display()
            );
        }
        *self.first.insert(unit.index)
    }

    fn spacing(&self, unit: &AccessUnit) -> Result<Duration, Failure> {
        let Some(rate) = self.video.fps.or(self.splitter.frame_rate()) else {
            return Err(Failure::Usage(format!("{} does not say its frame rate; give --fps", self.name.display())));
        };
        let fields = if unit.field { 2.0 } else { 1.0 };
        Ok(Duration::from_secs_f64(1.0 / (rate * fields)))
    }

    fn no_video(&self) -> Failure {
        let (name, coding) = (self.name.display(), self.video.coding);
        Failure::Usage(format!(
            "{name}: there is no {coding} frame in it with which decoding can begin; of a file in another format, make a byte stream with {}",
            container::command(&self.name, coding)
        ))
    }
}

/// When the bytes of a stream came.
#[derive(Default)]
struct Clock {
    /// Offsets in the stream behind the bytes of each read, and when that was.
    reads: VecDeque<(u64, Instant)>,
    came: u64,
    passed: u64,
}

impl Clock {
    fn is_empty(&self) -> bool {
        self.came == 0
    }

    fn came(&mut self, len: usize, at: Instant) {
        self.came += len as u64;
        self.reads.push_back((self.came, at));
    }

    /// The next `len` bytes go. Says when the first of them came.
    fn passed(&mut self, len: usize) -> Option<Instant> {
        let first = self.reads.partition_point(|&(end, _)| end <= self.passed);
        self.reads.drain(..first);
        self.passed += len as u64;
        self.reads.front().map(|&(_, at)| at)
    }
}

/// The bytes of a file as one asks for them, those of a live input as they come.
enum Arrivals {
    File(Box<dyn Read + Send>),
    Live(Receiver<io::Result<(Instant, Bytes)>>),
}

impl Arrivals {
    fn of(input: Input) -> Result<Self, Failure> {
        let Input { live: true, mut from, .. } = input else { return Ok(Self::File(input.from)) };
        let (tell, reads) = sync_channel(READS_AHEAD);
        let read = move || {
            let mut buf = vec![0; READ];
            loop {
                let read = match from.read(&mut buf) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) => return,
                    read => read.map(|len| (Instant::now(), Bytes::copy_from_slice(&buf[..len]))),
                };
                let failed = read.is_err();
                // Nobody wants more, or there is no more to be had.
                if tell.send(read).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("read".into()).spawn(read);
        thread.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
        Ok(Self::Live(reads))
    }

    /// What comes next. Silence of a live input is only told if somebody is `waiting` for what may be behind it.
    fn next(&mut self, waiting: bool) -> io::Result<Arrival> {
        match self {
            Self::File(from) => {
                let mut bytes = Vec::new();
                from.by_ref().take(READ as u64).read_to_end(&mut bytes)?;
                // A file's bytes have always been there: when they are read means nothing.
                let read = |bytes: Vec<u8>| Arrival::Bytes(Instant::now(), bytes.into());
                Ok(if bytes.is_empty() { Arrival::End } else { read(bytes) })
            }
            Self::Live(reads) => {
                let came = if waiting { reads.recv_timeout(QUIET) } else { reads.recv().map_err(Into::into) };
                match came {
                    Ok(read) => read.map(|(at, bytes)| Arrival::Bytes(at, bytes)),
                    Err(RecvTimeoutError::Timeout) => Ok(Arrival::Nothing),
                    Err(RecvTimeoutError::Disconnected) => Ok(Arrival::End),
                }
            }
        }
    }
}

/// Looks at the beginning of a video file: what is certain to be none is better refused before there is a session.
///
/// # Errors
/// If the file cannot be read, is empty, or is something else.
pub(super) fn check_file(coding: Coding, name: &Path, head: &[u8]) -> Result<(), Failure> {
    if head.is_empty() {
        return Err(super::empty(name));
    }
    match container::recognise(head, coding) {
        Some(found) => Err(Failure::Usage(found.advice(name, coding))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
