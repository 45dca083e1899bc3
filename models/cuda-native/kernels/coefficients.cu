// Coefficients of the edges and rows of a block.
#include "morphgl.cuh"

// Factor that scales a sampled row up to all edges of its node.
__device__ __forceinline__ float rescale(uint32_t begin, uint32_t end, const float* weights, float degree) {
    float sampled = (float)(end - begin);
    if (weights) {
        sampled = 0.0f;
        for (uint32_t e = begin; e < end; e++) sampled += weights[e];
    }
    return sampled > 0.0f && fabsf(degree - sampled) > 1e-5f * degree ? degree / sampled : 1.0f;
}

// Row coefficients of a sum: sampled rows are scaled up to the node's degree.
extern "C" __global__ void train_rescale(const uint32_t* indptr, const float* weights, const float* degrees,
                                         float* of_rows, uint32_t rows) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) of_rows[row] = rescale(indptr[row], indptr[row + 1], weights, degrees[row]);
}
MORPHGL_KERNEL(train_rescale)

// Edge coefficients of a mean by importance: the share of each edge in the weights of its row. With `ends` rows are those
// of typed layers (kernels/groups.cu); an entry after all edges is one that has no weight, and all of its row.
extern "C" __global__ void train_shares(const uint32_t* begins, const uint32_t* ends, const float* weights,
                                        float* of_edges, uint32_t rows, uint32_t edges) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint32_t begin = begins[row], end = ends ? ends[row] : begins[row + 1];
    if (begin < end && begin >= edges) {
        of_edges[begin] = 1.0f;
        return;
    }
    float sum = 0.0f;
    for (uint32_t e = begin; e < end; e++) sum += weights[e];
    for (uint32_t e = begin; e < end; e++) of_edges[e] = weights[e] / sum;
}
MORPHGL_KERNEL(train_shares)

__device__ __forceinline__ float inverse(float degree) { return degree > 0.0f ? 1.0f / degree : 0.0f; }

// Edge and self-loop coefficients of a graph convolution: weight divided by the root of both degrees, which include the weight `added`
// of the self loop that every node gets; 0 where the graph's own are all.
extern "C" __global__ void train_convolution(const uint32_t* indptr, const uint32_t* indices, const float* weights,
                                             const float* degrees, float* of_edges, float* loops, uint32_t rows,
                                             float added) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint32_t begin = indptr[row], end = indptr[row + 1];
    const float scale = rescale(begin, end, weights, degrees[row]), own = inverse(degrees[row] + added);
    for (uint32_t e = begin; e < end; e++) {
        const float weight = weights ? weights[e] : 1.0f;
        of_edges[e] = scale * weight * sqrtf(inverse(degrees[indices[e]] + added) * own);
    }
    loops[row] = added * sqrtf(own * own);
}
MORPHGL_KERNEL(train_convolution)
