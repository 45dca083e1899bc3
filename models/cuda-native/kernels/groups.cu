// Groups of a block's rows by the weight that multiplies them, for typed layers.
//
// The edges of one type that end in one destination lie together, ascending by type: a row of that type's group. Besides
// these, each destination has an own row. Entries are the edges, then one per destination for its own row. The rows are
// sorted by their weight: the number of an edge type, or that of edge types plus that of the own row's weight. Their
// numbers are found by sorting (kernels/transpose.cu) the first entry of each. The key after those of weights is of
// entries that begin no row, and the last one of entries whose type or node does not exist.
#include "morphgl.cuh"

// The range that a value lies in: the last one that starts at or before it.
__device__ __forceinline__ uint32_t range_of(const uint32_t* __restrict__ starts, uint32_t ranges, uint32_t value) {
    uint32_t low = 0, high = ranges;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (starts[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// The first edge from `low` on whose type is at least `type`, below `high`.
__device__ __forceinline__ uint32_t first_of_type(const uint16_t* __restrict__ types, uint32_t low, uint32_t high,
                                                  uint32_t type) {
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (types[middle] < type) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The key of each entry. `starts` are the first nodes of each node type and the nodes' end, if a destination's own weight
// depends on its type.
extern "C" __global__ void train_group_keys(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ row_of,
                                            const uint16_t* __restrict__ types, const uint32_t* __restrict__ nodes,
                                            const uint32_t* __restrict__ starts, uint32_t* __restrict__ keys,
                                            uint32_t edges, uint32_t rows, uint32_t num_types, uint32_t own) {
    const uint64_t entry = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= (uint64_t)edges + rows) return;
    const uint32_t none = num_types + own, wrong = none + 1;
    if (entry >= edges) {
        const uint32_t node = own > 1 ? nodes[entry - edges] : 0;
        keys[entry] = own == 1 ? num_types : node < starts[own] ? num_types + range_of(starts, own, node) : wrong;
        return;
    }
    const bool first = indptr[row_of[entry]] == entry || types[entry - 1] != types[entry];
    keys[entry] = types[entry] >= num_types ? wrong : first ? types[entry] : none;
}
MORPHGL_KERNEL(train_group_keys)

// The rows, from the sorted first entries: where their entries begin and end, and the destination of each. `places`
// receives the row of each first entry; `starts` has the first row of each key.
extern "C" __global__ void train_group_rows(const uint32_t* __restrict__ sorted, const uint32_t* __restrict__ starts,
                                            const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ row_of,
                                            const uint16_t* __restrict__ types, uint32_t* __restrict__ begins,
                                            uint32_t* __restrict__ ends, uint32_t* __restrict__ rows_of,
                                            uint32_t* __restrict__ places, uint32_t edges, uint32_t weights) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= starts[weights]) return;
    const uint32_t entry = sorted[row];
    uint32_t end = entry + 1, to = entry - edges;
    if (entry < edges) {
        to = row_of[entry];
        end = first_of_type(types, entry, indptr[to + 1], (uint32_t)types[entry] + 1);
    }
    begins[row] = entry;
    ends[row] = end;
    rows_of[row] = to;
    places[entry] = row;
}
MORPHGL_KERNEL(train_group_rows)

// The source and the row of each entry.
extern "C" __global__ void train_group_entries(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ indices,
                                               const uint32_t* __restrict__ row_of, const uint16_t* __restrict__ types,
                                               const uint32_t* __restrict__ places, uint32_t* __restrict__ columns,
                                               uint32_t* __restrict__ of_entries, uint32_t edges, uint32_t rows) {
    const uint64_t entry = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= (uint64_t)edges + rows) return;
    if (entry >= edges) {
        columns[entry] = (uint32_t)(entry - edges);
        of_entries[entry] = places[entry];
        return;
    }
    columns[entry] = indices[entry];
    of_entries[entry] = places[first_of_type(types, indptr[row_of[entry]], (uint32_t)entry, types[entry])];
}
MORPHGL_KERNEL(train_group_entries)

// The number of each row's node among the nodes of its type, of which `node_starts` has the first one; `starts` has the first
// row of each type. Rows are of nodes alone, without edges.
extern "C" __global__ void train_group_numbers(const uint32_t* __restrict__ nodes, const uint32_t* __restrict__ rows_of,
                                               const uint32_t* __restrict__ starts, const uint32_t* __restrict__ node_starts,
                                               uint32_t* __restrict__ numbers, uint32_t types) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= starts[types]) return;
    numbers[row] = nodes[rows_of[row]] - node_starts[range_of(starts, types, row)];
}
MORPHGL_KERNEL(train_group_numbers)

