// The transposed block: the edges by source, in edge order within a source.
//
// Counting and placing use integer atomics, whose order shows nowhere: counts do not depend on it, and an edge's final
// place is the number of smaller edges in its source's list.
#include "morphgl.cuh"

extern "C" __global__ void train_count(const uint32_t* indices, uint32_t* counts, uint32_t edges) {
    const uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < edges) atomicAdd(&counts[indices[e]], 1u);
}
MORPHGL_KERNEL(train_count)

#define TILE 64u

// Prefix sums in three launches: of tiles, of the tiles' sums, and within tiles.
extern "C" __global__ void train_scan_tiles(const uint32_t* counts, uint32_t* sums, uint32_t len) {
    const uint32_t tile = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t first = (uint64_t)tile * TILE;
    if (first >= len) return;
    uint32_t sum = 0;
    for (uint64_t i = first; i < len && i < first + TILE; i++) sum += counts[i];
    sums[tile] = sum;
}
MORPHGL_KERNEL(train_scan_tiles)

// One block: each thread has a run of tiles.
extern "C" __global__ void train_scan_sums(uint32_t* sums, uint32_t tiles) {
    DYNAMIC_SHARED(uint32_t, totals);
    const uint32_t t = threadIdx.x, each = (tiles + blockDim.x - 1) / blockDim.x;
    const uint32_t first = min(t * each, tiles), end = min(first + each, tiles);
    uint32_t total = 0;
    for (uint32_t i = first; i < end; i++) total += sums[i];
    totals[t] = total;
    __syncthreads();
    for (uint32_t by = 1; by < blockDim.x; by *= 2) {
        const uint32_t before = t >= by ? totals[t - by] : 0u;
        __syncthreads();
        totals[t] += before;
        __syncthreads();
    }
    uint32_t running = t > 0 ? totals[t - 1] : 0u;
    for (uint32_t i = first; i < end; i++) {
        const uint32_t own = sums[i];
        sums[i] = running;
        running += own;
    }
}
MORPHGL_KERNEL(train_scan_sums)

// Row offsets, and the counts turned to 0 for the placing that follows.
extern "C" __global__ void train_scan_end(uint32_t* counts, const uint32_t* sums, uint32_t* indptr, uint32_t len) {
    const uint32_t tile = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t first = (uint64_t)tile * TILE;
    if (first >= len) return;
    uint32_t running = sums[tile];
    for (uint64_t i = first; i < len && i < first + TILE; i++) {
        indptr[i] = running;
        running += counts[i];
        counts[i] = 0;
    }
    if (first + TILE >= len) indptr[len] = running;
}
MORPHGL_KERNEL(train_scan_end)

// Puts each edge somewhere in its source's list.
extern "C" __global__ void train_place(const uint32_t* indices, const uint32_t* indptr, uint32_t* counts,
                                       uint32_t* placed, uint32_t edges) {
    const uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= edges) return;
    const uint32_t src = indices[e];
    placed[indptr[src] + atomicAdd(&counts[src], 1u)] = e;
}
MORPHGL_KERNEL(train_place)

// Puts each edge where it belongs in its source's list.
extern "C" __global__ void train_order(const uint32_t* indices, const uint32_t* row_of, const uint32_t* indptr,
                                       const uint32_t* placed, uint32_t* rows, uint32_t* by_source, uint32_t edges) {
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= edges) return;
    const uint32_t e = placed[at], src = indices[e], begin = indptr[src], end = indptr[src + 1];
    uint32_t rank = begin;
    for (uint32_t i = begin; i < end; i++) rank += placed[i] < e ? 1u : 0u;
    by_source[rank] = e;
    rows[rank] = row_of[e];
}
MORPHGL_KERNEL(train_order)

// The row that each edge ends in.
extern "C" __global__ void train_rows_of_edges(const uint32_t* indptr, uint32_t* row_of, uint32_t rows, uint32_t edges) {
    const uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= edges) return;
    // The last row that begins at or before the edge.
    uint32_t low = 0, high = rows;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (indptr[middle] <= e) {
            low = middle;
        } else {
            high = middle;
        }
    }
    row_of[e] = low;
}
MORPHGL_KERNEL(train_rows_of_edges)
