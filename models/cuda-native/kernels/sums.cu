// Weighted sums over the edges of a block: by destination row in the forward pass, by source in the backward pass.
//
// A thread sums V columns of one row over the row's edges in order: no atomics, deterministic bits. The threads of a
// row are adjacent, so reads of its sources' rows are coalesced, and the index of an edge is one address per warp.
#include "morphgl.cuh"

// Edges whose rows are read before the first is added: reads in flight per thread.
#define GROUP 4u
// Maximum edges of a row for one row of threads. A longer row is divided among all rows of threads of its block.
#define LONG 512u
// Maximum threads of a block.
#define THREADS 256u

// Lists of entries, from `begins[list]` to `ends[list]`, or to the next list's begin where `ends` is null.
struct Lists {
    const uint32_t* __restrict__ begins;
    const uint32_t* __restrict__ ends;

    __device__ __forceinline__ Lists(const uint32_t* begins_, const uint32_t* ends_ = nullptr)
        : begins(begins_), ends(ends_) {}
    __device__ __forceinline__ uint32_t begin(uint32_t list) const { return begins[list]; }
    __device__ __forceinline__ uint32_t end(uint32_t list) const { return ends ? ends[list] : begins[list + 1]; }
    __device__ __forceinline__ uint32_t length(uint32_t list) const { return end(list) - begin(list); }
};

// Sums over the entries of lists, of which a row of threads processes one; `add(list, begin, end, sums)` adds entries to
// the N sums of each thread. All threads of the block must participate; those not `active` have no columns.
template <int N, typename Add>
__device__ __forceinline__ void list_sums(const Lists lists_of, uint32_t lists, bool active, float* sums, Add add) {
    __shared__ float found[N * THREADS];
    __shared__ uint32_t any;
    const uint32_t first = blockIdx.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    uint32_t list = first + threadIdx.y, begin = 0, end = 0;
    if (list < lists) begin = lists_of.begin(list), end = lists_of.end(list);
    if (thread == 0) any = 0;
    __syncthreads();
    if (end - begin > LONG) {
        if (threadIdx.x == 0) atomicOr(&any, 1u);
        end = begin;
    }
    __syncthreads();
    // First all short lists, then the long ones one by one, in equal parts.
    for (uint32_t next = 0;;) {
        float own[N] = {};
        if (active) add(list, begin, end, own);
        if (next == 0) {
#pragma unroll
            for (int n = 0; n < N; n++) sums[n] = own[n];
        } else {
#pragma unroll
            for (int n = 0; n < N; n++) found[n * THREADS + thread] = own[n];
            __syncthreads();
            for (uint32_t y = 0; y < blockDim.y && threadIdx.y == list - first; y++) {
#pragma unroll
                for (int n = 0; n < N; n++) sums[n] += found[n * THREADS + y * blockDim.x + threadIdx.x];
            }
            __syncthreads();
        }
        if (any == 0) return;
        for (; next < blockDim.y && first + next < lists; next++) {
            if (lists_of.length(first + next) > LONG) break;
        }
        if (next == blockDim.y || first + next >= lists) return;
        list = first + next++;
        const uint64_t from = lists_of.begin(list), to = lists_of.end(list), part = (to - from - 1) / blockDim.y + 1;
        begin = (uint32_t)min(from + part * threadIdx.y, to);
        end = (uint32_t)min(begin + part, to);
    }
}

struct F32 {
    static const int SIZE = 4;
};
struct F16 {
    static const int SIZE = 2;
};
struct Bf16 {
    static const int SIZE = 2;
};
struct U8 {
    static const int SIZE = 1;
};

__device__ __forceinline__ float stored_value(F32, const uint8_t* at) { return *reinterpret_cast<const float*>(at); }
__device__ __forceinline__ float stored_value(F16, const uint8_t* at) {
    return half_value(*reinterpret_cast<const uint16_t*>(at));
}
__device__ __forceinline__ float stored_value(Bf16, const uint8_t* at) {
    return bf16_value(*reinterpret_cast<const uint16_t*>(at));
}
__device__ __forceinline__ float stored_value(U8, const uint8_t* at) { return (float)*at; }

