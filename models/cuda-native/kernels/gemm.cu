// GEMMs in f32 by tensor cores: each factor is a sum of two TF32 values, hi + lo, and a product hi·hi + hi·lo + lo·hi; lo·lo is below the
// rounding of f32 (3xTF32, as CUTLASS has it). Factors are split in registers, sums are f32.
#include "morphgl.cuh"

// A block of four warps computes a tile of ROWS x COLUMNS, DEPTH of the depth at a time; a warp WARP_ROWS x COLUMNS of it.
#define THREADS 128u
#define ROWS 128u
#define COLUMNS 64u
#define DEPTH 16u
#define WARP_ROWS 32u
// Parts of the factors in shared memory: one is multiplied while the next ones are on their way.
#define STAGES 3u
// Distances of rows in shared memory, by which the lanes of a warp read different banks.
#define ALONG_DEPTH 20u
#define ALONG_ROWS 136u
#define ALONG_COLUMNS 72u
// Elements of shared memory per stage: of either layout the larger.
#define LEFT 2560u
#define RIGHT 1280u

struct Split {
    uint32_t hi, lo;
};

#ifdef MORPHGL_EMULATION
// Rounds to the nearest value of ten mantissa bits, ties away from zero, as `cvt.rna.tf32.f32`.
static uint32_t to_tf32(float x) {
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

// Sums of the eight products of a row and a column, by a warp: a row's elements are in four lanes, and so are a column's.
static void mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    uint64_t left[2][32], right[32];
    for (uint32_t half = 0; half < 2; half++) {
        const uint64_t* words = emulation::exchange(ALL_LANES, (uint64_t)a[2 * half + 1] << 32 | a[2 * half]);
        for (uint32_t i = 0; i < 32; i++) left[half][i] = words[i];
    }
    const uint64_t* words = emulation::exchange(ALL_LANES, (uint64_t)b1 << 32 | b0);
    for (uint32_t i = 0; i < 32; i++) right[i] = words[i];
    const uint32_t lane = emulation::lane();
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = lane / 4, column = 2 * (lane % 4) + i % 2;
        double total = sum[i];
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t x = (uint32_t)(left[k / 4][4 * row + k % 4] >> (i < 2 ? 0 : 32));
            const uint32_t y = (uint32_t)(right[4 * column + k % 4] >> (k < 4 ? 0 : 32));
            total += (double)__uint_as_float(x) * __uint_as_float(y);
        }
        sum[i] = (float)total;
    }
}

template <uint32_t Bytes>
static void copy_async(float* to, const float* from, uint32_t valid) {
    // A device refuses other addresses.
    if ((uintptr_t)to % Bytes != 0 || (uintptr_t)from % Bytes != 0) __builtin_trap();
    for (uint32_t i = 0; i < Bytes / 4; i++) to[i] = 4 * i < valid ? from[i] : 0.0f;
}
static void commit_copies() {}
static void wait_for_all_but_one() {}
#else
__device__ __forceinline__ uint32_t to_tf32(float x) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

__device__ __forceinline__ void mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies the first `valid` of 4 or 16 bytes to shared memory, and zeros behind them.
template <uint32_t Bytes>
__device__ __forceinline__ void copy_async(float* to, const float* from, uint32_t valid) {
    uint32_t shared;
    asm("{ .reg .u64 at; cvta.to.shared.u64 at, %1; cvt.u32.u64 %0, at; }" : "=r"(shared) : "l"(to));
    if (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(valid) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from), "r"(valid) : "memory");
    }
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_for_all_but_one() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
#endif

__device__ __forceinline__ Split split(float x) {
    const uint32_t hi = to_tf32(x);
    return {hi, to_tf32(x - __uint_as_float(hi))};
}

// Copies Rows x Columns elements of a stored matrix from (row, column) on to shared memory; what lies outside of `rows` x `columns` is 0.
// `whole`: rows begin at multiples of 16 bytes.
template <uint32_t Rows, uint32_t Columns, uint32_t Distance>
__device__ __forceinline__ void copy_part(const float* matrix, uint64_t stride, uint64_t row, uint64_t rows, uint64_t column,
                                          uint64_t columns, bool whole, float* to) {
    const uint32_t chunks = Columns / 4;
    for (uint32_t i = threadIdx.x; i < Rows * chunks; i += THREADS) {
        const uint32_t r = i / chunks, c = i % chunks * 4;
        const bool inside = row + r < rows && column + c < columns;
        const uint32_t valid = !inside ? 0 : columns - column - c < 4 ? (uint32_t)(columns - column - c) : 4;
        // An address that is valid whatever is copied from it.
        const float* from = inside ? matrix + (row + r) * stride + column + c : matrix;
        float* at = to + r * Distance + c;
        if (whole) {
            copy_async<16>(at, from, 4 * valid);
        } else {
            for (uint32_t e = 0; e < 4; e++) copy_async<4>(at + e, e < valid ? from + e : matrix, e < valid ? 4 : 0);
        }
    }
}

