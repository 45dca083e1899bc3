// Sampling by edge type, in trees and within times. A hop divides the rows that it expands into sub-rows, `width` for each: one per edge
// type that leads to the node's type, in the order of the types, and empty ones after these; of a graph without types the row itself.
// Neighbours are picked of each sub-row. `counts` as in `sample.cu`.
#include "morphgl.cuh"

#define BLOCK 128u
// Maximum number of edges that the lanes of a warp draw.
#define GROUP 32u

// The sub-rows of a hop, from that of row `first` on.
struct SubRows {
    const uint64_t* start;
    const uint32_t *len, *candidates, *indptr;
    const uint16_t* types;
    uint32_t width;

    // Number of edges that are picked of a sub-row.
    __device__ __forceinline__ uint32_t take(uint64_t sub) const { return indptr[sub + 1] - indptr[sub]; }
};

// Times of edges and nodes, null where they are not read, and the weights that edges are picked by, null without.
struct Candidates {
    const uint32_t *indices, *const *cached;
    const int64_t *edge_times, *const *cached_times, *node_times;
    const float *weights, *const *cached_weights;

    __device__ __forceinline__ bool timed() const { return node_times != nullptr; }
    __device__ __forceinline__ bool weighted() const { return weights != nullptr; }

    // Time from which on edge `at` is known: its own, or that of its source node if that is later.
    __device__ __forceinline__ int64_t time(uint64_t at) const {
        const int64_t of_node = node_times[*element(indices, cached, at)];
        if (edge_times == nullptr) return of_node;
        return max(of_node, *element(edge_times, cached_times, at));
    }

    // Whether edge `at` is known at the time `bound`.
    __device__ __forceinline__ bool known(uint64_t at, int64_t bound) const { return !timed() || time(at) <= bound; }

    __device__ __forceinline__ float weight(uint64_t at) const { return *element(weights, cached_weights, at); }
};

// Hash table of the nodes of trees, by open addressing; as `NodeTable`, with entries of the tree and the node. Without trees a `NodeTable`.
struct TreeTable {
    NodeTable nodes;
    // Bits of a node and of a tree; none of a node without trees.
    uint32_t node_bits, tree_bits;

    // Lowers the value of the node of the tree to `value`; returns its slot.
    __device__ __forceinline__ uint32_t insert(uint32_t tree, uint32_t node, uint32_t value) const {
        if (node_bits == 0) return nodes.insert(node, value);
        const uint32_t bits = nodes.bits(), key_bits = node_bits + tree_bits;
        const uint64_t key = (uint64_t)tree << node_bits | node;
        const uint64_t ours = (nodes.stamp << key_bits | key) << bits | value;
        uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15ull >> 32) >> (nodes.layout & 255u);
        for (;;) {
            uint64_t seen = load_relaxed(&nodes.entries[slot]);
            if (seen >> bits >> key_bits != nodes.stamp) {
                const uint64_t old = atomicCAS(&nodes.entries[slot], seen, ours);
                if (old == seen) return slot;
                seen = old;
            }
            if (seen >> bits == ours >> bits) {
                if (ours < seen) atomicMin(&nodes.entries[slot], ours);
                return slot;
            }
            slot = (slot + 1) & nodes.mask;
        }
    }
};

// Where the picked edges go.
struct Picked {
    const uint32_t *indices, *const *cached;
    const float *weights, *const *cached_weights;
    uint32_t *nodes, *slots;
    float* out_weights;
    uint16_t* types;

    // Reads edge `at` of the graph, of a row in a tree, as the hop's edge `e`; `known` nodes precede the hop.
    __device__ __forceinline__ void read(const TreeTable& table, uint32_t tree, uint32_t known, uint32_t e, uint64_t at,
                                         uint16_t type) const {
        const uint32_t node = *element(indices, cached, at);
        nodes[e] = node;
        slots[e] = table.insert(tree, node, known + e);
        if (types) types[e] = type;
        if (out_weights) out_weights[e] = *element(weights, cached_weights, at);
    }
};

