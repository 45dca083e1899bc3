// Weighted sums over the edges of a block, by destination row and, backward, by source; and the edges' weights.
//
// A thread has V columns of one row and walks the row's edges in order: no atomics, the same bits every time. The
// threads of a row lie side by side, so its sources' rows are read whole, and an edge's index is one address a warp.
#include "morphgl.cuh"

// Edges whose rows are read before the first is added: so many reads a thread are under way together.
#define GROUP 4u

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

// Four elements by one load: their address is a multiple of their length.
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

// out[row] = rows[row] * sum of edges[e] * x[indices[e]] + (loops[row] + 1 + eps) * x[row]; what is null is left out.
template <typename S, int V>
__device__ __forceinline__ void sum_rows(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ indices,
                                         const float* __restrict__ of_edges, const float* __restrict__ of_rows,
                                         const float* __restrict__ loops, const float* __restrict__ eps,
                                         const uint8_t* __restrict__ x, float* __restrict__ out, uint32_t rows,
                                         uint32_t width) {
    const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows || column >= width) return;
    float sum[V] = {}, value[V];
    const uint32_t end = indptr[row + 1];
    for (uint32_t e = indptr[row]; e < end; e += GROUP) {
        float values[GROUP][V], by[GROUP];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - e) continue;
            by[k] = of_edges ? of_edges[e + k] : 1.0f;
            load<S, V>(x, (uint64_t)indices[e + k] * width + column, values[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - e) continue;
            for (int i = 0; i < V; i++) sum[i] += by[k] * values[k][i];
        }
    }
    if (of_rows) {
        const float by = of_rows[row];
        for (int i = 0; i < V; i++) sum[i] *= by;
    }
    if (loops || eps) {
        const float own = (loops ? loops[row] : 0.0f) + (eps ? 1.0f + *eps : 0.0f);
        load<S, V>(x, (uint64_t)row * width + column, value);
        for (int i = 0; i < V; i++) sum[i] += own * value[i];
    }
    store<V>(out + (uint64_t)row * width + column, sum);
}

#define SUM_ROWS(name, S, V)                                                                                        \
    extern "C" __global__ void name(const uint32_t* indptr, const uint32_t* indices, const float* of_edges,        \
                                    const float* of_rows, const float* loops, const float* eps, const uint8_t* x,   \
                                    float* out, uint32_t rows, uint32_t width) {                                    \
        sum_rows<S, V>(indptr, indices, of_edges, of_rows, loops, eps, x, out, rows, width);                        \
    }                                                                                                               \
    MORPHGL_KERNEL(name)
SUM_ROWS(train_sum_f32, F32, 4)
SUM_ROWS(train_sum_f16, F16, 4)
SUM_ROWS(train_sum_bf16, Bf16, 4)
SUM_ROWS(train_sum_u8, U8, 4)
SUM_ROWS(train_sum_f32_single, F32, 1)
SUM_ROWS(train_sum_f16_single, F16, 1)
SUM_ROWS(train_sum_bf16_single, Bf16, 1)
SUM_ROWS(train_sum_u8_single, U8, 1)

// The same backward: what x[src] gets of the gradients of the rows that it was added to. Entry t of the transposed
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
    if (src >= num_src || column >= width) return;
    const uint8_t* from = reinterpret_cast<const uint8_t*>(gradient);
    float sum[V] = {}, value[V];
    const uint32_t end = indptr[src + 1];
    for (uint32_t t = indptr[src]; t < end; t += GROUP) {
        float values[GROUP][V], by[GROUP];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - t) continue;
            const uint32_t row = rows[t + k];
            by[k] = of_edges ? of_edges[edges[t + k]] : of_rows ? of_rows[row] : 1.0f;
            load<F32, V>(from, (uint64_t)row * width + column, values[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - t) continue;
            for (int i = 0; i < V; i++) sum[i] += by[k] * values[k][i];
        }
    }
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

