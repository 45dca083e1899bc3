// Gather of feature rows: from the memory of this device or of an accessible peer if they are cached, else over the bus.
#include "morphgl.cuh"

// Rows that each group of lanes loads at a time.
#define ROWS 4
// Bytes of a line, the unit of the bus and of device memory.
#define LINE 128ull

struct alignas(16) Unit16 {
    uint32_t part[4];
};

// Rows on the host, all of the dataset's or those of a mini-batch, and the rows cached on devices.
//
// Bit `node % 64` of `bitmap[node / 64]` marks a cached row, whose position is the number of earlier bits: those of its word,
// and `prefix_counts[node / 64]`. Without a bitmap the rows of the first `first_nodes` nodes are cached, at their numbers. A single
// part has the rows in node order. Of several each has the rows of the first `replicated` ranks, without `ranks` of the first positions;
// those of rank replicated + r follow round-robin: row r / num_parts of part r % num_parts. This device's own part is `own`.
struct Table {
    const uint8_t* host;
    const uint64_t* bitmap;
    const uint32_t* prefix_counts;
    const uint32_t* ranks;
    const uint8_t* const* parts;
    uint32_t first_nodes, num_parts, own, replicated, row_bytes;

    // Address of a node's row; `slot` is its position among the host's.
    __device__ __forceinline__ const uint8_t* row(uint32_t node, uint32_t slot) const {
        uint64_t position = node;
        bool cached = node < first_nodes;
        if (bitmap != nullptr) {
            const uint64_t word = bitmap[node / 64], bit = 1ull << node % 64;
            cached = (word & bit) != 0;
            if (cached) position = prefix_counts[node / 64] + __popcll(word & (bit - 1));
        }
        if (!cached) return host + slot * (uint64_t)row_bytes;
        uint32_t part = 0;
        if (num_parts > 1) {
            const uint32_t rank = ranks == nullptr ? (uint32_t)position : ranks[position];
            const uint32_t spread = rank - min(rank, replicated);
            part = rank < replicated ? own : spread % num_parts;
            position = rank < replicated ? rank : replicated + spread / num_parts;
        }
        return parts[part] + position * row_bytes;
    }
};

// Which bytes of a row a group of lanes loads at a time.
enum class Access {
    // Whole lines, beginning with the row's first line, so that no line is read twice: lanes before the row's first byte are
    // idle.
    Aligned,
    // From the row's first byte on: a load lies on one line more where the row does not begin with a line. The baseline
    // (PyTorch-Direct without its circular shift).
    Naive
};

// The rows of `nodes`; one that is not cached is row `slots[i]` of the host's. With all of the dataset's there, both are the same.
//
// A warp handles 32 rows: each lane looks one of them up, so that the dependent loads of all lookups overlap. Then groups of
// `Lanes` lanes copy four rows each at a time; lanes after a row's last byte are idle. `Unit` is the type that one lane moves;
// its size divides the address and the length of every row. Rows are read as `order` lists their numbers, and written each to its own
// place; null: one after the other.
template <typename Unit, uint32_t Lanes, Access access>
__device__ __forceinline__ void gather(
    const uint32_t* __restrict__ nodes, const uint32_t* __restrict__ slots, const uint32_t* __restrict__ order,
    uint32_t num_rows, const Table table, uint8_t* __restrict__ out
) {
    const uint32_t groups = WARP / Lanes, row_bytes = table.row_bytes;
    const uint32_t lane = threadIdx.x % WARP, group = lane / Lanes, offset = lane % Lanes * (uint32_t)sizeof(Unit);
    const uint64_t warp = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / WARP;
    const uint64_t warps = gridDim.x * (uint64_t)blockDim.x / WARP;
    for (uint64_t first = warp * WARP; first < num_rows; first += warps * WARP) {
        const uint32_t count = (uint32_t)min(num_rows - first, (uint64_t)WARP);
        uint32_t place = lane < count ? (uint32_t)first + lane : 0;
        if (order != nullptr && lane < count) place = order[place];
        const uint64_t own = lane < count ? (uint64_t)table.row(nodes[place], slots[place]) : 0;
        for (uint32_t start = 0; start < count; start += ROWS * groups) {
            const uint8_t* from[ROWS];
            uint32_t to[ROWS], skip[ROWS], most = 0;
            for (int r = 0; r < ROWS; r++) {
                // Every lane takes part in the shuffles; a missing row has address 0 and no bytes.
                const uint64_t address = __shfl_sync(ALL_LANES, own, start + r * groups + group);
                to[r] = __shfl_sync(ALL_LANES, place, start + r * groups + group);
                from[r] = reinterpret_cast<const uint8_t*>(address);
                skip[r] = access == Access::Aligned ? (uint32_t)(address % LINE) : 0;
                most = max(most, skip[r]);
            }
            for (uint32_t step = 0; step < row_bytes + most; step += Lanes * (uint32_t)sizeof(Unit)) {
                Unit moved[ROWS];
                const uint32_t at = step + offset;
                for (int r = 0; r < ROWS; r++) {
                    const bool loads = from[r] != nullptr && at >= skip[r] && at - skip[r] < row_bytes;
                    WARP_LOAD(loads ? from[r] + (at - skip[r]) : nullptr, sizeof(Unit));
                    if (loads) moved[r] = *reinterpret_cast<const Unit*>(from[r] + (at - skip[r]));
                }
                for (int r = 0; r < ROWS; r++) {
                    if (from[r] != nullptr && at >= skip[r] && at - skip[r] < row_bytes) {
                        *reinterpret_cast<Unit*>(out + to[r] * (uint64_t)row_bytes + (at - skip[r])) = moved[r];
                    }
                }
            }
        }
    }
}