__device__ __forceinline__ uint64_t splitmix64(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

// The trees of `num` seeds, `order` from `first` on: seed and tree of each first node, the seed of the tree's random numbers, and the time
// that bounds it. Writes their number to `counts`.
extern "C" __global__ void __launch_bounds__(BLOCK)
typed_trees(const uint32_t* order, uint64_t first, uint32_t num, uint32_t* nodes, uint32_t* trees, uint64_t* tree_seeds,
            int64_t* bounds, uint64_t* counts, const uint32_t* draw_keys, const int64_t* node_times, uint64_t seed) {
    const uint64_t thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (thread == 0) counts[0] = num;
    for (uint64_t i = thread; i < num; i += (uint64_t)gridDim.x * BLOCK) {
        const uint32_t node = order[first + i];
        nodes[i] = node;
        trees[i] = (uint32_t)i;
        tree_seeds[i] = seed ^ splitmix64((uint64_t)(draw_keys ? draw_keys[node] : node) + 1);
        bounds[i] = node_times ? node_times[node] : 0;
    }
}
MORPHGL_KERNEL(typed_trees)

// Inserts the first `num` nodes with their trees into the table.
extern "C" __global__ void __launch_bounds__(BLOCK)
typed_insert(const uint32_t* nodes, const uint32_t* trees, uint32_t num, uint32_t node_bits, uint32_t tree_bits,
             uint64_t* entries, uint32_t mask, uint32_t layout, uint64_t stamp) {
    const TreeTable table = {{entries, mask, layout, stamp}, node_bits, tree_bits};
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < num; i += (uint64_t)gridDim.x * BLOCK) {
        table.insert(trees[i], nodes[i], (uint32_t)i);
    }
}
MORPHGL_KERNEL(typed_insert)

// Divides rows into sub-rows: start, length, and type of each, and the number of edges that are picked of it, if all are candidates. Of
// node type t, `node_types` has the first node, the node after the last, and the place and number of its edge types in `edge_types`;
// `ends` from `bases[t]` on has the ends of the sub-rows of its nodes, from the start of the row. Of nodes in the ascending list `lost`
// they are in `lost_ends`, `width` for each. `fanouts` has one per edge type, 0 for none. Sets entry `sub_rows` of `counts`.
extern "C" __global__ void __launch_bounds__(BLOCK)
typed_divide(const uint32_t* nodes, const uint64_t* row_start, const uint32_t* row_len, uint64_t* counts, int32_t first,
             uint32_t rows, uint32_t sub_rows, uint32_t width, const uint32_t* node_types, const uint64_t* bases,
             const uint32_t* edge_types, const uint32_t* ends, const uint32_t* lost, uint32_t num_lost,
             const uint32_t* lost_ends, const uint32_t* fanouts, uint32_t first_fanout, uint64_t* sub_start, uint32_t* sub_len,
             uint16_t* sub_types, uint32_t* sub_take) {
    const uint64_t from = first < 0 ? 0 : counts[first], all = (counts[rows] - from) * width;
    const uint64_t thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (thread == 0) counts[sub_rows] = all;
    for (uint64_t i = thread; i < all; i += (uint64_t)gridDim.x * BLOCK) {
        const uint64_t row = from + i / width;
        const uint32_t place = (uint32_t)(i % width), node = nodes[row];
        uint32_t begin = 0, end = row_len[row], type = 0;
        if (ends != nullptr) {
            uint32_t of = 0;
            while (node >= node_types[4 * of + 1]) of++;
            const uint32_t num = node_types[4 * of + 3];
            end = 0;
            if (place < num) {
                const uint32_t at = find_ascending(lost, num_lost, node);
                const uint32_t* own = at < num_lost ? lost_ends + (uint64_t)at * width
                                                    : ends + bases[of] + (uint64_t)(node - node_types[4 * of]) * num;
                begin = place > 0 ? own[place - 1] : 0;
                end = own[place];
                type = edge_types[node_types[4 * of + 2] + place];
            }
        }
        const uint32_t fanout = fanouts[first_fanout + type];
        sub_start[i] = row_start[row] + begin;
        sub_len[i] = fanout == 0 ? 0 : end - begin;
        sub_types[i] = (uint16_t)type;
        sub_take[i] = min(fanout, end - begin);
    }
}
MORPHGL_KERNEL(typed_divide)

