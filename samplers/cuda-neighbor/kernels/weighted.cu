// Picks by edge weight: the neighbours whose exponential clocks ring first, as in morphgl-sampler-core.
#include "morphgl.cuh"

#define BLOCK 128u
// Longer rows are handled by a block, and so are picks of more than a warp's lanes.
#define LONG_ROW 4096u

// The row's weights, cached or not.
__device__ __forceinline__ const float* row_weights(const float* weights, const float* const* cached, uint64_t start) {
    return element(weights, cached, start);
}

// Number of weights between the begin of the line and the row's first: lanes that begin there read a long row line by line,
// each line of 128 bytes once. A short row begins with the first lane.
__device__ __forceinline__ uint32_t before_row(const float* of, uint32_t len) {
    return len > 2 * WARP ? (uint32_t)((uint64_t)of % 128 / sizeof(float)) : 0;
}

// Edges of positive weight of each row, counted up to `at_most`, by a warp.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_count_positive(const float* weights, const float* const* cached, const uint64_t* row_start, const uint32_t* row_len,
                      const uint64_t* counts, int32_t from, uint32_t rows, uint32_t at_most, uint32_t* positive) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t n = counts[rows], warps = (uint64_t)gridDim.x * (BLOCK / WARP);
    uint64_t row = (from < 0 ? 0 : counts[from]) + ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP;
    for (; row < n; row += warps) {
        const float* of = row_weights(weights, cached, row_start[row]);
        const uint32_t len = row_len[row];
        const uint64_t skip = before_row(of, len);
        uint32_t count = 0;
        for (uint64_t base = 0; base < skip + len && count < at_most; base += WARP) {
            // Wraps around before the row: then it is above the length.
            const uint64_t p = base + lane - skip;
            count += __popc(__ballot_sync(ALL_LANES, p < len && of[p] > 0.0f));
        }
        if (lane == 0) positive[row] = min(count, at_most);
    }
}
MORPHGL_KERNEL(sample_count_positive)

// Positions of the picked edges of each row that a warp handles; `row_key` as of `sample_pick`.
// Launch bounds of 6 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(BLOCK, 6)
sample_pick_weighted(const uint32_t* row_key, const uint64_t* row_start, const uint32_t* row_len, const uint32_t* indptr,
                     const uint64_t* counts, int32_t from, uint32_t rows, uint32_t fanout, uint32_t hop, uint32_t index,
                     uint32_t epoch, uint64_t seed, const float* weights, const float* const* cached, const uint32_t* positive,
                     uint64_t* picked) {
    const uint32_t lane = threadIdx.x % WARP, before = (1u << lane) - 1;
    const uint64_t n = counts[rows], warps = (uint64_t)gridDim.x * (BLOCK / WARP);
    uint64_t row = (from < 0 ? 0 : counts[from]) + ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP;
    for (; row < n; row += warps) {
        const uint64_t start = row_start[row];
        const uint32_t len = row_len[row];
        const bool draws = positive[row] > fanout;
        if (len > LONG_ROW || (draws && fanout > WARP)) continue;
        const float* of = row_weights(weights, cached, start);
        const uint32_t skip = before_row(of, len);
        uint64_t* out = picked + indptr[row];
        if (!draws) {
            for (uint32_t base = 0; base < skip + len; base += WARP) {
                const uint32_t p = base + lane - skip;
                const bool taken = p < len && of[p] > 0.0f;
                const uint32_t all = __ballot_sync(ALL_LANES, taken);
                if (taken) out[__popc(all & before)] = start + p;
                out += __popc(all);
            }
            continue;
        }
        // Lane i has the i-th smallest time so far.
        const Clocks clocks = {hop, row_key[row], index, epoch, seed};
        uint64_t time = ~0ull;
        uint32_t position = ~0u;
        for (uint32_t base = 0; base < skip + len; base += WARP) {
            const uint32_t p = base + lane - skip;
            const float weight = p < len ? of[p] : 0.0f;
            const uint64_t own = weight > 0.0f ? clocks.time(p, weight) : ~0ull;
            // Of equal times the smaller position is picked: later positions are larger.
            uint64_t last = __shfl_sync(ALL_LANES, time, (int)fanout - 1);
            uint32_t left = __ballot_sync(ALL_LANES, own < last);
            while (left != 0) {
                const int next = __ffs((int)left) - 1;
                const uint64_t rings = __shfl_sync(ALL_LANES, own, next);
                const uint32_t at = __popc(__ballot_sync(ALL_LANES, lane < fanout && time <= rings));
                const uint64_t time_before = __shfl_up_sync(ALL_LANES, time, 1);
                const uint32_t position_before = __shfl_up_sync(ALL_LANES, position, 1);
                if (lane > at) {
                    time = time_before;
                    position = position_before;
                } else if (lane == at) {
                    time = rings;
                    position = base + (uint32_t)next - skip;
                }
                last = __shfl_sync(ALL_LANES, time, (int)fanout - 1);
                left = (left & (left - 1)) & __ballot_sync(ALL_LANES, own < last);
            }
        }
        uint32_t rank = 0;
        for (uint32_t i = 0; i < fanout; i++) rank += __shfl_sync(ALL_LANES, position, (int)i) < position;
        if (lane < fanout) out[rank] = start + position;
    }
}
MORPHGL_KERNEL(sample_pick_weighted)

