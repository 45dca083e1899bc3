// Neighbour sampling, hop by hop, without the host. Sizes are in `counts`, which kernels read:
// entry h is the number of nodes before hop h, entry `hops + 1 + h` the number of edges of hop h.
#include "morphgl.cuh"

#define BLOCK 128u
// Bytes of a line: a warp's aligned reads cross the bus as whole lines.
#define LINE 128ull

// Source and destination arrays of edges.
struct Edges {
    const uint32_t *indices, *const *cached;
    const float *weights, *const *cached_weights;
    uint32_t *nodes, *slots;
    float* out_weights;

    // Number of edges between the begin of the line and edge `at` of the graph.
    __device__ __forceinline__ uint32_t in_line(uint64_t at) const {
        return (uint32_t)((uint64_t)address(at) % LINE / sizeof(uint32_t));
    }

    // Address of edge `at` of the graph.
    __device__ __forceinline__ const uint32_t* address(uint64_t at) const { return element(indices, cached, at); }

    // Reads edge `at` of the graph as the hop's edge `e`; `known` nodes precede the hop.
    __device__ __forceinline__ void read(const NodeTable& table, uint32_t known, uint32_t e, uint64_t at) const {
        const uint32_t node = *address(at);
        nodes[e] = node;
        slots[e] = table.insert(node, known + e);
        if (out_weights) out_weights[e] = *element(weights, cached_weights, at);
    }
};

__device__ __forceinline__ uint64_t entry_or_0(const uint64_t* counts, int32_t at) {
    return at < 0 ? 0 : counts[at];
}

// Inserts the first `num` nodes: `order` from `first` on. Writes their number to `counts`, if given.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_nodes(const uint32_t* order, uint64_t first, uint32_t num, uint32_t* nodes, uint64_t* counts, uint64_t* entries,
             uint32_t mask, uint32_t layout, uint64_t stamp) {
    const NodeTable table = {entries, mask, layout, stamp};
    const uint64_t thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (thread == 0 && counts) counts[0] = num;
    for (uint64_t i = thread; i < num; i += (uint64_t)gridDim.x * BLOCK) {
        const uint32_t node = order[first + i];
        nodes[i] = node;
        table.insert(node, (uint32_t)i);
    }
}
MORPHGL_KERNEL(sample_nodes)

// Start and length of the rows of nodes from `counts[from]` on: from the graph's offsets, or, with cached rows of any nodes, from
// the lookup tables (`lens`). Rows of the first `cached_rows` nodes are cached as they lie, so their offsets are the graph's. In a
// reordered graph also the draw keys of the nodes (`row_key`). Two lanes handle a node: both offsets are one access over the bus.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_locate(const uint32_t* nodes, const uint64_t* counts, int32_t from, uint32_t to, const uint64_t* starts,
              const uint32_t* lens, uint32_t cached_rows, const uint32_t* draw_keys, const float* weight_sums,
              uint64_t* row_start, uint32_t* row_len, uint32_t* row_key, float* degrees) {
    const uint64_t end = counts[to], pair = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / 2;
    const uint32_t second = threadIdx.x & 1u, lane_pair = threadIdx.x % WARP / 2;
    for (uint64_t base = entry_or_0(counts, from) + pair - lane_pair; base < end;
         base += (uint64_t)gridDim.x * (BLOCK / 2)) {
        const uint64_t i = base + lane_pair, node = i < end ? nodes[i] : 0;
        uint64_t start = 0;
        uint32_t key = 0;
        if (i < end) start = second && lens ? lens[node] : starts[node + second];
        if (i < end && second && row_key) key = draw_keys[node];
        const uint64_t next = __shfl_down_sync(ALL_LANES, start, 1);
        if (i < end && second && row_key) row_key[i] = key;
        if (i >= end || second) continue;
        const uint32_t len = (uint32_t)(lens ? next : next - start);
        if (row_start) {
            row_start[i] = node < cached_rows ? start | CACHED : start;
            row_len[i] = len;
        }
        degrees[i] = weight_sums ? weight_sums[node] : (float)len;
    }
}
MORPHGL_KERNEL(sample_locate)

