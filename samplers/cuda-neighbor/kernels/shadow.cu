// The subgraph that a mini-batch's nodes induce: all edges among them, by one pass that counts and one that writes.
#include "morphgl.cuh"

#define BLOCK 128u
// Longer rows are read by a block, others by a warp.
#define LONG_ROW 4096u

// Number of earlier threads of the team whose flag is set; `total` is that of all. The team is a warp or the block.
template <uint32_t Team>
__device__ __forceinline__ uint32_t team_rank(bool flag, uint32_t* shared, uint32_t& total) {
    const uint32_t bits = __ballot_sync(ALL_LANES, flag), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t rank = __popc(bits & ((1u << lane) - 1));
    if (Team == WARP) {
        total = __popc(bits);
        return rank;
    }
    if (lane == 0) shared[warp] = __popc(bits);
    __syncthreads();
    total = 0;
    for (uint32_t w = 0; w < BLOCK / WARP; w++) {
        if (w < warp) rank += shared[w];
        total += shared[w];
    }
    __syncthreads();
    return rank;
}

// Edges of the graph that come from nodes of the table, of the rows of nodes that the team reads. Without `indptr` their number
// becomes `lens`; with it they are written from there on: local ids of the sources, and weights.
template <uint32_t Team>
__device__ __forceinline__ void induce(const uint64_t* row_start, const uint32_t* row_len, const uint64_t* counts,
                                       uint32_t rows, const uint32_t* indices, const uint32_t* const* cached,
                                       const float* weights, const float* const* cached_weights, uint32_t* lens,
                                       const uint32_t* indptr, uint32_t* out_indices, float* out_weights,
                                       const NodeTable& table) {
    __shared__ uint32_t shared[BLOCK / WARP];
    const uint64_t n = counts[rows], step = (uint64_t)gridDim.x * (BLOCK / Team), thread = threadIdx.x % Team;
    for (uint64_t row = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / Team; row < n; row += step) {
        const uint32_t len = row_len[row];
        if ((len > LONG_ROW) != (Team == BLOCK)) continue;
        const uint64_t start = row_start[row];
        const uint32_t* of = element(indices, cached, start);
        // A long row is read line by line: threads begin at the first line of 128 bytes.
        const uint64_t skip = len > 2 * WARP ? (uint64_t)of % 128 / sizeof(uint32_t) : 0;
        uint32_t at = indptr ? indptr[row] : 0;
        for (uint64_t base = 0; base < skip + len; base += Team) {
            // Wraps around before the row: then it is above the length.
            const uint64_t p = base + thread - skip;
            const uint32_t local = p < len ? table.find(of[p]) : NO_ENTRY;
            uint32_t total;
            const uint32_t rank = team_rank<Team>(local != NO_ENTRY, shared, total);
            if (indptr && local != NO_ENTRY) {
                out_indices[at + rank] = local;
                if (out_weights) out_weights[at + rank] = *element(weights, cached_weights, start + p);
            }
            at += total;
        }
        if (!indptr && thread == 0) lens[row] = at;
    }
}

// Launch bounds of 10 blocks per multiprocessor: for more, the compiler spills registers.
#define INDUCE(name, Team)                                                                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK, 10)                                                             \
    name(const uint64_t* row_start, const uint32_t* row_len, const uint64_t* counts, uint32_t rows,                     \
         const uint32_t* indices, const uint32_t* const* cached, const float* weights, const float* const* cached_weights,            \
         uint32_t* lens, const uint32_t* indptr, uint32_t* out_indices, float* out_weights, uint64_t* entries,          \
         uint32_t mask, uint32_t layout, uint64_t stamp) {                                                              \
        const NodeTable table = {entries, mask, layout, stamp};                                                             \
        induce<Team>(row_start, row_len, counts, rows, indices, cached, weights, cached_weights, lens, indptr,          \
                     out_indices, out_weights, table);                                                                  \
    }                                                                                                                   \
    MORPHGL_KERNEL(name)
INDUCE(shadow_induce, WARP)
INDUCE(shadow_induce_long, BLOCK)

// Copies the first `counts[rows]` rows of the subgraph; their number of edges becomes `counts[edges]`.
extern "C" __global__ void __launch_bounds__(BLOCK)
shadow_copy(uint64_t* counts, uint32_t rows, uint32_t edges, const uint32_t* indptr, const uint32_t* indices,
            const float* weights, uint32_t* out_indptr, uint32_t* out_indices, float* out_weights) {
    const uint64_t n = counts[rows], num_edges = indptr[n];
    const uint64_t thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x, step = (uint64_t)gridDim.x * BLOCK;
    if (thread == 0) counts[edges] = num_edges;
    for (uint64_t i = thread; i <= n; i += step) out_indptr[i] = indptr[i];
    for (uint64_t e = thread; e < num_edges; e += step) {
        out_indices[e] = indices[e];
        if (out_weights) out_weights[e] = weights[e];
    }
}
MORPHGL_KERNEL(shadow_copy)
