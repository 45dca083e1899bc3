//! Places the PTX of the kernels; compiles them for the emulated device with the feature `emulate`.

fn main() {
    morphgl_cuda_build::kernels(&["kernels/gather.cu", "kernels/given.cu", "benches/translation.cu"]);
}
