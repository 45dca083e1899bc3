// L2 normalisation of rows, layer and batch normalisation, forward and backward.
//
// In the first two, adjacent lanes of a warp (blockDim.x of them, a power of two) share a row and add their sums in a
// fixed order. All lanes of a warp must participate, also those without a row.
#include "morphgl.cuh"

#define EPS 1e-5f

// Sum over the lanes of a row, returned to all of them.
__device__ __forceinline__ float row_sum(float value) {
    for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) value += __shfl_xor_sync(ALL_LANES, value, (int)by);
    return value;
}

// The row of a lane, and its columns: none beyond the last row.
struct Row {
    uint64_t first;
    uint32_t row, columns;
    bool there;
};

__device__ __forceinline__ Row row_of_lane(uint32_t rows, uint32_t columns) {
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
    return Row{(uint64_t)row * columns, row, row < rows ? columns : 0, row < rows};
}

// out = x / length; stores the inverse lengths.
extern "C" __global__ void train_unit(const float* __restrict__ x, float* __restrict__ out, float* __restrict__ inverses,
                                      uint32_t rows, uint32_t columns) {
    const Row own = row_of_lane(rows, columns);
    const float* from = x + own.first;
    float squares = 0.0f;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) squares += from[c] * from[c];
    const float inverse = 1.0f / sqrtf(row_sum(squares) + 1e-24f);
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) out[own.first + c] = from[c] * inverse;
    if (own.there && threadIdx.x == 0) inverses[own.row] = inverse;
}
MORPHGL_KERNEL(train_unit)

extern "C" __global__ void train_unit_backward(const float* __restrict__ output, const float* __restrict__ inverses,
                                               float* __restrict__ gradient, uint32_t rows, uint32_t columns) {
    const Row own = row_of_lane(rows, columns);
    const float* y = output + own.first;
    float *g = gradient + own.first, along = 0.0f;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) along += y[c] * g[c];
    along = row_sum(along);
    const float inverse = own.there ? inverses[own.row] : 0.0f;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) g[c] = inverse * (g[c] - y[c] * along);
}
MORPHGL_KERNEL(train_unit_backward)

// normal = (x - mean) / deviation of each row, out = normal * weight + bias; stores the inverse deviations.
extern "C" __global__ void train_layer_norm(const float* __restrict__ x, const float* __restrict__ weight,
                                            const float* __restrict__ bias, float* __restrict__ normal,
                                            float* __restrict__ out, float* __restrict__ inverses, uint32_t rows,
                                            uint32_t columns) {
    const Row own = row_of_lane(rows, columns);
    const float* from = x + own.first;
    float mean = 0.0f, squares = 0.0f;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) mean += from[c];
    mean = row_sum(mean) / (float)columns;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) squares += (from[c] - mean) * (from[c] - mean);
    const float inverse = 1.0f / sqrtf(row_sum(squares) / (float)columns + EPS);
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) {
        const float value = (from[c] - mean) * inverse;
        normal[own.first + c] = value;
        out[own.first + c] = value * weight[c] + bias[c];
    }
    if (own.there && threadIdx.x == 0) inverses[own.row] = inverse;
}
MORPHGL_KERNEL(train_layer_norm)

extern "C" __global__ void train_layer_norm_backward(const float* __restrict__ normal, const float* __restrict__ weight,
                                                     const float* __restrict__ inverses, float* __restrict__ gradient,
                                                     uint32_t rows, uint32_t columns) {
    const Row own = row_of_lane(rows, columns);
    const float* y = normal + own.first;
    float *g = gradient + own.first, mean = 0.0f, along = 0.0f;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) {
        mean += g[c] * weight[c];
        along += g[c] * weight[c] * y[c];
    }
    mean = row_sum(mean) / (float)columns;
    along = row_sum(along) / (float)columns;
    const float inverse = own.there ? inverses[own.row] : 0.0f;
    for (uint32_t c = threadIdx.x; c < own.columns; c += blockDim.x) {
        g[c] = inverse * (g[c] * weight[c] - mean - y[c] * along);
    }
}
MORPHGL_KERNEL(train_layer_norm_backward)

// out = x minus the means of its columns, which are `sums` divided by the number of rows.
extern "C" __global__ void train_centre(const float* __restrict__ x, const float* __restrict__ sums,
                                        float* __restrict__ out, uint32_t rows, uint32_t columns) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (uint64_t)rows * columns) out[i] = x[i] - sums[i % columns] / (float)rows;
}
MORPHGL_KERNEL(train_centre)

// Divides `normal`, centred on entry, by its columns' deviations; out = normal * weight + bias.
extern "C" __global__ void train_batch_norm(float* __restrict__ normal, const float* __restrict__ squares,
                                            const float* __restrict__ weight, const float* __restrict__ bias,
                                            float* __restrict__ out, uint32_t rows, uint32_t columns) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (uint64_t)rows * columns) return;
    const uint32_t c = (uint32_t)(i % columns);
    const float value = normal[i] / sqrtf(squares[c] / (float)rows + EPS);
    normal[i] = value;
    out[i] = value * weight[c] + bias[c];
}
MORPHGL_KERNEL(train_batch_norm)

// `sums` and `along` are the column sums of the gradient and of gradient * normal.
extern "C" __global__ void train_batch_norm_backward(const float* __restrict__ normal, const float* __restrict__ squares,
                                                     const float* __restrict__ weight, const float* __restrict__ sums,
                                                     const float* __restrict__ along, float* __restrict__ gradient,
                                                     uint32_t rows, uint32_t columns) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (uint64_t)rows * columns) return;
    const uint32_t c = (uint32_t)(i % columns);
    const float inverse = 1.0f / sqrtf(squares[c] / (float)rows + EPS);
    gradient[i] = weight[c] * inverse * (gradient[i] - (sums[c] + normal[i] * along[c]) / (float)rows);
}
MORPHGL_KERNEL(train_batch_norm_backward)

extern "C" __global__ void train_batch_norm_running(const float* __restrict__ x, const float* __restrict__ weight,
                                                    const float* __restrict__ bias, const float* __restrict__ mean,
                                                    const float* __restrict__ variance, float* __restrict__ out,
                                                    uint64_t len, uint32_t columns) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len) return;
    const uint32_t c = (uint32_t)(i % columns);
    out[i] = (x[i] - mean[c]) / sqrtf(variance[c] + EPS) * weight[c] + bias[c];
}
MORPHGL_KERNEL(train_batch_norm_running)

// Updates the running statistics by a mini-batch's, if the gate is open.
extern "C" __global__ void train_blend(const uint32_t* gate, const float* sums, const float* squares, float* mean,
                                       float* variance, uint32_t rows, uint32_t columns, float momentum) {
    const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= columns || *gate == 0) return;
    const float unbiased = (float)rows / (float)max(rows > 0 ? rows - 1 : 0u, 1u);
    mean[c] += momentum * (sums[c] / (float)rows - mean[c]);
    variance[c] += momentum * (squares[c] / (float)rows * unbiased - variance[c]);
}
MORPHGL_KERNEL(train_blend)