// Number of candidates of each sub-row, by a warp: edges within the time of their tree, of positive weight where they are picked by weight;
// and the number of them that is picked.
extern "C" __global__ void __launch_bounds__(BLOCK)
typed_count(const uint64_t* sub_start, const uint32_t* sub_len, const uint16_t* sub_types, const uint64_t* counts, int32_t first,
            uint32_t sub_rows, uint32_t width, const uint32_t* trees, const int64_t* bounds, const uint32_t* indices,
            const uint32_t* const* cached, const int64_t* edge_times, const int64_t* const* cached_times,
            const int64_t* node_times, const float* weights, const float* const* cached_weights, const uint32_t* fanouts,
            uint32_t first_fanout, uint32_t* candidates, uint32_t* sub_take) {
    const Candidates of = {indices, cached, edge_times, cached_times, node_times, weights, cached_weights};
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t from = first < 0 ? 0 : counts[first], all = counts[sub_rows], warps = (uint64_t)gridDim.x * (BLOCK / WARP);
    for (uint64_t sub = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP; sub < all; sub += warps) {
        const uint64_t start = sub_start[sub];
        const uint32_t len = sub_len[sub];
        const int64_t bound = of.timed() ? bounds[trees[from + sub / width]] : 0;
        uint32_t count = 0;
        for (uint32_t base = 0; base < len; base += WARP) {
            const uint32_t p = base + lane;
            const bool counts_in = p < len && of.known(start + p, bound) && (!of.weighted() || of.weight(start + p) > 0.0f);
            count += __popc(__ballot_sync(ALL_LANES, counts_in));
        }
        if (lane == 0) {
            candidates[sub] = count;
            sub_take[sub] = min(count, fanouts[first_fanout + sub_types[sub]]);
        }
    }
}
MORPHGL_KERNEL(typed_count)

// Offsets of rows, by those of their sub-rows; rows before `counts[first]` have no edges.
extern "C" __global__ void __launch_bounds__(BLOCK)
typed_rows(const uint32_t* sub_indptr, const uint64_t* counts, int32_t first, uint32_t rows, uint32_t width, uint32_t* indptr) {
    const uint64_t from = first < 0 ? 0 : counts[first], n = counts[rows];
    for (uint64_t row = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; row <= n; row += (uint64_t)gridDim.x * BLOCK) {
        indptr[row] = row <= from ? 0 : sub_indptr[(row - from) * width];
    }
}
MORPHGL_KERNEL(typed_rows)