// Four elements by one load; their address is aligned to their size.
__device__ __forceinline__ void stored_four(F32, const uint8_t* at, float* out) {
    const float4 x = *reinterpret_cast<const float4*>(at);
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
}
template <typename S>
__device__ __forceinline__ void stored_halves(S type, const uint8_t* at, float* out) {
    const uint2 x = *reinterpret_cast<const uint2*>(at);
    const uint16_t bits[4] = {(uint16_t)x.x, (uint16_t)(x.x >> 16), (uint16_t)x.y, (uint16_t)(x.y >> 16)};
    for (int i = 0; i < 4; i++) out[i] = stored_value(type, reinterpret_cast<const uint8_t*>(&bits[i]));
}
__device__ __forceinline__ void stored_four(F16 type, const uint8_t* at, float* out) { stored_halves(type, at, out); }
__device__ __forceinline__ void stored_four(Bf16 type, const uint8_t* at, float* out) { stored_halves(type, at, out); }
__device__ __forceinline__ void stored_four(U8, const uint8_t* at, float* out) {
    const uint32_t x = *reinterpret_cast<const uint32_t*>(at);
    for (int i = 0; i < 4; i++) out[i] = (float)(x >> 8 * i & 0xffu);
}

template <typename S, int V>
__device__ __forceinline__ void load(const uint8_t* x, uint64_t element, float* out) {
    const uint8_t* at = x + element * S::SIZE;
    if (V == 4) {
        stored_four(S(), at, out);
    } else {
        out[0] = stored_value(S(), at);
    }
}

template <int V>
__device__ __forceinline__ void store(float* at, const float* values) {
    if (V == 4) {
        *reinterpret_cast<float4*>(at) = float4{values[0], values[1], values[2], values[3]};
    } else {
        at[0] = values[0];
    }
}

// Adds V columns of rows of `x`: entry e adds row `of(e)` times `by(e, row)`.
template <typename S, int V, typename Of, typename By>
__device__ __forceinline__ void add_rows(const uint8_t* __restrict__ x, uint32_t columns, uint32_t column, uint32_t e,
                                         uint32_t end, float* into, Of of, By by) {
    for (; e < end; e += GROUP) {
        float values[GROUP][V], times[GROUP];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - e) continue;
            const uint32_t row = of(e + k);
            times[k] = by(e + k, row);
            load<S, V>(x, (uint64_t)row * columns + column, values[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - e) continue;
            for (int i = 0; i < V; i++) into[i] += times[k] * values[k][i];
        }
    }
}

// out[row] = rows[row] * sum of edges[e] * x[indices[e]] + (loops[row] + 1 + eps) * x[row]; null terms are skipped. With `ids`, row r of
// the input is row ids[r] of `x`.
// For a mean, `of_rows` is written, not read: the inverse of the row's number of edges.
template <typename S, int V>
__device__ __forceinline__ void sum_rows(const Lists lists, const uint32_t* __restrict__ indices,
                                         const float* __restrict__ of_edges, float* __restrict__ of_rows,
                                         const float* __restrict__ loops, const float* __restrict__ eps,
                                         const uint8_t* __restrict__ x, const uint32_t* __restrict__ ids,
                                         float* __restrict__ out, uint32_t rows, uint32_t width, uint32_t mean) {
    const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    float sum[V] = {}, value[V];
    list_sums<V>(lists, rows, column < width, sum, [&](uint32_t, uint32_t begin, uint32_t end, float* into) {
        const auto source = [&](uint32_t e) { return ids ? ids[indices[e]] : indices[e]; };
        add_rows<S, V>(x, width, column, begin, end, into, source,
                       [&](uint32_t e, uint32_t) { return of_edges ? of_edges[e] : 1.0f; });
    });
    if (row >= rows || column >= width) return;
    if (of_rows) {
        const float by = mean ? 1.0f / (float)max(lists.length(row), 1u) : of_rows[row];
        if (mean && column == 0) of_rows[row] = by;
        for (int i = 0; i < V; i++) sum[i] *= by;
    }
    if (loops || eps) {
        const float own = (loops ? loops[row] : 0.0f) + (eps ? 1.0f + *eps : 0.0f);
        load<S, V>(x, (uint64_t)(ids ? ids[row] : row) * width + column, value);
        for (int i = 0; i < V; i++) sum[i] += own * value[i];
    }
    store<V>(out + (uint64_t)row * width + column, sum);
}

