// Graph attention: scores and a softmax over each row, forward and backward. The weighted sums are in sums.cu.
//
// Position p < edges is edge p of the block, position edges + row the self loop of a row. An edge from a node to itself
// is ignored: its score is minus infinity, so its coefficient and its gradient are 0.
#include "morphgl.cuh"

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }
__device__ __forceinline__ float leaky(float x, float slope) { return x > 0.0f ? x : slope * x; }

// Sum over the adjacent lanes that share an element: blockDim.x of them, a power of two. All lanes of a warp must
// participate.
__device__ __forceinline__ float lane_sum(float value) {
    for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) value += __shfl_xor_sync(ALL_LANES, value, (int)by);
    return value;
}

// Dot product of two rows of `width` columns over the adjacent lanes that share an element; 0 if not `there`. Where the width is
// a multiple of four, `x` is read four columns at a time, and `y` too if its rows are `Aligned` like those of `x`.
template <bool Aligned>
__device__ __forceinline__ float row_product(const float* __restrict__ x, const float* __restrict__ y, uint32_t width,
                                             bool there) {
    const uint32_t end = there ? width : 0;
    float sum = 0.0f;
    if (width % 4 != 0) {
        for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) sum += x[c] * y[c];
        return lane_sum(sum);
    }
    for (uint32_t c = 4 * threadIdx.x; c < end; c += 4 * blockDim.x) {
        const float4 a = *reinterpret_cast<const float4*>(x + c);
        const float4 b = Aligned ? *reinterpret_cast<const float4*>(y + c) : float4{y[c], y[c + 1], y[c + 2], y[c + 3]};
        sum += a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
    }
    return lane_sum(sum);
}

// out[node, head] = z[node, head] . att[head], one of the two terms of GAT's score. A block processes one head.
extern "C" __global__ void train_halves(const float* __restrict__ z, const float* __restrict__ att,
                                        float* __restrict__ out, uint32_t nodes, uint32_t width) {
    const uint32_t node = blockIdx.x * blockDim.y + threadIdx.y, head = blockIdx.y;
    const uint64_t i = (uint64_t)node * gridDim.y + head;
    const float sum = row_product<false>(z + i * width, att + (uint64_t)head * width, width, node < nodes);
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

// GAT's scores: leaky(term of the source + term of the row).
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

// GATv2's scores: att . leaky(left of the source + right of the row). A block processes one head.
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

// Factor of an element of a row's coefficients: `entry * heads + head`, where the self loop comes after the row's edges.
__device__ __forceinline__ float coefficient_factor(const DropoutMask& mask, uint32_t row, uint64_t element) {
    if (mask.threshold == 0) return 1.0f;
    return dropout_factor(mask, dropout_words(mask, row, element / 8), (uint32_t)(element % 8));
}

// A warp processes a row, `together` heads at a time, a power of two that divides their number: scores are stored edge
// by edge with the heads adjacent, so that adjacent lanes read adjacent scores. A lane processes one head of every
// (32 / together)-th edge; the row's self loop is the last edge. With `ends` a row ends there, and has no self loop.
struct RowOfWarp {
    uint32_t begin, end, last, edges, row, heads, head, first, step;

    __device__ __forceinline__ RowOfWarp(const uint32_t* begins, const uint32_t* ends, uint32_t row_, uint32_t edges_,
                                         uint32_t heads_, uint32_t together, uint32_t first_head)
        : begin(begins[row_]), end(ends ? ends[row_] : begins[row_ + 1]), last(ends ? end - 1 : end), edges(edges_),
          row(row_), heads(heads_), head(first_head + threadIdx.x % WARP % together), first(begin + threadIdx.x % WARP / together),
          step(WARP / together) {}

    // Index of the score of edge `e`, `begin <= e <= last`.
    __device__ __forceinline__ uint64_t at(uint32_t e) const {
        return (e < end ? (uint64_t)e : (uint64_t)edges + row) * heads + head;
    }
};

// Sum and maximum over the lanes of the same head.
__device__ __forceinline__ float head_sum(float value, uint32_t together) {
    for (uint32_t by = WARP / 2; by >= together; by /= 2) value += __shfl_xor_sync(ALL_LANES, value, (int)by);
    return value;
}
__device__ __forceinline__ float head_most(float value, uint32_t together) {
    for (uint32_t by = WARP / 2; by >= together; by /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, (int)by));
    return value;
}

