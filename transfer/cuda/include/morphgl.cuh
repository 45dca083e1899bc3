// Header of every MorphGL kernel: CUDA C++ on a device, its emulation on a CPU, and a few helpers. Plain intrinsics only, no
// cooperative groups and no CUDA headers, so that NVRTC needs no other file.
#pragma once

#ifdef MORPHGL_EMULATION
#include "emulation.h"
#else
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;
// A kernel that Rust can launch. Under emulation it also gets a function that unpacks its arguments.
#define MORPHGL_KERNEL(name)
// `type* name`: dynamic shared memory, whose size is set at launch.
#define DYNAMIC_SHARED(type, name)                                   \
    extern __shared__ __align__(16) unsigned char morphgl_shared[];  \
    type* name = reinterpret_cast<type*>(morphgl_shared)
// Declares the address of a load that the whole warp executes at once, null in an idle lane; the emulation counts what such
// loads touch.
#define WARP_LOAD(address, bytes)
#endif

#define WARP 32u
#define ALL_LANES 0xffffffffu

// Exclusive prefix sum over the block's threads; `total` is the sum of all. The block has `Warps` whole warps, and `shared` one
// element per warp.
template <uint32_t Warps, typename T>
__device__ T block_scan(T value, T* shared, T& total) {
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    T sum = value;
    for (uint32_t by = 1; by < WARP; by *= 2) {
        const T other = __shfl_up_sync(ALL_LANES, sum, by);
        if (lane >= by) sum += other;
    }
    if (lane == WARP - 1) shared[warp] = sum;
    __syncthreads();
    total = 0;
    for (uint32_t w = 0; w < Warps; w++) {
        if (w < warp) sum += shared[w];
        total += shared[w];
    }
    __syncthreads();
    return sum - value;
}

// One pass of a radix sort puts items in the order of buckets: items are counted by bucket, the counts summed to the place of each
// bucket's first item, and the items' numbers written there. Items of a bucket have no order.

// Adds one to the counter of the bucket of each item from `first` to `end`; gives the item, and what the counter was before, to `place`.
template <typename Bucket, typename Place>
__device__ __forceinline__ void by_bucket(uint64_t first, uint64_t end, uint32_t* counters, Bucket bucket, Place place) {
    const uint64_t threads = gridDim.x * (uint64_t)blockDim.x;
    for (uint64_t i = first + blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < end; i += threads) {
        place((uint32_t)i, atomicAdd(&counters[bucket(i)], 1u));
    }
}

// Exclusive prefix sums of the counts in place, by one block of 1,024 threads with `sums` of 32 elements in shared memory.
__device__ __forceinline__ void scan_buckets(uint32_t num_buckets, uint32_t* counts, uint32_t* sums) {
    uint32_t before = 0;
    for (uint32_t first = 0; first < num_buckets; first += blockDim.x) {
        const uint32_t bucket = first + threadIdx.x;
        uint32_t total;
        const uint32_t sum = block_scan<32>(bucket < num_buckets ? counts[bucket] : 0, sums, total);
        if (bucket < num_buckets) counts[bucket] = before + sum;
        before += total;
    }
}

// Philox4x32-10 (Salmon et al., SC'11): four random words for a counter and a key, as in morphgl-sampler-core.
struct Words {
    uint32_t word[4];

    // Word `i % 4`, without an array in memory.
    __device__ __forceinline__ uint32_t at(uint32_t i) const {
        const uint32_t low = i & 1 ? word[1] : word[0], high = i & 1 ? word[3] : word[2];
        return i & 2 ? high : low;
    }
};

__device__ __forceinline__ Words philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        if (round > 0) {
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
    }
    return Words{{c0, c1, c2, c3}};
}

// Uniform number below n from a random word, by rejection; `retry(r)` is the r-th replacement of a rejected word. As in
// morphgl-sampler-core.
template <typename Retry>
__device__ __forceinline__ uint32_t bounded(uint32_t n, uint32_t word, Retry retry) {
    uint64_t product = (uint64_t)word * n;
    if ((uint32_t)product < n) {
        const uint32_t threshold = (0u - n) % n;
        for (uint32_t r = 0; (uint32_t)product < threshold && r < 256; r++) product = (uint64_t)retry(r) * n;
    }
    return (uint32_t)(product >> 32);
}

// Draw `i` of a node's row at a hop of a mini-batch: a number in 0..=last. As in morphgl-sampler-core.
__device__ __forceinline__ uint32_t sampling_draw(uint32_t i, uint32_t last, uint32_t hop, uint32_t node, uint32_t index,
                                                  uint32_t epoch, uint64_t seed) {
    const uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    const uint32_t word = philox(hop << 22 | i / 4, node, index, epoch, k0, k1).at(i);
    return bounded(last + 1, word, [&](uint32_t r) {
        return philox(1u << 28 | hop << 22 | (64 * i + r / 4), node, index, epoch, k0, k1).at(r);
    });
}

// Exact values of an f16 and a bf16, given by their bits.
__device__ __forceinline__ float half_value(uint16_t bits) {
#ifdef MORPHGL_EMULATION
    return emulation::half_value(bits);
#else
    float value;
    asm("{ cvt.f32.f16 %0, %1; }" : "=f"(value) : "h"(bits));
    return value;
#endif
}

__device__ __forceinline__ float bf16_value(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

// Dropout mask of morphgl-model-core, and the node of each row that it drops elements of.
struct DropoutMask {
    uint64_t key;
    uint32_t threshold;
    float scale;
    const uint32_t* nodes;
    // The number of each node before the graph was reordered, by which its masks are keyed; null: its own.
    const uint32_t* keys;
    uint64_t num_keys;

    __device__ __forceinline__ uint32_t node(uint64_t row) const {
        const uint32_t node = nodes[row];
        return keys != nullptr && node < num_keys ? keys[node] : node;
    }
};

// The random words of elements 8 * block to 8 * block + 7 of a row, and the factor of the i-th of them.
__device__ __forceinline__ Words dropout_words(const DropoutMask& mask, uint64_t row, uint64_t block) {
    const uint32_t k0 = (uint32_t)mask.key, k1 = (uint32_t)(mask.key >> 32);
    return philox((uint32_t)block, mask.node(row), (uint32_t)(block >> 32), 0x64726f70u, k0, k1);
}

__device__ __forceinline__ float dropout_factor(const DropoutMask& mask, const Words& words, uint32_t i) {
    const uint32_t pair = i / 2;
    const uint32_t word = pair == 0 ? words.word[0] : pair == 1 ? words.word[1] : pair == 2 ? words.word[2] : words.word[3];
    const uint32_t bits = i % 2 == 0 ? word & 0xffffu : word >> 16;
    return bits >= mask.threshold ? mask.scale : 0.0f;
}

// The elements of a thread: up to eight of a row of `columns` where there is dropout, as many as one call of Philox covers;
// up to eight of all `len` without.
struct DropoutGroup {
    uint64_t row, block, first;
    uint32_t count;

    __device__ __forceinline__ DropoutGroup(const DropoutMask& mask, uint64_t len, uint32_t columns) {
        const uint64_t width = mask.threshold > 0 ? columns : len, blocks = (width + 7) / 8;
        const uint64_t index = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
        row = index / blocks;
        block = index % blocks;
        first = row * width + block * 8;
        const uint64_t rest = width - block * 8;
        count = row * width >= len ? 0 : rest < 8 ? (uint32_t)rest : 8;
    }

    // Whether the elements may be read and written four at a time.
    __device__ __forceinline__ bool whole() const { return count == 8 && first % 4 == 0; }
};
