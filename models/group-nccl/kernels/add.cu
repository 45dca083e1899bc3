// Sums over the ranks of a group.
#include "morphgl.cuh"

// out[i] = parts[0][i] + parts[1][i] + ..., added in the order of ranks; `parts` has `ranks` rows of `len` elements.
extern "C" __global__ void group_add(const float* __restrict__ parts, float* __restrict__ out, uint64_t len, uint32_t ranks) {
    const uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i >= len) return;
    float sum = parts[i];
    for (uint32_t rank = 1; rank < ranks; rank++) sum = __fadd_rn(sum, parts[rank * len + i]);
    out[i] = sum;
}
MORPHGL_KERNEL(group_add)
