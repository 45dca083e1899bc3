#![doc = include_str!("../README.md")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo by printing")]

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Compiles `files`, paths from the crate's root, for the emulation, if the crate's feature `emulate` is on.
/// Puts the PTX beside them where `morphgl_cuda::module!` finds it: that of `x.cu` is `x.ptx`; without it, an empty one.
///
/// To be called from the build script of a crate that depends on `morphgl-cuda`.
///
/// # Panics
///
/// When there is no C++ compiler, or a file does not compile: its messages are printed.
pub fn kernels(files: &[&str]) {
    println!("cargo::rerun-if-changed=build.rs");
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    files.iter().for_each(|file| place_ptx(Path::new(&root), Path::new(&out), file));
    if env::var_os("CARGO_FEATURE_EMULATE").is_none() {
        return;
    }
    let directory = |name: &str| {
        let variable = format!("DEP_MORPHGL_CUDA_{name}");
        env::var(&variable).unwrap_or_else(|_| panic!("{variable} is not set: the crate has to depend on morphgl-cuda"))
    };
    compile(files, [&directory("INCLUDE"), &directory("EMULATION")]);
}

/// Copies the PTX beside `file` of the crate at `root` to `out`.
fn place_ptx(root: &Path, out: &Path, file: &str) {
    let ptx = root.join(file).with_extension("ptx");
    let content = match fs::read(&ptx) {
        Ok(content) => {
            println!("cargo::rerun-if-changed={}", ptx.display());
            content
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            // Its folder changes when it comes.
            println!("cargo::rerun-if-changed={}", ptx.parent().expect("it lies in a folder").display());
            Vec::new()
        }
        Err(e) => panic!("{}: {e}", ptx.display()),
    };
    let placed = out.join(format!("{file}.ptx"));
    fs::create_dir_all(placed.parent().expect("it lies in a folder")).unwrap_or_else(|e| panic!("{file}: {e}"));
    fs::write(&placed, content).unwrap_or_else(|e| panic!("{}: {e}", placed.display()));
}

fn compile(files: &[&str], [include, emulation]: [&str; 2]) {
    let mut build = compiler();
    for file in files {
        println!("cargo::rerun-if-changed={file}");
        build.file(file);
    }
    println!("cargo::rerun-if-changed={include}");
    println!("cargo::rerun-if-changed={emulation}");
    build.include(include).include(emulation).flag("-xc++").define("MORPHGL_EMULATION", None);
    sanitize(&mut build, true);
    build.compile(&format!("{}_kernels", env::var("CARGO_PKG_NAME").expect("cargo sets it").replace('-', "_")));
}

/// Compiles the emulation itself, which lies in `root`, and `files` of its tests; for the build script of `morphgl-cuda`.
///
/// # Panics
///
/// As [`kernels`].
pub fn emulation(root: &str, files: &[&str]) {
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    files.iter().for_each(|file| place_ptx(Path::new(root), Path::new(&out), file));
    if env::var_os("CARGO_FEATURE_EMULATE").is_none() {
        return;
    }
    let directory = Path::new(root).join("emulation");
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut build = compiler();
    build.file(directory.join("emulation.cpp")).include(&directory);
    sanitize(&mut build, false);
    build.compile("morphgl_emulation");
    compile(files, [&format!("{root}/include"), &format!("{root}/emulation")]);
}

fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    // No contraction of a * b + c: a kernel says where it wants one rounding.
    build.cpp(true).std("c++20").opt_level(2).flag("-ffp-contract=off").flag("-Wno-unknown-pragmas");
    build
}

/// Adds what `MORPHGL_SANITIZE` asks for: instructions to the kernels, calls at changes of fiber to the emulation.
fn sanitize(build: &mut cc::Build, instrument: bool) {
    println!("cargo::rerun-if-env-changed=MORPHGL_SANITIZE");
    let Ok(which) = env::var("MORPHGL_SANITIZE") else { return };
    let define = match which.as_str() {
        "address" => "MORPHGL_SANITIZE_ADDRESS",
        "thread" => "MORPHGL_SANITIZE_THREAD",
        other => panic!("MORPHGL_SANITIZE={other}: give address or thread"),
    };
    build.define(define, None).debug(true);
    if instrument {
        build.flag(format!("-fsanitize={which}")).flag("-fno-omit-frame-pointer");
    }
    let library = match which.as_str() {
        "address" => "asan",
        _ => "tsan",
    };
    println!("cargo::rustc-link-lib=dylib={library}");
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
