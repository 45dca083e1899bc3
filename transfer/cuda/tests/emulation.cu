// Kernels of tests/emulation.rs.
#include "morphgl.cuh"

// Inclusive prefix sums of up to one block of values.
extern "C" __global__ void test_scan(uint32_t* values, uint32_t len) {
    DYNAMIC_SHARED(uint32_t, sums);
    const uint32_t t = threadIdx.x, lane = t % WARP, warp = t / WARP;
    uint32_t value = t < len ? values[t] : 0;
    for (uint32_t by = 1; by < WARP; by *= 2) {
        const uint32_t other = __shfl_up_sync(ALL_LANES, value, by);
        if (lane >= by) value += other;
    }
    if (lane == WARP - 1) sums[warp] = value;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) value += sums[w];
    if (t < len) values[t] = value;
}
MORPHGL_KERNEL(test_scan)

extern "C" __global__ void test_blocks(uint32_t* seen) {
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    atomicAdd(&seen[block * blockDim.x * blockDim.y + thread], 1u);
}
MORPHGL_KERNEL(test_blocks)

// One lane waits for another, which waits for the block.
extern "C" __global__ void test_stuck() {
    if (threadIdx.x == 0) __syncwarp(0x00000003u);
    __syncthreads();
}
MORPHGL_KERNEL(test_stuck)

extern "C" __global__ void test_half(float* out) {
    out[0] = half_value(0x3c00);
    out[1] = half_value(0xc000);
    out[2] = half_value(0x7bff);
    out[3] = bf16_value(0x3fc0);
}
MORPHGL_KERNEL(test_half)

// An ended lane does not vote.
extern "C" __global__ void test_votes(uint32_t* out) {
    const uint32_t lane = threadIdx.x;
    out[lane] = __ballot_sync(ALL_LANES, 1);
    if (lane >= 16) return;
    out[32 + lane] = __ballot_sync(0x0000ffffu, lane % 2);
    out[48 + lane] = __shfl_xor_sync(0x0000ffffu, lane * 10, 1);
}
MORPHGL_KERNEL(test_votes)

// Values distributed round-robin over the parts.
extern "C" __global__ void test_spread(const uint32_t* const* parts, uint32_t num_parts, uint32_t* out, uint32_t len) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = parts[i % num_parts][i / num_parts];
}
MORPHGL_KERNEL(test_spread)

// Defects that the sanitizers find: see tests/sanitizers.rs.
extern "C" __global__ void test_race(uint32_t* out) {
    DYNAMIC_SHARED(uint32_t, last);
    last[0] = threadIdx.x;
    out[threadIdx.x] = last[0];
}
MORPHGL_KERNEL(test_race)

extern "C" __global__ void test_overrun(uint32_t* out, uint32_t len) {
    if (threadIdx.x <= len) out[threadIdx.x] = 1;
}
MORPHGL_KERNEL(test_overrun)

extern "C" __global__ void test_shared_overrun(uint32_t* out, uint32_t len) {
    DYNAMIC_SHARED(uint32_t, words);
    if (threadIdx.x <= len) words[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x < len) out[threadIdx.x] = words[threadIdx.x];
}
MORPHGL_KERNEL(test_shared_overrun)

// A shuffle does not order memory: only a barrier does.
extern "C" __global__ void test_unordered(uint32_t* out) {
    DYNAMIC_SHARED(uint32_t, words);
    const uint32_t lane = threadIdx.x;
    words[lane] = lane;
    const uint32_t other = __shfl_xor_sync(ALL_LANES, lane, 1);
    out[lane] = words[other];
}
MORPHGL_KERNEL(test_unordered)

extern "C" __global__ void test_ordered(uint32_t* out) {
    DYNAMIC_SHARED(uint32_t, words);
    const uint32_t lane = threadIdx.x;
    words[lane] = lane;
    __syncwarp();
    out[lane] = words[lane ^ 1];
}
MORPHGL_KERNEL(test_ordered)
