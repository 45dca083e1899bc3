//! Places the PTX of the kernels; compiles them for the emulated device with the feature `emulate`.

fn main() {
    let own = ["kernels/sample.cu", "kernels/large.cu", "kernels/weighted.cu", "kernels/shadow.cu", "kernels/walk.cu"];
    morphgl_cuda_build::kernels(&[own.as_slice(), &["benches/limit.cu", "tests/draws.cu"]].concat());
}
