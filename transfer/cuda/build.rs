//! Names the directory of the kernels' headers to the operator crates, and compiles the emulation where it is asked for.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::metadata=include={root}/include");
    println!("cargo::metadata=emulation={root}/emulation");
    morphgl_cuda_build::emulation(&root, &["tests/emulation.cu"]);
}
