#![doc = include_str!("../README.md")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo by printing")]

mod compile;
mod ptx;

use std::env;
use std::path::Path;

use compile::{EMULATION, Library};
use ptx::place_ptx;

/// Compiles `files` (paths relative to the crate's root) for the emulation, if the crate's feature `emulate` is on, and
/// copies the PTX beside them to where `morphgl_cuda::module!` finds it: `x.ptx` for `x.cu`, empty if missing.
///
/// For the build script of a crate that depends on `morphgl-cuda`.
///
/// # Panics
///
/// When there is no C++ compiler, or a file does not compile: its messages are printed.
pub fn kernels(files: &[&str]) {
    println!("cargo::rerun-if-changed=build.rs");
    if !prepare(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"), files) {
        return;
    }
    let directory = |name: &str| {
        let variable = format!("DEP_MORPHGL_CUDA_{name}");
        env::var(&variable).unwrap_or_else(|_| panic!("{variable} is not set: the crate has to depend on morphgl-cuda"))
    };
    compile(files, [&directory("INCLUDE"), &directory("EMULATION")]);
}

/// Compiles kernels of the crate against the headers of both folders.
fn compile(files: &[&str], include: [&str; 2]) {
    let name = env::var("CARGO_PKG_NAME").expect("cargo sets it").replace('-', "_") + "_kernels";
    let files = files.iter().map(Into::into).collect();
    Library { name: &name, files, include: include.into(), kernels: true }.compile();
}

/// Places the PTX of `files`; returns whether to compile for the emulation.
fn prepare(root: &str, files: &[&str]) -> bool {
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    files.iter().for_each(|file| place_ptx(Path::new(root), Path::new(&out), file));
    env::var_os("CARGO_FEATURE_EMULATE").is_some()
}

/// Compiles the emulation itself, below `root`, and kernels of its crate and tests; for the build script of `morphgl-cuda`.
///
/// # Panics
///
/// As [`kernels`].
pub fn emulation(root: &str, kernels: &[&str]) {
    if !prepare(root, kernels) {
        return;
    }
    let headers = format!("{root}/emulation");
    let files = vec![Path::new(&headers).join("emulation.cpp")];
    Library { name: EMULATION, files, include: vec![&headers], kernels: false }.compile();
    compile(kernels, [&format!("{root}/include"), &headers]);
}
