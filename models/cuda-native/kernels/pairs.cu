// Scores of pairs of seeds by their embeddings, and the gradients of embeddings and decoder: `Decoder` of morphgl-model-core.
//
// Gradients by embeddings are sums over the ends of pairs that a seed is, in the order of the pairs: `indptr` and `sorted` list them by
// seed, an end being twice the pair's number, and 1 for a destination. So no sum depends on the order of atomics.
#include "morphgl.cuh"

// The ends of pairs, for kernels that read them; one that is no seed becomes the last seed, and `largest`, which the score checks, keeps
// what it was.
extern "C" __global__ void train_pair_ends(const uint32_t* __restrict__ ends, uint32_t* __restrict__ checked,
                                           int32_t* __restrict__ largest, uint32_t count, uint32_t seeds) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    checked[i] = min(ends[i], seeds - 1);
    largest[i] = (int32_t)min(ends[i], 0x7fffffffu);
}
MORPHGL_KERNEL(train_pair_ends)

// Dot product of both ends' embeddings, weighted by `weights` where they are not null. Adjacent lanes share a pair, as in loss.cu.
extern "C" __global__ void train_pair_scores(const float* __restrict__ z, const float* __restrict__ weights,
                                             const uint32_t* __restrict__ ends, float* __restrict__ scores, uint32_t pairs,
                                             uint32_t width) {
    const uint32_t pair = blockIdx.x * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    if (pair < pairs) {
        const float *a = z + (uint64_t)ends[2 * pair] * width, *b = z + (uint64_t)ends[2 * pair + 1] * width;
        for (uint32_t k = threadIdx.x; k < width; k += blockDim.x) sum += weights ? a[k] * b[k] * weights[k] : a[k] * b[k];
    }
    for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, (int)by);
    if (pair < pairs && threadIdx.x == 0) scores[pair] = sum;
}
MORPHGL_KERNEL(train_pair_scores)

// Input of the hidden layer of both ends' embeddings at element k: `parts` has, of each seed, alternately its part as a source and as a
// destination.
__device__ __forceinline__ float hidden(const float* parts, const uint32_t* ends, const float* bias, uint32_t pair, uint32_t k,
                                        uint32_t width) {
    const float* a = parts + (uint64_t)ends[2 * pair] * 2 * width;
    const float* b = parts + (uint64_t)ends[2 * pair + 1] * 2 * width;
    return a[2 * k] + b[2 * k + 1] + bias[k];
}

// The outputs of a pair by a hidden layer with ReLU and a last one. Adjacent lanes share a pair.
extern "C" __global__ void train_pair_scores_hidden(const float* __restrict__ parts, const float* __restrict__ bias,
                                                    const float* __restrict__ last, const float* __restrict__ last_bias,
                                                    const uint32_t* __restrict__ ends, float* __restrict__ scores,
                                                    uint32_t pairs, uint32_t width, uint32_t outputs) {
    const uint32_t pair = blockIdx.x * blockDim.y + threadIdx.y;
    for (uint32_t o = 0; o < outputs; o++) {
        const float* weights = last + (uint64_t)o * width;
        float sum = 0.0f;
        for (uint32_t k = threadIdx.x; pair < pairs && k < width; k += blockDim.x) {
            const float x = hidden(parts, ends, bias, pair, k, width);
            sum += weights[k] * (x < 0.0f ? 0.0f : x);
        }
        for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, (int)by);
        if (pair < pairs && threadIdx.x == 0) scores[(uint64_t)pair * outputs + o] = sum + last_bias[o];
    }
}
MORPHGL_KERNEL(train_pair_scores_hidden)

