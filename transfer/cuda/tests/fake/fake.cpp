// Fake libcuda and libcublas for tests/driver.rs: the functions that morphgl-cuda calls, executed synchronously in host
// memory. They check what a driver checks: handles, contexts. The only kernel is test_half.
//
// There are two devices. FAKE_CUDA names a defect of the machine: apart (no peer access); or, with a single device:
// no-device, old, old-device, no-uva, no-memory.
// FAKE_FAIL=function:n makes the n-th call of a function fail.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

typedef unsigned Status;
enum { OK = 0, INVALID = 1, FULL = 2, NO_DEVICE = 100, NO_CONTEXT = 201, APART = 217, REACHED = 704, REGISTERED = 712, UNKNOWN = 999 };

namespace {

std::mutex mutex;
std::map<std::string, int> calls;
// Live objects and their kinds; handles are their addresses.
std::map<void*, char> live;
std::map<uintptr_t, size_t> registered;
std::set<void*> recorded;
thread_local void* current = nullptr;
// The primary context of each device, its users, and whether it has peer access to the other device.
char contexts[2];
int retained[2];
bool reached[2];

bool machine(const char* what) {
    const char* is = getenv("FAKE_CUDA");
    return is && !strcmp(is, what);
}

// Begins a call: the status with which it fails, or OK.
Status enter(const char* function, bool needs_context = true) {
    const std::lock_guard<std::mutex> lock(mutex);
    const int call = ++calls[function];
    const char* fail = getenv("FAKE_FAIL");
    if (fail && std::string(fail) == std::string(function) + ":" + std::to_string(call)) return UNKNOWN;
    if (needs_context && (!current || retained[(char*)current - contexts] == 0)) return NO_CONTEXT;
    return OK;
}

void* make(char kind) {
    void* made = malloc(1);
    const std::lock_guard<std::mutex> lock(mutex);
    live[made] = kind;
    return made;
}

bool is(void* handle, char kind) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = live.find(handle);
    return found != live.end() && found->second == kind;
}

// The default streams of the process and of a thread are never created.
bool is_stream(void* handle) { return (uintptr_t)handle == 1 || (uintptr_t)handle == 2 || is(handle, 's'); }

Status destroy(void* handle, char kind) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = live.find(handle);
    if (found == live.end() || found->second != kind) return INVALID;
    live.erase(found);
    free(handle);
    return OK;
}

}  // namespace