// Positions of the picked edges of the other rows, one block per row: radix select finds the time of the last pick digit by
// digit, and the positions with earlier times are written in order.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_pick_weighted_long(const uint32_t* row_key, const uint64_t* row_start, const uint32_t* row_len,
                          const uint32_t* indptr, const uint64_t* counts, int32_t from, uint32_t rows, uint32_t fanout,
                          uint32_t hop, uint32_t index, uint32_t epoch, uint64_t seed, const float* weights,
                          const float* const* cached, const uint32_t* positive, uint64_t* picked) {
    __shared__ uint32_t shared[BLOCK / WARP], histogram[256], digit, rest;
    const uint64_t n = counts[rows];
    for (uint64_t row = (from < 0 ? 0 : counts[from]) + blockIdx.x; row < n; row += gridDim.x) {
        const uint64_t start = row_start[row];
        const uint32_t len = row_len[row];
        const bool draws = positive[row] > fanout;
        if (len <= LONG_ROW && !(draws && fanout > WARP)) continue;
        const float* of = row_weights(weights, cached, start);
        const Clocks clocks = {hop, row_key[row], index, epoch, seed};
        uint64_t* out = picked + indptr[row];
        // Wraps around before the row: then it is above the length.
        const uint64_t skip = before_row(of, len), mine = threadIdx.x - skip, end = skip + len;
        uint64_t last = ~0ull;
        uint32_t equals = 0;
        if (draws) {
            last = 0;
            equals = fanout;
            for (int shift = 56; shift >= 0; shift -= 8) {
                for (uint32_t d = threadIdx.x; d < 256; d += BLOCK) histogram[d] = 0;
                __syncthreads();
                for (uint64_t base = 0; base < end; base += BLOCK) {
                    const uint64_t p = base + mine;
                    if (p >= len || !(of[p] > 0.0f)) continue;
                    const uint64_t time = clocks.time((uint32_t)p, of[p]);
                    if (shift == 56 || time >> (shift + 8) == last >> (shift + 8)) {
                        atomicAdd(&histogram[time >> shift & 255], 1u);
                    }
                }
                __syncthreads();
                if (threadIdx.x == 0) {
                    uint32_t d = 0, left = equals;
                    while (histogram[d] < left) left -= histogram[d++];
                    digit = d;
                    rest = left;
                }
                __syncthreads();
                last |= (uint64_t)digit << shift;
                equals = rest;
                __syncthreads();
            }
        }
        // All positions with times before `last`, and the first `equals` of those at `last`.
        for (uint64_t base = 0; base < end; base += BLOCK) {
            const uint64_t p = base + mine;
            const bool counts_in = p < len && of[p] > 0.0f;
            const uint64_t time = counts_in && draws ? clocks.time((uint32_t)p, of[p]) : 0;
            uint32_t total;
            const bool equal = counts_in && draws && time == last;
            const uint32_t earlier = block_rank<BLOCK / WARP>(equal, shared, total);
            const bool taken = counts_in && (equal ? earlier < equals : time < last);
            equals -= min(equals, total);
            const uint32_t at = block_rank<BLOCK / WARP>(taken, shared, total);
            if (taken) out[at] = start + p;
            out += total;
        }
    }
}
MORPHGL_KERNEL(sample_pick_weighted_long)
