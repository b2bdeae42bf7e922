//! The program `punctual`.

fn main() {}