// Addresses of the parts of the cached rows, and of one more with `lists`; and of their weights, where there are any.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_add_part(uint32_t num_parts, const uint32_t* const* cached, const uint32_t* lists, const uint32_t** parts,
                const float* const* cached_weights, const float* weights, const float** weight_parts) {
    for (uint32_t part = blockIdx.x * BLOCK + threadIdx.x; part <= num_parts; part += gridDim.x * BLOCK) {
        parts[part] = part < num_parts ? cached[part] : lists;
        if (weight_parts) weight_parts[part] = part < num_parts ? cached_weights[part] : weights;
    }
}
MORPHGL_KERNEL(sample_add_part)

// Rows that lose edges, of the nodes from `counts[from]` on: start, length and degree of those in the ascending list `lost`.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_leave_out(const uint32_t* nodes, const uint64_t* counts, int32_t from, uint32_t to, const uint32_t* lost,
                 uint32_t num_lost, const uint64_t* starts, const uint32_t* lens, const float* left, uint64_t* row_start,
                 uint32_t* row_len, float* degrees) {
    const uint64_t end = counts[to], step = (uint64_t)gridDim.x * BLOCK;
    for (uint64_t i = entry_or_0(counts, from) + (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < end; i += step) {
        const uint32_t at = find_ascending(lost, num_lost, nodes[i]);
        if (at == num_lost) continue;
        if (row_start) {
            row_start[i] = starts[at];
            row_len[i] = lens[at];
        }
        degrees[i] = left[at];
    }
}
MORPHGL_KERNEL(sample_leave_out)

// Edges of each block's share of the rows: at most `fanout` per row, none of rows before `counts[first]`.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_row_sums(const uint32_t* lens, const uint64_t* counts, int32_t first, uint32_t rows, uint32_t fanout,
                uint64_t* sums) {
    __shared__ uint64_t shared[BLOCK / WARP];
    const uint64_t n = counts[rows], from = entry_or_0(counts, first);
    const uint64_t end = share_begin(n, blockIdx.x + 1);
    uint64_t sum = 0;
    for (uint64_t row = max(from, share_begin(n, blockIdx.x)) + threadIdx.x; row < end; row += BLOCK) {
        sum += min(fanout, lens[row]);
    }
    sum = block_sum<BLOCK / WARP>(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
MORPHGL_KERNEL(sample_row_sums)

// Row offsets, four rows per thread, and the number of edges as `counts[edges]`.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_row_offsets(const uint32_t* lens, uint64_t* counts, int32_t first, uint32_t rows, uint32_t fanout,
                   const uint64_t* sums, uint32_t* indptr, uint32_t edges) {
    __shared__ uint64_t shared[BLOCK / WARP];
    const uint64_t n = counts[rows], from = entry_or_0(counts, first);
    const uint64_t end = share_begin(n, blockIdx.x + 1);
    uint64_t base = sum_before<BLOCK / WARP>(sums, shared);
    if (blockIdx.x == 0 && threadIdx.x == 0) indptr[0] = 0;
    for (uint64_t tile = share_begin(n, blockIdx.x); tile < end; tile += 4 * BLOCK) {
        const uint64_t row = tile + 4 * threadIdx.x;
        uint32_t take[4];
        uint64_t sum = 0, total;
        for (uint32_t i = 0; i < 4; i++) {
            take[i] = row + i >= from && row + i < end ? min(fanout, lens[row + i]) : 0;
            sum += take[i];
        }
        uint64_t offset = base + block_scan<BLOCK / WARP>(sum, shared, total);
        for (uint32_t i = 0; i < 4 && row + i < end; i++) {
            offset += take[i];
            indptr[row + i + 1] = (uint32_t)offset;
        }
        base += total;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) counts[edges] = base;
}
MORPHGL_KERNEL(sample_row_offsets)

// Puts the rows that a hop expands in the order of the pages of their lists in host memory. A bucket is 2^shift bytes of the address
// space; the first one has the first edge. Cached rows, which are read from device memory, stay spread among the others by the number
// of their nodes.
struct Lists {
    const uint32_t* nodes;
    const uint64_t* row_start;
    uint64_t table;
    uint32_t num_nodes, num_buckets, shift;

    __device__ __forceinline__ uint64_t operator()(uint64_t row) const {
        const uint64_t start = row_start[row];
        if (start & CACHED) return nodes[row] * (uint64_t)num_buckets / num_nodes;
        // An empty row at the end of the graph begins after the last edge.
        return min(((table + start * sizeof(uint32_t)) >> shift) - (table >> shift), (uint64_t)num_buckets - 1);
    }
};

extern "C" __global__ void sample_order_count(
    const uint32_t* nodes, const uint64_t* row_start, const uint64_t* counts, int32_t first, uint32_t rows,
    const uint32_t* indices, uint32_t num_nodes, uint32_t num_buckets, uint32_t shift, uint32_t* counters
) {
    const Lists lists{nodes, row_start, (uint64_t)indices, num_nodes, num_buckets, shift};
    by_bucket(entry_or_0(counts, first), counts[rows], counters, lists, [](uint32_t, uint32_t) {});
}
MORPHGL_KERNEL(sample_order_count)

extern "C" __global__ void __launch_bounds__(1024) sample_order_scan(uint32_t num_buckets, uint32_t* counters) {
    __shared__ uint32_t sums[32];
    scan_buckets(num_buckets, counters, sums);
}
MORPHGL_KERNEL(sample_order_scan)

extern "C" __global__ void sample_order_place(
    const uint32_t* nodes, const uint64_t* row_start, const uint64_t* counts, int32_t first, uint32_t rows,
    const uint32_t* indices, uint32_t num_nodes, uint32_t num_buckets, uint32_t shift, uint32_t* places, uint32_t* order
) {
    const Lists lists{nodes, row_start, (uint64_t)indices, num_nodes, num_buckets, shift};
    const auto to = [=](uint32_t row, uint32_t place) { order[place] = row; };
    by_bucket(entry_or_0(counts, first), counts[rows], places, lists, to);
}
MORPHGL_KERNEL(sample_order_place)

// Picks at most 32 edges per row by a group of `width` lanes, which also reads them: each lane draws once (Floyd), then
// the draws are resolved in sequence, and each pick finds its rank. A row that is read whole is one access of its lines.
// `row_key` are the numbers of the rows' nodes in the counters of random numbers. Rows are handled as `order` lists them; null: one
// after the other. Each has its own place among the edges either way.
// There are fewer than 2^31 rows.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_pick(const uint32_t* row_key, const uint64_t* row_start, const uint32_t* row_len, const uint32_t* indptr,
            const uint64_t* counts, int32_t first, uint32_t rows, uint32_t fanout, uint32_t hop, uint32_t index,
            uint32_t epoch, uint64_t seed, uint32_t width, const uint32_t* order, const uint32_t* indices,
            const uint32_t* const* cached, const float* weights, const float* const* cached_weights, uint32_t* nodes, uint32_t* slots,
            float* out_weights, uint64_t* entries, uint32_t mask, uint32_t layout, uint64_t stamp) {
    const NodeTable table = {entries, mask, layout, stamp};
    const Edges edges = {indices, cached, weights, cached_weights, nodes, slots, out_weights};
    const uint32_t from = (uint32_t)entry_or_0(counts, first), n = (uint32_t)counts[rows];
    const uint32_t lane = threadIdx.x % WARP, member = lane % width, shift = lane - member;
    const uint32_t step = gridDim.x * BLOCK / width;
    for (uint32_t base = from + (blockIdx.x * BLOCK + threadIdx.x - lane) / width; base < n; base += step) {
        const uint32_t place = base + lane / width;
        const uint32_t row = order != nullptr && place < n ? order[place - from] : place;
        const uint32_t len = place < n ? row_len[row] : 0;
        const bool draws = len > fanout;
        uint32_t position = member, rank = member;
        if (__any_sync(ALL_LANES, draws)) {
            const uint32_t last = len - fanout + member;
            uint32_t drawn = 0xffffffffu;
            if (draws && member < fanout) drawn = sampling_draw(member, last, hop, row_key[row], index, epoch, seed);
            uint32_t chosen = drawn;
            for (uint32_t i = 1; i < fanout; i++) {
                const uint32_t other = __shfl_sync(ALL_LANES, drawn, (int)i, (int)width);
                const uint32_t same = __ballot_sync(ALL_LANES, member < i && chosen == other) >> shift;
                const uint32_t group = width == WARP ? same : same & ((1u << width) - 1);
                if (member == i && group != 0) chosen = last;
            }
            uint32_t less = 0;
            for (uint32_t i = 0; i < fanout; i++) {
                less += __shfl_sync(ALL_LANES, chosen, (int)i, (int)width) < chosen;
            }
            if (draws) {
                position = chosen;
                rank = less;
            }
        }
        const bool reads = member < min(fanout, len);
        WARP_LOAD(reads ? edges.address(row_start[row] + position) : nullptr, sizeof(uint32_t));
        if (reads) edges.read(table, n, indptr[row] + rank, row_start[row] + position);
    }
}
MORPHGL_KERNEL(sample_pick)