// Picks and reads the edges of the sub-rows that are taken whole, and of those of which lanes draw: at most 32, uniformly. A group of `group`
// lanes handles a sub-row: all of a warp where candidates are looked for among the edges. No lane draws more than `most` edges of one.
// Launch bounds of 8 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(BLOCK, 8)
typed_pick(const uint64_t* sub_start, const uint32_t* sub_len, const uint32_t* candidates, const uint32_t* sub_indptr,
           const uint16_t* sub_types, const uint64_t* counts, int32_t first, uint32_t rows, uint32_t sub_rows, uint32_t width,
           const uint32_t* row_key, const uint32_t* trees, const uint64_t* tree_seeds, const int64_t* bounds,
           const int64_t* edge_times, const int64_t* const* cached_times, const int64_t* node_times, uint32_t by_weight,
           uint32_t by_last, uint32_t hop, uint32_t index, uint32_t epoch, uint64_t seed, uint32_t group, uint32_t most,
           const uint32_t* indices, const uint32_t* const* cached, const float* weights, const float* const* cached_weights,
           uint32_t* nodes, uint32_t* slots, float* out_weights, uint16_t* out_types, uint32_t node_bits, uint32_t tree_bits,
           uint64_t* entries, uint32_t mask, uint32_t layout, uint64_t stamp) {
    const SubRows subs = {sub_start, sub_len, candidates, sub_indptr, sub_types, width};
    const TreeTable table = {{entries, mask, layout, stamp}, node_bits, tree_bits};
    const Picked picked = {indices, cached, weights, cached_weights, nodes, slots, out_weights, out_types};
    const Candidates of = {indices, cached, edge_times, cached_times, node_times, by_weight ? weights : nullptr,
                           by_weight ? cached_weights : nullptr};
    const bool looks = of.timed() || of.weighted();
    const uint64_t from = first < 0 ? 0 : counts[first], all = counts[sub_rows];
    const uint32_t known = (uint32_t)counts[rows];
    const uint32_t lane = threadIdx.x % WARP, member = lane % group, shift = lane - member;
    const uint64_t step = (uint64_t)gridDim.x * BLOCK / group;
    for (uint64_t base = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x - lane) / group; base < all; base += step) {
        const uint64_t sub = base + lane / group;
        const bool has = sub < all;
        const uint64_t row = has ? from + sub / width : 0, start = has ? subs.start[sub] : 0;
        const uint32_t len = has ? subs.len[sub] : 0, count = has ? subs.candidates[sub] : 0, take = has ? subs.take(sub) : 0;
        const uint32_t out = has ? subs.indptr[sub] : 0, tree = has && trees ? trees[row] : 0;
        const uint16_t type = has ? subs.types[sub] : 0;
        const bool whole = take == count, draws = !whole && take <= GROUP && !by_weight && !by_last;
        uint32_t chosen = 0xffffffffu, rank = 0;
        if (__any_sync(ALL_LANES, draws)) {
            const uint32_t last = count - take + member;
            uint32_t drawn = 0xffffffffu;
            if (draws && member < take) {
                const uint64_t own = trees ? tree_seeds[tree] : seed;
                drawn = sampling_draw(member, last, hop, row_key[row], index, (uint32_t)type << 16 ^ epoch, own);
            }
            chosen = drawn;
            for (uint32_t i = 1; i < most; i++) {
                const uint32_t other = __shfl_sync(ALL_LANES, drawn, (int)i, (int)group);
                const uint32_t same = __ballot_sync(ALL_LANES, member < i && chosen == other) >> shift;
                const uint32_t of_group = group == WARP ? same : same & ((1u << group) - 1);
                if (member == i && member < take && of_group != 0) chosen = last;
            }
            for (uint32_t i = 0; i < most; i++) rank += __shfl_sync(ALL_LANES, chosen, (int)i, (int)group) < chosen;
        }
        const bool reads = draws && member < take;
        uint32_t position = chosen;
        if (!looks) {
            if (whole) {
                for (uint32_t p = member; p < len; p += group) picked.read(table, tree, known, out + p, start + p, type);
            }
        } else if (whole || draws) {
            // The warp handles one sub-row.
            const int64_t bound = of.timed() ? bounds[tree] : 0;
            uint32_t seen = 0;
            for (uint32_t chunk = 0; chunk < len; chunk += WARP) {
                const uint32_t p = chunk + lane;
                const bool is_one = p < len && of.known(start + p, bound) && (!of.weighted() || of.weight(start + p) > 0.0f);
                uint32_t bits = __ballot_sync(ALL_LANES, is_one);
                const uint32_t earlier = seen + __popc(bits & ((1u << lane) - 1)), before = seen;
                seen += __popc(bits);
                if (whole && is_one) picked.read(table, tree, known, out + earlier, start + p, type);
                if (reads && before <= chosen && chosen < seen) {
                    for (uint32_t i = before; i < chosen; i++) bits &= bits - 1;
                    position = chunk + (uint32_t)__ffs((int)bits) - 1;
                }
            }
        }
        if (reads) picked.read(table, tree, known, out + rank, start + position, type);
    }
}
MORPHGL_KERNEL(typed_pick)

