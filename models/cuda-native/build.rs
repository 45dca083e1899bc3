//! Compiles the kernels for the emulated device, if feature `emulate` is on.

fn main() {
    morphgl_cuda_build::kernels(&[
        "kernels/sums.cu",
        "kernels/coefficients.cu",
        "kernels/groups.cu",
        "kernels/transpose.cu",
        "kernels/attention.cu",
        "kernels/finish.cu",
        "kernels/gemm.cu",
        "kernels/norms.cu",
        "kernels/optimizer.cu",
        "kernels/loss.cu",
        "kernels/pairs.cu",
    ]);
}