#define SUM_ROWS(name, S, V)                                                                                         \
    extern "C" __global__ void name(const uint32_t* begins, const uint32_t* ends, const uint32_t* indices,          \
                                    const float* of_edges, float* of_rows, const float* loops, const float* eps,     \
                                    const uint8_t* x, const uint32_t* ids, float* out, uint32_t rows,                \
                                    uint32_t width, uint32_t mean) {                                                 \
        sum_rows<S, V>(Lists(begins, ends), indices, of_edges, of_rows, loops, eps, x, ids, out, rows, width, mean); \
    }                                                                                                                \
    MORPHGL_KERNEL(name)
SUM_ROWS(train_sum_f32, F32, 4)
SUM_ROWS(train_sum_f16, F16, 4)
SUM_ROWS(train_sum_bf16, Bf16, 4)
SUM_ROWS(train_sum_u8, U8, 4)
SUM_ROWS(train_sum_f32_single, F32, 1)
SUM_ROWS(train_sum_f16_single, F16, 1)
SUM_ROWS(train_sum_bf16_single, Bf16, 1)
SUM_ROWS(train_sum_u8_single, U8, 1)

// Backward of the sum: the gradient of x[src] from those of the rows that it was added to. Entry t of the transposed
// block is edge edges[t], which ends in row rows[t].
template <int V>
__device__ __forceinline__ void sum_sources(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ rows,
                                            const uint32_t* __restrict__ edges, const float* __restrict__ of_edges,
                                            const float* __restrict__ of_rows, const float* __restrict__ loops,
                                            const float* __restrict__ eps, const float* __restrict__ gradient,
                                            float* __restrict__ out, uint32_t num_src, uint32_t num_dst,
                                            uint32_t width) {
    const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t src = blockIdx.x * blockDim.y + threadIdx.y;
    const uint8_t* from = reinterpret_cast<const uint8_t*>(gradient);
    float sum[V] = {}, value[V];
    list_sums<V>(indptr, num_src, column < width, sum, [&](uint32_t, uint32_t begin, uint32_t end, float* into) {
        add_rows<F32, V>(from, width, column, begin, end, into, [&](uint32_t t) { return rows[t]; },
                         [&](uint32_t t, uint32_t row) {
                             return of_edges ? of_edges[edges[t]] : of_rows ? of_rows[row] : 1.0f;
                         });
    });
    if (src >= num_src || column >= width) return;
    if (src < num_dst && (loops || eps)) {
        const float own = (loops ? loops[src] : 0.0f) + (eps ? 1.0f + *eps : 0.0f);
        load<F32, V>(from, (uint64_t)src * width + column, value);
        for (int i = 0; i < V; i++) sum[i] += own * value[i];
    }
    store<V>(out + (uint64_t)src * width + column, sum);
}

#define SUM_SOURCES(name, V)                                                                                         \
    extern "C" __global__ void name(const uint32_t* indptr, const uint32_t* rows, const uint32_t* edges,            \
                                    const float* of_edges, const float* of_rows, const float* loops,                 \
                                    const float* eps, const float* gradient, float* out, uint32_t num_src,           \
                                    uint32_t num_dst, uint32_t width) {                                              \
        sum_sources<V>(indptr, rows, edges, of_edges, of_rows, loops, eps, gradient, out, num_src, num_dst, width); \
    }                                                                                                                \
    MORPHGL_KERNEL(name)
SUM_SOURCES(train_sum_sources, 4)
SUM_SOURCES(train_sum_sources_single, 1)

// Typed layers: the output of a destination is the sum of the products of its rows (kernels/groups.cu), which are found
// from the first edge of each on; and that of its own row, whose entry comes after all edges, if it has one. The columns are
// the first ones of rows of `stride`.
template <int V>
__device__ __forceinline__ void sum_groups(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ of_entries,
                                           const uint32_t* __restrict__ ends, const uint8_t* __restrict__ products,
                                           float* __restrict__ out, uint32_t edges, uint32_t rows, uint32_t width,
                                           uint32_t stride, uint32_t own) {
    const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows || column >= width) return;
    float sum[V] = {}, value[V];
    const auto add = [&](uint32_t product) {
        load<F32, V>(products, (uint64_t)product * width + column, value);
        for (int i = 0; i < V; i++) sum[i] += value[i];
    };
    const uint32_t end = indptr[row + 1];
    for (uint32_t e = indptr[row]; e < end;) {
        const uint32_t of = of_entries[e];
        add(of);
        e = ends[of];
    }
    if (own) add(of_entries[edges + row]);
    store<V>(out + (uint64_t)row * stride + column, sum);
}

