// Random walks from the nodes of a mini-batch, and the nodes that they visit most often. These are the rows of a graph of their
// own, each with room for `keep` edges: the hop then takes all of them, as of the graph.
#include "morphgl.cuh"

#define BLOCK 128u
// A step that was not taken visits no node: a graph has fewer.
#define NOT_TAKEN 0xffffffffu
// A node that is not kept comes last.
#define LAST 0xffffffffffffffffull

// How walks go: `walks` from each node, of at most `length` steps. A walk ends before a step whose second word is below
// `restart`.
struct Steps {
    uint32_t walks, length;
    uint64_t restart;
};

// The rows that lose edges in a mini-batch of pairs, of `num` ascending nodes: parts of the cached rows.
struct Lost {
    const uint32_t* nodes;
    uint32_t num;
    const uint64_t* starts;
    const uint32_t* lens;
};

// The graph, whose rows lie as `sample_locate` has them.
struct Graph {
    const uint64_t* starts;
    const uint32_t* lens;
    uint32_t cached_rows;
    const uint32_t *indices, *const *cached;
    Lost lost;
    // Number of times that each row is read, or null.
    uint32_t* accesses;

    // Number of the node's edges; position of the first one to `first`.
    __device__ __forceinline__ uint32_t row(uint32_t node, uint64_t& first) const {
        const uint32_t at = find_ascending(lost.nodes, lost.num, node);
        if (at < lost.num) {
            first = lost.starts[at];
            return lost.lens[at];
        }
        const uint64_t start = starts[node];
        first = node < cached_rows ? start | CACHED : start;
        return lens ? lens[node] : (uint32_t)(starts[node + 1] - start);
    }
};

// Random numbers of the walks from a node, given by its number in their counters.
struct Draws {
    uint32_t hop, node, index, epoch;
    uint64_t seed;

    __device__ __forceinline__ Words block(uint32_t stream, uint32_t block) const {
        return philox(stream << 28 | hop << 22 | block, node, index, epoch, (uint32_t)seed, (uint32_t)(seed >> 32));
    }
};

// Walks once from `node`; `visit(number, node)` is called for each step, taken or not, by its number among all walks' steps.
template <typename Visit>
__device__ __forceinline__ void walk(const Graph& graph, const Steps& steps, const Draws& draws, uint32_t node,
                                     uint32_t number, Visit visit) {
    bool ended = false;
    for (uint32_t step = 0; step < steps.length; step++, number++) {
        if (!ended) {
            uint64_t first;
            const uint32_t len = graph.row(node, first);
            const Words words = draws.block(4, number);
            ended = len == 0 || (step > 0 && words.word[1] < steps.restart);
            if (!ended) {
                if (graph.accesses) atomicAdd(&graph.accesses[node], 1u);
                const uint32_t position = bounded(
                    len, words.word[0], [&](uint32_t r) { return draws.block(5, 64 * number + r / 4).at(r); });
                node = *element(graph.indices, graph.cached, first + position);
            }
        }
        visit(number, ended ? NOT_TAKEN : node);
    }
}

// Order of the nodes visited: by visits, descending, then by the first one.
__device__ __forceinline__ uint64_t order_of(uint32_t visits, uint32_t first, uint32_t node) {
    return (uint64_t)(0x10000u - visits) << 48 | (uint64_t)first << 32 | node;
}

__device__ __forceinline__ float visits_of(uint64_t order) { return (float)(0x10000u - (uint32_t)(order >> 48)); }

