//! Compiles the kernels for the emulation, where it is asked for.

fn main() {
    morphgl_cuda_build::kernels(&["kernels/sample.cu", "kernels/large.cu", "kernels/weighted.cu", "benches/limit.cu"]);
}
