// Given rows of a mini-batch: copies from a table of the rows of a super-batch, both in device memory.
#include "morphgl.cuh"

#define BLOCK 128u

// The row of each of `nodes` in a table of rows of `width` elements, in the order of `table_nodes`, which are ascending. A warp handles a
// row. A node that the table lacks gets NaNs, by which training ends.
extern "C" __global__ void __launch_bounds__(BLOCK)
given_rows(const uint32_t* nodes, uint32_t num_rows, const uint32_t* table_nodes, uint32_t table_rows, const float* table,
           uint32_t width, float* out) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t warps = (uint64_t)gridDim.x * (BLOCK / WARP);
    for (uint64_t row = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP; row < num_rows; row += warps) {
        const uint32_t node = nodes[row];
        uint32_t low = 0, high = table_rows;
        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;
            if (table_nodes[middle] < node) low = middle + 1; else high = middle;
        }
        const bool found = low < table_rows && table_nodes[low] == node;
        const float* from = table + (uint64_t)low * width;
        float* to = out + row * width;
        for (uint32_t i = lane; i < width; i += WARP) to[i] = found ? from[i] : __uint_as_float(0x7fc00000u);
    }
}
MORPHGL_KERNEL(given_rows)
