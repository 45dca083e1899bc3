// Graph attention: scores, a softmax over each row, the weighted sum, and all of that backward.
//
// Position p < edges is edge p of the block, position edges + row the self loop of a row. An edge from a node to itself
// is left out: its score is minus infinity, so its coefficient and its gradient are 0.
#include "morphgl.cuh"

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }
__device__ __forceinline__ float leaky(float x, float slope) { return x > 0.0f ? x : slope * x; }

// The sum over the lanes that share an element, which lie side by side: blockDim.x of them, a power of two. All lanes of
// a warp take part.
__device__ __forceinline__ float lane_sum(float value) {
    for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) value += __shfl_xor_sync(ALL_LANES, value, (int)by);
    return value;
}

// out[node, head] = z[node, head] . att[head], GAT's half of a score. A block has one head.
extern "C" __global__ void train_halves(const float* __restrict__ z, const float* __restrict__ att,
                                        float* __restrict__ out, uint32_t nodes, uint32_t width) {
    const uint32_t node = blockIdx.x * blockDim.y + threadIdx.y, head = blockIdx.y;
    const uint64_t i = (uint64_t)node * gridDim.y + head;
    const uint32_t end = node < nodes ? width : 0;
    const float *row = z + i * width, *by = att + (uint64_t)head * width;
    float sum = 0.0f;
    for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) sum += row[c] * by[c];
    sum = lane_sum(sum);
    if (node < nodes && threadIdx.x == 0) out[i] = sum;
}
MORPHGL_KERNEL(train_halves)

__device__ __forceinline__ bool ends(const uint32_t* indices, const uint32_t* row_of, uint64_t position, uint32_t edges,
                                     uint32_t* src, uint32_t* row) {
    if (position < edges) {
        *src = indices[position];
        *row = row_of[position];
        return *src != *row;
    }
    *src = *row = (uint32_t)(position - edges);
    return true;
}

// GAT's scores: leaky(halves of the source + halves of the row).
extern "C" __global__ void train_scores(const uint32_t* indices, const uint32_t* row_of, const float* of_src,
                                        const float* of_dst, float* scores, uint32_t edges, uint32_t rows,
                                        uint32_t heads, float slope) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (uint64_t)((uint64_t)edges + rows) * heads) return;
    uint32_t src, row;
    const uint32_t head = (uint32_t)(i % heads);
    const bool in = ends(indices, row_of, i / heads, edges, &src, &row);
    const float sum = of_src[(uint64_t)src * heads + head] + of_dst[(uint64_t)row * heads + head];
    scores[i] = in ? leaky(sum, slope) : minus_infinity();
}
MORPHGL_KERNEL(train_scores)

// GATv2's scores: att . leaky(left of the source + right of the row). A block has one head.
extern "C" __global__ void train_scores_second(const uint32_t* indices, const uint32_t* row_of, const float* left,
                                               const float* right, const float* att, float* scores, uint32_t edges,
                                               uint32_t rows, uint32_t width, float slope) {
    const uint64_t position = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const uint32_t head = blockIdx.y, heads = gridDim.y;
    const bool there = position < (uint64_t)edges + rows;
    uint32_t src = 0, row = 0;
    const bool in = there && ends(indices, row_of, position, edges, &src, &row);
    const float *l = left + ((uint64_t)src * heads + head) * width, *r = right + ((uint64_t)row * heads + head) * width;
    const float* by = att + (uint64_t)head * width;
    const uint32_t end = in ? width : 0;
    float sum = 0.0f;
    for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) sum += by[c] * leaky(l[c] + r[c], slope);
    sum = lane_sum(sum);
    if (there && threadIdx.x == 0) scores[position * heads + head] = in ? sum : minus_infinity();
}
MORPHGL_KERNEL(train_scores_second)

__device__ __forceinline__ float coefficient_factor(const DropoutMask& mask, uint64_t element) {
    if (mask.threshold == 0) return 1.0f;
    return dropout_factor(mask, dropout_words(mask, element / 8), (uint32_t)(element % 8));
}

