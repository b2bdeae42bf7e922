use std::sync::mpsc;

use punctual_eval::annexb::Kind;

use super::*;
use crate::{
    demo::CLIP,
    source::{
        Cut,
        tests::{collect, read},
    },
};

const H264: Video = Video { coding: Coding::H264, fps: None, pace: false };

fn data(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.data.iter().copied()).collect()
}

fn clip_units() -> Vec<AccessUnit> {
    punctual_eval::h264::split(CLIP, MAX_PIECE).0
}

/// A pipe: what is sent into it is read in the same pieces.
struct Pipe {
    from: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.from.recv().unwrap_or_default();
        }
        let len = self.rest.len().min(buf.len());
        buf[..len].copy_from_slice(&self.rest[..len]);
        self.rest.drain(..len);
        Ok(len)
    }
}

fn live(bytes: &'static [u8]) -> Input {
    Input { name: "input".into(), from: Box::new(bytes), live: true }
}

#[test]
fn a_file_comes_by_frames_at_its_rate() {
    let pieces = read(Cut::Video(H264), CLIP).unwrap();
    assert_eq!(pieces.len(), 300);
    assert!(data(&pieces) == CLIP);
    assert_eq!(pieces[0].spacing, Some(Duration::from_secs(1) / 30));
    assert_eq!([0, 1, 2].map(|n| pieces[n].picture), [Kind::I, Kind::Reference, Kind::Disposable].map(Some));
    assert_eq!(pieces[1].dependencies, [0]);
    assert!(pieces.iter().all(|piece| piece.begun.is_none()), "a file's frames begin when they are sent");
    let slow = read(Cut::Video(Video { fps: Some(10.0), ..H264 }), CLIP).unwrap();
    assert_eq!(slow[0].spacing, Some(Duration::from_millis(100)));
}

#[test]
fn a_live_video_has_times_and_no_beat() {
    let pieces = collect(Cut::Video(H264), live(CLIP)).unwrap();
    assert!(data(&pieces) == CLIP);
    assert!(pieces.iter().all(|piece| piece.begun.is_some() && piece.spacing.is_none()));
    let paced = collect(Cut::Video(Video { pace: true, ..H264 }), live(CLIP)).unwrap();
    assert!(
        paced.iter().all(|piece| piece.begun.is_some() && piece.spacing.is_some()),
        "the wait is part of the delay"
    );
}

#[test]
fn a_live_frame_goes_before_the_next_one_begins() {
    let (write, from) = mpsc::channel();
    let input = Input { name: "pipe".into(), from: Box::new(Pipe { from, rest: Vec::new() }), live: true };
    let (take, taken) = mpsc::channel();
    let reader = thread::spawn(move || {
        Cut::Video(H264).read(input, &mut |piece| take.send(piece).is_ok()).map_err(|error| error.to_string())
    });
    for unit in clip_units().into_iter().take(20) {
        let before = Instant::now();
        write.send(unit.data.to_vec()).unwrap();
        // However long that takes here, it comes without another byte.
        let mut got = Vec::new();
        while got.len() < unit.data.len() {
            let piece = taken.recv_timeout(Duration::from_secs(20)).expect("it comes");
            assert!(piece.begun.unwrap() >= before, "its time is its own");
            got.extend_from_slice(&piece.data);
        }
        assert!(got == unit.data);
    }
    drop(write);
    assert_eq!(reader.join().unwrap(), Ok(true));
}

#[test]
fn a_frames_time_is_that_of_its_first_byte() {
    let mut clock = Clock::default();
    let start = Instant::now();
    let at = |n| start + Duration::from_secs(n);
    clock.came(100, at(1));
    clock.came(50, at(2));
    clock.came(50, at(3));
    assert_eq!([80, 30, 40, 50].map(|len| clock.passed(len)), [1, 1, 2, 3].map(|n| Some(at(n))));
    assert!(clock.reads.len() <= 1);
    clock.came(10, at(4));
    assert_eq!(clock.passed(10), Some(at(4)));
}

#[test]
fn one_who_joins_begins_at_a_key_frame() {
    let units = clip_units();
    let key = units.iter().position(|unit| unit.index > 0 && unit.idr).expect("there is more than one");
    // From the middle of a frame on.
    let begin: usize = units[..4].iter().map(|unit| unit.data.len()).sum::<usize>() + 100;
    let first: usize = units[..key].iter().map(|unit| unit.data.len()).sum();
    for pieces in [collect(Cut::Video(H264), live(&CLIP[begin..])), read(Cut::Video(H264), &CLIP[begin..])] {
        let pieces = pieces.unwrap();
        assert!(data(&pieces) == CLIP[first..]);
        assert_eq!(pieces[0].picture, Some(Kind::I));
        assert!(pieces.iter().zip(0..).all(|(piece, at)| piece.dependencies.iter().all(|&on| on < at)));
        assert_eq!(pieces[1].dependencies, [0]);
    }
}

#[test]
fn noise_amid_a_video_goes_along() {
    let (begin, end) = CLIP.split_at(CLIP.len() / 2);
    let noise: Vec<u8> = (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bytes = [begin, &noise, &[0x47; 188 * 4], b"ftyp", end].concat();
    let pieces = read(Cut::Video(H264), &bytes).unwrap();
    assert!(data(&pieces) == bytes);
    assert!(pieces.len() > 290);
}

#[test]
fn what_is_no_video_is_said_to_be_none() {
    let fps = Video { fps: Some(30.0), ..H264 };
    let transport: Vec<u8> = (0..188 * 20).map(|at| if at % 188 == 0 { 0x47 } else { 0x11 }).collect();
    for (bad, word) in [
        (&b"hello"[..], "there is no H.264 frame"),
        (&[0; 100], "there is no H.264 frame"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", "is an MP4 file"),
        (&transport, "is an MPEG transport stream, not an H.264 byte stream"),
        (b"\0\0\0\x01\x40\x01\x0c\x01", "give --h265"),
    ] {
        let error = read(Cut::Video(fps), bad).unwrap_err();
        assert!(error.code() == 2 && error.to_string().contains(word), "{error}");
        let error = collect(Cut::Video(fps), live(bad.to_vec().leak())).unwrap_err();
        assert!(error.code() == 2 && error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_video_of_the_other_coding_is_read_as_such() {
    let error = read(Cut::Video(Video { coding: Coding::H265, ..H264 }), CLIP).unwrap_err();
    assert!(error.to_string().contains("give --h264"), "{error}");
}
