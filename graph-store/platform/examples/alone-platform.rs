//! The SIMD levels of this processor, and the one in force.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_platform::SimdLevel;

fn main() -> Result<(), morphgl_platform::UnavailableLevel> {
    SimdLevel::requested()?;
    let levels: Vec<String> = SimdLevel::available().map(|level| level.to_string()).collect();
    println!("available: {}; in force: {}", levels.join(", "), SimdLevel::current());
    Ok(())
}