// Input rows as f32, with their dropout (none at a threshold of 0): eight elements a thread.
template <typename S>
__device__ __forceinline__ void widen(const uint8_t* __restrict__ x, float* __restrict__ out, uint64_t len, DropoutMask mask) {
    const uint64_t group = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, first = group * 8;
    if (first >= len) return;
    const uint32_t count = len - first < 8 ? (uint32_t)(len - first) : 8;
    float values[8];
    if (count == 8) {
        load<S, 4>(x, first, values);
        load<S, 4>(x, first + 4, values + 4);
    } else {
        for (uint32_t i = 0; i < count; i++) load<S, 1>(x, first + i, values + i);
    }
    if (mask.threshold > 0) {
        const Words words = dropout_words(mask, group);
        for (uint32_t i = 0; i < 8; i++) {
            // A value that is no number stays out where it is dropped.
            if (i < count) values[i] = dropout_factor(mask, words, i) == 0.0f ? 0.0f : values[i] * mask.scale;
        }
    }
    if (count == 8) {
        store<4>(out + first, values);
        store<4>(out + first + 4, values + 4);
    } else {
        for (uint32_t i = 0; i < count; i++) out[first + i] = values[i];
    }
}

#define WIDEN(name, S)                                                                                             \
    extern "C" __global__ void name(const uint8_t* x, float* out, uint64_t len, uint64_t key, uint32_t site,       \
                                    uint32_t batch, uint32_t epoch, uint32_t threshold, float scale) {             \
        widen<S>(x, out, len, DropoutMask{key, site, batch, epoch, threshold, scale});                                    \
    }                                                                                                              \
    MORPHGL_KERNEL(name)
WIDEN(train_widen_f32, F32)
WIDEN(train_widen_f16, F16)
WIDEN(train_widen_bf16, Bf16)
WIDEN(train_widen_u8, U8)

// What a sampled row is multiplied by so that its sampled edges stand for all of its edges.
__device__ __forceinline__ float rescale(uint32_t begin, uint32_t end, const float* weights, float degree) {
    float sampled = (float)(end - begin);
    if (weights) {
        sampled = 0.0f;
        for (uint32_t e = begin; e < end; e++) sampled += weights[e];
    }
    return sampled > 0.0f && fabsf(degree - sampled) > 1e-5f * degree ? degree / sampled : 1.0f;
}

// A mean's rows: one through the number of neighbours.
extern "C" __global__ void train_mean(const uint32_t* indptr, float* of_rows, uint32_t rows) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) of_rows[row] = 1.0f / (float)max(indptr[row + 1] - indptr[row], 1u);
}
MORPHGL_KERNEL(train_mean)

// A sum's rows: sampled rows are scaled up to the node's degree.
extern "C" __global__ void train_rescale(const uint32_t* indptr, const float* weights, const float* degrees,
                                         float* of_rows, uint32_t rows) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) of_rows[row] = rescale(indptr[row], indptr[row + 1], weights, degrees[row]);
}
MORPHGL_KERNEL(train_rescale)

__device__ __forceinline__ float inverse(float degree) { return degree + 1.0f > 0.0f ? 1.0f / (degree + 1.0f) : 0.0f; }

// A graph convolution's edges and self loops: weights through the root of both degrees, each with a self loop.
extern "C" __global__ void train_convolution(const uint32_t* indptr, const uint32_t* indices, const float* weights,
                                             const float* degrees, float* of_edges, float* loops, uint32_t rows) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint32_t begin = indptr[row], end = indptr[row + 1];
    const float scale = rescale(begin, end, weights, degrees[row]), own = inverse(degrees[row]);
    for (uint32_t e = begin; e < end; e++) {
        const float weight = weights ? weights[e] : 1.0f;
        of_edges[e] = scale * weight * sqrtf(inverse(degrees[indices[e]]) * own);
    }
    loops[row] = sqrtf(own * own);
}
MORPHGL_KERNEL(train_convolution)