// The softmax of a row's scores, a thread a row and head: coefficients, and messages, which are coefficients after
// dropout (the same memory where there is none).
extern "C" __global__ void train_softmax(const uint32_t* __restrict__ indptr, const float* __restrict__ scores,
                                         float* coefficients, float* messages, uint32_t edges, uint32_t rows,
                                         uint32_t heads, uint64_t key, uint32_t site, uint32_t batch, uint32_t epoch,
                                         uint32_t threshold, float scale) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (uint64_t)rows * heads) return;
    const uint32_t row = (uint32_t)(i / heads), head = (uint32_t)(i % heads);
    const uint32_t begin = indptr[row], end = indptr[row + 1];
    const uint64_t own = ((uint64_t)edges + row) * heads + head;
    float most = scores[own];
    for (uint32_t e = begin; e < end; e++) most = fmaxf(most, scores[(uint64_t)e * heads + head]);
    float sum = 0.0f;
    for (uint32_t e = begin; e < end; e++) {
        const uint64_t at = (uint64_t)e * heads + head;
        const float power = expf(scores[at] - most);
        coefficients[at] = power;
        sum += power;
    }
    const float own_power = expf(scores[own] - most);
    sum += own_power;
    const DropoutMask mask{key, site, batch, epoch, threshold, scale};
    for (uint32_t e = begin; e < end; e++) {
        const uint64_t at = (uint64_t)e * heads + head;
        const float coefficient = coefficients[at] / sum;
        coefficients[at] = coefficient;
        if (threshold > 0) messages[at] = coefficient * coefficient_factor(mask, at);
    }
    coefficients[own] = own_power / sum;
    if (threshold > 0) messages[own] = own_power / sum * coefficient_factor(mask, own);
}
MORPHGL_KERNEL(train_softmax)

// Edges whose rows are read before the first is added: so many reads a thread are under way together.
#define GROUP 4u

// V columns, of one head.
template <int V>
__device__ __forceinline__ void load(const float* at, float* out) {
    if (V == 4) {
        const float4 x = *reinterpret_cast<const float4*>(at);
        out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
    } else {
        out[0] = at[0];
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

// out[row, c] = the messages' sum of values[source, c].
template <int V>
__device__ __forceinline__ void attend(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ indices,
                                       const float* __restrict__ messages, const float* __restrict__ values,
                                       float* __restrict__ out, uint32_t edges, uint32_t rows, uint32_t heads,
                                       uint32_t width) {
    const uint32_t columns = heads * width, column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    const uint32_t head = column / width, end = indptr[row + 1];
    float sum[V] = {}, value[V];
    for (uint32_t e = indptr[row]; e < end; e += GROUP) {
        float found[GROUP][V], by[GROUP];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - e) continue;
            by[k] = messages[(uint64_t)(e + k) * heads + head];
            load<V>(values + (uint64_t)indices[e + k] * columns + column, found[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - e) continue;
            for (int i = 0; i < V; i++) sum[i] += by[k] * found[k][i];
        }
    }
    const float by = messages[((uint64_t)edges + row) * heads + head];
    load<V>(values + (uint64_t)row * columns + column, value);
    for (int i = 0; i < V; i++) sum[i] += by * value[i];
    store<V>(out + (uint64_t)row * columns + column, sum);
}

#define ATTEND(name, V)                                                                                                \
    extern "C" __global__ void name(const uint32_t* indptr, const uint32_t* indices, const float* messages,           \
                                    const float* values, float* out, uint32_t edges, uint32_t rows, uint32_t heads,    \
                                    uint32_t width) {                                                                  \
        attend<V>(indptr, indices, messages, values, out, edges, rows, heads, width);                                  \
    }                                                                                                                  \
    MORPHGL_KERNEL(name)
ATTEND(train_attend, 4)
ATTEND(train_attend_single, 1)

// Gradients of coefficients: factor * gradient[row, head] . values[source, head]. A block has one head.
extern "C" __global__ void train_coefficients_backward(const uint32_t* indices, const uint32_t* row_of,
                                                       const float* __restrict__ values,
                                                       const float* __restrict__ gradient, float* __restrict__ out,
                                                       uint32_t edges, uint32_t rows, uint32_t width, uint64_t key,
                                                       uint32_t site, uint32_t batch, uint32_t epoch,
                                                       uint32_t threshold, float scale) {
    const uint64_t position = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const uint32_t head = blockIdx.y, heads = gridDim.y;
    const bool there = position < (uint64_t)edges + rows;
    uint32_t src = 0, row = 0;
    if (there) ends(indices, row_of, position, edges, &src, &row);
    const float* z = values + ((uint64_t)src * heads + head) * width;
    const float* g = gradient + ((uint64_t)row * heads + head) * width;
    const uint32_t end = there ? width : 0;
    float sum = 0.0f;
    for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) sum += g[c] * z[c];
    sum = lane_sum(sum);
    if (!there || threadIdx.x > 0) return;
    const uint64_t i = position * heads + head;
    out[i] = sum * coefficient_factor(DropoutMask{key, site, batch, epoch, threshold, scale}, i);
}
MORPHGL_KERNEL(train_coefficients_backward)

