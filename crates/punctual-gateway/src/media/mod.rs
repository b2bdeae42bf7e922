//! How much of a video is lost with a datagram: what is read of media, to know which datagram matters more.
//!
//! Nothing here judges a stream: what cannot be read is of middling importance, and carried all the same.

mod mpegts;
mod nal;
mod rtp;

pub use mpegts::{TransportStream, Weight};
pub use nal::{Codec, Picture};
pub use rtp::{FrameSet, Packet};
