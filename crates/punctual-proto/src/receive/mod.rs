//! The receiver's stations: [`decode`] restores datagrams that were lost, fragments become blocks in [`reassembly`], and
//! [`release`] hands these to the application in their channel's order, or [`playout`] at their time, and [`credit`] back to the peer. [`feedback`] tells the peer
//! when datagrams came.

mod credit;
pub(crate) mod decode;
pub(crate) mod feedback;
mod playout;
pub(crate) mod reassembly;
pub(crate) mod receiver;
pub(crate) mod release;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