#define SUM_GROUPS(name, V)                                                                                            \
    extern "C" __global__ void name(const uint32_t* indptr, const uint32_t* of_entries, const uint32_t* ends,          \
                                    const uint8_t* products, float* out, uint32_t edges, uint32_t rows,                \
                                    uint32_t width, uint32_t stride, uint32_t own) {                                   \
        sum_groups<V>(indptr, of_entries, ends, products, out, edges, rows, width, stride, own);                       \
    }                                                                                                                  \
    MORPHGL_KERNEL(name)
SUM_GROUPS(train_sum_groups, 4)
SUM_GROUPS(train_sum_groups_single, 1)

// out[row, c] = sum of messages * values[source, c].
template <int V>
__device__ __forceinline__ void attend(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ indices,
                                       const float* __restrict__ messages, const uint8_t* __restrict__ values,
                                       float* __restrict__ out, uint32_t edges, uint32_t rows, uint32_t heads,
                                       uint32_t width) {
    const uint32_t columns = heads * width, column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y, head = column / width;
    float sum[V] = {}, value[V];
    list_sums<V>(indptr, rows, column < columns, sum, [&](uint32_t, uint32_t begin, uint32_t end, float* into) {
        add_rows<F32, V>(values, columns, column, begin, end, into, [&](uint32_t e) { return indices[e]; },
                         [&](uint32_t e, uint32_t) { return messages[(uint64_t)e * heads + head]; });
    });
    if (row >= rows || column >= columns) return;
    const float by = messages[((uint64_t)edges + row) * heads + head];
    load<F32, V>(values, (uint64_t)row * columns + column, value);
    for (int i = 0; i < V; i++) sum[i] += by * value[i];
    store<V>(out + (uint64_t)row * columns + column, sum);
}

#define ATTEND(name, V)                                                                                                \
    extern "C" __global__ void name(const uint32_t* indptr, const uint32_t* indices, const float* messages,           \
                                    const uint8_t* values, float* out, uint32_t edges, uint32_t rows, uint32_t heads,  \
                                    uint32_t width) {                                                                  \
        attend<V>(indptr, indices, messages, values, out, edges, rows, heads, width);                                  \
    }                                                                                                                  \
    MORPHGL_KERNEL(name)
ATTEND(train_attend, 4)
ATTEND(train_attend_single, 1)

// GAT's gradient of values, by source: messages * gradients of the rows, plus both attention vectors * gradients of the
// score terms. `of_src` receives the gradient of each source's term.
template <int V>
__device__ __forceinline__ void attend_backward(
    const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ rows_of, const uint32_t* __restrict__ edges_of,
    const float* __restrict__ messages, const float* __restrict__ scores, const float* __restrict__ of_rows,
    const float* __restrict__ att_src, const float* __restrict__ att_dst, const uint8_t* __restrict__ gradient,
    float* __restrict__ of_src, float* __restrict__ out, uint32_t num_src, uint32_t num_dst, uint32_t edges,
    uint32_t heads, uint32_t width) {
    const uint32_t columns = heads * width, column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t src = blockIdx.x * blockDim.y + threadIdx.y, head = column / width;
    // The last sum is the gradient of the source's term.
    float sum[V + 1] = {}, value[V];
    list_sums<V + 1>(indptr, num_src, column < columns, sum, [&](uint32_t, uint32_t t, uint32_t end, float* into) {
        for (; t < end; t += GROUP) {
            float found[GROUP][V], by[GROUP], score[GROUP];
#pragma unroll
            for (uint32_t k = 0; k < GROUP; k++) {
                if (k >= end - t) continue;
                const uint64_t at = (uint64_t)edges_of[t + k] * heads + head;
                by[k] = messages[at];
                score[k] = scores[at];
                load<F32, V>(gradient, (uint64_t)rows_of[t + k] * columns + column, found[k]);
            }
#pragma unroll
            for (uint32_t k = 0; k < GROUP; k++) {
                if (k >= end - t) continue;
                for (int i = 0; i < V; i++) into[i] += by[k] * found[k][i];
                into[V] += score[k];
            }
        }
    });
    if (src >= num_src || column >= columns) return;
    float half = sum[V];
    if (src < num_dst) {
        const uint64_t at = ((uint64_t)edges + src) * heads + head;
        const float by = messages[at], own = of_rows[(uint64_t)src * heads + head];
        load<F32, V>(gradient, (uint64_t)src * columns + column, value);
        for (int i = 0; i < V; i++) sum[i] += by * value[i] + own * att_dst[column + i];
        half += scores[at];
    }
    for (int i = 0; i < V; i++) sum[i] += half * att_src[column + i];
    store<V>(out + (uint64_t)src * columns + column, sum);
    if (column % width == 0) of_src[(uint64_t)src * heads + head] = half;
}