// Gradient by the embeddings of the (weighted) dot product. A thread has one column of a seed.
extern "C" __global__ void train_pair_gradient(const float* __restrict__ z, const float* __restrict__ weights,
                                               const uint32_t* __restrict__ ends, const float* __restrict__ slopes,
                                               const uint32_t* __restrict__ indptr, const uint32_t* __restrict__ sorted,
                                               float* __restrict__ out, uint32_t seeds, uint32_t width) {
    const uint32_t k = blockIdx.y * blockDim.x + threadIdx.x, seed = blockIdx.x * blockDim.y + threadIdx.y;
    if (k >= width || seed >= seeds) return;
    float sum = 0.0f;
    for (uint32_t i = indptr[seed]; i < indptr[seed + 1]; i++) {
        const uint32_t end = sorted[i];
        sum += slopes[end / 2] * z[(uint64_t)ends[end ^ 1u] * width + k];
    }
    out[(uint64_t)seed * width + k] = weights ? sum * weights[k] : sum;
}
MORPHGL_KERNEL(train_pair_gradient)

// Terms of the gradient by the weights of the dot product: a row per pair.
extern "C" __global__ void train_pair_products(const float* __restrict__ z, const uint32_t* __restrict__ ends,
                                               const float* __restrict__ slopes, float* __restrict__ out, uint32_t pairs,
                                               uint32_t width) {
    const uint32_t k = blockIdx.y * blockDim.x + threadIdx.x, pair = blockIdx.x * blockDim.y + threadIdx.y;
    if (k >= width || pair >= pairs) return;
    const float a = z[(uint64_t)ends[2 * pair] * width + k], b = z[(uint64_t)ends[2 * pair + 1] * width + k];
    out[(uint64_t)pair * width + k] = slopes[pair] * (a * b);
}
MORPHGL_KERNEL(train_pair_products)

// Gradient by the seeds' parts in the hidden layer, alternately as a source and as a destination; a pair has `outputs` slopes. A thread
// has one element of a seed.
extern "C" __global__ void train_pair_hidden_gradient(const float* __restrict__ parts, const float* __restrict__ bias,
                                                      const float* __restrict__ last, const uint32_t* __restrict__ ends,
                                                      const float* __restrict__ slopes, const uint32_t* __restrict__ indptr,
                                                      const uint32_t* __restrict__ sorted, float* __restrict__ out,
                                                      uint32_t seeds, uint32_t width, uint32_t outputs) {
    const uint32_t k = blockIdx.y * blockDim.x + threadIdx.x, seed = blockIdx.x * blockDim.y + threadIdx.y;
    if (k >= width || seed >= seeds) return;
    float source = 0.0f, destination = 0.0f;
    for (uint32_t i = indptr[seed]; i < indptr[seed + 1]; i++) {
        const uint32_t end = sorted[i];
        if (!(hidden(parts, ends, bias, end / 2, k, width) > 0.0f)) continue;
        const float* of_pair = slopes + (uint64_t)(end / 2) * outputs;
        float slope = 0.0f;
        for (uint32_t o = 0; o < outputs; o++) slope += of_pair[o] * last[(uint64_t)o * width + k];
        if (end & 1u) {
            destination += slope;
        } else {
            source += slope;
        }
    }
    out[((uint64_t)seed * width + k) * 2] = source;
    out[((uint64_t)seed * width + k) * 2 + 1] = destination;
}
MORPHGL_KERNEL(train_pair_hidden_gradient)

// Output of the hidden layer: a row per pair.
extern "C" __global__ void train_pair_hidden(const float* __restrict__ parts, const float* __restrict__ bias,
                                             const uint32_t* __restrict__ ends, float* __restrict__ out, uint32_t pairs,
                                             uint32_t width) {
    const uint32_t k = blockIdx.y * blockDim.x + threadIdx.x, pair = blockIdx.x * blockDim.y + threadIdx.y;
    if (k >= width || pair >= pairs) return;
    const float x = hidden(parts, ends, bias, pair, k, width);
    out[(uint64_t)pair * width + k] = x < 0.0f ? 0.0f : x;
}
MORPHGL_KERNEL(train_pair_hidden)

// Every second element, from the first on.
extern "C" __global__ void train_every_second(const float* x, float* out, uint32_t len) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = x[2 * i];
}
MORPHGL_KERNEL(train_every_second)