// Softmax of a row's scores by one warp: coefficients, and messages, which are coefficients after dropout (the same
// memory without dropout).
extern "C" __global__ void train_softmax(const uint32_t* __restrict__ begins, const uint32_t* __restrict__ ends,
                                         const float* __restrict__ scores, float* coefficients, float* messages, uint32_t edges, uint32_t rows,
                                         uint32_t heads, uint32_t together, uint64_t key, uint32_t threshold,
                                         float scale, const uint32_t* __restrict__ nodes, const uint32_t* __restrict__ keys,
                                         uint64_t num_keys) {
    const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const DropoutMask mask{key, threshold, scale, nodes, keys, num_keys};
    for (uint32_t first_head = 0; first_head < heads; first_head += together) {
        const RowOfWarp of(begins, ends, row, edges, heads, together, first_head);
        float most = minus_infinity();
        for (uint32_t e = of.first; e <= of.last; e += of.step) most = fmaxf(most, scores[of.at(e)]);
        most = head_most(most, together);
        float sum = 0.0f;
        for (uint32_t e = of.first; e <= of.last; e += of.step) sum += expf(scores[of.at(e)] - most);
        sum = head_sum(sum, together);
        for (uint32_t e = of.first; e <= of.last; e += of.step) {
            const uint64_t at = of.at(e);
            const float coefficient = expf(scores[at] - most) / sum;
            coefficients[at] = coefficient;
            if (threshold > 0) {
                const uint64_t element = (uint64_t)(e - of.begin) * heads + of.head;
                messages[at] = coefficient * coefficient_factor(mask, row, element);
            }
        }
    }
}
MORPHGL_KERNEL(train_softmax)

// Gradients of coefficients: factor * gradient[row, head] . values[source, head]. A block processes one head.
extern "C" __global__ void train_coefficients_backward(const uint32_t* __restrict__ indptr,
                                                       const uint32_t* indices, const uint32_t* row_of,
                                                       const float* __restrict__ values,
                                                       const float* __restrict__ gradient, float* __restrict__ out,
                                                       uint32_t edges, uint32_t rows, uint32_t width, uint64_t key,
                                                       uint32_t threshold, float scale,
                                                       const uint32_t* __restrict__ nodes, const uint32_t* __restrict__ keys,
                                                       uint64_t num_keys) {
    const uint64_t position = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const uint32_t head = blockIdx.y, heads = gridDim.y;
    const bool there = position < (uint64_t)edges + rows;
    uint32_t src = 0, row = 0;
    if (there) ends(indices, row_of, position, edges, &src, &row);
    const float* z = values + ((uint64_t)src * heads + head) * width;
    const float* g = gradient + ((uint64_t)row * heads + head) * width;
    const float sum = row_product<true>(g, z, width, there);
    if (!there || threadIdx.x > 0) return;
    const uint32_t begin = indptr[row], entry = position < edges ? (uint32_t)position - begin : indptr[row + 1] - begin;
    const DropoutMask mask{key, threshold, scale, nodes, keys, num_keys};
    out[position * heads + head] = sum * coefficient_factor(mask, row, (uint64_t)entry * heads + head);
}
MORPHGL_KERNEL(train_coefficients_backward)

// Softmax backward by one warp per row, in place: gradients of coefficients become those of the arguments of the leaky
// ReLU (of the scores, with a slope of 1); their sum over the row is the gradient of the row's term.
extern "C" __global__ void train_softmax_backward(const uint32_t* __restrict__ begins, const uint32_t* __restrict__ ends,
                                                  const float* __restrict__ scores, const float* __restrict__ coefficients, float* gradients,
                                                  float* of_rows, uint32_t edges, uint32_t rows, uint32_t heads,
                                                  uint32_t together, float slope) {
    const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    for (uint32_t first_head = 0; first_head < heads; first_head += together) {
        const RowOfWarp of(begins, ends, row, edges, heads, together, first_head);
        float mean = 0.0f;
        for (uint32_t e = of.first; e <= of.last; e += of.step) mean += coefficients[of.at(e)] * gradients[of.at(e)];
        mean = head_sum(mean, together);
        float sum = 0.0f;
        for (uint32_t e = of.first; e <= of.last; e += of.step) {
            const uint64_t at = of.at(e);
            const float side = scores[at] > 0.0f ? 1.0f : slope;
            const float score = side * (coefficients[at] * (gradients[at] - mean));
            gradients[at] = score;
            sum += score;
        }
        sum = head_sum(sum, together);
        if (of.first == of.begin) of_rows[(uint64_t)row * heads + of.head] = sum;
    }
}
MORPHGL_KERNEL(train_softmax_backward)

// Mean of heads that are stored side by side.
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