// out = op(a) · op(b), plus `out` if `add`: op(a) is m x k, op(b) k x n, all row-major and packed. With several parts of the depth,
// `depth` each, blocks of part z write theirs to out + z · m · n.
template <bool TransposedA, bool TransposedB>
__device__ __forceinline__ void multiply(const float* a, const float* b, float* out, uint64_t m, uint64_t n, uint64_t k, uint64_t depth,
                                         uint32_t add, float* shared) {
    const uint64_t row = (uint64_t)blockIdx.x * ROWS, column = (uint64_t)blockIdx.y * COLUMNS;
    const uint64_t first = blockIdx.z * depth, last = min(k, first + depth);
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t g = lane / 4, t = lane % 4;
    const bool whole_a = (TransposedA ? m : k) % 4 == 0 && (uint64_t)a % 16 == 0;
    const bool whole_b = (TransposedB ? k : n) % 4 == 0 && (uint64_t)b % 16 == 0;
    float sums[2][8][4] = {};
    const auto copy = [&](uint64_t at, uint32_t stage) {
        float* left = shared + stage * (LEFT + RIGHT);
        float* right = left + LEFT;
        if (at < last) {
            if (TransposedA) copy_part<DEPTH, ROWS, ALONG_ROWS>(a, m, at, last, row, m, whole_a, left);
            else copy_part<ROWS, DEPTH, ALONG_DEPTH>(a, k, row, m, at, last, whole_a, left);
            if (TransposedB) copy_part<COLUMNS, DEPTH, ALONG_DEPTH>(b, k, column, n, at, last, whole_b, right);
            else copy_part<DEPTH, COLUMNS, ALONG_COLUMNS>(b, n, at, last, column, n, whole_b, right);
        }
        commit_copies();
    };
    for (uint32_t stage = 0; stage + 1 < STAGES; stage++) copy(first + stage * DEPTH, stage);
    uint32_t stage = 0;
    for (uint64_t at = first; at < last; at += DEPTH) {
        wait_for_all_but_one();
        // The part has arrived for all threads, and none reads the one that is overwritten next.
        __syncthreads();
        copy(at + (STAGES - 1) * DEPTH, (stage + STAGES - 1) % STAGES);
        const float* left = shared + stage * (LEFT + RIGHT);
        const float* right = left + LEFT;
        stage = (stage + 1) % STAGES;
        if (row + warp * WARP_ROWS >= m) continue;
        // Not unrolled, which would double the code.
#pragma unroll 1
        for (uint32_t d = 0; d < DEPTH; d += 8) {
            uint32_t hi[2][4], lo[2][4];
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) {
                    const uint32_t r = warp * WARP_ROWS + 16 * i + 8 * (e % 2) + g, c = d + 4 * (e / 2) + t;
                    const Split parts = split(TransposedA ? left[c * ALONG_ROWS + r] : left[r * ALONG_DEPTH + c]);
                    hi[i][e] = parts.hi;
                    lo[i][e] = parts.lo;
                }
            }
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) {
                if (column + 8 * j >= n) continue;
                Split y[2];
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    const uint32_t c = 8 * j + g, r = d + 4 * e + t;
                    y[e] = split(TransposedB ? right[c * ALONG_DEPTH + r] : right[r * ALONG_COLUMNS + c]);
                }
#pragma unroll
                for (uint32_t i = 0; i < 2; i++) {
                    mma(sums[i][j], lo[i], y[0].hi, y[1].hi);
                    mma(sums[i][j], hi[i], y[0].lo, y[1].lo);
                    mma(sums[i][j], hi[i], y[0].hi, y[1].hi);
                }
            }
        }
    }
    float* to = out + blockIdx.z * m * n;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint64_t r = row + warp * WARP_ROWS + 16 * i + 8 * (e / 2) + g, c = column + 8 * j + 2 * t + e % 2;
                if (r >= m || c >= n) continue;
                const float value = sums[i][j][e];
                to[r * n + c] = add ? __fadd_rn(value, to[r * n + c]) : value;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
train_gemm(const float* a, const float* b, float* out, uint64_t m, uint64_t n, uint64_t k, uint64_t depth, uint32_t add) {
    DYNAMIC_SHARED(float, shared);
    multiply<false, false>(a, b, out, m, n, k, depth, add, shared);
}
MORPHGL_KERNEL(train_gemm)

extern "C" __global__ void __launch_bounds__(THREADS, 4)
train_gemm_left_transposed(const float* a, const float* b, float* out, uint64_t m, uint64_t n, uint64_t k, uint64_t depth, uint32_t add) {
    DYNAMIC_SHARED(float, shared);
    multiply<true, false>(a, b, out, m, n, k, depth, add, shared);
}
MORPHGL_KERNEL(train_gemm_left_transposed)

extern "C" __global__ void __launch_bounds__(THREADS, 4)
train_gemm_right_transposed(const float* a, const float* b, float* out, uint64_t m, uint64_t n, uint64_t k, uint64_t depth, uint32_t add) {
    DYNAMIC_SHARED(float, shared);
    multiply<false, true>(a, b, out, m, n, k, depth, add, shared);
}
MORPHGL_KERNEL(train_gemm_right_transposed)

// The sum of the parts of each of `len` elements, in their order, plus `out` if `add`.
extern "C" __global__ void __launch_bounds__(256)
train_gemm_parts(const float* parts, uint32_t num_parts, uint64_t len, float* out, uint32_t add) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len) return;
    float sum = parts[i];
    for (uint32_t part = 1; part < num_parts; part++) sum = __fadd_rn(sum, parts[part * len + i]);
    out[i] = add ? __fadd_rn(sum, out[i]) : sum;
}
MORPHGL_KERNEL(train_gemm_parts)