#define ATTEND_BACKWARD(name, V)                                                                                       \
    extern "C" __global__ void name(const uint32_t* indptr, const uint32_t* rows_of, const uint32_t* edges_of,        \
                                    const float* messages, const float* scores, const float* of_rows,                  \
                                    const float* att_src, const float* att_dst, const uint8_t* gradient, float* of_src,\
                                    float* out, uint32_t num_src, uint32_t num_dst, uint32_t edges, uint32_t heads,    \
                                    uint32_t width) {                                                                  \
        attend_backward<V>(indptr, rows_of, edges_of, messages, scores, of_rows, att_src, att_dst, gradient, of_src,   \
                           out, num_src, num_dst, edges, heads, width);                                                \
    }                                                                                                                  \
    MORPHGL_KERNEL(name)
ATTEND_BACKWARD(train_attend_backward, 4)
ATTEND_BACKWARD(train_attend_backward_single, 1)

// GATv2's gradient of the left side, by source.
extern "C" __global__ void train_left_backward(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ rows_of,
                                               const uint32_t* __restrict__ edges_of, const float* __restrict__ messages,
                                               const float* __restrict__ scores, const float* __restrict__ left,
                                               const float* __restrict__ right, const float* __restrict__ att,
                                               const float* __restrict__ gradient, float* __restrict__ out,
                                               uint32_t num_src, uint32_t num_dst, uint32_t edges, uint32_t heads,
                                               uint32_t width, float slope) {
    const uint32_t columns = heads * width, column = blockIdx.y * blockDim.x + threadIdx.x;
    const uint32_t src = blockIdx.x * blockDim.y + threadIdx.y, head = column / width;
    // Gradient of a source from one row, by position of the edge.
    const auto given = [&](uint32_t to, uint32_t row, uint64_t position) {
        const uint64_t at = position * heads + head, element = (uint64_t)row * columns + column;
        const float side = left[(uint64_t)to * columns + column] + right[element] > 0.0f ? 1.0f : slope;
        return messages[at] * gradient[element] + scores[at] * att[column] * side;
    };
    float sum = 0.0f;
    list_sums<1>(indptr, num_src, column < columns, &sum, [&](uint32_t to, uint32_t t, uint32_t end, float* into) {
        for (; t < end; t++) *into += given(to, rows_of[t], edges_of[t]);
    });
    if (src >= num_src || column >= columns) return;
    if (src < num_dst) sum += given(src, src, (uint64_t)edges + src);
    out[(uint64_t)src * columns + column] = sum;
}
MORPHGL_KERNEL(train_left_backward)

// GATv2's gradient of the right side, by row; `of_att` receives each row's part of the attention vector's gradient.
extern "C" __global__ void train_right_backward(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ indices,
                                                const float* __restrict__ scores, const float* __restrict__ left,
                                                const float* __restrict__ right, const float* __restrict__ att,
                                                float* __restrict__ out, float* __restrict__ of_att, uint32_t edges,
                                                uint32_t rows, uint32_t heads, uint32_t width, float slope) {
    const uint32_t columns = heads * width, column = blockIdx.y * blockDim.x + threadIdx.x;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y, head = column / width;
    const auto give = [&](uint32_t to, uint32_t src, uint64_t position, float* into) {
        const float score = scores[position * heads + head];
        const float under = left[(uint64_t)src * columns + column] + right[(uint64_t)to * columns + column];
        into[0] += score * att[column] * (under > 0.0f ? 1.0f : slope);
        into[1] += score * (under > 0.0f ? under : slope * under);
    };
    float sums[2] = {};
    list_sums<2>(indptr, rows, column < columns, sums, [&](uint32_t to, uint32_t e, uint32_t end, float* into) {
        for (; e < end; e++) give(to, indices[e], e, into);
    });
    if (row >= rows || column >= columns) return;
    give(row, row, (uint64_t)edges + row, sums);
    out[(uint64_t)row * columns + column] = sums[0];
    of_att[(uint64_t)row * columns + column] = sums[1];
}
MORPHGL_KERNEL(train_right_backward)

