// Transposition of a block: the edges by source, in edge order within a source.
//
// A stable radix sort of the edges by source, digit by digit from the lowest on: each pass counts the digits of every
// block's share of the edges, converts the counts to positions, and moves the edges there. Work and its balance do not
// depend on the degrees of sources. Integer atomics count digits, where their order does not affect the result.
#include "morphgl.cuh"

// Threads of a block, which is also the maximum number of values of a digit.
#define SORT 256u
#define WARPS (SORT / WARP)
// Edges per thread and per block in a tile.
#define ITEMS 8u
#define TILE (SORT * ITEMS)

// A block's share of the edges: whole tiles, except for the last.
struct Share {
    uint64_t begin, end;
};

__device__ __forceinline__ Share share_of(uint32_t edges, uint32_t share) {
    const uint64_t begin = (uint64_t)blockIdx.x * share;
    return Share{begin, min(begin + share, (uint64_t)edges)};
}

// The row of an edge: the last one that begins at or before it.
__device__ __forceinline__ uint32_t row_of_edge(const uint32_t* __restrict__ indptr, uint32_t rows, uint32_t edge) {
    uint32_t low = 0, high = rows;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (indptr[middle] <= edge) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// The row of each edge.
extern "C" __global__ void train_rows_of_edges(const uint32_t* indptr, uint32_t* row_of, uint32_t rows, uint32_t edges) {
    const uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < edges) row_of[e] = row_of_edge(indptr, rows, e);
}
MORPHGL_KERNEL(train_rows_of_edges)

// Histogram of the digit in each block's share: `counts[digit * blocks + block]`. If `row_of` is not null, it receives
// the row of each edge.
extern "C" __global__ void __launch_bounds__(SORT)
train_sort_count(const uint32_t* __restrict__ keys, uint32_t* __restrict__ counts, const uint32_t* __restrict__ indptr,
                 uint32_t* __restrict__ row_of, uint32_t rows, uint32_t edges, uint32_t share, uint32_t shift,
                 uint32_t bits) {
    __shared__ uint32_t found[SORT];
    const Share own = share_of(edges, share);
    found[threadIdx.x] = 0;
    __syncthreads();
    for (uint64_t e = own.begin + threadIdx.x; e < own.end; e += SORT) {
        atomicAdd(&found[keys[e] >> shift & ((1u << bits) - 1)], 1u);
        if (row_of) row_of[e] = row_of_edge(indptr, rows, (uint32_t)e);
    }
    __syncthreads();
    if (threadIdx.x < 1u << bits) counts[threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];
}
MORPHGL_KERNEL(train_sort_count)

// One block per value of the digit: exclusive prefix sum of its counts over the blocks; `totals` is their sum.
extern "C" __global__ void __launch_bounds__(SORT)
train_sort_scan(uint32_t* __restrict__ counts, uint32_t* __restrict__ totals, uint32_t blocks) {
    __shared__ uint32_t shared[WARPS];
    uint32_t* own = counts + blockIdx.x * blocks;
    uint32_t running = 0;
    for (uint32_t first = 0; first < blocks; first += SORT) {
        const uint32_t i = first + threadIdx.x;
        uint32_t total;
        const uint32_t before = block_scan<WARPS>(i < blocks ? own[i] : 0, shared, total);
        if (i < blocks) own[i] = running + before;
        running += total;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = running;
}
MORPHGL_KERNEL(train_sort_scan)

// Moves the edges to their positions by the digit, stably. `in` has the edges' ids; if null, they are the positions.
// `rows_out`, if not null, receives the rows of the edges.
//
// A warp processes runs of 32 edges in order. In a run, the first lane with a digit counts all lanes that have it, so
// the rank of a lane is the warp's earlier count of the digit plus the number of earlier lanes with it.
// Launch bounds of 3 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(SORT, 3)
train_sort_move(const uint32_t* __restrict__ keys, const uint32_t* __restrict__ in, const uint32_t* __restrict__ counts,
                const uint32_t* __restrict__ totals, uint32_t* __restrict__ keys_out, uint32_t* __restrict__ out,
                const uint32_t* __restrict__ row_of, uint32_t* __restrict__ rows_out, uint32_t edges, uint32_t share,
                uint32_t shift, uint32_t bits) {
    __shared__ uint32_t place[SORT], found[WARPS][SORT], shared[WARPS];
    const Share own = share_of(edges, share);
    const uint32_t t = threadIdx.x, lane = t % WARP, warp = t / WARP, digits = 1u << bits;
    uint32_t total;
    const uint32_t before = block_scan<WARPS>(t < digits ? totals[t] : 0, shared, total);
    if (t < digits) place[t] = before + counts[t * gridDim.x + blockIdx.x];
    for (uint64_t tile = own.begin; tile < own.end; tile += TILE) {
        const uint64_t first = tile + warp * (WARP * ITEMS) + lane;
        uint32_t key[ITEMS], rank[ITEMS];
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++) key[i] = first + i * WARP < own.end ? keys[first + i * WARP] : 0;
        for (uint32_t d = lane; d < digits; d += WARP) found[warp][d] = 0;
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++) {
            // The warp has no more runs.
            if (first - lane + i * WARP >= own.end) continue;
            const uint32_t digit = key[i] >> shift & (digits - 1);
            const bool there = first + i * WARP < own.end;
            uint32_t same = __ballot_sync(ALL_LANES, there);
            for (uint32_t b = 0; b < bits; b++) {
                const uint32_t set = __ballot_sync(ALL_LANES, digit >> b & 1u);
                same &= digit >> b & 1u ? set : ~set;
            }
            const uint32_t earlier = __popc(same & ((1u << lane) - 1));
            uint32_t known = 0;
            if (there && earlier == 0) {
                known = found[warp][digit];
                found[warp][digit] = known + __popc(same);
            }
            rank[i] = earlier + __shfl_sync(ALL_LANES, known, there ? __ffs((int)same) - 1 : 0);
            __syncwarp();
        }
        __syncthreads();
        // The count of a warp becomes the position of its first edge with the digit.
        if (t < digits) {
            uint32_t at = place[t];
            for (uint32_t w = 0; w < WARPS; w++) {
                const uint32_t count = found[w][t];
                found[w][t] = at;
                at += count;
            }
            place[t] = at;
        }
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++) {
            const uint64_t from = first + i * WARP;
            if (from >= own.end) continue;
            const uint32_t at = found[warp][key[i] >> shift & (digits - 1)] + rank[i];
            const uint32_t e = in ? in[from] : (uint32_t)from;
            keys_out[at] = key[i];
            out[at] = e;
            if (rows_out) rows_out[at] = row_of[e];
        }
        __syncwarp();
    }
}
MORPHGL_KERNEL(train_sort_move)

// Offset of each source's edges among the sorted ones, and their end after the last source.
extern "C" __global__ void train_sort_starts(const uint32_t* __restrict__ keys, uint32_t* __restrict__ indptr,
                                             uint32_t num_src, uint32_t edges) {
    const uint64_t src = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (src > num_src) return;
    uint32_t low = 0, high = edges;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (keys[middle] < src) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    indptr[src] = low;
}
MORPHGL_KERNEL(train_sort_starts)
