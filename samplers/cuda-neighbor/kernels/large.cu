// Picks of more than 32 edges per row: a block handles a row, draws in parallel, and sorts.
#include "morphgl.cuh"

#define BLOCK 128u

// Positions of the picked edges of each row. `scratch` has 16 bytes per pick and block, or is null: then shared memory is used.
// `row_key` as of `sample_pick`.
//
// Floyd's rule: draw i is replaced by `first + i` if its number was picked before: by an earlier draw of the same number, or,
// since only draw m is replaced by first + m, by draw m = number - first if that was replaced. So draws need no order.
// Launch bounds of 8 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(BLOCK, 8)
sample_pick_large(const uint32_t* row_key, const uint64_t* row_start, const uint32_t* row_len, const uint32_t* indptr,
                  const uint64_t* counts, int32_t from, uint32_t rows, uint32_t fanout, uint32_t hop, uint32_t index,
                  uint32_t epoch, uint64_t seed, uint64_t* scratch, uint64_t* picked) {
    DYNAMIC_SHARED(uint64_t, fast);
    uint64_t* keys = scratch ? scratch + (uint64_t)blockIdx.x * 2 * fanout : fast;
    uint32_t* drawn = (uint32_t*)(keys + fanout);
    uint32_t* again = drawn + fanout;
    const uint64_t n = counts[rows];
    for (uint64_t row = (from < 0 ? 0 : counts[from]) + blockIdx.x; row < n; row += gridDim.x) {
        const uint64_t start = row_start[row];
        const uint32_t len = row_len[row];
        uint64_t* out = picked + indptr[row];
        if (len <= fanout) {
            for (uint32_t p = threadIdx.x; p < len; p += BLOCK) out[p] = start + p;
            continue;
        }
        const uint32_t first = len - fanout, node = row_key[row];
        for (uint32_t i = threadIdx.x; i < fanout; i += BLOCK) {
            drawn[i] = sampling_draw(i, first + i, hop, node, index, epoch, seed);
            keys[i] = (uint64_t)drawn[i] << 32 | i;
        }
        __syncthreads();
        block_sort<BLOCK>(keys, fanout);
        for (uint32_t s = threadIdx.x; s < fanout; s += BLOCK) {
            again[(uint32_t)keys[s]] = s > 0 && keys[s] >> 32 == keys[s - 1] >> 32;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < fanout; i += BLOCK) {
            uint32_t m = i;
            while (again[m] == 0 && drawn[m] >= first && drawn[m] - first < m) m = drawn[m] - first;
            keys[i] = again[m] ? first + i : drawn[i];
        }
        __syncthreads();
        block_sort<BLOCK>(keys, fanout);
        for (uint32_t s = threadIdx.x; s < fanout; s += BLOCK) out[s] = start + keys[s];
        __syncthreads();
    }
}
MORPHGL_KERNEL(sample_pick_large)
