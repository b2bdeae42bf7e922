//! `punctual demo`.

/// The clip that the demo streams; see `assets/README.md`.
pub(crate) const CLIP: &[u8] = include_bytes!("../../assets/clip.h264");