#define BEGIN(...)                                            \
    if (const Status status = enter(__func__, ##__VA_ARGS__)) \
        return status

extern "C" {

// For the test: number of live objects, and the calls by function.
int fake_live() { return (int)(live.size() + registered.size()) + retained[0] + retained[1]; }
int fake_calls(const char* function) { return calls[function]; }
void* fake_current() { return current; }
void fake_print_calls() {
    for (auto& call : calls) printf("call %s %d\n", call.first.c_str(), call.second);
}

#ifdef FAKE_CUBLAS

const int DEFAULT_MATH = 0, TF32_MATH = 3;
std::map<void*, int> modes;

// A factor in the handle's math mode: in TF32 with ten mantissa bits, here truncated instead of rounded.
float factor(void* handle, float x) {
    if (modes[handle] != TF32_MATH) return x;
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~0x1fffu;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

Status cublasCreate_v2(void** out) {
    BEGIN(false);
    *out = make('b');
    return OK;
}
Status cublasDestroy_v2(void* handle) {
    BEGIN(false);
    return destroy(handle, 'b') ? 7 : OK;
}
Status cublasSetStream_v2(void*, void*) {
    BEGIN(false);
    return OK;
}
Status cublasSetMathMode(void* handle, int mode) {
    BEGIN(false);
    if (!is(handle, 'b') || (mode != DEFAULT_MATH && mode != TF32_MATH)) return 7;
    modes[handle] = mode;
    return OK;
}
Status cublasSetWorkspace_v2(void*, void* at, size_t bytes) {
    BEGIN(false);
    return at && bytes ? OK : 7;
}
// Column-major, as cuBLAS.
Status cublasSgemm_v2(void* handle, int ta, int tb, int m, int n, int k, const float* alpha, const float* a, int lda,
                      const float* b, int ldb, const float* beta, float* c, int ldc) {
    BEGIN(false);
    if (!is(handle, 'b') || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return 7;
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++) {
                sum += factor(handle, ta ? a[l + i * lda] : a[i + l * lda]) * factor(handle, tb ? b[j + l * ldb] : b[l + j * ldb]);
            }
            c[i + j * ldc] = *alpha * sum + (*beta == 0 ? 0 : *beta * c[i + j * ldc]);
        }
    }
    return OK;
}

#else

Status cuInit(unsigned) {
    if (machine("no-device")) return NO_DEVICE;
    BEGIN(false);
    return OK;
}
Status cuDriverGetVersion(int* out) {
    BEGIN(false);
    *out = machine("old") ? 11080 : 12080;
    return OK;
}
Status cuGetErrorName(unsigned status, const char** out) {
    *out = status == FULL ? "CUDA_ERROR_OUT_OF_MEMORY" : status == UNKNOWN ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR_FAKE";
    return OK;
}
Status cuGetErrorString(unsigned, const char** out) {
    *out = "description by the driver";
    return OK;
}
Status cuDeviceGetCount(int* out) {
    BEGIN(false);
    const char* is = getenv("FAKE_CUDA");
    *out = !is || !*is || machine("apart") ? 2 : 1;
    return OK;
}
Status cuDeviceGet(int* out, int ordinal) {
    BEGIN(false);
    *out = ordinal + 40;
    return ordinal == 0 || ordinal == 1 ? OK : 101;
}
Status cuDeviceCanAccessPeer(int* out, int device, int peer) {
    BEGIN(false);
    *out = !machine("apart");
    return device / 2 == 20 && peer / 2 == 20 && device != peer ? OK : INVALID;
}
Status cuDeviceGetName(char* out, int bytes, int) {
    BEGIN(false);
    snprintf(out, bytes, "Fake");
    return OK;
}
Status cuDeviceGetAttribute(int* out, int attribute, int) {
    BEGIN(false);
    switch (attribute) {
        case 75: *out = machine("old-device") ? 7 : 9; break;  // major
        case 76: *out = 0; break;                              // minor
        case 16: *out = 132; break;                            // multiprocessors
        case 97: *out = 232448; break;                         // shared memory
        case 41: *out = !machine("no-uva"); break;             // unified addressing
        case 19: case 91: *out = 1; break;                     // maps host memory, by the host's pointer
        case 113: *out = 1; break;                             // pins read-only memory
        case 134: *out = 1; break;                             // nearest NUMA node of the host
        default: return INVALID;
    }
    return OK;
}
Status cuDeviceTotalMem_v2(size_t* out, int) {
    BEGIN(false);
    *out = 1 << 30;
    return OK;
}
Status cuDevicePrimaryCtxRetain(void** out, int device) {
    BEGIN(false);
    if (machine("no-memory")) return FULL;
    if (device / 2 != 20) return INVALID;
    retained[device - 40]++;
    *out = &contexts[device - 40];
    return OK;
}
Status cuDevicePrimaryCtxRelease_v2(int device) {
    BEGIN(false);
    // Peer access ends with the context.
    if (--retained[device - 40] == 0) reached[0] = reached[1] = false;
    return OK;
}
Status cuCtxEnablePeerAccess(void* peer, unsigned flags) {
    BEGIN();
    if (machine("apart")) return APART;
    if (flags || peer == current || (peer != &contexts[0] && peer != &contexts[1])) return INVALID;
    if (retained[(char*)peer - contexts] == 0) return NO_CONTEXT;
    if (reached[(char*)current - contexts]) return REACHED;
    reached[(char*)current - contexts] = true;
    return OK;
}
Status cuCtxGetCurrent(void** out) {
    BEGIN(false);
    *out = current;
    return OK;
}
Status cuCtxSetCurrent(void* to) {
    BEGIN(false);
    current = to;
    return OK;
}
Status cuCtxGetStreamPriorityRange(int* low, int* high) {
    BEGIN();
    *low = 0, *high = -5;
    return OK;
}
Status cuMemGetInfo_v2(size_t* free, size_t* total) {
    BEGIN();
    *free = 1 << 29, *total = 1 << 30;
    return OK;
}
Status cuMemAlloc_v2(uint64_t* out, size_t bytes) {
    BEGIN();
    if (bytes > 1 << 29) return FULL;
    void* made = malloc(bytes);
    const std::lock_guard<std::mutex> lock(mutex);
    live[made] = 'm';
    *out = (uint64_t)made;
    return OK;
}
Status cuMemFree_v2(uint64_t at) {
    BEGIN();
    return destroy((void*)at, 'm');
}
Status cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
    BEGIN();
    if (flags != 3) return INVALID;
    if (bytes > 1 << 29) return FULL;
    *out = malloc(bytes);
    memset(*out, 0xee, bytes);
    const std::lock_guard<std::mutex> lock(mutex);
    live[*out] = 'h';
    return OK;
}
Status cuMemFreeHost(void* at) {
    BEGIN();
    return destroy(at, 'h');
}
Status cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) {
    BEGIN();
    if ((uintptr_t)at % 4096 || bytes % 4096 || (flags & 3) != 3) return INVALID;
    const std::lock_guard<std::mutex> lock(mutex);
    for (auto& r : registered) {
        if ((uintptr_t)at < r.first + r.second && r.first < (uintptr_t)at + bytes) return REGISTERED;
    }
    registered[(uintptr_t)at] = bytes;
    return OK;
}
Status cuMemHostUnregister(void* at) {
    BEGIN();
    const std::lock_guard<std::mutex> lock(mutex);
    return registered.erase((uintptr_t)at) ? OK : INVALID;
}
Status cuMemHostGetDevicePointer_v2(uint64_t* out, void* at, unsigned) {
    BEGIN();
    *out = (uint64_t)at;
    return OK;
}

