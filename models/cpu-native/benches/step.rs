//! Speed of a step.
fn main() {}
