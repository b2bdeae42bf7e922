//! An MP4 file with one H.264 track, each picture with its own moment of display.

use std::time::Duration;

use mp4_atom::{
    Avc1, Avcc, Ctts, CttsEntry, Dinf, Dref, Encode as _, FourCC, Ftyp, Hdlr, Mdhd, Mdia, Minf, Moov, Mvhd, Stbl, Stco,
    Stsc, StscEntry, Stsd, Stss, Stsz, StszSamples, Stts, SttsEntry, Tkhd, Trak, Url, Visual, Vmhd,
};

use h264_reader::nal::{Nal as _, RefNal, sps::SeqParameterSet};
use punctual_eval::h264::{AccessUnit, nal_units};

/// Ticks per second: the customary clock of video.
const TIMESCALE: u32 = 90_000;

/// A picture and when it is shown, counted from the beginning of the film.
pub(super) struct Sample<'a> {
    pub(super) unit: &'a AccessUnit,
    pub(super) shown: Duration,
}

/// The file, or `None` if the pictures come without readable parameter sets.
///
/// `samples` are in decoding order. In display order, each must be shown later than the one before, by a tick
/// at least; the last is shown until `end`.
pub(super) fn write(samples: &[Sample<'_>], end: Duration) -> Option<Vec<u8>> {
    let find =
        |kind: u8| samples.iter().flat_map(|sample| nal_units(&sample.unit.data)).find(|nal| nal[0] & 0x1f == kind);
    let (sps, pps) = (find(7)?, find(8)?);
    let (width, height) =
        SeqParameterSet::from_bits(RefNal::new(sps, &[], true).rbsp_bits()).ok()?.pixel_dimensions().ok()?;

    let data: Vec<Vec<u8>> = samples.iter().map(|sample| length_prefixed(&sample.unit.data)).collect();
    let times = Times::of(samples, end);
    let visual = Visual {
        data_reference_index: 1,
        width: u16::try_from(width).ok()?,
        height: u16::try_from(height).ok()?,
        horizresolution: 72.into(),
        vertresolution: 72.into(),
        frame_count: 1,
        compressor: "".into(),
        depth: 24,
    };
    let avc1 = Avc1 { visual: visual.clone(), avcc: Avcc::new(sps, pps).ok()?, ..Default::default() };
    let table = |first_chunk: u32| Stbl {
        stsd: Stsd { codecs: vec![avc1.clone().into()] },
        stts: Stts {
            entries: runs(&times.durations, |sample_count, sample_delta| SttsEntry { sample_count, sample_delta }),
        },
        ctts: Some(Ctts {
            entries: runs(&times.offsets, |sample_count, sample_offset| CttsEntry { sample_count, sample_offset }),
        }),
        stss: Some(Stss {
            entries: (1..).zip(samples).filter(|(_, sample)| sample.unit.idr).map(|(n, _)| n).collect(),
        }),
        stsc: Stsc {
            entries: vec![StscEntry {
                first_chunk: 1,
                samples_per_chunk: samples.len() as u32,
                sample_description_index: 1,
            }],
        },
        stsz: Stsz {
            samples: StszSamples::Different { sizes: data.iter().map(|sample| sample.len() as u32).collect() },
        },
        stco: Some(Stco { entries: vec![first_chunk] }),
        ..Default::default()
    };
    let header = |first_chunk| {
        let mut buf = Vec::new();
        let brands = [FourCC::new(b"isom"), FourCC::new(b"iso2"), FourCC::new(b"avc1"), FourCC::new(b"mp41")];
        Ftyp { major_brand: brands[0], minor_version: 512, compatible_brands: brands.to_vec() }
            .encode(&mut buf)
            .ok()?;
        movie(table(first_chunk), &visual, times.total).encode(&mut buf).ok()?;
        Some(buf)
    };

    // The header's length does not depend on the offset in it.
    const MDAT_HEADER: usize = 8;
    let first_chunk = header(0)?.len() + MDAT_HEADER;
    let mut file = header(u32::try_from(first_chunk).ok()?)?;
    let size = MDAT_HEADER + data.iter().map(Vec::len).sum::<usize>();
    file.extend(u32::try_from(size).ok()?.to_be_bytes());
    file.extend(b"mdat");
    file.extend(data.into_iter().flatten());
    Some(file)
}

fn movie(stbl: Stbl, visual: &Visual, duration: u64) -> Moov {
    Moov {
        mvhd: Mvhd {
            timescale: TIMESCALE,
            duration,
            rate: 1.into(),
            volume: 1.into(),
            next_track_id: 2,
            ..Default::default()
        },
        trak: vec![Trak {
            tkhd: Tkhd {
                track_id: 1,
                duration,
                enabled: true,
                in_movie: true,
                width: visual.width.into(),
                height: visual.height.into(),
                ..Default::default()
            },
            mdia: Mdia {
                mdhd: Mdhd { timescale: TIMESCALE, duration, language: "und".into(), ..Default::default() },
                hdlr: Hdlr { handler: FourCC::new(b"vide"), name: "video".into() },
                minf: Minf {
                    vmhd: Some(Vmhd::default()),
                    dinf: Dinf { dref: Dref { entries: vec![Url::default().into()] } },
                    stbl,
                    ..Default::default()
                },
            },
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// An access unit as MP4 wants it: each NAL unit behind its length; delimiters and parameter sets are elsewhere.
fn length_prefixed(data: &[u8]) -> Vec<u8> {
    nal_units(data)
        .filter(|nal| !matches!(nal[0] & 0x1f, 7..=9))
        .flat_map(|nal| (nal.len() as u32).to_be_bytes().into_iter().chain(nal.iter().copied()))
        .collect()
}

/// The moments of a track in ticks, in decoding order.
#[derive(Debug, PartialEq)]
struct Times {
    durations: Vec<u32>,
    /// From decoding to display.
    offsets: Vec<i64>,
    total: u64,
}

impl Times {
    /// Decoding times are the display times in order, put off by as many pictures as decoding runs ahead of display, so that each picture
    /// is decoded before it is shown.
    fn of(samples: &[Sample<'_>], end: Duration) -> Self {
        let ticks = |at: Duration| (at.as_secs_f64() * f64::from(TIMESCALE)).round() as i64;
        let shown: Vec<i64> = samples.iter().map(|sample| ticks(sample.shown)).collect();
        let mut sorted = shown.clone();
        sorted.sort_unstable();
        let place = |at: &i64| sorted.partition_point(|other| other < at);
        let lead = (0..).zip(&shown).map(|(n, at)| usize::saturating_sub(n, place(at))).max().unwrap_or(0);
        // Before the first picture is shown there is nothing to go by: one tick each will do.
        let decoded: Vec<i64> = (0..sorted.len())
            .map(|n| if n < lead { sorted[0] - (lead - n) as i64 } else { sorted[n - lead] })
            .collect();
        let end = ticks(end).max(sorted.last().copied().unwrap_or(0) + 1);
        let next = decoded.iter().skip(1).copied().chain([end]);
        let durations = decoded.iter().zip(next).map(|(at, next)| u32::try_from(next - at).unwrap_or(1)).collect();
        let offsets = shown.iter().zip(&decoded).map(|(shown, decoded)| shown - decoded).collect();
        Self { durations, offsets, total: u64::try_from(end - decoded.first().unwrap_or(&0)).unwrap_or(0) }
    }
}

/// Runs of equal values, counted.
fn runs<T: PartialEq + Copy, E>(values: &[T], entry: impl Fn(u32, T) -> E) -> Vec<E> {
    values.chunk_by(|a, b| a == b).map(|run| entry(run.len() as u32, run[0])).collect()
}

#[cfg(test)]
mod tests {
    use mp4_atom::{Any, ReadFrom as _};
    use punctual_eval::h264;

    use super::*;
    use crate::demo::CLIP;

    fn at(frame: u64) -> Duration {
        Duration::from_secs(frame) / 30
    }

    #[test]
    fn the_whole_clip_fits_its_boxes() {
        let (units, _) = h264::split(CLIP, 16 << 20);
        let mut order: Vec<_> = units.iter().map(|unit| (unit.display, unit.index)).collect();
        order.sort();
        let samples: Vec<_> = units
            .iter()
            .map(|unit| Sample {
                unit,
                shown: at(order.iter().position(|&(_, index)| index == unit.index).unwrap() as u64),
            })
            .collect();
        let file = write(&samples, at(300)).unwrap();

        let mut reader = &file[..];
        let boxes: Vec<Any> = std::iter::from_fn(|| Option::<Any>::read_from(&mut reader).unwrap()).collect();
        let [Any::Ftyp(_), Any::Moov(moov), Any::Mdat(data)] = &boxes[..] else { panic!("unexpected boxes") };
        let table = &moov.trak[0].mdia.minf.stbl;
        assert_eq!(table.stts.entries.iter().map(|entry| entry.sample_count).sum::<u32>(), 300);
        assert_eq!(table.stss.as_ref().unwrap().entries.len(), units.iter().filter(|unit| unit.idr).count());
        let StszSamples::Different { sizes } = &table.stsz.samples else { panic!("sizes differ") };
        assert_eq!(sizes.iter().sum::<u32>() as usize, data.data.len());
        let first = table.stco.as_ref().unwrap().entries[0] as usize;
        assert_eq!(&file[first..], &data.data[..]);
        assert_eq!(moov.mvhd.duration / u64::from(TIMESCALE / 10), 100);
    }

    #[test]
    fn pictures_are_decoded_before_they_are_shown() {
        let (units, _) = h264::split(CLIP, 16 << 20);
        // I0 P2 B1 P4 B3
        let samples: Vec<_> =
            units.iter().zip([0, 2, 1, 4, 3]).map(|(unit, place)| Sample { unit, shown: at(place) }).collect();
        let times = Times::of(&samples, at(5));
        assert_eq!(times.durations, [1, 3000, 3000, 3000, 3000 + 3000]);
        assert_eq!(times.offsets, [1, 6000, 0, 6000, 0]);
    }

    #[test]
    fn no_parameter_sets_no_film() {
        let (units, _) = h264::split(CLIP, 16 << 20);
        assert!(write(&[Sample { unit: &units[1], shown: at(0) }], at(1)).is_none());
        assert!(write(&[], at(1)).is_none());
    }
}
