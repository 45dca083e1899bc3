// Losses of the seeds, their gradients by the model's output, and the score: `Objective` of morphgl-model-core.
//
// In kernels of one row per seed, adjacent lanes of a warp (blockDim.x of them, a power of two) share a row, and all lanes of a warp
// participate. A row's mark says whether the seed counts and whether the prediction is correct.
#include "morphgl.cuh"

#define COUNTED 1u
#define CORRECT 2u

// The largest logit of a row, the first of equal ones, and whether all are numbers.
struct Largest {
    float logit;
    uint32_t at;
    bool number;
};

__device__ __forceinline__ Largest largest_logit(const float* row, uint32_t end) {
    const uint32_t first = threadIdx.x, lanes = blockDim.x;
    float most = first < end ? row[first] : __uint_as_float(0xff800000u);
    uint32_t best = first;
    bool number = most == most;
    for (uint32_t c = first + lanes; c < end; c += lanes) {
        number = number && row[c] == row[c];
        if (row[c] > most) most = row[c], best = c;
    }
    for (uint32_t by = lanes / 2; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, most, (int)by);
        const uint32_t at = __shfl_xor_sync(ALL_LANES, best, (int)by);
        const bool also = __shfl_xor_sync(ALL_LANES, (int)number, (int)by) != 0;
        if (other > most || (other == most && at < best)) most = other, best = at;
        number = number && also;
    }
    return Largest{most, best, number};
}

// Sum over the lanes of a row, in a fixed order.
template <typename T>
__device__ __forceinline__ T sum_of_lanes(T sum) {
    for (uint32_t by = blockDim.x / 2; by > 0; by /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, (int)by);
    return sum;
}

__device__ __forceinline__ double sum_of_exponentials(const float* row, uint32_t end, float most) {
    double sum = 0.0;
    for (uint32_t c = threadIdx.x; c < end; c += blockDim.x) sum += (double)expf(row[c] - most);
    return sum_of_lanes(sum);
}

// Cross-entropy of each seed and, if `gradient` is not null, its gradient: softmax minus one at the label, 0 without a label.
extern "C" __global__ void train_loss(const float* __restrict__ logits, const int32_t* __restrict__ labels,
                                      float* __restrict__ gradient, double* __restrict__ losses,
                                      uint32_t* __restrict__ marks, uint32_t seeds, uint32_t classes) {
    const uint32_t seed = blockIdx.x * blockDim.y + threadIdx.y, first = threadIdx.x, lanes = blockDim.x;
    const int32_t label = seed < seeds ? labels[seed] : -1;
    const bool counted = label >= 0 && (uint32_t)label < classes;
    const float* row = logits + (uint64_t)seed * classes;
    const uint32_t end = counted ? classes : 0;
    const Largest most = largest_logit(row, end);
    const double sum = sum_of_exponentials(row, end, most.logit);
    if (seed >= seeds) return;
    if (gradient) {
        float* out = gradient + (uint64_t)seed * classes;
        const float by = counted ? (float)(1.0 / sum) : 0.0f;
        for (uint32_t c = first; c < classes; c += lanes) {
            const float value = counted ? expf(row[c] - most.logit) * by : 0.0f;
            out[c] = c == (uint32_t)label ? value - 1.0f : value;
        }
    }
    if (first > 0) return;
    losses[seed] = counted ? log(sum) + (double)most.logit - (double)row[label] : 0.0;
    marks[seed] = counted ? COUNTED | (most.number && most.at == (uint32_t)label ? CORRECT : 0u) : 0u;
}
MORPHGL_KERNEL(train_loss)

// As train_loss, against a share 1 - smoothing at the label and the rest spread over all classes, each multiplied by the weight of its
// class, where `weights` is not null.
extern "C" __global__ void train_loss_smoothed(const float* __restrict__ logits, const int32_t* __restrict__ labels,
                                               const float* __restrict__ weights, float* __restrict__ gradient,
                                               double* __restrict__ losses, uint32_t* __restrict__ marks, uint32_t seeds,
                                               uint32_t classes, float smoothing) {
    const uint32_t seed = blockIdx.x * blockDim.y + threadIdx.y, first = threadIdx.x, lanes = blockDim.x;
    const int32_t label = seed < seeds ? labels[seed] : -1;
    const bool counted = label >= 0 && (uint32_t)label < classes;
    const float* row = logits + (uint64_t)seed * classes;
    const uint32_t end = counted ? classes : 0;
    const Largest most = largest_logit(row, end);
    const double sum = sum_of_exponentials(row, end, most.logit), log_sum = log(sum) + (double)most.logit;
    const float spread = smoothing / (float)classes;
    const auto share = [=](uint32_t c) {
        const float unweighted = c == (uint32_t)label ? 1.0f - smoothing + spread : spread;
        return weights ? unweighted * weights[c] : unweighted;
    };
    double loss = 0.0;
    float all = 0.0f;
    for (uint32_t c = first; c < end; c += lanes) {
        const float own = share(c);
        loss += (double)own * (log_sum - (double)row[c]);
        all += own;
    }
    loss = sum_of_lanes(loss);
    all = sum_of_lanes(all);
    if (seed >= seeds) return;
    if (gradient) {
        float* out = gradient + (uint64_t)seed * classes;
        const float by = counted ? (float)(1.0 / sum) : 0.0f;
        for (uint32_t c = first; c < classes; c += lanes) {
            out[c] = counted ? expf(row[c] - most.logit) * by * all - share(c) : 0.0f;
        }
    }
    if (first > 0) return;
    losses[seed] = counted ? loss : 0.0;
    marks[seed] = counted ? COUNTED | (most.number && most.at == (uint32_t)label ? CORRECT : 0u) : 0u;
}
MORPHGL_KERNEL(train_loss_smoothed)

