// Arrays of a mini-batch as PyG has them: int64 ids, and an edge list in place of rows.
#include "morphgl.cuh"

#define BLOCK 256u
// Threads that share a row: rows have as many edges as a hop samples neighbours, mostly.
#define LANES 8u

// Ids as int64, from element `at` of `out` on.
extern "C" __global__ void __launch_bounds__(BLOCK)
export_ids(const uint32_t* ids, uint64_t count, int64_t* out, uint64_t at) {
    const uint64_t threads = (uint64_t)gridDim.x * BLOCK;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < count; i += threads) out[at + i] = ids[i];
}
MORPHGL_KERNEL(export_ids)

// The row of each edge of a block, from element `at` of `out` on.
extern "C" __global__ void __launch_bounds__(BLOCK)
export_rows(const uint32_t* indptr, uint64_t num_rows, int64_t* out, uint64_t at) {
    const uint64_t groups = (uint64_t)gridDim.x * (BLOCK / LANES);
    for (uint64_t row = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / LANES; row < num_rows; row += groups) {
        const uint32_t end = indptr[row + 1];
        for (uint32_t e = indptr[row] + threadIdx.x % LANES; e < end; e += LANES) out[at + e] = (int64_t)row;
    }
}
MORPHGL_KERNEL(export_rows)

// Class of each of `nodes`, of the classes of all nodes.
extern "C" __global__ void __launch_bounds__(BLOCK)
export_classes(const int32_t* classes, const uint32_t* nodes, uint64_t count, int64_t* out) {
    const uint64_t threads = (uint64_t)gridDim.x * BLOCK;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < count; i += threads) out[i] = classes[nodes[i]];
}
MORPHGL_KERNEL(export_classes)

// Sources of pairs, then their destinations.
extern "C" __global__ void __launch_bounds__(BLOCK)
export_pairs(const uint32_t* ends, uint64_t num_pairs, int64_t* out) {
    const uint64_t threads = (uint64_t)gridDim.x * BLOCK;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < num_pairs; i += threads) {
        out[i] = ends[2 * i];
        out[num_pairs + i] = ends[2 * i + 1];
    }
}
MORPHGL_KERNEL(export_pairs)

// The row of each of `nodes` in a table of the rows of all nodes, each of `width` elements. A warp handles a row.
template <typename T>
__device__ __forceinline__ void table_rows(const T* table, uint64_t width, const uint32_t* nodes, uint64_t count, T* out) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t warps = (uint64_t)gridDim.x * (BLOCK / WARP);
    for (uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP; i < count; i += warps) {
        const T* from = table + nodes[i] * width;
        for (uint64_t e = lane; e < width; e += WARP) out[i * width + e] = from[e];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
export_table_rows_1(const uint8_t* table, uint64_t width, const uint32_t* nodes, uint64_t count, uint8_t* out) {
    table_rows(table, width, nodes, count, out);
}
MORPHGL_KERNEL(export_table_rows_1)

extern "C" __global__ void __launch_bounds__(BLOCK)
export_table_rows_4(const uint32_t* table, uint64_t width, const uint32_t* nodes, uint64_t count, uint32_t* out) {
    table_rows(table, width, nodes, count, out);
}
MORPHGL_KERNEL(export_table_rows_4)
