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
            println!("cargo::rerun-if-changed={}", ptx.parent().expect("it lies in a folder").display());
            Vec::new()
        }
        Err(e) => panic!("{}: {e}", ptx.display()),
    };
    let placed = out.join(format!("{file}.ptx"));
    fs::create_dir_all(placed.parent().expect("it lies in a folder")).unwrap_or_else(|e| panic!("{file}: {e}"));
    fs::write(&placed, content).unwrap_or_else(|e| panic!("{}: {e}", placed.display()));
}

#[cfg(test)]
mod tests {
    use super::place_ptx;
    use std::fs;

    #[test]
    fn ptx_goes_where_the_macro_looks_and_may_be_missing() {
        let directory = std::env::temp_dir().join(format!("morphgl-cuda-build-{}", std::process::id()));
        let (root, out) = (directory.join("crate"), directory.join("out"));
        fs::create_dir_all(root.join("kernels")).expect("room on the disk");
        fs::write(root.join("kernels/a.ptx"), "// PTX").expect("room on the disk");
        for file in ["kernels/a.cu", "kernels/b.cu"] {
            place_ptx(&root, &out, file);
        }
        assert_eq!(fs::read_to_string(out.join("kernels/a.cu.ptx")).expect("placed"), "// PTX");
        assert_eq!(fs::read_to_string(out.join("kernels/b.cu.ptx")).expect("placed"), "");
        fs::remove_dir_all(&directory).expect("it was there");
    }
}
