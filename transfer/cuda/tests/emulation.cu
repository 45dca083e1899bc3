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
