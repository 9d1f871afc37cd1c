//! The program `strongroom`: its table of contents.

fn main() {}
