//! Compiles the kernels for the emulation, where it is asked for.

fn main() {
    let own = ["kernels/sample.cu", "kernels/large.cu", "kernels/weighted.cu"];
    morphgl_cuda_build::kernels(&[own.as_slice(), &["benches/limit.cu", "tests/draws.cu"]].concat());
}
