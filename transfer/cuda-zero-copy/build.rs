//! Compiles the kernels for the emulated device, where it is asked for.

fn main() {
    morphgl_cuda_build::kernels(&["kernels/gather.cu"]);
}
