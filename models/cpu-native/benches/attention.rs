//! Speed of attention.
fn main() {}