// Reads all edges of all rows: a warp handles 256 edges in eight runs, and finds their rows. Every 32nd edge begins a run; in
// a long row the run begins at the last line boundary up to it: so long rows are read line by line, each line once.
// Launch bounds of 10 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(BLOCK, 10)
sample_take_all(const uint64_t* row_start, const uint32_t* indptr, const uint64_t* counts, uint32_t rows,
                uint32_t num_edges, const uint32_t* indices, const uint32_t* const* cached, const float* weights,
                const float* const* cached_weights, uint32_t* nodes, uint32_t* slots, float* out_weights, uint64_t* entries,
                uint32_t mask, uint32_t layout, uint64_t stamp) {
    const NodeTable table = {entries, mask, layout, stamp};
    const Edges edges = {indices, cached, weights, cached_weights, nodes, slots, out_weights};
    const uint32_t n = (uint32_t)counts[rows], lane = threadIdx.x % WARP;
    const uint64_t all = counts[num_edges], warp = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP;
    for (uint64_t begin = warp * 8 * WARP; begin < all; begin += (uint64_t)gridDim.x * BLOCK * 8) {
        // Lane i finds the begin of run i and the row of its 32nd edge: every edge's row is between two of these.
        uint64_t own = min(begin + lane * WARP, all);
        uint32_t low = 0, high = n;
        while (high - low > 1) {
            const uint32_t middle = low + (high - low) / 2;
            if (indptr[middle] <= min(own, all - 1)) low = middle; else high = middle;
        }
        const uint32_t row = low;
        if (own < all && indptr[row + 1] - indptr[row] > 2 * WARP) {
            const uint64_t before = own - indptr[row];
            own -= min(before, (uint64_t)edges.in_line(row_start[row] + before));
        }
        for (uint32_t i = 0; i < 8; i++) {
            const uint64_t from = __shfl_sync(ALL_LANES, own, (int)i), end = __shfl_sync(ALL_LANES, own, (int)i + 1);
            const uint32_t first = __shfl_sync(ALL_LANES, row, (int)i), last = __shfl_sync(ALL_LANES, row, (int)i + 1);
            for (uint64_t e = from + lane; e < end; e += WARP) {
                low = first;
                high = last + 1;
                while (high - low > 1) {
                    const uint32_t middle = low + (high - low) / 2;
                    if (indptr[middle] <= e) low = middle; else high = middle;
                }
                edges.read(table, n, (uint32_t)e, row_start[low] + (e - indptr[low]));
            }
        }
    }
}
MORPHGL_KERNEL(sample_take_all)

