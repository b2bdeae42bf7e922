//! Groups of pictures: which frames are coded in what order, and what they refer to.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, value::MapAccessDeserializer},
};

/// What a frame is predicted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frame {
    /// From nothing.
    I,
    /// From the I or P frame before it.
    P,
    /// From the I or P frames on either side of it.
    B,
}

/// A pattern of frame types in order of display that repeats.
///
/// In TOML a string of letters (`gop = "IBBPBBP"`), or `gop = { length = 30, b-frames = 2 }`: an I frame every `length` frames, and
/// so many B frames between I and P frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gop(Vec<Frame>);

/// A group of pictures is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GopError {
    /// Other letters.
    #[error("a group of pictures is written with the letters I, P and B, such as \"IBBPBBP\"; `{0}` is none of them")]
    Letter(char),
    /// Nothing to begin with.
    #[error("a group of pictures begins with an I frame")]
    Start,
    /// More frames than the limit of [`Gop`].
    #[error("a group of pictures has at most {MAX_LENGTH} frames")]
    Length,
}

/// Ten minutes at 60 frames per second: longer is a mistake.
const MAX_LENGTH: u32 = 36_000;

impl Gop {
    /// From letters.
    ///
    /// # Errors
    /// If it does not begin with I, or has other letters than I, P and B.
    pub fn pattern(letters: &str) -> Result<Self, GopError> {
        let frame = |letter| match letter {
            'I' | 'i' => Ok(Frame::I),
            'P' | 'p' => Ok(Frame::P),
            'B' | 'b' => Ok(Frame::B),
            other => Err(GopError::Letter(other)),
        };
        let frames: Vec<Frame> = letters.chars().map(frame).collect::<Result<_, _>>()?;
        match frames.first() {
            _ if frames.len() > MAX_LENGTH as usize => Err(GopError::Length),
            Some(Frame::I) => Ok(Self(frames)),
            _ => Err(GopError::Start),
        }
    }

    /// An I frame every `length` frames, and so many B frames between any two others.
    ///
    /// # Errors
    /// If it would have no frames, or too many.
    pub fn regular(length: u32, b_frames: u32) -> Result<Self, GopError> {
        if length == 0 {
            return Err(GopError::Start);
        }
        if length > MAX_LENGTH || b_frames > MAX_LENGTH {
            return Err(GopError::Length);
        }
        let frame = |position| match position {
            0 => Frame::I,
            _ if position % (b_frames + 1) == 0 => Frame::P,
            _ => Frame::B,
        };
        Ok(Self((0..length).map(frame).collect()))
    }

    /// The frames in order of display.
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// The frames in the order in which they are coded and sent, without end.
    pub(super) fn coded(&self) -> Coded<'_> {
        Coded { shown: self.0.iter().copied().cycle(), held: 0, next: 0, anchors: [None; 2] }
    }
}

/// A frame in coding order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodedFrame {
    pub(super) kind: Frame,
    /// Which of the frames before it, counted in coding order from 0, it refers to.
    pub(super) references: [Option<u32>; 2],
}

/// Sorts frames into coding order: an I or P frame goes before the B frames displayed before it.
#[derive(Debug, Clone)]
pub(super) struct Coded<'a> {
    shown: std::iter::Cycle<std::iter::Copied<std::slice::Iter<'a, Frame>>>,
    /// B frames whose two references have been coded.
    held: u32,
    next: u32,
    /// The last two I or P frames coded.
    anchors: [Option<u32>; 2],
}

impl Iterator for Coded<'_> {
    type Item = CodedFrame;

    fn next(&mut self) -> Option<CodedFrame> {
        let index = self.next;
        self.next = index.checked_add(1)?;
        if let Some(held) = self.held.checked_sub(1) {
            self.held = held;
            return Some(CodedFrame { kind: Frame::B, references: self.anchors });
        }
        let kind = loop {
            match self.shown.next()? {
                Frame::B => self.held += 1,
                anchor => break anchor,
            }
        };
        let references = if kind == Frame::P { [self.anchors[1], None] } else { [None; 2] };
        self.anchors = [self.anchors[1], Some(index)];
        Some(CodedFrame { kind, references })
    }
}

impl<'de> Deserialize<'de> for Gop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        struct Regular {
            length: u32,
            #[serde(default)]
            b_frames: u32,
        }

        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Gop;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern such as \"IBBPBBP\", or { length = 30, b-frames = 2 }")
            }

            fn visit_str<E: de::Error>(self, letters: &str) -> Result<Gop, E> {
                Gop::pattern(letters).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Gop, A::Error> {
                let Regular { length, b_frames } = Regular::deserialize(MapAccessDeserializer::new(map))?;
                Gop::regular(length, b_frames).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letters(frames: impl IntoIterator<Item = Frame>) -> String {
        frames.into_iter().map(|frame| format!("{frame:?}")).collect()
    }

    #[test]
    fn a_regular_pattern() {
        let regular = |length, b_frames| letters(Gop::regular(length, b_frames).unwrap().0);
        assert_eq!(regular(7, 2), "IBBPBBP");
        assert_eq!(regular(5, 0), "IPPPP");
        assert_eq!(regular(1, 3), "I");
    }

    #[test]
    fn anchors_are_coded_before_the_b_frames_between_them() {
        let gop = Gop::pattern("IBBPB").unwrap();
        let coded: Vec<_> = gop.coded().take(11).collect();
        assert_eq!(letters(coded.iter().map(|frame| frame.kind)), "IPBBIBPBBIB");
        let references: Vec<Vec<u32>> =
            coded.iter().map(|frame| frame.references.iter().copied().flatten().collect()).collect();
        let none = vec![];
        assert_eq!(
            references,
            // The B frame at the end of the group also refers to the I frame of the next.
            [
                none.clone(),
                vec![0],
                vec![0, 1],
                vec![0, 1],
                none.clone(),
                vec![1, 4],
                vec![4],
                vec![4, 6],
                vec![4, 6],
                none,
                vec![6, 9]
            ]
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(Gop::pattern("PPP"), Err(GopError::Start));
        assert_eq!(Gop::pattern(""), Err(GopError::Start));
        assert_eq!(Gop::pattern("IXP"), Err(GopError::Letter('X')));
        assert_eq!(Gop::regular(0, 0), Err(GopError::Start));
        assert_eq!(Gop::regular(u32::MAX, 1), Err(GopError::Length));
        assert_eq!(Gop::regular(10, u32::MAX), Err(GopError::Length));
    }

    proptest! {
        #[test]
        fn every_frame_is_coded_after_what_it_refers_to(pattern in "I[IPB]{0,20}") {
            let gop = Gop::pattern(&pattern).unwrap();
            let coded: Vec<_> = gop.coded().take(200).collect();
            for (index, frame) in (0u32..).zip(&coded) {
                let references: Vec<u32> = frame.references.iter().copied().flatten().collect();
                prop_assert!(references.iter().all(|&on| on < index && coded[on as usize].kind != Frame::B));
                prop_assert_eq!(references.len(), match frame.kind { Frame::I => 0, Frame::P => 1, Frame::B => 2 });
            }
        }
    }
}
