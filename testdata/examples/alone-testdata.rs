//! The folders of `testdata/` and their bytes.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::fs;
use std::io::Result;
use std::path::Path;

fn bytes(path: &Path) -> Result<u64> {
    if path.is_file() {
        return Ok(path.metadata()?.len());
    }
    fs::read_dir(path)?.map(|entry| bytes(&entry?.path())).sum()
}

fn main() -> Result<()> {
    for entry in fs::read_dir(morphgl_testdata::path(""))? {
        let path = entry?.path();
        println!("{:>9} {}", bytes(&path)?, path.display());
    }
    Ok(())
}