// The softmax backward, a thread a row and head, in place: gradients of coefficients become those of the sums under the
// leaky relu (of the scores, with a slope of 1), whose sum over the row is that of the row's half.
extern "C" __global__ void train_softmax_backward(const uint32_t* __restrict__ indptr, const float* __restrict__ scores,
                                                  const float* __restrict__ coefficients, float* gradients,
                                                  float* of_rows, uint32_t edges, uint32_t rows, uint32_t heads,
                                                  float slope) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (uint64_t)rows * heads) return;
    const uint32_t row = (uint32_t)(i / heads), head = (uint32_t)(i % heads);
    const uint32_t begin = indptr[row], end = indptr[row + 1];
    const uint64_t own = ((uint64_t)edges + row) * heads + head;
    float mean = 0.0f;
    for (uint32_t e = begin; e < end; e++) {
        const uint64_t at = (uint64_t)e * heads + head;
        mean += coefficients[at] * gradients[at];
    }
    mean += coefficients[own] * gradients[own];
    float sum = 0.0f;
    for (uint32_t e = begin; e <= end; e++) {
        const uint64_t at = e < end ? (uint64_t)e * heads + head : own;
        const float side = scores[at] > 0.0f ? 1.0f : slope;
        const float score = side * (coefficients[at] * (gradients[at] - mean));
        gradients[at] = score;
        sum += score;
    }
    of_rows[i] = sum;
}
MORPHGL_KERNEL(train_softmax_backward)

