// Scheduler of emulated CUDA threads. It is never instrumented, since no kernel accesses its memory.
#include "emulation.h"

#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

#ifdef MORPHGL_SANITIZE_THREAD
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif
#ifdef MORPHGL_SANITIZE_ADDRESS
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
void __asan_poison_memory_region(const volatile void* address, size_t bytes);
void __asan_unpoison_memory_region(const volatile void* address, size_t bytes);
}
#endif

#ifdef __x86_64__
// Saves the current stack in `from`, and continues with `to`.
extern "C" void morphgl_emulation_switch(void** from, void* to);
asm(R"(
    .text
    .p2align 4
    .globl morphgl_emulation_switch
    .hidden morphgl_emulation_switch
    .type morphgl_emulation_switch, @function
morphgl_emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size morphgl_emulation_switch, . - morphgl_emulation_switch
)");
#endif

namespace emulation {

thread_local Position position;
thread_local bool counting_loads = false;

namespace {

constexpr size_t STACK = 128 << 10;
constexpr unsigned MAX_THREADS = 1024;

struct Warp {
    uint64_t words[32] = {};     // what each lane gives to its next exchange
    uint64_t exchanged[32] = {};  // what each lane gave to its last one
    unsigned live = 0;              // lanes that have not ended
    unsigned arrived = 0;           // lanes that wait at a barrier of the warp
    unsigned mask = 0;              // mask of the barriers at which they wait, while it is the same for all
    bool masks_differ = false;
    unsigned at_block_barrier = 0;  // lanes that wait at a barrier of the block
    unsigned runnable() const { return live & ~(arrived | at_block_barrier); }
};

// Saved stack of a fiber or of the host thread.
#ifdef __x86_64__
// Not swapcontext: its system call for the signal mask took half of the time.
using Context = void*;
#else
using Context = ucontext_t;
#endif

struct Fiber {
    Context context;
    std::unique_ptr<char[]> stack;
    unsigned thread = 0;
    unsigned mask = 0;
    // Number of its warp's exchanges and barriers so far, and of its loads since the last one: they name the load that the
    // warp's lanes execute at once.
    unsigned meetings = 0, loads = 0;
#ifdef MORPHGL_SANITIZE_THREAD
    void* tsan = nullptr;
#endif
};

struct Scheduler {
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber*> idle;
    std::vector<Fiber*> by_thread;  // fiber of each thread of the block; null before its begin and after its end
    std::vector<Warp> warps;
    std::vector<char> shared;
    size_t shared_bytes = 0;
    Context main;
    Fiber* running = nullptr;
    void (*kernel)(void**) = nullptr;
    void** args = nullptr;
    dim3 block_dim = {}, grid_dim = {}, block = {};
    unsigned threads = 0, next = 0, live = 0;
    // What is left of a round, in which each runnable thread runs once: a warp's first thread, its lanes, and all later warps.
    unsigned first = 0, lanes = 0;
    char begin = 0, end = 0, barrier = 0;  // addresses by which the thread sanitizer orders threads
#ifdef MORPHGL_SANITIZE_THREAD
    void* tsan_main = nullptr;
#endif
#ifdef MORPHGL_SANITIZE_ADDRESS
    const void* main_stack = nullptr;
    size_t main_stack_size = 0;
#endif

    ~Scheduler() { forget_fibers(); }
    // Drops all fibers, also unfinished ones: their stacks own no resources.
    void forget_fibers() {
#ifdef MORPHGL_SANITIZE_THREAD
        for (auto& fiber : fibers) __tsan_destroy_fiber(fiber->tsan);
#endif
        by_thread.clear();
        idle.clear();
        fibers.clear();
    }
};

thread_local Scheduler scheduler;

// Distinct granules of a range of memory that each load of a warp touches, and how often a warp comes to one.
struct LoadCount {
    uintptr_t begin = 0, end = 0;
    size_t granule = 1;
    uint64_t touched = 0, visits = 0;
    // Warp, its meetings, its loads since, and granule, of the loads of the running block.
    std::set<std::array<uint64_t, 4>> of_block;
};

thread_local LoadCount load_count;

// Adds up the loads of the block that has ended.
void count_block() {
    LoadCount& count = load_count;
    count.touched += count.of_block.size();
    // Loads of a warp between two of its meetings are in flight together, and have no order.
    uint64_t warp = 0, meetings = 0;
    std::set<uint64_t> before, now;
    for (const auto& [of, met, load, granule] : count.of_block) {
        if (of != warp) now.clear();
        if (of != warp || met != meetings) before = std::exchange(now, {});
        (warp = of, meetings = met);
        if (now.insert(granule).second && before.count(granule) == 0) count.visits++;
    }
    count.of_block.clear();
}

void run_threads();

// Gives a thread of the block to a fiber.
void assign(Fiber& fiber, unsigned thread) {
    fiber.thread = thread;
    fiber.meetings = fiber.loads = 0;
    scheduler.by_thread[thread] = &fiber;
}

#ifdef __x86_64__
void change(Context& from, Context& to) { morphgl_emulation_switch(&from, to); }

// A context that begins with run_threads, which never returns.
void prepare(Fiber& fiber) {
    auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + STACK) & ~uintptr_t{15};
    auto words = reinterpret_cast<void**>(top) - 8;
    for (int i = 0; i < 8; i++) words[i] = nullptr;  // six registers, entry point, and no return address
    words[6] = reinterpret_cast<void*>(&run_threads);
    fiber.context = words;
}
#else
void change(Context& from, Context& to) { swapcontext(&from, &to); }

void prepare(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_threads, 0);
}
#endif