// Adds the gradients of rows to those of a table's rows with these numbers, if the gate is open. `order` sorts the rows by
// number; the first of each number adds those of all, in their order.
extern "C" __global__ void train_table_gradients(const uint32_t* gate, const uint32_t* __restrict__ numbers,
                                                 const uint32_t* __restrict__ order, const float* __restrict__ gradients,
                                                 float* __restrict__ total, uint32_t rows, uint32_t width) {
    const uint32_t column = blockIdx.y * blockDim.x + threadIdx.x, first = blockIdx.x * blockDim.y + threadIdx.y;
    if (*gate == 0 || first >= rows || column >= width) return;
    const uint32_t number = numbers[order[first]];
    if (first > 0 && numbers[order[first - 1]] == number) return;
    float sum = 0.0f;
    for (uint32_t i = first; i < rows && numbers[order[i]] == number; i++) {
        sum += gradients[(uint64_t)order[i] * width + column];
    }
    total[(uint64_t)number * width + column] += sum;
}
MORPHGL_KERNEL(train_table_gradients)

// Adds the bias of each destination's own weight; `starts` has the first own row of each weight and the rows' end.
extern "C" __global__ void train_group_biases(const uint32_t* __restrict__ own_rows, const uint32_t* __restrict__ starts,
                                              const float* __restrict__ biases, float* __restrict__ out, uint32_t rows,
                                              uint32_t width, uint32_t own) {
    const uint32_t column = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows || column >= width) return;
    out[(uint64_t)row * width + column] += biases[(uint64_t)range_of(starts, own, own_rows[row]) * width + column];
}
MORPHGL_KERNEL(train_group_biases)

// Attention by edge type (R-GAT). A term of a score is a node's row times a vector of each type, side (0 the source, 1 the
// destination) and head: `terms[node][(type * 2 + side) * heads + head]`. Scores are of one head after the other.
extern "C" __global__ void train_type_scores(const uint32_t* __restrict__ indices, const uint32_t* __restrict__ of_entries,
                                             const uint32_t* __restrict__ rows_of, const uint32_t* __restrict__ starts,
                                             const float* __restrict__ terms, float* __restrict__ scores, uint32_t edges,
                                             uint32_t types, uint32_t heads, float slope) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (uint64_t)edges * heads) return;
    const uint32_t e = (uint32_t)(i % edges), head = (uint32_t)(i / edges), row = of_entries[e];
    const uint64_t width = 2ull * types * heads;
    const uint32_t at = range_of(starts, types, row) * 2 * heads + head;
    const float sum = terms[indices[e] * width + at] + terms[rows_of[row] * width + at + heads];
    scores[i] = sum > 0.0f ? sum : slope * sum;
}
MORPHGL_KERNEL(train_type_scores)

// Gradients of the terms of one head. Those of destinations: a row's, of its destination and type.
extern "C" __global__ void train_type_terms_rows(const uint32_t* __restrict__ rows_of, const uint32_t* __restrict__ starts,
                                                 const float* __restrict__ of_rows, float* __restrict__ terms,
                                                 uint32_t rows, uint32_t types, uint32_t heads, uint32_t head) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint32_t at = (range_of(starts, types, row) * 2 + 1) * heads + head;
    terms[rows_of[row] * (2ull * types * heads) + at] = of_rows[row];
}
MORPHGL_KERNEL(train_type_terms_rows)

// Those of sources: the sums over a source's edges of each type, which one thread adds in order. `indptr`, `rows` and
// `edges_of` are the transposed edges.
extern "C" __global__ void train_type_terms_sources(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ rows,
                                                    const uint32_t* __restrict__ edges_of,
                                                    const uint32_t* __restrict__ starts,
                                                    const float* __restrict__ of_edges, float* __restrict__ terms,
                                                    uint32_t num_src, uint32_t types, uint32_t heads, uint32_t head) {
    const uint32_t src = blockIdx.x * blockDim.x + threadIdx.x;
    if (src >= num_src) return;
    float* own = terms + src * (2ull * types * heads) + head;
    for (uint32_t t = indptr[src]; t < indptr[src + 1]; t++) {
        own[range_of(starts, types, rows[t]) * 2 * heads] += of_edges[edges_of[t]];
    }
}
MORPHGL_KERNEL(train_type_terms_sources)

// The columns of one head of the gradients of rows' destinations.
extern "C" __global__ void train_head_rows(const float* __restrict__ gradient, const uint32_t* __restrict__ rows_of,
                                           float* __restrict__ out, uint32_t rows, uint32_t width, uint32_t stride) {
    const uint32_t column = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows || column >= width) return;
    out[(uint64_t)row * width + column] = gradient[(uint64_t)rows_of[row] * stride + column];
}
MORPHGL_KERNEL(train_head_rows)
