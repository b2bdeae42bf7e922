//! `punctual recv` with senders of all kinds: who is served, how it ends, what is seen. Real processes, sockets on loopback.
//!
//! Nothing here depends on speed: a test waits for what it wants to see, and gives up after [`processes::PATIENCE`].
#![cfg(unix)]

mod access;
mod both;
mod codes;
mod ending;
mod figures;
mod many;
mod outputs;
mod processes;
mod service;
