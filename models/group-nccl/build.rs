//! Compiles the kernels for the emulated device, if feature `emulate` is on.

fn main() {
    morphgl_cuda_build::kernels(&["kernels/add.cu"]);
}