#define GATHER(name, Unit, Lanes, access)                                                                             \
    extern "C" __global__ void name(                                                                                  \
        const uint32_t* nodes, const uint32_t* slots, const uint32_t* order, uint32_t num_rows, uint32_t row_bytes,   \
        const uint8_t* host, const uint64_t* bitmap, const uint32_t* prefix, uint32_t first_nodes,                    \
        const uint32_t* ranks, const uint8_t* const* parts, uint32_t num_parts, uint32_t own, uint32_t replicated,    \
        uint8_t* out                                                                                                  \
    ) {                                                                                                               \
        const Table table{host, bitmap, prefix, ranks, parts, first_nodes, num_parts, own, replicated, row_bytes};    \
        gather<Unit, Lanes, Access::access>(nodes, slots, order, num_rows, table, out);                               \
    }                                                                                                                 \
    MORPHGL_KERNEL(name)

GATHER(gather_rows_1, uint8_t, 32, Aligned)
GATHER(gather_rows_2, uint16_t, 32, Aligned)
GATHER(gather_rows_4, uint32_t, 32, Aligned)
GATHER(gather_rows_8, uint64_t, 32, Aligned)
GATHER(gather_rows_16, Unit16, 32, Aligned)
// Rows of at most 256 bytes: a warp copies twice as many.
GATHER(gather_short_rows_8, uint64_t, 16, Aligned)
GATHER(gather_short_rows_16, Unit16, 16, Aligned)
// A lane loads a value of at most four bytes, as PyTorch-Direct's does.
GATHER(gather_naive_rows_1, uint8_t, 32, Naive)
GATHER(gather_naive_rows_2, uint16_t, 32, Naive)
GATHER(gather_naive_rows_4, uint32_t, 32, Naive)

// Puts the rows of a mini-batch in the order of their pages. A bucket is 2^shift bytes of the address space; the first one has the
// table's first byte.
struct Pages {
    const uint32_t* nodes;
    uint32_t row_bytes, shift;
    uint64_t table;

    __device__ __forceinline__ uint64_t operator()(uint64_t i) const {
        return ((table + nodes[i] * (uint64_t)row_bytes) >> shift) - (table >> shift);
    }
};

extern "C" __global__ void gather_order_count(
    const uint32_t* nodes, uint32_t num_rows, uint32_t row_bytes, const uint8_t* host, uint32_t shift, uint32_t* counts
) {
    by_bucket(0, num_rows, counts, Pages{nodes, row_bytes, shift, (uint64_t)host}, [](uint32_t, uint32_t) {});
}
MORPHGL_KERNEL(gather_order_count)

extern "C" __global__ void __launch_bounds__(1024) gather_order_scan(uint32_t num_buckets, uint32_t* counts) {
    __shared__ uint32_t sums[32];
    scan_buckets(num_buckets, counts, sums);
}
MORPHGL_KERNEL(gather_order_scan)

extern "C" __global__ void gather_order_place(
    const uint32_t* nodes, uint32_t num_rows, uint32_t row_bytes, const uint8_t* host, uint32_t shift, uint32_t* places,
    uint32_t* order
) {
    const Pages pages{nodes, row_bytes, shift, (uint64_t)host};
    by_bucket(0, num_rows, places, pages, [=](uint32_t row, uint32_t place) { order[place] = row; });
}
MORPHGL_KERNEL(gather_order_place)

// Counts the accesses of each node.
extern "C" __global__ void gather_count(const uint32_t* nodes, uint32_t num_nodes, uint32_t* accesses) {
    const uint64_t threads = gridDim.x * (uint64_t)blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < num_nodes; i += threads) {
        atomicAdd(&accesses[nodes[i]], 1u);
    }
}
MORPHGL_KERNEL(gather_count)

// Counts the nodes whose rows are cached, once per warp.
extern "C" __global__ void gather_hits(
    const uint32_t* nodes, uint32_t num_nodes, const uint64_t* bitmap, uint32_t first_nodes, uint32_t* hits
) {
    const uint64_t threads = gridDim.x * (uint64_t)blockDim.x;
    uint32_t own = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < num_nodes; i += threads) {
        const uint32_t node = nodes[i];
        own += bitmap == nullptr ? node < first_nodes : (uint32_t)(bitmap[node / 64] >> node % 64 & 1);
    }
    for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2) own += __shfl_down_sync(ALL_LANES, own, lanes);
    if (threadIdx.x % WARP == 0 && own > 0) atomicAdd(hits, own);
}
MORPHGL_KERNEL(gather_hits)
