// Probe of address translation: rows of a table are gathered in the order given, and written where `places` says.
#include "morphgl.cuh"

// Bytes of a line, the unit of the bus.
#define LINE 128ull
// Lanes that copy a row, eight bytes each: a line at a time.
#define LANES 16u
// Rows that a group of lanes has in flight.
#define ROWS 4

// As the gather of short rows does, a warp handles 32 rows: each lane looks one up, then two groups of lanes copy four rows each
// at a time, by whole lines from the one on in which the row begins. Rows and table are multiples of eight bytes.
extern "C" __global__ void translation_gather(
    const uint8_t* table, const uint32_t* __restrict__ ids, const uint32_t* __restrict__ places, uint32_t num_rows,
    uint32_t row_bytes, uint8_t* __restrict__ out
) {
    const uint32_t groups = WARP / LANES;
    const uint32_t lane = threadIdx.x % WARP, group = lane / LANES, offset = lane % LANES * (uint32_t)sizeof(uint64_t);
    const uint64_t warp = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / WARP;
    const uint64_t warps = gridDim.x * (uint64_t)blockDim.x / WARP;
    for (uint64_t first = warp * WARP; first < num_rows; first += warps * WARP) {
        const uint32_t count = (uint32_t)min(num_rows - first, (uint64_t)WARP);
        const uint64_t own = lane < count ? (uint64_t)(table + ids[first + lane] * (uint64_t)row_bytes) : 0;
        const uint32_t place = lane < count ? places[first + lane] : 0;
        for (uint32_t start = 0; start < count; start += ROWS * groups) {
            const uint8_t* from[ROWS];
            uint8_t* to[ROWS];
            uint32_t skip[ROWS], most = 0;
            for (int r = 0; r < ROWS; r++) {
                // Every lane takes part in the shuffles; a missing row has address 0.
                const uint64_t address = __shfl_sync(ALL_LANES, own, start + r * groups + group);
                to[r] = out + __shfl_sync(ALL_LANES, place, start + r * groups + group) * (uint64_t)row_bytes;
                from[r] = reinterpret_cast<const uint8_t*>(address);
                skip[r] = (uint32_t)(address % LINE);
                most = max(most, skip[r]);
            }
            for (uint32_t step = 0; step < row_bytes + most; step += LANES * (uint32_t)sizeof(uint64_t)) {
                uint64_t moved[ROWS];
                const uint32_t at = step + offset;
                for (int r = 0; r < ROWS; r++) {
                    const bool loads = from[r] != nullptr && at >= skip[r] && at - skip[r] < row_bytes;
                    if (loads) moved[r] = *reinterpret_cast<const uint64_t*>(from[r] + (at - skip[r]));
                }
                for (int r = 0; r < ROWS; r++) {
                    const bool loaded = from[r] != nullptr && at >= skip[r] && at - skip[r] < row_bytes;
                    if (loaded) *reinterpret_cast<uint64_t*>(to[r] + (at - skip[r])) = moved[r];
                }
            }
        }
    }
}
MORPHGL_KERNEL(translation_gather)