// GAT's gradient of values, by source: messages back, and both attention vectors by the gradients of the halves.
// `of_src` gets the sum of the gradients of each source's half.
template <int V>
__device__ __forceinline__ void attend_backward(
    const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ rows_of, const uint32_t* __restrict__ edges_of,
    const float* __restrict__ messages, const float* __restrict__ scores, const float* __restrict__ of_rows,
    const float* __restrict__ att_src, const float* __restrict__ att_dst, const float* __restrict__ gradient,
    float* __restrict__ of_src, float* __restrict__ out, uint32_t num_src, uint32_t num_dst, uint32_t edges,
    uint32_t heads, uint32_t width) {
    const uint32_t columns = heads * width, column = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const uint32_t src = blockIdx.x * blockDim.y + threadIdx.y;
    if (src >= num_src || column >= columns) return;
    const uint32_t head = column / width, end = indptr[src + 1];
    float sum[V] = {}, value[V], half = 0.0f;
    for (uint32_t t = indptr[src]; t < end; t += GROUP) {
        float found[GROUP][V], by[GROUP], score[GROUP];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - t) continue;
            const uint64_t at = (uint64_t)edges_of[t + k] * heads + head;
            by[k] = messages[at];
            score[k] = scores[at];
            load<V>(gradient + (uint64_t)rows_of[t + k] * columns + column, found[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (k >= end - t) continue;
            for (int i = 0; i < V; i++) sum[i] += by[k] * found[k][i];
            half += score[k];
        }
    }
    if (src < num_dst) {
        const uint64_t at = ((uint64_t)edges + src) * heads + head;
        const float by = messages[at], own = of_rows[(uint64_t)src * heads + head];
        load<V>(gradient + (uint64_t)src * columns + column, value);
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
                                    const float* att_src, const float* att_dst, const float* gradient, float* of_src,  \
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
    const uint32_t src = blockIdx.x * blockDim.y + threadIdx.y;
    if (src >= num_src || column >= columns) return;
    const uint32_t head = column / width, begin = indptr[src], end = indptr[src + 1] + (src < num_dst ? 1u : 0u);
    const float own = left[(uint64_t)src * columns + column];
    float sum = 0.0f;
    for (uint32_t t = begin; t < end; t++) {
        const bool loop = src < num_dst && t + 1 == end;
        const uint32_t row = loop ? src : rows_of[t];
        const uint64_t at = (loop ? (uint64_t)edges + src : (uint64_t)edges_of[t]) * heads + head;
        const float side = own + right[(uint64_t)row * columns + column] > 0.0f ? 1.0f : slope;
        sum += messages[at] * gradient[(uint64_t)row * columns + column] + scores[at] * att[column] * side;
    }
    out[(uint64_t)src * columns + column] = sum;
}
MORPHGL_KERNEL(train_left_backward)

// GATv2's gradient of the right side, by row; `of_att` gets each row's share of the attention vector's.
extern "C" __global__ void train_right_backward(const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ indices,
                                                const float* __restrict__ scores, const float* __restrict__ left,
                                                const float* __restrict__ right, const float* __restrict__ att,
                                                float* __restrict__ out, float* __restrict__ of_att, uint32_t edges,
                                                uint32_t rows, uint32_t heads, uint32_t width, float slope) {
    const uint32_t columns = heads * width, column = blockIdx.y * blockDim.x + threadIdx.x;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    const uint32_t head = column / width, begin = indptr[row], end = indptr[row + 1];
    const float own = right[(uint64_t)row * columns + column];
    float sum = 0.0f, share = 0.0f;
    for (uint32_t e = begin; e <= end; e++) {
        const uint32_t src = e < end ? indices[e] : row;
        const float score = scores[(e < end ? (uint64_t)e : (uint64_t)edges + row) * heads + head];
        const float under = left[(uint64_t)src * columns + column] + own;
        sum += score * att[column] * (under > 0.0f ? 1.0f : slope);
        share += score * leaky(under, slope);
    }
    out[(uint64_t)row * columns + column] = sum;
    of_att[(uint64_t)row * columns + column] = share;
}
MORPHGL_KERNEL(train_right_backward)

// The mean of heads that stand side by side.
extern "C" __global__ void train_mean_heads(const float* __restrict__ x, float* __restrict__ out, uint64_t len,
                                            uint32_t heads, uint32_t width) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len) return;
    const float* at = x + i / width * width * heads + i % width;
    float sum = 0.0f;
    for (uint32_t h = 0; h < heads; h++) sum += at[(uint64_t)h * width];
    out[i] = sum / (float)heads;
}
MORPHGL_KERNEL(train_mean_heads)

extern "C" __global__ void train_mean_heads_backward(const float* __restrict__ gradient, float* __restrict__ out,
                                                     uint64_t len, uint32_t heads, uint32_t width) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len) return;
    const uint64_t row = i / ((uint64_t)width * heads);
    out[i] = gradient[row * width + i % width] / (float)heads;
}
MORPHGL_KERNEL(train_mean_heads_backward)
