#![doc = include_str!("../README.md")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo by printing")]

use std::env;
use std::path::Path;

/// Compiles `files`, paths from the crate's root, for the emulation, if the crate's feature `emulate` is on.
///
/// To be called from the build script of a crate that depends on `morphgl-cuda`.
///
/// # Panics
///
/// When there is no C++ compiler, or a file does not compile: its messages are printed.
pub fn kernels(files: &[&str]) {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_EMULATE").is_none() {
        return;
    }
    let directory = |name: &str| {
        let variable = format!("DEP_MORPHGL_CUDA_{name}");
        env::var(&variable).unwrap_or_else(|_| panic!("{variable} is not set: the crate has to depend on morphgl-cuda"))
    };
    compile(files, [&directory("INCLUDE"), &directory("EMULATION")]);
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
