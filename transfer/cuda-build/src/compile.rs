//! Compilation of kernels as C++, with optional sanitizers.

use std::env;

/// Compiles `files` against the headers of both folders.
pub(crate) fn compile(files: &[&str], [include, emulation]: [&str; 2]) {
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

/// Compiler settings shared by kernels and emulation.
pub(crate) fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    // No contraction of a * b + c: kernels request fused operations explicitly.
    build.cpp(true).std("c++20").opt_level(2).flag("-ffp-contract=off").flag("-Wno-unknown-pragmas");
    build
}

/// Applies `MORPHGL_SANITIZE`: instruments kernels, and enables the emulation's fiber-switch annotations.
pub(crate) fn sanitize(build: &mut cc::Build, instrument: bool) {
    println!("cargo::rerun-if-env-changed=MORPHGL_SANITIZE");
    let Ok(which) = env::var("MORPHGL_SANITIZE") else { return };
    let (define, library) = match which.as_str() {
        "address" => ("MORPHGL_SANITIZE_ADDRESS", "asan"),
        "thread" => ("MORPHGL_SANITIZE_THREAD", "tsan"),
        other => panic!("MORPHGL_SANITIZE={other}: give address or thread"),
    };
    build.define(define, None).debug(true);
    if instrument {
        build.flag(format!("-fsanitize={which}")).flag("-fno-omit-frame-pointer");
    }
    println!("cargo::rustc-link-lib=dylib={library}");
}