// Elements of input rows: those of `x` one after the other, or with `ids` row r is row ids[r] of `x`.
template <typename S>
struct Elements {
    const uint8_t* x;
    const uint32_t* ids;
    uint32_t columns;

    __device__ __forceinline__ uint64_t at(uint64_t i) const {
        return ids ? (uint64_t)ids[i / columns] * columns + i % columns : i;
    }

    // Four elements from a multiple of four on: by one load where they lie together in `x` at a multiple of four, too.
    __device__ __forceinline__ void four(uint64_t i, float* out) const {
        if (ids == nullptr || columns % 4 == 0) {
            load<S, 4>(x, at(i), out);
        } else {
            for (uint32_t k = 0; k < 4; k++) load<S, 1>(x, at(i + k), out + k);
        }
    }

    __device__ __forceinline__ void one(uint64_t i, float* out) const { load<S, 1>(x, at(i), out); }
};

// Widens input rows to f32, with dropout (none at a threshold of 0).
template <typename S>
__device__ __forceinline__ void widen(const Elements<S> rows, float* __restrict__ out, uint64_t len, uint32_t columns,
                                      const DropoutMask& mask) {
    if (mask.threshold == 0) {
        // The eight elements of a thread are two groups of four, so that adjacent threads write adjacent addresses.
        const uint64_t begin = ((uint64_t)blockIdx.x * 2 * blockDim.x + threadIdx.x) * 4, next = begin + 4 * blockDim.x;
        float four[2][4];
        if (begin + 4 <= len) rows.four(begin, four[0]);
        if (next + 4 <= len) rows.four(next, four[1]);
        for (uint32_t k = 0; k < 2; k++) {
            const uint64_t at = k == 0 ? begin : next;
            if (at + 4 <= len) {
                store<4>(out + at, four[k]);
            } else {
                for (uint64_t i = at; i < len; i++) rows.one(i, out + i);
            }
        }
        return;
    }
    const DropoutGroup group(mask, len, columns);
    const uint64_t first = group.first;
    const uint32_t count = group.count;
    if (count == 0) return;
    float values[8];
    if (group.whole()) {
        rows.four(first, values);
        rows.four(first + 4, values + 4);
    } else {
        for (uint32_t i = 0; i < count; i++) rows.one(first + i, values + i);
    }
    const Words words = dropout_words(mask, group.row, group.block);
    for (uint32_t i = 0; i < 8; i++) {
        // A select, not a multiplication: a dropped value that is not finite becomes 0.
        if (i < count) values[i] = dropout_factor(mask, words, i) == 0.0f ? 0.0f : values[i] * mask.scale;
    }
    if (group.whole()) {
        store<4>(out + first, values);
        store<4>(out + first + 4, values + 4);
    } else {
        for (uint32_t i = 0; i < count; i++) out[first + i] = values[i];
    }
}

#define WIDEN(name, S)                                                                                             \
    extern "C" __global__ void name(const uint8_t* x, const uint32_t* ids, uint64_t first, float* out,             \
                                    uint64_t len, uint32_t columns, uint64_t key, uint32_t threshold, float scale, \
                                    const uint32_t* nodes, const uint32_t* keys, uint64_t num_keys) {              \
        const Elements<S> rows{x, ids ? ids + first : nullptr, columns};                                           \
        widen<S>(rows, out, len, columns, DropoutMask{key, threshold, scale, nodes, keys, num_keys});              \
    }                                                                                                              \
    MORPHGL_KERNEL(name)
WIDEN(train_widen_f32, F32)
WIDEN(train_widen_f16, F16)
WIDEN(train_widen_bf16, Bf16)
WIDEN(train_widen_u8, U8)
