// Epilogue of a layer, forward and backward, and column sums in a fixed order.
#include "morphgl.cuh"

#define RELU 1u
#define ELU 2u

__device__ __forceinline__ float activated(float x, uint32_t activation) {
    if (activation == RELU) return x < 0.0f ? 0.0f : x;
    if (activation == ELU) return x > 0.0f ? x : expm1f(x);
    return x;
}

// values = dropout(activation(values + bias)).
extern "C" __global__ void train_finish(float* __restrict__ values, const float* __restrict__ bias, uint64_t len,
                                        uint32_t columns, uint32_t activation, uint64_t key, uint32_t threshold,
                                        float scale, const uint32_t* __restrict__ nodes, const uint32_t* __restrict__ keys,
                                        uint64_t num_keys) {
    const DropoutMask mask{key, threshold, scale, nodes, keys, num_keys};
    const DropoutGroup group(mask, len, columns);
    const uint64_t first = group.first;
    const uint32_t count = group.count;
    if (count == 0) return;
    float own[8];
    if (group.whole()) {
        for (int i = 0; i < 8; i += 4) {
            const float4 x = *reinterpret_cast<const float4*>(values + first + i);
            own[i] = x.x, own[i + 1] = x.y, own[i + 2] = x.z, own[i + 3] = x.w;
        }
    } else {
        for (uint32_t i = 0; i < count; i++) own[i] = values[first + i];
    }
    uint32_t column = (uint32_t)(first % columns);
    for (uint32_t i = 0; i < 8; i++) {
        if (i < count) own[i] = activated(own[i] + (bias ? bias[column] : 0.0f), activation);
        column = column + 1 == columns ? 0 : column + 1;
    }
    if (threshold > 0) {
        const Words words = dropout_words(mask, group.row, group.block);
        for (uint32_t i = 0; i < 8; i++) {
            if (i < count) own[i] = dropout_factor(mask, words, i) == 0.0f ? 0.0f : own[i] * scale;
        }
    }
    if (group.whole()) {
        for (int i = 0; i < 8; i += 4) {
            *reinterpret_cast<float4*>(values + first + i) = float4{own[i], own[i + 1], own[i + 2], own[i + 3]};
        }
    } else {
        for (uint32_t i = 0; i < count; i++) values[first + i] = own[i];
    }
}
MORPHGL_KERNEL(train_finish)

// Converts the gradient by `output` = dropout(activation(x)) to that by x, in place; if `partials` is not null, also
// sums its columns over runs of `each` rows. A thread processes one column of a run.
extern "C" __global__ void train_finish_backward(float* __restrict__ gradient, const float* __restrict__ output,
                                                 float* __restrict__ partials, uint32_t rows, uint32_t columns,
                                                 uint32_t each, uint32_t activation, uint64_t key, uint32_t threshold,
                                                 float scale, const uint32_t* __restrict__ nodes, const uint32_t* __restrict__ keys,
                                                 uint64_t num_keys) {
    const uint32_t column = blockIdx.y * blockDim.x + threadIdx.x, run = blockIdx.x * blockDim.y + threadIdx.y;
    const uint64_t first = (uint64_t)run * each;
    if (column >= columns || first >= rows) return;
    const uint64_t end = first + each < rows ? first + each : rows;
    const DropoutMask mask{key, threshold, scale, nodes, keys, num_keys};
    float sum = 0.0f;
    // Four rows are read before the first is written, so that their reads overlap.
    for (uint64_t row = first; row < end; row += 4) {
        const uint32_t count = end - row < 4 ? (uint32_t)(end - row) : 4;
        float g[4], y[4] = {};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (i >= count) continue;
            g[i] = gradient[(row + i) * columns + column];
            if (activation != 0) y[i] = output[(row + i) * columns + column];
        }
        uint32_t kept = 0xfu;
        if (activation != RELU && threshold > 0) {
            kept = 0;
            // Not unrolled: one copy of Philox's code suffices.
#pragma unroll 1
            for (uint32_t i = 0; i < count; i++) {
                const float factor = dropout_factor(mask, dropout_words(mask, row + i, column / 8), column % 8);
                kept |= (factor != 0.0f ? 1u : 0u) << i;
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (i >= count) continue;
            float value = g[i];
            if (activation == RELU) {
                // A dropped element is 0 too, so the sign of the output suffices.
                value = y[i] > 0.0f ? value * scale : 0.0f;
            } else {
                if (activation == ELU) value *= y[i] > 0.0f ? 1.0f : y[i] / scale + 1.0f;
                value = kept >> i & 1u ? value * scale : 0.0f;
            }
            gradient[(row + i) * columns + column] = value;
            sum += value;
        }
    }
    if (partials) partials[(uint64_t)run * columns + column] = sum;
}
MORPHGL_KERNEL(train_finish_backward)

// Column sums over runs of rows of x * y * w[row, column / width]; a null factor is skipped.
extern "C" __global__ void train_columns(const float* __restrict__ x, const float* __restrict__ y,
                                         const float* __restrict__ w, float* __restrict__ partials, uint32_t rows,
                                         uint32_t columns, uint32_t each, uint32_t width) {
    const uint32_t column = blockIdx.y * blockDim.x + threadIdx.x, run = blockIdx.x * blockDim.y + threadIdx.y;
    const uint64_t first = (uint64_t)run * each;
    if (column >= columns || first >= rows) return;
    const uint64_t end = first + each < rows ? first + each : rows;
    const uint32_t heads = columns / width, head = column / width;
    float sum = 0.0f;
#pragma unroll 4
    for (uint64_t row = first; row < end; row++) {
        const uint64_t at = row * columns + column;
        float value = x[at];
        if (y) value *= y[at];
        if (w) value *= w[row * heads + head];
        sum += value;
    }
    partials[(uint64_t)run * columns + column] = sum;
}
MORPHGL_KERNEL(train_columns)

// Sums over the runs. A block has 32 columns; its rows of threads process the runs round-robin, and the first row adds
// their sums in order.
extern "C" __global__ void train_columns_end(const float* __restrict__ partials, float* __restrict__ out, uint32_t runs,
                                             uint32_t columns) {
    DYNAMIC_SHARED(float, sums);
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 16
        for (uint32_t run = threadIdx.y; run < runs; run += blockDim.y) sum += partials[(uint64_t)run * columns + column];
    }
    sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    for (uint32_t y = 1; y < blockDim.y; y++) sum += sums[y * blockDim.x + threadIdx.x];
    out[column] = sum;
}
MORPHGL_KERNEL(train_columns_end)

// Sum of a short array by one thread.
extern "C" __global__ void train_total(const float* x, float* out, uint32_t len) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < len; i++) sum += x[i];
    *out = sum;
}
MORPHGL_KERNEL(train_total)

// out = x + y, or x where y is null; out may be one of them.
extern "C" __global__ void train_add(const float* x, const float* y, float* out, uint64_t len) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = x[i] + (y ? y[i] : 0.0f);
}
MORPHGL_KERNEL(train_add)

extern "C" __global__ void train_zero(uint32_t* out, uint64_t len) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = 0;
}
MORPHGL_KERNEL(train_zero)