// Begin of a run of picks: pick `e`, or the preceding line boundary, if all edges from there on are picked.
__device__ __forceinline__ uint64_t run_begin(const Edges& edges, const uint64_t* picked, uint64_t e, uint64_t all) {
    if (e >= all) return all;
    const uint64_t at = picked[e], before = edges.in_line(at);
    return before <= e && picked[e - before] == at - before ? e - before : e;
}

// Reads edges that another kernel picked. A warp handles runs of about 32; in a row read whole they begin with lines.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_read(const uint64_t* picked, const uint64_t* counts, uint32_t rows, uint32_t num_edges, const uint32_t* indices,
            const uint32_t* const* cached, const float* weights, const float* const* cached_weights, uint32_t* nodes, uint32_t* slots,
            float* out_weights, uint64_t* entries, uint32_t mask, uint32_t layout, uint64_t stamp) {
    const NodeTable table = {entries, mask, layout, stamp};
    const Edges edges = {indices, cached, weights, cached_weights, nodes, slots, out_weights};
    const uint64_t all = counts[num_edges];
    const uint32_t n = (uint32_t)counts[rows], lane = threadIdx.x % WARP;
    const uint64_t thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    for (uint64_t begin = thread - lane; begin < all; begin += (uint64_t)gridDim.x * BLOCK) {
        const uint64_t from = run_begin(edges, picked, begin, all), end = run_begin(edges, picked, begin + WARP, all);
        for (uint64_t e = from + lane; e < end; e += WARP) edges.read(table, n, (uint32_t)e, picked[e]);
    }
}
MORPHGL_KERNEL(sample_read)

