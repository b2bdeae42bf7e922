//! The received clip, as files to play.
//!
//! `<run>.h264` holds the access units that arrived and can be decoded, in order. A raw stream carries no times, so it plays without
//! the gaps; `<run>.mp4` holds the same pictures and shows what a viewer would have seen: a picture that was late
//! appears when it came, and the one before it stands still until then.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use punctual_eval::h264::AccessUnit;

use super::{
    metrics,
    mp4::{self, Sample},
    stage::{Stage, Times},
};
use crate::exit::Failure;

/// Writes the files of a run and gives the path of the one to play.
pub(super) fn write(stage: &Stage, times: &[Times], dir: &Path, name: &str) -> Result<PathBuf, Failure> {
    let ready = metrics::ready(&stage.frames, times);
    let raw: Vec<u8> = stage
        .frames
        .iter()
        .zip(&ready)
        .filter(|(_, ready)| ready.is_some())
        .flat_map(|(frame, _)| &frame.data[..])
        .copied()
        .collect();
    let raw_path = dir.join(format!("{name}.h264"));
    save(&raw_path, &raw)?;

    let shown = shown(&stage.frames, &ready, stage.interval, stage.scenario.deadline);
    let samples: Vec<Sample<'_>> =
        stage.frames.iter().zip(shown).filter_map(|(unit, shown)| Some(Sample { unit, shown: shown? })).collect();
    let Some(film) = mp4::write(&samples, stage.interval * stage.frames.len() as u32) else { return Ok(raw_path) };
    let path = dir.join(format!("{name}.mp4"));
    save(&path, &film)?;
    Ok(path)
}

fn save(path: &Path, data: &[u8]) -> Result<(), Failure> {
    fs::write(path, data).map_err(|error| Failure::file("write", path, error))
}

/// Moments of display closer than this are one.
const TICK: Duration = Duration::from_micros(50);

/// When each frame appears to a viewer whose player lags the hand-over by the deadline and by the frame it needs to put
/// pictures in order; `None` for those that never became ready.
///
/// A frame that came after its successor in display order had been shown flits by unseen.
fn shown(
    frames: &[AccessUnit],
    ready: &[Option<Duration>],
    interval: Duration,
    deadline: Duration,
) -> Vec<Option<Duration>> {
    let mut order: Vec<usize> = (0..frames.len()).collect();
    order.sort_by_key(|&index| frames[index].display);
    let lag = deadline + interval;
    let mut shown = vec![None; frames.len()];
    let mut next: Option<Duration> = None;
    for (place, &index) in order.iter().enumerate().rev() {
        let Some(ready) = ready[index] else { continue };
        let due = interval * place as u32;
        let at = due.max(ready.saturating_sub(lag));
        let at = next.map_or(at, |next| at.min(next.saturating_sub(TICK)));
        shown[index] = Some(at);
        next = Some(at);
    }
    shown
}

#[cfg(test)]
mod tests {
    use punctual_eval::h264;

    use super::*;
    use crate::demo::CLIP;

    const T: Duration = Duration::from_millis(40);
    const DEADLINE: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    #[test]
    fn frames_on_time_appear_at_their_own_pace() {
        let (frames, _) = h264::split(CLIP, 16 << 20);
        // Display order 0 2 1 4 3, each ready exactly at its deadline.
        let ready: Vec<_> = (0..5).map(|n| ms(40 * n + 100)).collect();
        assert_eq!(shown(&frames[..5], &ready, T, DEADLINE), [0, 80, 40, 160, 120].map(ms));
    }

    #[test]
    fn a_late_frame_appears_when_it_came_and_a_missing_one_never() {
        let (frames, _) = h264::split(CLIP, 16 << 20);
        let mut ready: Vec<_> = (0..5).map(|n| ms(40 * n + 100)).collect();
        ready[4] = ms(300);
        ready[3] = None;
        // Frame 4 is fourth in display order: due at 120, ready at 300, 140 of which the player lags.
        assert_eq!(shown(&frames[..5], &ready, T, DEADLINE), [ms(0), ms(80), ms(40), None, ms(160)]);
    }

    #[test]
    fn a_frame_later_than_its_successor_flits_by() {
        let (frames, _) = h264::split(CLIP, 16 << 20);
        let mut ready: Vec<_> = (0..5).map(|n| ms(40 * n + 100)).collect();
        ready[2] = ms(900);
        assert_eq!(shown(&frames[..5], &ready, T, DEADLINE)[2], Some(Duration::from_millis(80) - TICK));
    }
}
