// Kernel of tests/draws.rs.
#include "morphgl.cuh"

// Draws of a row, each with its own bound.
extern "C" __global__ void draws_of_a_row(const uint32_t* last, uint32_t len, uint32_t hop, uint32_t node, uint32_t index,
                                          uint32_t epoch, uint64_t seed, uint32_t* out) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = sampling_draw(i, last[i], hop, node, index, epoch, seed);
}
MORPHGL_KERNEL(draws_of_a_row)
