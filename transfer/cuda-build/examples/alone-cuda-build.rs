//! What a build script does, on a folder of its own: it places the PTX of a kernel file.
//! Run: `cargo run -p morphgl-cuda-build --example alone-cuda-build`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{env, fs, io, process};

fn main() -> io::Result<()> {
    // Cargo sets these for a build script; here, a second run of this program is one.
    if env::args().nth(1).as_deref() == Some("build") {
        morphgl_cuda_build::kernels(&["kernels/gather.cu"]);
        return Ok(());
    }
    let folder = env::temp_dir().join(format!("morphgl-alone-cuda-build-{}", process::id()));
    fs::create_dir_all(folder.join("kernels"))?;
    fs::write(folder.join("kernels/gather.ptx"), "// what NVRTC made of gather.cu\n")?;
    let mut build = process::Command::new(env::current_exe()?);
    build.arg("build").env("CARGO_MANIFEST_DIR", &folder).env("OUT_DIR", folder.join("out"));
    assert!(build.status()?.success());
    println!("kernels/gather.cu.ptx: {}", fs::read_to_string(folder.join("out/kernels/gather.cu.ptx"))?);
    fs::remove_dir_all(folder)
}