// One bit per edge: whether it is the first of the hop to reach its node; and the sums of each block's share of the words.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_firsts(const uint32_t* slots, const uint64_t* counts, uint32_t rows, uint32_t num_edges, uint64_t* entries,
              uint32_t mask, uint32_t layout, uint64_t stamp, uint32_t* firsts, uint64_t* sums) {
    __shared__ uint64_t shared[BLOCK / WARP];
    const NodeTable table = {entries, mask, layout, stamp};
    const uint64_t all = counts[num_edges], words = (all + WARP - 1) / WARP, end = share_begin(words, blockIdx.x + 1);
    const uint32_t lane = threadIdx.x % WARP, known = (uint32_t)counts[rows];
    uint64_t sum = 0;
    for (uint64_t w = share_begin(words, blockIdx.x) + threadIdx.x / WARP; w < end; w += BLOCK / WARP) {
        const uint64_t e = w * WARP + lane;
        const bool first = e < all && table.value(slots[e]) == known + (uint32_t)e;
        const uint32_t bits = __ballot_sync(ALL_LANES, first);
        if (lane == 0) {
            firsts[w] = bits;
            sum += __popc(bits);
        }
    }
    sum = block_sum<BLOCK / WARP>(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
MORPHGL_KERNEL(sample_firsts)

// Relabel: assigns local ids to the hop's new nodes, in order of their first edges, and sets `counts[rows + 1]` to the number of
// nodes.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_relabel(const uint32_t* firsts, const uint64_t* sums, const uint32_t* found, const uint32_t* slots, uint64_t* counts,
            uint32_t rows, uint32_t num_edges, uint64_t* entries, uint32_t mask, uint32_t layout, uint64_t stamp,
            uint32_t* nodes) {
    __shared__ uint64_t shared[BLOCK / WARP];
    __shared__ uint32_t tile_bits[BLOCK], tile_rank[BLOCK];
    const NodeTable table = {entries, mask, layout, stamp};
    const uint64_t words = (counts[num_edges] + WARP - 1) / WARP, end = share_begin(words, blockIdx.x + 1);
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t base = counts[rows] + sum_before<BLOCK / WARP>(sums, shared);
    for (uint64_t tile = share_begin(words, blockIdx.x); tile < end; tile += BLOCK) {
        const uint64_t word = tile + threadIdx.x;
        const uint32_t own = word < end ? firsts[word] : 0;
        uint64_t total;
        tile_bits[threadIdx.x] = own;
        tile_rank[threadIdx.x] = (uint32_t)block_scan<BLOCK / WARP>((uint64_t)__popc(own), shared, total);
        __syncthreads();
        const uint32_t count = (uint32_t)min(end - tile, (uint64_t)BLOCK);
        for (uint32_t w = threadIdx.x / WARP; w < count; w += BLOCK / WARP) {
            const uint32_t bits = tile_bits[w];
            if ((bits >> lane & 1u) == 0) continue;
            const uint64_t e = (tile + w) * WARP + lane;
            const uint32_t local = (uint32_t)base + tile_rank[w] + __popc(bits & ((1u << lane) - 1));
            nodes[local] = found[e];
            store_relaxed(&entries[slots[e]], table.entry(found[e], local));
        }
        __syncthreads();
        base += total;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) counts[rows + 1] = base;
}
MORPHGL_KERNEL(sample_relabel)

// Replaces the nodes of all edges by their local ids.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_indices(const uint32_t* slots, const uint64_t* counts, uint32_t num_edges, uint64_t* entries, uint32_t mask,
               uint32_t layout, uint64_t stamp, uint32_t* indices) {
    const NodeTable table = {entries, mask, layout, stamp};
    const uint64_t all = counts[num_edges];
    for (uint64_t e = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; e < all; e += (uint64_t)gridDim.x * BLOCK) {
        indices[e] = table.value(slots[e]);
    }
}
MORPHGL_KERNEL(sample_indices)