// Virtual memory management: 1 is a device's location, 3 a NUMA node's of the host.
const size_t GRANULARITY = 2 << 20;
struct Location {
    unsigned type;
    int id;
};
struct Properties {
    unsigned type, handles;
    Location location;
    void* unused;
    unsigned char flags[8];
};
struct Access {
    Location location;
    unsigned flags;
};
std::map<uint64_t, size_t> memories, reserved, mapped;
bool is_on_node(const Properties* p) { return p->type == 1 && !p->handles && p->location.type == 3 && p->location.id == 1; }
bool has(const std::map<uint64_t, size_t>& ranges, uint64_t at, size_t bytes) {
    auto found = ranges.find(at);
    return found != ranges.end() && found->second == bytes;
}

Status cuMemGetAllocationGranularity(size_t* out, const Properties* p, unsigned recommended) {
    BEGIN();
    *out = GRANULARITY;
    return recommended == 1 && is_on_node(p) ? OK : INVALID;
}
Status cuMemCreate(uint64_t* out, size_t bytes, const Properties* p, unsigned long long flags) {
    BEGIN();
    if (flags || bytes % GRANULARITY || !is_on_node(p)) return INVALID;
    if (bytes > 1 << 29) return FULL;
    *out = (uint64_t)make('n');
    memories[*out] = bytes;
    return OK;
}
Status cuMemRelease(uint64_t handle) {
    BEGIN();
    return memories.erase(handle) ? destroy((void*)handle, 'n') : INVALID;
}
Status cuMemAddressReserve(uint64_t* out, size_t bytes, size_t alignment, uint64_t at, unsigned long long flags) {
    BEGIN();
    if (flags || at || bytes % GRANULARITY || alignment != GRANULARITY) return INVALID;
    void* range = aligned_alloc(alignment, bytes);
    memset(range, 0xee, bytes);
    const std::lock_guard<std::mutex> lock(mutex);
    live[range] = 'r';
    reserved[*out = (uint64_t)range] = bytes;
    return OK;
}
Status cuMemAddressFree(uint64_t at, size_t bytes) {
    BEGIN();
    if (!has(reserved, at, bytes) || mapped.count(at)) return INVALID;
    reserved.erase(at);
    return destroy((void*)at, 'r');
}
Status cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    BEGIN();
    if (flags || offset || !has(reserved, at, bytes) || !has(memories, handle, bytes)) return INVALID;
    mapped[at] = bytes;
    return OK;
}
Status cuMemUnmap(uint64_t at, size_t bytes) {
    BEGIN();
    if (!has(mapped, at, bytes)) return INVALID;
    mapped.erase(at);
    return OK;
}
Status cuMemSetAccess(uint64_t at, size_t bytes, const Access* users, size_t count) {
    BEGIN();
    // Read and write, for the device and the host.
    const bool device = users[0].location.type == 1 && users[0].location.id / 2 == 20 && users[0].flags == 3;
    const bool host = count == 2 && users[1].location.type == 3 && users[1].location.id == 1 && users[1].flags == 3;
    return has(mapped, at, bytes) && device && host ? OK : INVALID;
}
Status cuStreamCreateWithPriority(void** out, unsigned flags, int priority) {
    BEGIN();
    if (flags != 1 || priority > 0 || priority < -5) return INVALID;
    *out = make('s');
    return OK;
}
Status cuStreamDestroy_v2(void* stream) {
    BEGIN();
    return destroy(stream, 's');
}
Status cuStreamWaitEvent(void* stream, void* event, unsigned) {
    BEGIN();
    return is_stream(stream) && is(event, 'e') ? OK : INVALID;
}
Status cuEventCreate(void** out, unsigned flags) {
    BEGIN();
    if ((flags & ~2u) != 1) return INVALID;  // all events block
    *out = make('e');
    return OK;
}
Status cuEventDestroy_v2(void* event) {
    BEGIN();
    return destroy(event, 'e');
}
Status cuEventRecord(void* event, void* stream) {
    BEGIN();
    recorded.insert(event);
    return is(event, 'e') && is_stream(stream) ? OK : INVALID;
}
Status cuEventQuery(void* event) {
    BEGIN();
    return is(event, 'e') ? OK : INVALID;
}
Status cuEventSynchronize(void* event) {
    BEGIN();
    return is(event, 'e') ? OK : INVALID;
}
Status cuEventElapsedTime(float* out, void* start, void* end) {
    BEGIN();
    *out = 1.5f;
    return recorded.count(start) && recorded.count(end) ? OK : INVALID;
}
Status cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    BEGIN();
    if (!is(stream, 's')) return INVALID;
    memmove((void*)to, (void*)from, bytes);
    return OK;
}
Status cuMemsetD8Async(uint64_t at, unsigned char byte, size_t bytes, void* stream) {
    BEGIN();
    if (!is(stream, 's')) return INVALID;
    memset((void*)at, byte, bytes);
    return OK;
}
Status cuModuleLoadDataEx(void** out, const void* image, unsigned count, int* options, void** values) {
    BEGIN();
    if (memcmp(image, "\177ELF", 4) && memcmp(image, "//", 2)) {
        for (unsigned i = 0; i < count; i++) {
            if (options[i] == 5) strcpy((char*)values[i], "the linker's\nmessage");
        }
        return 218;
    }
    *out = make('l');
    return OK;
}
Status cuModuleUnload(void* module) {
    BEGIN();
    return destroy(module, 'l');
}
Status cuModuleGetFunction(void** out, void* module, const char* name) {
    BEGIN();
    if (strcmp(name, "test_half")) return 500;
    *out = &contexts;
    return is(module, 'l') ? OK : INVALID;
}
Status cuFuncGetAttribute(int* out, int, void*) {
    BEGIN();
    *out = 1024;
    return OK;
}
Status cuFuncSetAttribute(void*, int attribute, int value) {
    BEGIN();
    return attribute == 8 && value == 232448 - 1024 ? OK : INVALID;
}
Status cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void*, int threads, size_t) {
    BEGIN();
    *out = 2048 / threads;
    return OK;
}
#ifndef FAKE_MISSING
Status cuLaunchKernel(void*, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned, unsigned, void* stream,
                      void** arguments, void** extra) {
    BEGIN();
    if (gx == 0 || bx == 0 || bx > 1024 || extra || !is(stream, 's')) return INVALID;
    const float values[] = {1.0f, -2.0f, 65504.0f, 1.5f};
    memcpy(*(void**)arguments[0], values, sizeof(values));
    return OK;
}
#endif

#endif
}