// Rust code, which the thread sanitizer does not see, orders launches of several host threads and the memory passed between
// them: so each launch is declared to follow all earlier ones.
char launches = 0;

void place(unsigned thread) {
    const dim3 dim = scheduler.block_dim;
    const bool line = dim.y == 1 && dim.z == 1;
    position.thread = line ? dim3{thread, 0, 0} : dim3{thread % dim.x, thread / dim.x % dim.y, thread / dim.x / dim.y};
}

void acquire(void* address) {
#ifdef MORPHGL_SANITIZE_THREAD
    __tsan_acquire(address);
#else
    (void)address;
#endif
}

void release(void* address) {
#ifdef MORPHGL_SANITIZE_THREAD
    __tsan_release(address);
#else
    (void)address;
#endif
}

// The fiber of the round's next thread; null at its end.
Fiber* next_of_round() {
    Scheduler& s = scheduler;
    while (s.lanes == 0) {
        if (s.first + 32 >= s.threads) return nullptr;
        s.first += 32;
        s.lanes = s.warps[s.first / 32].runnable();
    }
    const unsigned lane = __builtin_ctz(s.lanes);
    s.lanes &= s.lanes - 1;
    return s.by_thread[s.first + lane];
}

// Continues with a fiber, or with the host thread if null, until `from` (null: the host thread) is continued.
void continue_with(Fiber* to, Fiber* from) {
    Scheduler& s = scheduler;
    if (to != nullptr) {
        s.running = to;
        place(to->thread);
    }
#ifdef MORPHGL_SANITIZE_ADDRESS
    void* fake = nullptr;
    if (to != nullptr) __sanitizer_start_switch_fiber(&fake, to->stack.get(), STACK);
    if (to == nullptr) __sanitizer_start_switch_fiber(&fake, s.main_stack, s.main_stack_size);
#endif
#ifdef MORPHGL_SANITIZE_THREAD
    __tsan_switch_to_fiber(to != nullptr ? to->tsan : s.tsan_main, 1);
#endif
    change(from != nullptr ? from->context : s.main, to != nullptr ? to->context : s.main);
#ifdef MORPHGL_SANITIZE_ADDRESS
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// Runs the other threads of the round until the fiber is resumed.
void suspend(Fiber& fiber) { continue_with(next_of_round(), &fiber); }

// Main function of a fiber: runs threads of the block, one after the other, while there are any.
void run_threads() {
    Scheduler& s = scheduler;
#ifdef MORPHGL_SANITIZE_ADDRESS
    __sanitizer_finish_switch_fiber(nullptr, &s.main_stack, &s.main_stack_size);
#endif
    for (;;) {
        Fiber& fiber = *s.running;
        acquire(&s.begin);
        s.kernel(s.args);
        release(&s.end);
        s.warps[fiber.thread / 32].live &= ~(1u << fiber.thread % 32);
        s.warps[fiber.thread / 32].words[fiber.thread % 32] = 0;  // an ended lane does not vote
        s.by_thread[fiber.thread] = nullptr;
        s.live--;
#ifndef MORPHGL_SANITIZE_THREAD
        if (s.next < s.threads) {
            assign(fiber, s.next++);
            place(fiber.thread);
            continue;
        }
        s.idle.push_back(&fiber);
#endif
        suspend(fiber);
    }
}

// An idle fiber. For the thread sanitizer each thread of a block has its own.
Fiber& fresh_fiber(unsigned thread) {
    Scheduler& s = scheduler;
#ifdef MORPHGL_SANITIZE_THREAD
    if (thread < s.fibers.size()) return *s.fibers[thread];
#else
    (void)thread;
    if (!s.idle.empty()) {
        Fiber& fiber = *s.idle.back();
        s.idle.pop_back();
        return fiber;
    }
#endif
    s.fibers.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *s.fibers.back();
    fiber.stack = std::make_unique<char[]>(STACK);
    prepare(fiber);
#ifdef MORPHGL_SANITIZE_THREAD
    fiber.tsan = __tsan_create_fiber(0);
#endif
    return fiber;
}

// Releases the lanes of a warp whose barrier is complete: all waiting lanes have the same mask, and all lanes of the mask
// that have not ended wait. Returns whether there were any.
bool release_waiting(unsigned first) {
    Scheduler& s = scheduler;
    Warp& warp = s.warps[first / 32];
    bool any = false;
    for (unsigned waiting = warp.arrived; waiting != 0;) {
        const unsigned mask = s.by_thread[first + __builtin_ctz(waiting)]->mask, expected = mask & warp.live;
        bool all = (warp.arrived & expected) == expected;
        for (unsigned lanes = warp.masks_differ ? warp.arrived & mask : 0; lanes != 0; lanes &= lanes - 1) {
            all = all && s.by_thread[first + __builtin_ctz(lanes)]->mask == mask;
        }
        if (all) {
            // Lanes run until all wait again before any is released, so that all have read the words of the exchange before.
            for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
                const int lane = __builtin_ctz(lanes);
                warp.exchanged[lane] = warp.words[lane];
            }
            warp.arrived &= ~mask;
        }
        any = any || all;
        waiting &= ~mask;
    }
    if (warp.arrived == 0) warp.masks_differ = false;
    return any;
}

