// Random reads of four bytes, as many at a time as a device can have in flight.
#include "morphgl.cuh"

extern "C" __global__ void __launch_bounds__(128)
limit_random_reads(const uint32_t* values, uint64_t len, uint32_t reads, uint32_t round, uint32_t* out) {
    const uint32_t thread = blockIdx.x * 128 + threadIdx.x;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < reads; i += 4) {
        const Words words = philox(thread, i, round, 0, 1, 2);
        // Four independent reads; positions by multiplication, so `len` is at most 2^32.
        for (uint32_t w = 0; w < 4; w++) sum += values[(uint64_t)words.word[w] * len >> 32];
    }
    out[thread] = sum;
}
MORPHGL_KERNEL(limit_random_reads)
