//! The program `punctual`.
mod demo;
mod h264;

fn main() {}
