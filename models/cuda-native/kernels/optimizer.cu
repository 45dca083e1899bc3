// Accumulation of gradients, and the optimizer.
#include "morphgl.cuh"

// Adds a mini-batch's gradients, and its seeds to the first counter, if the gate is open.
extern "C" __global__ void train_accumulate(const uint32_t* gate, const uint64_t* outcome, uint64_t* counters,
                                            const float* __restrict__ gradients, float* __restrict__ total,
                                            uint32_t len) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (*gate == 0) return;
    if (i == 0) counters[0] += outcome[2];
    if (i < len) total[i] += gradients[i];
}
MORPHGL_KERNEL(train_accumulate)

// Sums of the squares of the accumulated gradients, one per block of whole warps, in an order that depends on `len` and on the
// number of blocks alone.
extern "C" __global__ void train_squares(const float* __restrict__ gradients, double* squares, uint32_t len) {
    __shared__ double of_warps[WARP];
    const uint32_t lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    double sum = 0.0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        sum += (double)gradients[i] * (double)gradients[i];
    }
    for (uint32_t by = WARP / 2; by > 0; by /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, (int)by);
    if (lane == 0) of_warps[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (uint32_t w = 1; w < warps; w++) sum += of_warps[w];
    squares[blockIdx.x] = sum;
}
MORPHGL_KERNEL(train_squares)

// Optimizer's constants; the host has the same fields in this order. Numbers of steps are whole.
struct Constants {
    double lr, beta1, beta2, decoupled_decay, clip_norm;
    // 0 constant, 1 cosine, 2 step, 3 plateau.
    double schedule, lr_min, gamma, warmup_steps, falling_steps, steps_per_reduction;
};

// Learning rate of a step, counted from 1: `LrSchedule::lr` of the host.
__device__ __forceinline__ double learning_rate(const Constants& c, double step, double reductions) {
    double done = step - 1.0;
    if (done < c.warmup_steps) return c.lr * ((done + 1.0) / c.warmup_steps);
    done -= c.warmup_steps;
    if (c.schedule == 1.0) {
        const double angle = 3.14159265358979323846 * fmin(done, c.falling_steps) / c.falling_steps;
        return c.lr_min + (c.lr - c.lr_min) * (1.0 + cos(angle)) / 2.0;
    }
    if (c.schedule == 2.0) return c.lr * pow(c.gamma, floor(done / c.steps_per_reduction));
    if (c.schedule == 3.0) return fmax(c.lr * pow(c.gamma, reductions), c.lr_min);
    return c.lr;
}

// counters: seeds accumulated, steps done, reductions of the learning rate. squares: partial sums of the gradients' squares, none
// without clipping.
// coefficients: scale of the gradient, step size, root of the second moment's correction, whether there is a step, factor of the
// parameter.
// status: whether nothing was accumulated, index of the first parameter that is not finite.
extern "C" __global__ void train_step_begin(uint64_t* counters, const Constants* constants, const double* squares,
                                            float* coefficients, uint64_t* status, uint32_t blocks) {
    const bool active = counters[0] > 0;
    status[0] = active ? 0 : 1;
    status[1] = ~(uint64_t)0;
    coefficients[3] = active ? 1.0f : 0.0f;
    if (!active) return;
    const Constants c = *constants;
    const double step = (double)++counters[1], lr = learning_rate(c, step, (double)counters[2]);
    float scale = 1.0f / (float)counters[0];
    if (blocks > 0) {
        double sum = 0.0;
        for (uint32_t b = 0; b < blocks; b++) sum += squares[b];
        const double factor = c.clip_norm / (sqrt(sum) * (double)scale + 1e-6);
        if (factor < 1.0) scale = (float)((double)scale * factor);
    }
    coefficients[0] = scale;
    coefficients[1] = (float)(lr / (1.0 - pow(c.beta1, step)));
    coefficients[2] = (float)sqrt(1.0 - pow(c.beta2, step));
    coefficients[4] = (float)(1.0 - lr * c.decoupled_decay);
    counters[0] = 0;
}
MORPHGL_KERNEL(train_step_begin)

// Constants of an optimizer's step.
struct AdamStep {
    float first_share, beta2, second_share, eps, weight_decay;

    // Updates a parameter, with weight decay if it is `decaying`, and its moments; clears its gradient.
    __device__ __forceinline__ float update(float parameter, float* first, float* second, float* accumulated,
                                            const float* __restrict__ coefficients, bool decaying) const {
        const float gradient = *accumulated * coefficients[0] + (decaying ? weight_decay * parameter : 0.0f);
        const float m = *first + (gradient - *first) * first_share;
        const float v = beta2 * *second + second_share * gradient * gradient;
        *first = m;
        *second = v;
        *accumulated = 0.0f;
        // Rounded on its own: with a factor of 1, Adam's bits.
        if (decaying) parameter = __fmul_rn(parameter, coefficients[4]);
        return parameter - coefficients[1] * (m / (sqrtf(v) / coefficients[2] + eps));
    }
};

