//! Passes the directories of headers to operator crates; compiles the emulation with the feature `emulate`.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::metadata=include={root}/include");
    println!("cargo::metadata=emulation={root}/emulation");
    morphgl_cuda_build::emulation(&root, &["kernels/export.cu", "tests/emulation.cu"]);
}
