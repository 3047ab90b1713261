// Runs the kernels on the processor. Compiled with the path of their sources, one file behind the other, as KERNELS.

#include "emulator.hpp"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define EMULATED
#include KERNELS

alignas(1024) thread_local unsigned char memory[emulator::MOST_SHARED];

namespace emulator {

thread_local Block* block;
thread_local Thread* thread;

namespace {

// Where a thread of the system is when a block ends, and what went wrong.
thread_local jmp_buf outside;
thread_local std::string wrong;

constexpr size_t STACK = 64 << 10;

[[noreturn]] void go_on(Thread* next) {
    thread = next;
    if (next->started) _longjmp(next->place, 1);
    next->started = true;
    setcontext(&next->context);
    abort();
}

// What a thread's context runs.
void run_thread() {
    block->kernel(block->parameter);
    if (!thread->copies.empty()) fail("copies that no group has at the end");
    for (const auto& group : thread->groups)
        if (!group.empty()) fail("copies that nobody awaited at the end");
    block->idle = 0;
    thread->done = true;
    if (thread->next == thread) _longjmp(outside, 1);
    // Out of the ring of those that still run.
    Thread* before = thread;
    while (before->next != thread) before = before->next;
    before->next = thread->next;
    go_on(thread->next);
}

void run_block(unsigned char* stacks, unsigned seed) {
    memset(memory, 0xA5, sizeof memory);
    Thread* order[THREADS_A_BLOCK];
    for (unsigned i = 0; i < THREADS_A_BLOCK; i++) order[i] = &block->threads[i];
    // Seeds 0 and 1 are the orders up and down.
    if (seed == 1) std::reverse(order, order + THREADS_A_BLOCK);
    if (seed > 1) std::shuffle(order, order + THREADS_A_BLOCK, std::mt19937(seed));
    for (unsigned i = 0; i < THREADS_A_BLOCK; i++) {
        Thread& of = *order[i];
        of.next = order[(i + 1) % THREADS_A_BLOCK];
        of.index = {(unsigned)(&of - block->threads), 0, 0};
        getcontext(&of.context);
        of.context.uc_stack.ss_sp = stacks + i * STACK;
        of.context.uc_stack.ss_size = STACK;
        of.context.uc_link = nullptr;
        makecontext(&of.context, run_thread, 0);
    }
    if (_setjmp(outside) == 0) go_on(order[0]);
}

// A trap of what -fsanitize checks, or a place that no buffer has.
void on_signal(int number, siginfo_t* info, void*) {
    if (block == nullptr) {
        signal(number, SIG_DFL);
        return;
    }
    if (number == SIGSEGV || number == SIGBUS) fail("an access to %p, which is in no buffer", info->si_addr);
    fail("undefined behaviour (signal %d): an overflow, a misaligned access, a division by zero or an index out of bounds", number);
}

const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};

struct Entry {
    const char* name;
    void (*kernel)(const void*);
};

#define ENTRY(name, parameter) {#name, [](const void* of) { name(*(const parameter*)of); }}

const Entry ENTRIES[] = {
    ENTRY(limbs_by_warps, Map),
    ENTRY(residues_by_warps, Map),
    ENTRY(pack_channels_u32, Channels),
    ENTRY(pack_channels_u64, Channels),
    ENTRY(pack_rows_u32, Rows),
    ENTRY(pack_rows_u64, Rows),
    ENTRY(recombine, Recombined),
    ENTRY(product_u32, Plain),
    ENTRY(product_u64, Plain),
    ENTRY(depthwise_u32, Plain),
    ENTRY(depthwise_u64, Plain),
    ENTRY(draw, Drawn),
};

}  // namespace

void fail(const char* format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    int length = snprintf(text, sizeof text, "block %u,%u,%u thread %u: ", blockIdx.x, blockIdx.y, blockIdx.z, number());
    vsnprintf(text + length, sizeof text - length, format, arguments);
    va_end(arguments);
    wrong = text;
    _longjmp(outside, 1);
}

void wait() {
    if (++block->idle > 2 * THREADS_A_BLOCK) fail("threads wait for others that do not come");
    Thread* own = thread;
    if (own->next == own) return;
    if (_setjmp(own->place) == 0) go_on(own->next);
}

}  // namespace emulator

// Runs a kernel with one parameter, blocks side by side on `workers` threads of the system. Null, or what went wrong.
extern "C" const char* emulate(const char* name, const void* parameter, const unsigned* grid, unsigned shared, unsigned seed, unsigned workers) {
    using namespace emulator;
    static std::string result;
    const Entry* entry = std::find_if(std::begin(ENTRIES), std::end(ENTRIES), [&](const Entry& of) { return strcmp(of.name, name) == 0; });
    if (entry == std::end(ENTRIES)) return "there is no such kernel";
    if (shared > MOST_SHARED) return "more shared memory than there is";
    struct sigaction action {}, before[std::size(SIGNALS)];
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    for (size_t i = 0; i < std::size(SIGNALS); i++) sigaction(SIGNALS[i], &action, &before[i]);
    std::atomic<size_t> next{0};
    std::mutex lock;
    result.clear();
    auto work = [&] {
        size_t bytes = THREADS_A_BLOCK * STACK, blocks = (size_t)grid[0] * grid[1] * grid[2];
        void* stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (size_t at; stacks != MAP_FAILED && (at = next++) < blocks;) {
            auto own = std::make_unique<Block>();
            own->parameter = parameter;
            own->kernel = entry->kernel;
            own->grid = {grid[0], grid[1], grid[2]};
            own->index = {(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]), (unsigned)(at / grid[0] / grid[1])};
            own->shared = shared;
            block = own.get();
            run_block((unsigned char*)stacks, seed > 1 ? seed + (unsigned)at : seed);
            block = nullptr;
            if (!wrong.empty()) {
                std::lock_guard<std::mutex> guard(lock);
                result = wrong;
                wrong.clear();
                next = blocks;
            }
        }
        munmap(stacks, bytes);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < workers; i++) threads.emplace_back(work);
    for (std::thread& of : threads) of.join();
    for (size_t i = 0; i < std::size(SIGNALS); i++) sigaction(SIGNALS[i], &before[i], nullptr);
    return result.empty() ? nullptr : result.c_str();
}

// Bytes between pages that nothing may touch: right in front of one of them, or right behind the other.
extern "C" void* allocate(size_t bytes, bool at_start) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
    auto start = (unsigned char*)mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    if (pages > 0 && mprotect(start + page, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    return start + page + (at_start ? 0 : pages - bytes);
}

extern "C" void give_back(void* from, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
    munmap((void*)((uintptr_t)from / page * page - page), pages + 2 * page);
}

// What a caller's own declaration of a parameter must agree with.
extern "C" size_t size_of(const char* name) {
    std::string of = name;
    return of == "Map" ? sizeof(Map) : of == "Channels" ? sizeof(Channels) : of == "Rows" ? sizeof(Rows) : of == "Recombined" ? sizeof(Recombined) : of == "Plain" ? sizeof(Plain) : of == "Drawn" ? sizeof(Drawn) : 0;
}