struct SgdStep {
    float momentum, weight_decay;
    uint32_t nesterov;

    // As that of Adam; without momentum `momenta` is not accessed.
    __device__ __forceinline__ float update(float parameter, float* momenta, float* accumulated,
                                            const float* __restrict__ coefficients, bool decaying) const {
        float gradient = *accumulated * coefficients[0] + (decaying ? weight_decay * parameter : 0.0f);
        if (momentum != 0.0f) {
            const float m = momentum * *momenta + gradient;
            *momenta = m;
            gradient = nesterov ? gradient + momentum * m : m;
        }
        *accumulated = 0.0f;
        return parameter - coefficients[1] * gradient;
    }
};

// Updates the rows of a table that have a gradient, each by adjacent lanes; all warps are full. The table's first parameter is
// number `base`.
template <typename Update>
__device__ __forceinline__ void table_rows(float* __restrict__ parameters, const float* __restrict__ gradients,
                                           const float* __restrict__ coefficients, uint64_t* status, uint64_t base,
                                           uint32_t rows, uint32_t width, Update update) {
    if (coefficients[3] == 0.0f) return;
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y, end = row < rows ? width : 0;
    const uint64_t first = (uint64_t)row * width;
    int any = 0;
    for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) any |= gradients[first + c] != 0.0f;
    for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) any |= __shfl_xor_sync(ALL_LANES, any, (int)by);
    if (any == 0) return;
    for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) {
        const float parameter = update(first + c, parameters[first + c]);
        parameters[first + c] = parameter;
        if (parameter - parameter != 0.0f) atomicMin(&status[1], base + first + c);
    }
}

// One step of Adam or AdamW over the first `trainable` parameters, the first `decaying` of them with weight decay; clears the
// gradients, and finds parameters that are not finite.
extern "C" __global__ void train_adam(float* __restrict__ parameters, float* __restrict__ first,
                                      float* __restrict__ second, float* __restrict__ gradients,
                                      const float* __restrict__ coefficients, uint64_t* status, uint32_t len,
                                      uint32_t trainable, uint32_t decaying, float first_share, float beta2,
                                      float second_share, float eps, float weight_decay) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len || coefficients[3] == 0.0f) return;
    const AdamStep step{first_share, beta2, second_share, eps, weight_decay};
    float parameter = parameters[i];
    if (i < trainable) {
        parameter = step.update(parameter, first + i, second + i, gradients + i, coefficients, i < decaying);
        parameters[i] = parameter;
    }
    if (parameter - parameter != 0.0f) atomicMin(&status[1], (uint64_t)i);
}
MORPHGL_KERNEL(train_adam)

// One step of Adam or AdamW over the rows of a table that have a gradient, with weight decay.
extern "C" __global__ void train_adam_rows(float* parameters, float* first, float* second, float* gradients,
                                           const float* coefficients, uint64_t* status, uint64_t base, uint32_t rows,
                                           uint32_t width, float first_share, float beta2, float second_share, float eps,
                                           float weight_decay) {
    const AdamStep step{first_share, beta2, second_share, eps, weight_decay};
    table_rows(parameters, gradients, coefficients, status, base, rows, width, [&](uint64_t i, float parameter) {
        return step.update(parameter, first + i, second + i, gradients + i, coefficients, true);
    });
}
MORPHGL_KERNEL(train_adam_rows)

// One step of SGD, as train_adam; without momentum `momenta` is not accessed.
extern "C" __global__ void train_sgd(float* __restrict__ parameters, float* __restrict__ momenta,
                                     float* __restrict__ gradients, const float* __restrict__ coefficients,
                                     uint64_t* status, uint32_t len, uint32_t trainable, uint32_t decaying,
                                     float momentum, float weight_decay, uint32_t nesterov) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len || coefficients[3] == 0.0f) return;
    const SgdStep step{momentum, weight_decay, nesterov};
    float parameter = parameters[i];
    if (i < trainable) {
        parameter = step.update(parameter, momenta + i, gradients + i, coefficients, i < decaying);
        parameters[i] = parameter;
    }
    if (parameter - parameter != 0.0f) atomicMin(&status[1], (uint64_t)i);
}
MORPHGL_KERNEL(train_sgd)

// One step of SGD, as train_adam_rows.
extern "C" __global__ void train_sgd_rows(float* parameters, float* momenta, float* gradients, const float* coefficients,
                                          uint64_t* status, uint64_t base, uint32_t rows, uint32_t width, float momentum,
                                          float weight_decay, uint32_t nesterov) {
    const SgdStep step{momentum, weight_decay, nesterov};
    table_rows(parameters, gradients, coefficients, status, base, rows, width, [&](uint64_t i, float parameter) {
        return step.update(parameter, momenta + i, gradients + i, coefficients, true);
    });
}
MORPHGL_KERNEL(train_sgd_rows)
