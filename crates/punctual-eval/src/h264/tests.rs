use proptest::prelude::*;

use super::*;

/// Ten seconds of video that the program shows off with.
const CLIP: &[u8] = include_bytes!("../../../punctual-cli/assets/clip.h264");

const MAX: usize = 16 << 20;

fn joined(units: &[AccessUnit]) -> Vec<u8> {
    units.iter().flat_map(|unit| unit.data.iter().copied()).collect()
}

fn split_in_pieces(stream: &[u8], piece: usize) -> Vec<AccessUnit> {
    let mut splitter = Splitter::new(MAX);
    let mut units = Vec::new();
    for bytes in stream.chunks(piece) {
        splitter.push(bytes);
        while let Some(unit) = splitter.next_unit() {
            units.push(unit);
        }
    }
    while let Some(unit) = splitter.finish() {
        units.push(unit);
    }
    units
}

#[test]
fn the_clip_is_three_hundred_frames_at_thirty_per_second() {
    let (units, rate) = split(CLIP, MAX);
    assert_eq!(rate, Some(30.0));
    let count = |kind| units.iter().filter(|unit| unit.kind == kind).count();
    // As ffprobe counts them.
    assert_eq!([count(Kind::I), count(Kind::Reference), count(Kind::Disposable)], [11, 150, 139]);
    assert_eq!(units.len(), 300);
    assert!(joined(&units) == CLIP);
}

#[test]
fn dependencies_follow_the_references() {
    let (units, _) = split(CLIP, MAX);
    let mut last_reference = None;
    for unit in &units {
        match unit.kind {
            Kind::I => assert!(unit.dependencies.is_empty()),
            Kind::Reference => assert_eq!(unit.dependencies, [last_reference.unwrap()]),
            Kind::Disposable => {
                // Decoded I0 P2 B1 P4 B3: B1 lies between I0 and P2.
                assert_eq!(unit.dependencies.len(), 2);
                assert_eq!(unit.dependencies[1], last_reference.unwrap());
                assert!(unit.dependencies.iter().all(|&on| units[on as usize].kind < Kind::Disposable));
            }
            Kind::Unknown => panic!("{unit:?}"),
        }
        if unit.kind < Kind::Disposable {
            last_reference = Some(unit.index);
        }
    }
}

#[test]
fn display_order_puts_b_frames_between_their_neighbours() {
    let (units, _) = split(CLIP, MAX);
    let mut shown: Vec<_> = units.iter().map(|unit| (unit.display, unit.index)).collect();
    shown.sort();
    assert_eq!(shown.iter().take(5).map(|&(_, index)| index).collect::<Vec<_>>(), [0, 2, 1, 4, 3]);
    assert!(shown.windows(2).all(|pair| pair[0].0 < pair[1].0), "no two at the same place");
    assert!(shown.iter().zip(0..).all(|(&(_, index), place)| index.abs_diff(place) <= 1));
}

#[test]
fn pieces_make_no_difference() {
    let (whole, _) = split(CLIP, MAX);
    for piece in [1000, 4096, 65_537] {
        assert_eq!(split_in_pieces(CLIP, piece), whole, "{piece} bytes at a time");
    }
    let beginning = &CLIP[..60_000];
    assert_eq!(split_in_pieces(beginning, 1), split(beginning, MAX).0);
}

#[test]
fn an_access_unit_leaves_as_soon_as_the_next_begins() {
    let (units, _) = split(CLIP, MAX);
    let mut splitter = Splitter::new(MAX);
    splitter.push(&units[0].data);
    assert_eq!(splitter.next_unit(), None);
    splitter.push(&units[1].data[..8]);
    assert_eq!(splitter.next_unit().as_ref(), Some(&units[0]), "the delimiter is enough");
}

/// As a live source that goes silent after each `piece` bytes.
fn split_with_silences(stream: &[u8], piece: usize, max: usize) -> Vec<AccessUnit> {
    let mut splitter = Splitter::new(max);
    let mut units = Vec::new();
    for bytes in stream.chunks(piece) {
        splitter.push(bytes);
        units.extend(std::iter::from_fn(|| splitter.flush()));
    }
    units.extend(std::iter::from_fn(|| splitter.finish()));
    units
}

#[test]
fn silence_after_a_picture_ends_it() {
    let (units, _) = split(CLIP, MAX);
    let mut splitter = Splitter::new(MAX);
    for unit in &units {
        splitter.push(&unit.data);
        assert_eq!(splitter.flush().as_ref(), Some(unit));
        assert_eq!((splitter.flush(), splitter.pending()), (None, 0));
    }
    assert_eq!(splitter.finish(), None);
}

#[test]
fn silence_within_a_picture_makes_two_units_that_go_together() {
    let (units, _) = split(CLIP, MAX);
    let mut splitter = Splitter::new(MAX);
    let mut parts = Vec::new();
    for unit in &units[..3] {
        let (begin, end) = unit.data.split_at(unit.data.len() / 2);
        for half in [begin, end] {
            splitter.push(half);
            parts.extend(std::iter::from_fn(|| splitter.flush()));
        }
    }
    assert_eq!(joined(&parts), joined(&units[..3]));
    let kinds: Vec<_> = parts.iter().map(|part| part.kind.letter()).collect();
    assert_eq!(kinds, ['I', 'I', 'P', 'P', 'B', 'B']);
    let needs: Vec<_> = parts.iter().map(|part| &part.dependencies[..]).collect();
    // The P picture needs all of the I picture, the B picture all of both.
    assert_eq!(needs, [&[][..], &[0], &[1], &[2], &[1, 3], &[4]]);
    assert_eq!(parts.iter().map(|part| part.idr).collect::<Vec<_>>(), [true, false, false, false, false, false]);
}

