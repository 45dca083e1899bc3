// Rows of length 1, layer and batch normalisation, forward and backward. The first two have a thread a row.
#include "morphgl.cuh"

#define EPS 1e-5f

// out = x / length; keeps the inverse lengths.
extern "C" __global__ void train_unit(const float* __restrict__ x, float* __restrict__ out, float* __restrict__ inverses,
                                      uint32_t rows, uint32_t columns) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* from = x + (uint64_t)row * columns;
    float squares = 0.0f;
    for (uint32_t c = 0; c < columns; c++) squares += from[c] * from[c];
    const float inverse = 1.0f / sqrtf(squares + 1e-24f);
    for (uint32_t c = 0; c < columns; c++) out[(uint64_t)row * columns + c] = from[c] * inverse;
    inverses[row] = inverse;
}
MORPHGL_KERNEL(train_unit)

extern "C" __global__ void train_unit_backward(const float* __restrict__ output, const float* __restrict__ inverses,
                                               float* __restrict__ gradient, uint32_t rows, uint32_t columns) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* y = output + (uint64_t)row * columns;
    float *g = gradient + (uint64_t)row * columns, along = 0.0f;
    for (uint32_t c = 0; c < columns; c++) along += y[c] * g[c];
    for (uint32_t c = 0; c < columns; c++) g[c] = inverses[row] * (g[c] - y[c] * along);
}
MORPHGL_KERNEL(train_unit_backward)

// normal = (x - mean) / deviation of each row, out = normal * weight + bias; keeps the inverse deviations.
extern "C" __global__ void train_layer_norm(const float* __restrict__ x, const float* __restrict__ weight,
                                            const float* __restrict__ bias, float* __restrict__ normal,
                                            float* __restrict__ out, float* __restrict__ inverses, uint32_t rows,
                                            uint32_t columns) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint64_t first = (uint64_t)row * columns;
    float mean = 0.0f, squares = 0.0f;
    for (uint32_t c = 0; c < columns; c++) mean += x[first + c];
    mean /= (float)columns;
    for (uint32_t c = 0; c < columns; c++) squares += (x[first + c] - mean) * (x[first + c] - mean);
    const float inverse = 1.0f / sqrtf(squares / (float)columns + EPS);
    for (uint32_t c = 0; c < columns; c++) {
        const float value = (x[first + c] - mean) * inverse;
        normal[first + c] = value;
        out[first + c] = value * weight[c] + bias[c];
    }
    inverses[row] = inverse;
}
MORPHGL_KERNEL(train_layer_norm)

extern "C" __global__ void train_layer_norm_backward(const float* __restrict__ normal, const float* __restrict__ weight,
                                                     const float* __restrict__ inverses, float* __restrict__ gradient,
                                                     uint32_t rows, uint32_t columns) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* y = normal + (uint64_t)row * columns;
    float *g = gradient + (uint64_t)row * columns, mean = 0.0f, along = 0.0f;
    for (uint32_t c = 0; c < columns; c++) {
        mean += g[c] * weight[c];
        along += g[c] * weight[c] * y[c];
    }
    mean /= (float)columns;
    along /= (float)columns;
    for (uint32_t c = 0; c < columns; c++) g[c] = inverses[row] * (g[c] * weight[c] - mean - y[c] * along);
}
MORPHGL_KERNEL(train_layer_norm_backward)

// out = x less its columns' means, which are `sums` through the number of rows.
extern "C" __global__ void train_centre(const float* __restrict__ x, const float* __restrict__ sums,
                                        float* __restrict__ out, uint32_t rows, uint32_t columns) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (uint64_t)rows * columns) out[i] = x[i] - sums[i % columns] / (float)rows;
}
MORPHGL_KERNEL(train_centre)

// normal, centred on entry, by its columns' deviations; out = normal * weight + bias.
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

// `sums` and `along` are the columns' sums of the gradient and of its product with `normal`.
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

// Blends a mini-batch's statistics into the running ones, if the gate is open.
extern "C" __global__ void train_blend(const uint32_t* gate, const float* sums, const float* squares, float* mean,
                                       float* variance, uint32_t rows, uint32_t columns, float momentum) {
    const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= columns || *gate == 0) return;
    const float unbiased = (float)rows / (float)max(rows > 0 ? rows - 1 : 0u, 1u);
    mean[c] += momentum * (sums[c] / (float)rows - mean[c]);
    variance[c] += momentum * (squares[c] / (float)rows * unbiased - variance[c]);
}
MORPHGL_KERNEL(train_blend)