#define BINARY 0u
#define SQUARED 1u
#define ABSOLUTE 2u
#define HUBER 3u

// Loss of a value, its derivative by the output, and whether the output predicts the value.
struct Term {
    double loss;
    float slope;
    bool correct;
};

// ln(1 + exp(x)) and 1 / (1 + exp(-x)) without overflow.
__device__ __forceinline__ double softplus(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }
__device__ __forceinline__ double sigmoid(double x) {
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

// Cross-entropy of the sigmoid of x against y, whose share is weighted by `positive_weight`.
__device__ __forceinline__ Term binary(float score, float value, float positive_weight) {
    const double x = score, positive = (double)positive_weight * (double)value, negative = 1.0 - (double)value;
    return Term{positive * softplus(-x) + negative * softplus(x),
                (float)(negative * sigmoid(x) - positive * sigmoid(-x)), (score > 0.0f) == (value > 0.5f)};
}

__device__ __forceinline__ Term term(uint32_t kind, float x, float y, float setting) {
    if (kind == BINARY) return binary(x, y, setting);
    const float error = x - y;
    const double size = fabs((double)error), wide = setting;
    if (kind == SQUARED) return Term{size * size, 2.0f * error, false};
    if (kind == ABSOLUTE) return Term{size, x == y ? 0.0f : error > 0.0f ? 1.0f : -1.0f, false};
    return Term{size <= wide ? size * size / 2.0 : wide * (size - wide / 2.0), fminf(fmaxf(error, -setting), setting), false};
}

// The mean over the known values of a seed, those that are not NaN, of a loss with a setting: the weight of positives of BINARY, the
// width of HUBER.
extern "C" __global__ void train_loss_values(const float* __restrict__ outputs, const float* __restrict__ targets,
                                             float* __restrict__ gradient, double* __restrict__ losses,
                                             uint32_t* __restrict__ marks, uint32_t seeds, uint32_t width, uint32_t kind,
                                             float setting) {
    const uint32_t seed = blockIdx.x * blockDim.y + threadIdx.y, first = threadIdx.x, lanes = blockDim.x;
    const float *row = outputs + (uint64_t)seed * width, *values = targets + (uint64_t)seed * width;
    const uint32_t end = seed < seeds ? width : 0;
    uint32_t known = 0;
    for (uint32_t k = first; k < end; k += lanes) known += values[k] == values[k] ? 1u : 0u;
    known = sum_of_lanes(known);
    double loss = 0.0;
    uint32_t wrong = 0;
    for (uint32_t k = first; k < end; k += lanes) {
        const bool is_known = values[k] == values[k];
        const Term own = is_known ? term(kind, row[k], values[k], setting) : Term{0.0, 0.0f, true};
        loss += own.loss;
        wrong += own.correct ? 0u : 1u;
        if (gradient) gradient[(uint64_t)seed * width + k] = is_known ? own.slope / (float)known : 0.0f;
    }
    loss = sum_of_lanes(loss);
    wrong = sum_of_lanes(wrong);
    if (seed >= seeds || first > 0) return;
    losses[seed] = known > 0 ? loss / (double)known : 0.0;
    marks[seed] = known > 0 ? COUNTED | (wrong == 0 ? CORRECT : 0u) : 0u;
}
MORPHGL_KERNEL(train_loss_values)

// Binary cross-entropy of the scores of pairs, of which the first `positives` exist; and its derivatives, if `slopes` is not null.
extern "C" __global__ void train_loss_pairs(const float* __restrict__ scores, float* __restrict__ slopes,
                                            double* __restrict__ losses, uint32_t* __restrict__ marks, uint32_t pairs,
                                            uint32_t positives, float positive_weight) {
    const uint32_t pair = blockIdx.x * blockDim.x + threadIdx.x;
    if (pair >= pairs) return;
    const Term own = binary(scores[pair], pair < positives ? 1.0f : 0.0f, positive_weight);
    if (slopes) slopes[pair] = own.slope;
    losses[pair] = own.loss;
    marks[pair] = COUNTED | (own.correct ? CORRECT : 0u);
}
MORPHGL_KERNEL(train_loss_pairs)

#define BPR 0u

// The mean over the negatives of a positive of a ranking loss (BPR, or by a margin) of how far the positive is ahead, one row per
// positive; and the derivatives by the scores of both, if `slopes` is not null. The negatives of positive i are the pairs from
// positives + i * negatives on.
extern "C" __global__ void train_loss_ranks(const float* __restrict__ scores, float* __restrict__ slopes,
                                            double* __restrict__ losses, uint32_t* __restrict__ marks,
                                            uint32_t positives, uint32_t negatives, uint32_t kind, float margin) {
    const uint32_t positive = blockIdx.x * blockDim.y + threadIdx.y, first = threadIdx.x, lanes = blockDim.x;
    const uint32_t end = positive < positives ? negatives : 0;
    const uint64_t of_negatives = positives + (uint64_t)positive * negatives;
    const float score = positive < positives ? scores[positive] : 0.0f;
    double loss = 0.0;
    float slope = 0.0f;
    uint32_t wrong = 0;
    for (uint32_t i = first; i < end; i += lanes) {
        const float other = scores[of_negatives + i];
        const double ahead = (double)score - (double)other, missing = (double)margin - ahead;
        const double of_this = kind == BPR ? softplus(-ahead) : missing <= 0.0 ? 0.0 : missing;
        const double by_ahead = kind == BPR ? -sigmoid(-ahead) : missing > 0.0 ? -1.0 : 0.0;
        const float by = (float)(by_ahead / (double)negatives);
        loss += of_this / (double)negatives;
        slope += by;
        if (slopes) slopes[of_negatives + i] = -by;
        wrong += score > other ? 0u : 1u;
    }
    loss = sum_of_lanes(loss);
    slope = sum_of_lanes(slope);
    wrong = sum_of_lanes(wrong);
    if (positive >= positives || first > 0) return;
    if (slopes) slopes[positive] = slope;
    losses[positive] = loss;
    marks[positive] = COUNTED | (wrong == 0 ? CORRECT : 0u);
}
MORPHGL_KERNEL(train_loss_ranks)

struct Score {
    double loss;
    uint32_t correct, count;
    int32_t label, end;

    __device__ __forceinline__ void add(const Score& other) {
        loss += other.loss;
        correct += other.correct;
        count += other.count;
        label = max(label, other.label);
        end = max(end, other.end);
    }
};

// Score of the examples by one block of whole warps, in a fixed order. outcome: loss (a double), correct, count, largest label, largest
// end of a pair. Opens the gate if the loss is finite, all labels are below `classes`, all ends below `seeds` and some example counts;
// else shuts it.
extern "C" __global__ void train_score(const double* losses, const uint32_t* marks, const int32_t* labels,
                                       const int32_t* ends, uint64_t* outcome, uint32_t* gate, uint32_t examples,
                                       uint32_t num_labels, uint32_t num_ends, uint32_t classes, uint32_t seeds) {
    __shared__ Score of_warps[WARP];
    const uint32_t lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    Score own = {0.0, 0, 0, -1, -1};
    for (uint32_t i = threadIdx.x; i < examples; i += blockDim.x) {
        own.add({losses[i], marks[i] & CORRECT ? 1u : 0u, marks[i] & COUNTED, -1, -1});
    }
    for (uint32_t i = threadIdx.x; i < num_labels; i += blockDim.x) own.label = max(own.label, labels[i]);
    for (uint32_t i = threadIdx.x; i < num_ends; i += blockDim.x) own.end = max(own.end, ends[i]);
    for (uint32_t by = WARP / 2; by > 0; by /= 2) {
        own.add({__shfl_xor_sync(ALL_LANES, own.loss, (int)by), __shfl_xor_sync(ALL_LANES, own.correct, (int)by),
                 __shfl_xor_sync(ALL_LANES, own.count, (int)by), __shfl_xor_sync(ALL_LANES, own.label, (int)by),
                 __shfl_xor_sync(ALL_LANES, own.end, (int)by)});
    }
    if (lane == 0) of_warps[threadIdx.x / WARP] = own;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (uint32_t w = 1; w < warps; w++) own.add(of_warps[w]);
    *reinterpret_cast<double*>(outcome) = own.loss;
    outcome[1] = own.correct;
    outcome[2] = own.count;
    outcome[3] = own.label < 0 ? 0 : (uint64_t)own.label;
    outcome[4] = own.end < 0 ? 0 : (uint64_t)own.end;
    if (!gate) return;
    const bool below = own.label < (int32_t)classes && own.end < (int32_t)seeds;
    *gate = own.loss - own.loss == 0.0 && below && own.count > 0 ? 1u : 0u;
}
MORPHGL_KERNEL(train_score)