// Releases the threads whose barrier is complete. Returns whether there were any.
bool release_waiting() {
    Scheduler& s = scheduler;
    unsigned waiting = 0;
    for (const Warp& warp : s.warps) waiting += __builtin_popcount(warp.at_block_barrier);
    if (waiting > 0 && waiting == s.live) {
        for (Warp& warp : s.warps) warp.at_block_barrier = 0;
        return true;
    }
    bool any = false;
    for (unsigned first = 0; first < s.threads; first += 32) any |= release_waiting(first);
    return any;
}

bool run_block() {
    Scheduler& s = scheduler;
    position = {{}, s.block, s.block_dim, s.grid_dim};
    s.next = s.lanes = 0;
    s.first = s.threads;  // no round before all threads have begun
    s.live = s.threads;
    s.warps.assign((s.threads + 31) / 32, Warp{});
    s.by_thread.assign(s.threads, nullptr);
    for (unsigned t = 0; t < s.threads; t++) s.warps[t / 32].live |= 1u << t % 32;
    // Garbage: blocks must not read the shared memory of earlier blocks.
    std::memset(s.shared.data(), 0xa5, s.shared_bytes);
    while (s.live > 0) {
        if (s.next < s.threads) {
            Fiber& fiber = fresh_fiber(s.next);
            assign(fiber, s.next++);
            release(&s.begin);
            continue_with(&fiber, nullptr);
            continue;
        }
        s.first = 0;
        s.lanes = s.warps[0].runnable();
        if (Fiber* fiber = next_of_round()) {
            continue_with(fiber, nullptr);
        } else if (!release_waiting()) {
            return false;
        }
    }
    acquire(&s.end);
    count_block();
    return true;
}

// Makes the address sanitizer stop accesses beyond the first `bytes` of `capacity`.
void bound(void* address, size_t bytes, size_t capacity) {
#ifdef MORPHGL_SANITIZE_ADDRESS
    __asan_unpoison_memory_region(address, bytes);
    __asan_poison_memory_region((char*)address + bytes, capacity - bytes);
#else
    (void)address, (void)bytes, (void)capacity;
#endif
}

}  // namespace

unsigned lane() { return scheduler.running->thread % 32; }

void block_barrier() {
    Scheduler& s = scheduler;
    Fiber& fiber = *s.running;
    release(&s.barrier);
    s.warps[fiber.thread / 32].at_block_barrier |= 1u << fiber.thread % 32;
    suspend(fiber);
    acquire(&s.barrier);
}

static void meet(unsigned mask) {
    Scheduler& s = scheduler;
    Fiber& fiber = *s.running;
    if (!(mask >> fiber.thread % 32 & 1)) {
        std::fprintf(stderr, "thread %u calls a warp function with mask %08x, which leaves it out\n", fiber.thread, mask);
        std::abort();
    }
    Warp& warp = s.warps[fiber.thread / 32];
    if (warp.arrived == 0) warp.mask = mask;
    warp.masks_differ = warp.masks_differ || warp.mask != mask;
    warp.arrived |= 1u << fiber.thread % 32;
    fiber.mask = mask;
    fiber.meetings++;
    fiber.loads = 0;
    suspend(fiber);
}