// Picks and reads the edges of the other sub-rows, a block per sub-row: those drawn by weight or picked by time, and more than 32 drawn
// uniformly. Keys of edges order them, the latest time or the clock that rings first before the others; radix select finds the key of the
// last pick digit by digit. Uniform draws are those of `sample_pick_large`, whose `scratch` this is.
// Launch bounds of 6 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(BLOCK, 6)
typed_pick_block(const uint64_t* sub_start, const uint32_t* sub_len, const uint32_t* candidates, const uint32_t* sub_indptr,
                 const uint16_t* sub_types, const uint64_t* counts, int32_t first, uint32_t rows, uint32_t sub_rows,
                 uint32_t width, const uint32_t* row_key, const uint32_t* trees, const uint64_t* tree_seeds,
                 const int64_t* bounds, const int64_t* edge_times, const int64_t* const* cached_times,
                 const int64_t* node_times, uint32_t by_weight, uint32_t by_last, uint32_t hop, uint32_t index, uint32_t epoch,
                 uint64_t seed, uint32_t most, uint64_t* scratch, const uint32_t* indices, const uint32_t* const* cached,
                 const float* weights, const float* const* cached_weights, uint32_t* nodes, uint32_t* slots, float* out_weights,
                 uint16_t* out_types, uint32_t node_bits, uint32_t tree_bits, uint64_t* entries, uint32_t mask, uint32_t layout,
                 uint64_t stamp) {
    __shared__ uint32_t shared[BLOCK / WARP], histogram[256], digit, rest, equal_ones;
    DYNAMIC_SHARED(uint64_t, fast);
    uint64_t* keys = scratch ? scratch + (uint64_t)blockIdx.x * 2 * most : fast;
    uint32_t* drawn = (uint32_t*)(keys + most);
    uint32_t* again = drawn + most;
    const SubRows subs = {sub_start, sub_len, candidates, sub_indptr, sub_types, width};
    const TreeTable table = {{entries, mask, layout, stamp}, node_bits, tree_bits};
    const Picked picked = {indices, cached, weights, cached_weights, nodes, slots, out_weights, out_types};
    const Candidates of = {indices, cached, edge_times, cached_times, node_times, nullptr, nullptr};
    const uint64_t from = first < 0 ? 0 : counts[first], all = counts[sub_rows];
    const uint32_t known = (uint32_t)counts[rows];
    for (uint64_t sub = blockIdx.x; sub < all; sub += gridDim.x) {
        const uint64_t row = from + sub / width, start = subs.start[sub];
        const uint32_t len = subs.len[sub], count = subs.candidates[sub], take = subs.take(sub), out = subs.indptr[sub];
        if (take == count || (take <= GROUP && !by_weight && !by_last)) continue;
        const uint16_t type = subs.types[sub];
        const uint32_t tree = trees ? trees[row] : 0, draw_epoch = (uint32_t)type << 16 ^ epoch, node = row_key[row];
        const uint64_t own_seed = trees ? tree_seeds[tree] : seed;
        const int64_t bound = of.timed() ? bounds[tree] : 0;
        const Clocks clocks = {hop, node, index, draw_epoch, own_seed};
        // The key of the edge at position `p`, the `nth` of those within the time; false where it is no candidate.
        const auto key_of = [&](uint32_t p, uint32_t nth, uint64_t& key) {
            if (by_last) {
                key = ~((uint64_t)of.time(start + p) ^ 1ull << 63);
                return true;
            }
            const float weight = *element(weights, cached_weights, start + p);
            if (weight > 0.0f) key = clocks.time(nth, weight);
            return weight > 0.0f;
        };
        if (by_weight || by_last) {
            uint64_t last = 0;
            uint32_t equals = take;
            for (int shift = 56; shift >= 0; shift -= 8) {
                for (uint32_t d = threadIdx.x; d < 256; d += BLOCK) histogram[d] = 0;
                __syncthreads();
                uint32_t seen = 0;
                for (uint64_t base = 0; base < len; base += BLOCK) {
                    const uint64_t p = base + threadIdx.x;
                    const bool is_known = p < len && of.known(start + p, bound);
                    uint32_t total;
                    const uint32_t nth = seen + block_rank<BLOCK / WARP>(is_known, shared, total);
                    seen += total;
                    uint64_t key;
                    if (!is_known || !key_of((uint32_t)p, nth, key)) continue;
                    if (shift == 56 || key >> (shift + 8) == last >> (shift + 8)) atomicAdd(&histogram[key >> shift & 255], 1u);
                }
                __syncthreads();
                if (threadIdx.x == 0) {
                    uint32_t d = 0, left = equals;
                    while (histogram[d] < left) left -= histogram[d++];
                    digit = d;
                    rest = left;
                    equal_ones = histogram[d];
                }
                __syncthreads();
                last |= (uint64_t)digit << shift;
                equals = rest;
                __syncthreads();
            }
            // All edges with keys before `last`; of those at `last` the first by weight, and those at the end of the sub-row by time.
            const uint32_t skipped = by_last ? equal_ones - equals : 0;
            uint32_t seen = 0, seen_equal = 0, place = out;
            for (uint64_t base = 0; base < len; base += BLOCK) {
                const uint64_t p = base + threadIdx.x;
                const bool is_known = p < len && of.known(start + p, bound);
                uint32_t total;
                const uint32_t nth = seen + block_rank<BLOCK / WARP>(is_known, shared, total);
                seen += total;
                uint64_t key = 0;
                const bool counts_in = is_known && key_of((uint32_t)p, nth, key), equal = counts_in && key == last;
                const uint32_t earlier = seen_equal + block_rank<BLOCK / WARP>(equal, shared, total);
                seen_equal += total;
                const bool taken = counts_in && (equal ? skipped <= earlier && earlier - skipped < equals : key < last);
                const uint32_t at = block_rank<BLOCK / WARP>(taken, shared, total);
                if (taken) picked.read(table, tree, known, place + at, start + p, type);
                place += total;
            }
            continue;
        }
        const uint32_t from_draw = count - take;
        for (uint32_t i = threadIdx.x; i < take; i += BLOCK) {
            drawn[i] = sampling_draw(i, from_draw + i, hop, node, index, draw_epoch, own_seed);
            keys[i] = (uint64_t)drawn[i] << 32 | i;
        }
        __syncthreads();
        block_sort<BLOCK>(keys, take);
        for (uint32_t s = threadIdx.x; s < take; s += BLOCK) {
            again[(uint32_t)keys[s]] = s > 0 && keys[s] >> 32 == keys[s - 1] >> 32;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < take; i += BLOCK) {
            uint32_t m = i;
            while (again[m] == 0 && drawn[m] >= from_draw && drawn[m] - from_draw < m) m = drawn[m] - from_draw;
            keys[i] = again[m] ? from_draw + i : drawn[i];
        }
        __syncthreads();
        block_sort<BLOCK>(keys, take);
        if (!of.timed()) {
            for (uint32_t s = threadIdx.x; s < take; s += BLOCK) picked.read(table, tree, known, out + s, start + keys[s], type);
        } else {
            // The picks are numbers of edges among those within the time.
            uint32_t seen = 0;
            for (uint64_t base = 0; base < len; base += BLOCK) {
                const uint64_t p = base + threadIdx.x;
                const bool is_known = p < len && of.known(start + p, bound);
                uint32_t total;
                const uint32_t nth = seen + block_rank<BLOCK / WARP>(is_known, shared, total);
                seen += total;
                uint32_t low = 0, high = take;
                while (low < high) {
                    const uint32_t middle = low + (high - low) / 2;
                    if (keys[middle] < nth) low = middle + 1; else high = middle;
                }
                if (is_known && low < take && keys[low] == nth) picked.read(table, tree, known, out + low, start + p, type);
            }
        }
        __syncthreads();
    }
}
MORPHGL_KERNEL(typed_pick_block)

