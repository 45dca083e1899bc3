//! Compiles the kernels for the emulation, where it is asked for.

fn main() {
    morphgl_cuda_build::kernels(&[
        "kernels/sums.cu",
        "kernels/coefficients.cu",
        "kernels/transpose.cu",
        "kernels/attention.cu",
        "kernels/finish.cu",
        "kernels/norms.cu",
        "kernels/optimizer.cu",
    ]);
}