// Rows of up to 128 steps, as many at a time as `per_block` says: each visit is compared with the other ones of its row.
// Dynamic shared memory has 12 bytes per step of these rows.
extern "C" __global__ void __launch_bounds__(BLOCK)
walk_few(const uint32_t* nodes, const uint32_t* row_key, const uint64_t* counts, uint32_t rows, uint32_t walks,
         uint32_t length, uint64_t restart, uint32_t keep, uint32_t per_block, uint32_t hop, uint32_t index,
         uint32_t epoch, uint64_t seed, const uint64_t* starts, const uint32_t* lens, uint32_t cached_rows,
         const uint32_t* indices, const uint32_t* const* cached, const uint32_t* lost, uint32_t num_lost,
         const uint64_t* lost_starts, const uint32_t* lost_lens, uint32_t* accesses, uint64_t* row_start,
         uint32_t* row_len, uint32_t* found, float* visits) {
    DYNAMIC_SHARED(uint64_t, orders);
    const Graph graph = {starts, lens, cached_rows, indices, cached, {lost, num_lost, lost_starts, lost_lens}, accesses};
    const Steps steps = {walks, length, restart};
    const uint32_t of_row = walks * length, all = per_block * of_row;
    uint32_t* visited = (uint32_t*)(orders + all);
    const uint64_t n = counts[rows];
    for (uint64_t base = (uint64_t)blockIdx.x * per_block; base < n; base += (uint64_t)gridDim.x * per_block) {
        for (uint32_t t = threadIdx.x; t < per_block * walks; t += BLOCK) {
            const uint64_t row = base + t / walks;
            if (row >= n) break;
            uint32_t* to = visited + t / walks * of_row;
            const uint32_t node = nodes[row];
            const Draws draws = {hop, row_key[row], index, epoch, seed};
            walk(graph, steps, draws, node, t % walks * length,
                 [&](uint32_t number, uint32_t at) { to[number] = at == node ? NOT_TAKEN : at; });
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < all && base + i / of_row < n; i += BLOCK) {
            const uint32_t *of = visited + i / of_row * of_row, own = i % of_row, node = of[own];
            uint64_t order = LAST;
            if (node != NOT_TAKEN) {
                uint32_t first = 0, count = 0;
                while (of[first] != node) first++;
                for (uint32_t j = first; first == own && j < of_row; j++) count += of[j] == node;
                if (first == own) order = order_of(count, first, node);
            }
            orders[i] = order;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < all && base + i / of_row < n; i += BLOCK) {
            const uint64_t row = base + i / of_row, order = orders[i], *of = orders + i / of_row * of_row;
            uint32_t rank = 0, kept = 0;
            for (uint32_t j = 0; j < of_row; j++) {
                rank += of[j] < order;
                kept += of[j] != LAST;
            }
            if (order != LAST && rank < keep) {
                found[row * keep + rank] = (uint32_t)order;
                visits[row * keep + rank] = visits_of(order);
            }
            if (i % of_row == 0) {
                row_start[row] = row * keep;
                row_len[row] = min(keep, kept);
            }
        }
        __syncthreads();
    }
}
MORPHGL_KERNEL(walk_few)

// Rows of more steps, a block each: visits are sorted by node, and the nodes then by order. `scratch` has 16 bytes per step and
// block, or is null: then shared memory is used. One block per multiprocessor is asked for:
// else NVRTC 12.8 keeps to 40 registers on sm_120, and spills.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
walk_many(const uint32_t* nodes, const uint32_t* row_key, const uint64_t* counts, uint32_t rows, uint32_t walks,
          uint32_t length, uint64_t restart, uint32_t keep, uint64_t* scratch, uint32_t hop, uint32_t index,
          uint32_t epoch, uint64_t seed, const uint64_t* starts, const uint32_t* lens, uint32_t cached_rows,
          const uint32_t* indices, const uint32_t* const* cached, const uint32_t* lost, uint32_t num_lost,
          const uint64_t* lost_starts, const uint32_t* lost_lens, uint32_t* accesses, uint64_t* row_start,
          uint32_t* row_len, uint32_t* found, float* visits) {
    DYNAMIC_SHARED(uint64_t, fast);
    const Graph graph = {starts, lens, cached_rows, indices, cached, {lost, num_lost, lost_starts, lost_lens}, accesses};
    const Steps steps = {walks, length, restart};
    const uint32_t of_row = walks * length;
    // A visit is its node, and its position as the low word.
    uint64_t* visited = scratch ? scratch + (uint64_t)blockIdx.x * 2 * of_row : fast;
    uint64_t* orders = visited + of_row;
    const uint64_t n = counts[rows];
    for (uint64_t row = blockIdx.x; row < n; row += gridDim.x) {
        const uint32_t node = nodes[row];
        const Draws draws = {hop, row_key[row], index, epoch, seed};
        for (uint32_t w = threadIdx.x; w < walks; w += BLOCK) {
            walk(graph, steps, draws, node, w * length, [&](uint32_t number, uint32_t at) {
                visited[number] = (uint64_t)(at == node ? NOT_TAKEN : at) << 32 | number;
            });
        }
        __syncthreads();
        block_sort<BLOCK>(visited, of_row);
        for (uint32_t i = threadIdx.x; i < of_row; i += BLOCK) {
            const uint32_t at = (uint32_t)(visited[i] >> 32);
            uint64_t order = LAST;
            if (at != NOT_TAKEN && (i == 0 || visited[i - 1] >> 32 != at)) {
                uint32_t low = i + 1, high = of_row;
                while (low < high) {
                    const uint32_t middle = low + (high - low) / 2;
                    if (visited[middle] >> 32 == at) low = middle + 1; else high = middle;
                }
                order = order_of(low - i, (uint32_t)visited[i], at);
            }
            orders[i] = order;
        }
        __syncthreads();
        block_sort<BLOCK>(orders, of_row);
        const uint32_t most = min(keep, of_row);
        for (uint32_t i = threadIdx.x; i < most && orders[i] != LAST; i += BLOCK) {
            found[row * keep + i] = (uint32_t)orders[i];
            visits[row * keep + i] = visits_of(orders[i]);
            if (i + 1 == most || orders[i + 1] == LAST) row_len[row] = i + 1;
        }
        if (threadIdx.x == 0) {
            row_start[row] = row * keep;
            if (orders[0] == LAST) row_len[row] = 0;
        }
        __syncthreads();
    }
}
MORPHGL_KERNEL(walk_many)
