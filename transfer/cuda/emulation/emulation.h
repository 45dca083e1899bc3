// The part of the CUDA execution model that MorphGL's kernels use, on one CPU thread.
//
// A launch runs block after block; a block's threads are fibers that run until they end or wait for each other at a
// barrier or a warp's exchange. So exactly the threads that reach a barrier in the kernel wait at it, a barrier that some
// thread never reaches is an error and not a hang, and every run gives the same bits. Limits: weak memory order and races
// between blocks stay hidden. The thread sanitizer finds races between threads of a block, each of which is a fiber of its
// own that only barriers order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

struct dim3 {
    unsigned x, y, z;
};
struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// Blocks of one host thread run one after the other.
#define __shared__ static thread_local

namespace emulation {

// Indices of the running thread; set at every change of fiber.
struct Position {
    dim3 thread, block, block_dim, grid_dim;
};
extern thread_local Position position;

void block_barrier();
// Waits for all lanes of `mask` that have not ended.
void warp_barrier(unsigned mask);
// The same; returns the words of the lanes of `mask`, which hold until the lane's next barrier or exchange.
const uint64_t* exchange(unsigned mask, uint64_t word);
unsigned lane();
void* dynamic_shared();
float value_of_half(uint16_t bits);
// Whether the launching thread counts loads.
extern thread_local bool counting_loads;
// A lane's part of a load by its warp; null in an idle lane.
void count_load(const void* address, size_t bytes);

template <typename T>
inline uint64_t to_word(T value) {
    static_assert(sizeof(T) <= 8, "a warp exchanges up to 8 bytes a lane");
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    return word;
}

template <typename T>
inline T from_word(uint64_t word) {
    T value;
    std::memcpy(&value, &word, sizeof(T));
    return value;
}

// Value of lane `from`; for an absent lane the own value, as on the device.
template <typename T>
inline T shuffle(unsigned mask, T value, unsigned from) {
    const uint64_t* words = exchange(mask, to_word(value));
    return from < 32 && (mask >> from & 1) ? from_word<T>(words[from]) : value;
}

template <typename... Args, size_t... I>
inline void call(void (*kernel)(Args...), void** args, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<Args>*>(args[I])...);
}

template <typename... Args>
inline void call(void (*kernel)(Args...), void** args) {
    call(kernel, args, std::index_sequence_for<Args...>{});
}

}  // namespace emulation

#define MORPHGL_KERNEL(name) \
    extern "C" void morphgl_emulated_##name(void** args) { emulation::call(name, args); }
#define WARP_LOAD(address, bytes)                                                  \
    do {                                                                           \
        if (emulation::counting_loads) emulation::count_load((address), (bytes)); \
    } while (0)
#define DYNAMIC_SHARED(type, name) type* name = static_cast<type*>(emulation::dynamic_shared())

#define threadIdx (emulation::position.thread)
#define blockIdx (emulation::position.block)
#define blockDim (emulation::position.block_dim)
#define gridDim (emulation::position.grid_dim)

inline void __syncthreads() { emulation::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulation::warp_barrier(mask); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <typename T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    const unsigned lane = emulation::lane();
    return emulation::shuffle(mask, value, (lane & ~(width - 1u)) + ((unsigned)from & (width - 1u)));
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned lane = emulation::lane(), within = lane & (width - 1u);
    return emulation::shuffle(mask, value, within >= by ? lane - by : lane);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const unsigned lane = emulation::lane(), within = lane & (width - 1u);
    return emulation::shuffle(mask, value, within + by < (unsigned)width ? lane + by : lane);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const unsigned lane = emulation::lane(), other = lane ^ (unsigned)bits;
    return emulation::shuffle(mask, value, (other & ~(width - 1u)) == (lane & ~(width - 1u)) ? other : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const uint64_t* words = emulation::exchange(mask, predicate != 0);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1) ballot |= (unsigned)words[lane] << lane;
    }
    return ballot;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned __float_as_uint(float x) { return emulation::from_word<unsigned>(emulation::to_word(x)); }
inline float __uint_as_float(unsigned x) { return emulation::from_word<float>(emulation::to_word(x)); }
inline int __float_as_int(float x) { return (int)__float_as_uint(x); }
inline float __int_as_float(int x) { return __uint_as_float((unsigned)x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline long long __double_as_longlong(double x) { return emulation::from_word<long long>(emulation::to_word(x)); }
inline double __longlong_as_double(long long x) { return emulation::from_word<double>(emulation::to_word(x)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
template <typename T>
inline T __ldg(const T* at) {
    return *at;
}
template <typename T>
inline T __ldcs(const T* at) {
    return *at;
}
template <typename T>
inline void __stcs(T* at, T value) {
    *at = value;
}
template <typename T>
inline T min(T a, T b) {
    return b < a ? b : a;
}
template <typename T>
inline T max(T a, T b) {
    return a < b ? b : a;
}

template <typename T>
inline T atomicCAS(T* at, T expected, T value) {
    __atomic_compare_exchange(at, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <typename T>
inline T atomicExch(T* at, T value) {
    T old;
    __atomic_exchange(at, &value, &old, __ATOMIC_RELAXED);
    return old;
}
template <typename T>
inline T atomicAdd(T* at, T by) {
    if constexpr (std::is_integral_v<T>) {
        return __atomic_fetch_add(at, by, __ATOMIC_RELAXED);
    } else {
        T old, sum;
        __atomic_load(at, &old, __ATOMIC_RELAXED);
        do {
            sum = old + by;
        } while (!__atomic_compare_exchange(at, &old, &sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        return old;
    }
}
template <typename T>
inline T atomicOr(T* at, T bits) {
    return __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}
template <typename T>
inline T atomicMin(T* at, T value) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <typename T>
inline T atomicMax(T* at, T value) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
