// Rows of features, out of the memory of this device or of one that it reaches where they are cached, else over the bus.
#include "morphgl.cuh"

// Rows that a warp has on their way at a time.
#define ROWS 4
// The bus and the device's memory move whole lines.
#define LINE 128ull

struct alignas(16) Unit16 {
    uint32_t part[4];
};

// A warp copies four rows at a time. Its lanes read whole lines from the line that a row begins in, so that no line is
// asked for twice: lanes before the row's first byte, and after its last, are idle. `Unit` is what one lane moves, and
// divides the address and the length of every row.
//
// Which rows are cached says a bitmap that counts: bit `node % 64` of `held[node / 64]`, after `before[node / 64]` others.
// They lie in one part in the order of their nodes; or in as many parts in turns: that of rank r as number r / num_parts
// of part r % num_parts.
template <typename Unit>
__device__ __forceinline__ void gather(
    const uint32_t* __restrict__ nodes, uint32_t num_rows, uint32_t row_bytes, const uint8_t* __restrict__ table,
    const uint64_t* __restrict__ held, const uint32_t* __restrict__ before, const uint32_t* __restrict__ ranks,
    const uint8_t* const* __restrict__ parts, uint32_t num_parts, uint8_t* __restrict__ out
) {
    const uint8_t* const only = num_parts == 1 ? parts[0] : nullptr;
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t warp = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / WARP;
    const uint64_t warps = gridDim.x * (uint64_t)blockDim.x / WARP;
    for (uint64_t first = warp * ROWS; first < num_rows; first += warps * ROWS) {
        const uint8_t* from[ROWS];
        uint32_t skip[ROWS], most = 0;
        for (int r = 0; r < ROWS; r++) {
            if (first + r < num_rows) {
                const uint32_t node = nodes[first + r];
                const uint64_t word = held == nullptr ? 0 : held[node / 64], bit = 1ull << node % 64;
                const uint8_t* part = table;
                uint64_t place = node;
                if (word & bit) {
                    part = only;
                    place = before[node / 64] + __popcll(word & (bit - 1));
                    if (num_parts > 1) {
                        const uint32_t rank = ranks[place];
                        part = parts[rank % num_parts];
                        place = rank / num_parts;
                    }
                }
                from[r] = part + place * row_bytes;
                skip[r] = (uint32_t)((uint64_t)from[r] % LINE);
                most = max(most, skip[r]);
            }
        }
        for (uint32_t step = 0; step < row_bytes + most; step += WARP * sizeof(Unit)) {
            Unit moved[ROWS];
            for (int r = 0; r < ROWS; r++) {
                const uint32_t at = step + lane * (uint32_t)sizeof(Unit);
                if (first + r < num_rows && at >= skip[r] && at - skip[r] < row_bytes) {
                    moved[r] = *reinterpret_cast<const Unit*>(from[r] + (at - skip[r]));
                }
            }
            for (int r = 0; r < ROWS; r++) {
                const uint32_t at = step + lane * (uint32_t)sizeof(Unit);
                if (first + r < num_rows && at >= skip[r] && at - skip[r] < row_bytes) {
                    *reinterpret_cast<Unit*>(out + (first + r) * row_bytes + (at - skip[r])) = moved[r];
                }
            }
        }
    }
}

#define GATHER(name, Unit)                                                                                            \
    extern "C" __global__ void name(                                                                                  \
        const uint32_t* nodes, uint32_t num_rows, uint32_t row_bytes, const uint8_t* table, const uint64_t* held,     \
        const uint32_t* before, const uint32_t* ranks, const uint8_t* const* parts, uint32_t num_parts, uint8_t* out  \
    ) {                                                                                                               \
        gather<Unit>(nodes, num_rows, row_bytes, table, held, before, ranks, parts, num_parts, out);                  \
    }                                                                                                                 \
    MORPHGL_KERNEL(name)

GATHER(gather_rows_1, uint8_t)
GATHER(gather_rows_2, uint16_t)
GATHER(gather_rows_4, uint32_t)
GATHER(gather_rows_8, uint64_t)
GATHER(gather_rows_16, Unit16)

// Counts the accesses of each node.
extern "C" __global__ void gather_count(const uint32_t* nodes, uint32_t num_nodes, uint32_t* accesses) {
    const uint64_t threads = gridDim.x * (uint64_t)blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < num_nodes; i += threads) {
        atomicAdd(&accesses[nodes[i]], 1u);
    }
}
MORPHGL_KERNEL(gather_count)
