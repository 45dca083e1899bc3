//! Places the PTX of the kernels; compiles them for the emulated device with the feature `emulate`.

fn main() {
    let own = ["sample", "large", "weighted", "typed", "shadow", "walk"].map(|name| format!("kernels/{name}.cu"));
    let own = own.iter().map(String::as_str);
    morphgl_cuda_build::kernels(&own.chain(["benches/limit.cu", "tests/draws.cu"]).collect::<Vec<_>>());
}