#[test]
fn silence_before_a_picture_has_its_slice_means_nothing() {
    let (units, _) = split(CLIP, MAX);
    let mut splitter = Splitter::new(MAX);
    // The delimiter and the beginning of what comes behind it.
    splitter.push(&units[0].data[..9]);
    assert_eq!(splitter.flush(), None);
    splitter.push(&units[0].data[9..]);
    assert_eq!(splitter.flush().as_ref(), Some(&units[0]));
    // A start code that is not all there belongs to the next picture.
    splitter.push(&units[1].data);
    splitter.push(&units[2].data[..3]);
    assert_eq!(splitter.flush().as_ref(), Some(&units[1]));
    splitter.push(&units[2].data[3..]);
    assert_eq!(splitter.flush().as_ref(), Some(&units[2]));
}

#[test]
fn decoding_begins_at_idr_pictures() {
    let (units, _) = split(CLIP, MAX);
    let begins: Vec<_> = units.iter().filter(|unit| H264::begins_decoding(unit)).map(|unit| unit.kind).collect();
    assert!(!begins.is_empty() && begins.iter().all(|&kind| kind == Kind::I), "{begins:?}");
    assert!(H264::begins_decoding(&units[0]));
}

#[test]
fn without_delimiters_slices_tell_the_pictures_apart() {
    let (units, _) = split(CLIP, MAX);
    let bare: Vec<u8> = units
        .iter()
        .flat_map(|unit| nal_units(&unit.data))
        .filter(|nal| nal[0] & 0x1f != 9)
        .flat_map(|nal| [&[0, 0, 1], nal].concat())
        .collect();
    let (again, rate) = split(&bare, MAX);
    assert_eq!(rate, Some(30.0));
    assert_eq!(again.len(), units.len());
    assert!(again.iter().zip(&units).all(|(a, b)| a.kind == b.kind && a.dependencies == b.dependencies));
    assert!(joined(&again) == bare);
}

#[test]
fn a_stream_that_starts_in_the_middle_has_no_dangling_dependencies() {
    let (units, _) = split(CLIP, MAX);
    let (tail, _) = split(&joined(&units[5..]), MAX);
    // Nothing is understood before the next parameter sets, and nothing is lost.
    assert_eq!(tail.len(), units.len() - 5);
    assert!(tail.iter().all(|unit| unit.dependencies.iter().all(|&on| on < unit.index)));
    assert!(tail[..20].iter().all(|unit| unit.kind == Kind::Unknown));
    assert!(tail[40..].iter().all(|unit| unit.kind != Kind::Unknown));
}

#[test]
fn nothing_in_nothing_out() {
    assert_eq!(split(b"", MAX), (Vec::new(), None));
}

#[test]
fn text_comes_out_as_it_went_in() {
    let text = b"this is no video at all".repeat(100);
    let (units, rate) = split(&text, 1000);
    assert_eq!(rate, None);
    assert!(units.iter().all(|unit| unit.kind == Kind::Unknown && unit.data.len() <= 1000));
    assert!(joined(&units) == text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_comes_out_as_it_went_in(
        // Mostly zeros, ones and NAL headers, so that start codes abound.
        bytes in prop::collection::vec(prop_oneof![4 => Just(0u8), 2 => Just(1), 2 => 0x60u8..0x6a, 1 => any::<u8>()], 0..4000),
        piece in 1usize..300,
        max in 1usize..2000,
    ) {
        let (whole, _) = split(&bytes, max);
        prop_assert!(joined(&whole) == bytes);
        prop_assert!(whole.iter().all(|unit| !unit.data.is_empty() && unit.data.len() <= max.max(1)));
        prop_assert!(joined(&split_in_pieces(&bytes, piece)) == bytes);
    }

    #[test]
    fn silence_anywhere_loses_nothing(
        bytes in prop::collection::vec(prop_oneof![4 => Just(0u8), 2 => Just(1), 2 => 0x60u8..0x6a, 1 => any::<u8>()], 0..2000),
        piece in 1usize..300,
        max in 1usize..2000,
    ) {
        let units = split_with_silences(&bytes, piece, max);
        prop_assert!(joined(&units) == bytes);
        prop_assert!(units.iter().zip(0..).all(|(unit, index)| unit.index == index && !unit.data.is_empty()));
        prop_assert!(units.iter().all(|unit| unit.dependencies.iter().all(|&on| on < unit.index)));
    }

    #[test]
    fn a_damaged_clip_comes_out_as_it_went_in(
        cut in 0usize..200_000,
        flips in prop::collection::vec((0usize..200_000, any::<u8>()), 0..50),
    ) {
        let mut bytes = CLIP[..200_000 - cut].to_vec();
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let (units, _) = split(&bytes, MAX);
        prop_assert!(joined(&units) == bytes);
        for unit in &units {
            prop_assert!(unit.dependencies.iter().all(|&on| on < unit.index));
        }
    }
}