void warp_barrier(unsigned mask) {
    Warp& warp = scheduler.warps[scheduler.running->thread / 32];
    release(&warp);
    meet(mask);
    acquire(&warp);
}

// As on a device, an exchange does not order memory accesses: the thread sanitizer sees no synchronisation.
const uint64_t* exchange(unsigned mask, uint64_t word) {
    Scheduler& s = scheduler;
    Warp& warp = s.warps[s.running->thread / 32];
    warp.words[s.running->thread % 32] = word;
    meet(mask);
    return warp.exchanged;
}

void count_load(const void* address, size_t bytes) {
    Fiber& fiber = *scheduler.running;
    const unsigned load = fiber.loads++;
    LoadCount& count = load_count;
    const uintptr_t first = reinterpret_cast<uintptr_t>(address);
    if (address == nullptr || first < count.begin || first >= count.end) return;
    for (uintptr_t granule = first / count.granule; granule <= (first + bytes - 1) / count.granule; granule++) {
        count.of_block.insert({fiber.thread / 32, fiber.meetings, load, granule});
    }
}

void* dynamic_shared() { return scheduler.shared.data(); }

float value_of_half(uint16_t bits) {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return half;
}

}  // namespace emulation

// The sanitizer that this library is compiled for: 0 for none, 1 for addresses, 2 for threads.
extern "C" int morphgl_emulation_sanitizer() {
#if defined(MORPHGL_SANITIZE_ADDRESS)
    return 1;
#elif defined(MORPHGL_SANITIZE_THREAD)
    return 2;
#else
    return 0;
#endif
}

// Declares only the first `bytes` of a block accessible. The block may pass to another user by that.
extern "C" void morphgl_emulation_bound(void* address, size_t bytes, size_t capacity) {
    emulation::acquire(&emulation::launches);
    emulation::release(&emulation::launches);
    emulation::bound(address, bytes, capacity);
}

// Begins to count the granules of a range of memory that loads touch, in kernels that this host thread runs.
extern "C" void morphgl_emulation_count_loads(const void* begin, size_t bytes, size_t granule) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(begin);
    emulation::load_count = {first, first + bytes, granule, 0, 0, {}};
    emulation::counting_loads = true;
}

// Ends counting; returns the sum over all loads.
extern "C" uint64_t morphgl_emulation_counted_loads() {
    emulation::counting_loads = false;
    return emulation::load_count.touched;
}

// The sum over warps of the times that they come to a granule, having left it or for the first time.
extern "C" uint64_t morphgl_emulation_counted_visits() { return emulation::load_count.visits; }

// Runs a kernel. Returns 0, or 1 if threads wait for ever at different barriers, 2 for an invalid launch.
extern "C" int morphgl_emulation_launch(void (*kernel)(void**), void** args, const unsigned grid[3],
                                        const unsigned block[3], size_t shared_bytes) {
    using namespace emulation;
    Scheduler& s = scheduler;
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads == 0 || threads > MAX_THREADS || grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 ||
        grid[2] > 65535 || shared_bytes > 227 * 1024) {
        return 2;
    }
    acquire(&launches);
    s.kernel = kernel;
    s.args = args;
    s.threads = (unsigned)threads;
    s.block_dim = {block[0], block[1], block[2]};
    s.grid_dim = {grid[0], grid[1], grid[2]};
    bound(s.shared.data(), s.shared.size(), s.shared.size());
    if (s.shared.size() < shared_bytes + 16) s.shared.resize(shared_bytes + 16);
    s.shared_bytes = shared_bytes;
    bound(s.shared.data(), shared_bytes, s.shared.size());
#ifdef MORPHGL_SANITIZE_THREAD
    s.tsan_main = __tsan_get_current_fiber();
#endif
    // Blocks have no order on a device: results must be the same from the last to the first.
    static const bool backwards = std::getenv("MORPHGL_BLOCKS_BACKWARDS") != nullptr;
    for (unsigned z = 0; z < grid[2]; z++) {
        for (unsigned y = 0; y < grid[1]; y++) {
            for (unsigned x = 0; x < grid[0]; x++) {
                s.block = {x, y, z};
                if (backwards) s.block = {grid[0] - 1 - x, grid[1] - 1 - y, grid[2] - 1 - z};
                if (!run_block()) {
                    s.forget_fibers();
                    return 1;
                }
            }
        }
    }
    release(&launches);
    return 0;
}