// As `sample_relabel`, of nodes in trees: the tree of each new node is also written.
// Launch bounds of 8 blocks per multiprocessor: for more, the compiler spills registers.
extern "C" __global__ void __launch_bounds__(BLOCK, 8)
typed_relabel(const uint32_t* firsts, const uint64_t* sums, const uint32_t* slots, uint64_t* counts, uint32_t rows,
              uint32_t num_edges, uint32_t node_bits, uint32_t tree_bits, uint64_t* entries, uint32_t layout, uint32_t* nodes,
              uint32_t* trees) {
    __shared__ uint64_t shared[BLOCK / WARP];
    __shared__ uint32_t tile_bits[BLOCK], tile_rank[BLOCK];
    const uint32_t bits_of_value = layout >> 8, lane = threadIdx.x % WARP;
    const uint64_t words = (counts[num_edges] + WARP - 1) / WARP, end = share_begin(words, blockIdx.x + 1);
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
            const uint32_t slot = slots[(tile + w) * WARP + lane];
            const uint32_t local = (uint32_t)base + tile_rank[w] + __popc(bits & ((1u << lane) - 1));
            const uint64_t key = load_relaxed(&entries[slot]) >> bits_of_value;
            nodes[local] = (uint32_t)(key & ((1ull << node_bits) - 1));
            trees[local] = (uint32_t)(key >> node_bits & ((1ull << tree_bits) - 1));
            store_relaxed(&entries[slot], key << bits_of_value | local);
        }
        __syncthreads();
        base += total;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) counts[rows + 1] = base;
}
MORPHGL_KERNEL(typed_relabel)
