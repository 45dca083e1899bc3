//! Placement of PTX for embedding.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Copies the PTX beside `file` of the crate at `root` to `out`.
pub(crate) fn place_ptx(root: &Path, out: &Path, file: &str) {
    let ptx = root.join(file).with_extension("ptx");
    let content = match fs::read(&ptx) {
        Ok(content) => {
            println!("cargo::rerun-if-changed={}", ptx.display());
            content
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            // The folder changes when the file appears.
            println!("cargo::rerun-if-changed={}", ptx.parent().expect("kernels are in a directory").display());
            Vec::new()
        }
        Err(e) => panic!("{}: {e}", ptx.display()),
    };
    let placed = out.join(format!("{file}.ptx"));
    fs::create_dir_all(placed.parent().expect("kernels are in a directory")).unwrap_or_else(|e| panic!("{file}: {e}"));
    fs::write(&placed, content).unwrap_or_else(|e| panic!("{}: {e}", placed.display()));
}

#[cfg(test)]
mod tests;