// Counts accesses of nodes from `counts[from]` on; with `lens`, only of those whose row is not empty.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_count(const uint32_t* nodes, const uint32_t* lens, const uint64_t* counts, int32_t from, uint32_t to,
             uint32_t* accesses) {
    const uint64_t end = counts[to];
    for (uint64_t i = entry_or_0(counts, from) + (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < end;
         i += (uint64_t)gridDim.x * BLOCK) {
        if (!lens || lens[i] > 0) atomicAdd(&accesses[nodes[i]], 1u);
    }
}
MORPHGL_KERNEL(sample_count)

// Whether the rows of nodes are given, by one bit for each node from `counts[from]` to `counts[to]`, which are also copied to `found`; and
// the sums of each block's share of the words. `given` is ascending.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_given(const uint32_t* nodes, const uint64_t* counts, uint32_t from, uint32_t to, const uint32_t* given,
             uint32_t num_given, uint32_t* found, uint32_t* bits, uint64_t* sums) {
    __shared__ uint64_t shared[BLOCK / WARP];
    const uint64_t first = counts[from], all = counts[to] - first, words = (all + WARP - 1) / WARP;
    const uint64_t end = share_begin(words, blockIdx.x + 1);
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t sum = 0;
    for (uint64_t w = share_begin(words, blockIdx.x) + threadIdx.x / WARP; w < end; w += BLOCK / WARP) {
        const uint64_t i = w * WARP + lane;
        bool is_given = false;
        if (i < all) {
            const uint32_t node = nodes[first + i];
            found[i] = node;
            uint32_t low = 0, high = num_given;
            while (low < high) {
                const uint32_t middle = low + (high - low) / 2;
                if (given[middle] < node) low = middle + 1; else high = middle;
            }
            is_given = low < num_given && given[low] == node;
        }
        const uint32_t word = __ballot_sync(ALL_LANES, is_given);
        if (lane == 0) {
            bits[w] = word;
            sum += __popc(word);
        }
    }
    sum = block_sum<BLOCK / WARP>(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
MORPHGL_KERNEL(sample_given)

// Divides the nodes found: those that are not given keep their order in `nodes` and enter the table, which is empty, after all earlier
// nodes; the others go to `left`, in their order. `found` becomes the local id of each: given nodes come after all others. Sets the entries
// `found_count` and `left_count` of `counts` to the number of nodes before the division, and of given ones.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_divide(const uint32_t* bits, const uint64_t* sums, uint64_t* counts, uint32_t from, uint32_t to, uint32_t found_count,
              uint32_t left_count, uint32_t* found, uint32_t* nodes, uint32_t* left, uint64_t* entries, uint32_t mask,
              uint32_t layout, uint64_t stamp) {
    __shared__ uint64_t shared[BLOCK / WARP];
    __shared__ uint32_t tile_bits[BLOCK], tile_rank[BLOCK];
    const NodeTable table = {entries, mask, layout, stamp};
    const uint64_t first = counts[from], all = counts[to] - first, words = (all + WARP - 1) / WARP;
    const uint64_t end = share_begin(words, blockIdx.x + 1);
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t sum = 0;
    for (uint32_t b = threadIdx.x; b < gridDim.x; b += BLOCK) sum += sums[b];
    const uint32_t num_left = (uint32_t)block_sum<BLOCK / WARP>(sum, shared), kept = (uint32_t)(first + all) - num_left;
    uint64_t base = sum_before<BLOCK / WARP>(sums, shared);
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < first; i += (uint64_t)gridDim.x * BLOCK) {
        table.insert(nodes[i], (uint32_t)i);
    }
    for (uint64_t tile = share_begin(words, blockIdx.x); tile < end; tile += BLOCK) {
        const uint64_t word = tile + threadIdx.x;
        const uint32_t own = word < end ? bits[word] : 0;
        uint64_t total;
        tile_bits[threadIdx.x] = own;
        tile_rank[threadIdx.x] = (uint32_t)block_scan<BLOCK / WARP>((uint64_t)__popc(own), shared, total);
        __syncthreads();
        const uint32_t count = (uint32_t)min(end - tile, (uint64_t)BLOCK);
        for (uint32_t w = threadIdx.x / WARP; w < count; w += BLOCK / WARP) {
            const uint64_t i = (tile + w) * WARP + lane;
            if (i >= all) continue;
            const uint32_t node = found[i];
            const uint32_t before = (uint32_t)base + tile_rank[w] + __popc(tile_bits[w] & ((1u << lane) - 1));
            if (tile_bits[w] >> lane & 1u) {
                left[before] = node;
                found[i] = kept + before;
            } else {
                const uint32_t local = (uint32_t)(first + i) - before;
                nodes[local] = node;
                table.insert(node, local);
                found[i] = local;
            }
        }
        __syncthreads();
        base += total;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        counts[found_count] = first + all;
        counts[left_count] = num_left;
    }
}
MORPHGL_KERNEL(sample_divide)

// Gives the nodes found by the hop of entry `num_edges` their new local ids, and sets `counts[to]` to the number of nodes that are not
// given.
extern "C" __global__ void __launch_bounds__(BLOCK)
sample_renumber(const uint32_t* found, uint64_t* counts, uint32_t from, uint32_t to, uint32_t found_count, uint32_t left_count,
                uint32_t num_edges, uint32_t* indices) {
    const uint64_t all = counts[num_edges];
    const uint32_t first = (uint32_t)counts[from];
    if (blockIdx.x == 0 && threadIdx.x == 0) counts[to] = counts[found_count] - counts[left_count];
    for (uint64_t e = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; e < all; e += (uint64_t)gridDim.x * BLOCK) {
        const uint32_t local = indices[e];
        if (local >= first) indices[e] = found[local - first];
    }
}
MORPHGL_KERNEL(sample_renumber)
