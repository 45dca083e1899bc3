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

// Sum over a block of whole warps, returned to all its threads; `shared` has one element per warp.
template <uint32_t Warps>
__device__ uint64_t block_sum(uint64_t value, uint64_t* shared) {
    for (uint32_t by = WARP / 2; by > 0; by /= 2) value += __shfl_down_sync(ALL_LANES, value, by);
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = value;
    __syncthreads();
    uint64_t sum = 0;
    for (uint32_t w = 0; w < Warps; w++) sum += shared[w];
    __syncthreads();
    return sum;
}

// Scan in two kernels: a block's share of `n` elements, and in the second kernel the sum of the earlier shares.
__device__ __forceinline__ uint64_t share_begin(uint64_t n, uint32_t block) {
    const uint64_t share = (n + gridDim.x - 1) / gridDim.x;
    return min(n, share * block);
}

template <uint32_t Warps>
__device__ uint64_t sum_before(const uint64_t* sums, uint64_t* shared) {
    uint64_t sum = 0;
    for (uint32_t b = threadIdx.x; b < blockIdx.x; b += Warps * WARP) sum += sums[b];
    return block_sum<Warps>(sum, shared);
}

// Number of earlier threads of the block whose flag is set; `total` is that of all. `shared` has one element
// per warp.
template <uint32_t Warps>
__device__ uint32_t block_rank(bool flag, uint32_t* shared, uint32_t& total) {
    const uint32_t bits = __ballot_sync(ALL_LANES, flag), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (lane == 0) shared[warp] = __popc(bits);
    __syncthreads();
    uint32_t rank = __popc(bits & ((1u << lane) - 1));
    total = 0;
    for (uint32_t w = 0; w < Warps; w++) {
        if (w < warp) rank += shared[w];
        total += shared[w];
    }
    __syncthreads();
    return rank;
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

// Bitonic sort by a block of so many threads, ascending. Each step compares pairs whose lower position gets the lesser key, so
// that a key beyond the end would stay there: `n` need not be a power of two.
template <uint32_t Threads>
__device__ void block_sort(uint64_t* keys, uint32_t n) {
    for (uint32_t width = 2; width / 2 < n; width *= 2) {
        for (uint32_t by = width / 2; by > 0; by /= 2) {
            const uint32_t flip = by == width / 2 ? width - 1 : by;
            for (uint32_t a = threadIdx.x; a < n; a += Threads) {
                const uint32_t b = a ^ flip;
                if (b > a && b < n && keys[a] > keys[b]) {
                    const uint64_t key = keys[a];
                    keys[a] = keys[b];
                    keys[b] = key;
                }
            }
            __syncthreads();
        }
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

// The logarithm of morphgl-sampler-core, with the same roundings.
__device__ __forceinline__ double sample_ln(double x) {
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    int exponent = (int)(bits >> 52) - 1023;
    double m = __longlong_as_double((long long)((bits & ((1ull << 52) - 1)) | 1023ull << 52));
    if (m > 1.4142135623730951) {
        m = __dmul_rn(m, 0.5);
        exponent++;
    }
    const double s = __ddiv_rn(__dadd_rn(m, -1.0), __dadd_rn(m, 1.0)), z = __dmul_rn(s, s);
    double p = 1.0 / 23.0;
    const double terms[11] = {1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0,
                              1.0 / 9.0,  1.0 / 7.0,  1.0 / 5.0,  1.0 / 3.0,  1.0};
    for (int i = 0; i < 11; i++) p = __dadd_rn(__dmul_rn(p, z), terms[i]);
    return __dadd_rn(__dmul_rn((double)exponent, 0.6931471805599453), __dmul_rn(__dmul_rn(2.0, s), p));
}

// Parameters of a row's draws.
struct Clocks {
    uint32_t hop, node, index, epoch;
    uint64_t seed;

    // Bits of the position's ringing time; their order is that of the times.
    __device__ uint64_t time(uint32_t position, float weight) const {
        const Words words = philox(hop << 22 | position / 2, node, index, epoch, (uint32_t)seed, (uint32_t)(seed >> 32));
        const uint32_t lane = 2 * (position % 2);
        const uint64_t bits = ((uint64_t)words.at(lane + 1) << 32 | words.at(lane)) >> 12;
        const double uniform = __dmul_rn(__dadd_rn((double)bits, 0.5), 1.0 / 4503599627370496.0);
        return (uint64_t)__double_as_longlong(__ddiv_rn(-sample_ln(uniform), (double)weight));
    }
};

// Marks the offset of a cached row of a graph, which counts from the first row of its part; the bits below the mark are the number of
// the part.
#define CACHED (1ull << 63)
#define PART 56

// Address of element `at` of an edge array: in a part of the cached rows, on this device or a peer, or in the whole array.
template <typename T>
__device__ __forceinline__ const T* element(const T* whole, const T* const* cached, uint64_t at) {
    if ((at & CACHED) == 0) return whole + at;
    return cached[(at & ~CACHED) >> PART] + (at & ((1ull << PART) - 1));
}

// Position of `value` in an ascending list of `n` distinct elements; `n` where it is absent.
__device__ __forceinline__ uint32_t find_ascending(const uint32_t* list, uint32_t n, uint32_t value) {
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (list[middle] < value) low = middle + 1; else high = middle;
    }
    return low < n && list[low] == value ? low : n;
}

__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* at) {
#ifdef MORPHGL_EMULATION
    return __atomic_load_n(at, __ATOMIC_RELAXED);
#else
    return *(const volatile uint64_t*)at;
#endif
}

__device__ __forceinline__ void store_relaxed(uint64_t* at, uint64_t value) {
#ifdef MORPHGL_EMULATION
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
#else
    *(volatile uint64_t*)at = value;
#endif
}

// The value of a node without an entry: values have fewer bits.
#define NO_ENTRY 0xffffffffu

// Hash table of a sampled mini-batch's nodes, by open addressing. An entry is stamp, node, value, from the highest bit on; one
// with another stamp is empty. A value is a local id, or, in the hop that adds the node, the number of nodes before the hop
// plus the smallest position among the hop's edges: so the smallest value always wins.
struct NodeTable {
    uint64_t* entries;
    uint32_t mask, layout;  // low byte of the layout: shift of the hash; second byte: bits of a value
    uint64_t stamp;

    __device__ __forceinline__ uint32_t bits() const { return layout >> 8; }

    __device__ __forceinline__ uint64_t entry(uint32_t node, uint32_t value) const {
        return (stamp << 32 | node) << bits() | value;
    }

    __device__ __forceinline__ uint32_t first_slot(uint32_t node) const {
        const uint32_t shift = layout & 255u;
        // Direct addressing: a slot for each node of the graph.
        return shift == 0 ? node : (node * 0x9E3779B1u) >> shift;
    }

    // Value of the entry at `slot`.
    __device__ __forceinline__ uint32_t value(uint32_t slot) const {
        return (uint32_t)(load_relaxed(&entries[slot]) & ((1ull << bits()) - 1));
    }

    // Lowers the node's value to `value`; returns its slot.
    __device__ __forceinline__ uint32_t insert(uint32_t node, uint32_t value) const {
        const uint64_t ours = entry(node, value);
        uint32_t slot = first_slot(node);
        for (;;) {
            uint64_t seen = load_relaxed(&entries[slot]);
            if (seen >> bits() >> 32 != stamp) {
                const uint64_t old = atomicCAS(&entries[slot], seen, ours);
                if (old == seen) return slot;
                seen = old;
            }
            if (seen >> bits() == ours >> bits()) {
                if (ours < seen) atomicMin(&entries[slot], ours);
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }

    // Value of the node's entry, `NO_ENTRY` without one; while nothing is inserted.
    __device__ __forceinline__ uint32_t find(uint32_t node) const {
        uint32_t slot = first_slot(node);
        for (;;) {
            const uint64_t seen = entries[slot];
            if (seen >> bits() >> 32 != stamp) return NO_ENTRY;
            if ((uint32_t)(seen >> bits()) == node) return (uint32_t)(seen & ((1ull << bits()) - 1));
            slot = (slot + 1) & mask;
        }
    }
};

// Exact values of an f16 and a bf16, given by their bits.
__device__ __forceinline__ float half_value(uint16_t bits) {
#ifdef MORPHGL_EMULATION
    return emulation::value_of_half(bits);
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
