// What CUDA gives a kernel, for ordinary C++: `crates/kernels/src/cuda/*.cu` is compiled behind this, unchanged.
//
// Threads of a block are contexts with stacks of their own, which take turns in an order that the caller's seed decides. A thread runs until
// it waits for others, so that what a missing barrier spoils is the same in every run, which no threads of the system promise.
//
// Tensor cores, ldmatrix and cp.async are emulated with the layouts and the order that the PTX manual documents. Each 16 bytes of shared
// memory carry who wrote and who read them last: a copy that was not awaited, or a barrier that is missing, is an error.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// What a block shares: every thread of the system runs one block at a time.
#define __shared__ thread_local

namespace emulator {

constexpr unsigned THREADS_A_BLOCK = 256, LANES = 32, PIECE = 16;
constexpr unsigned MOST_SHARED = 96 << 10;

struct Dimensions {
    unsigned x, y, z;
};

struct Copy {
    unsigned to;
    const void* from;
    bool inside;
};

struct Thread {
    Dimensions index{};
    // Groups of copies that were ended, the oldest first, and copies of the group to come.
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> copies;
    // What this thread brings to the collective that its warp meets in.
    const char* collective = nullptr;
    uint32_t* words = nullptr;
    const uint32_t *left = nullptr, *right = nullptr;
    uint32_t value = 0;
    unsigned from = 0;
    bool started = false, done = false;
    ucontext_t context{};
    jmp_buf place{};
    // The thread that runs when this one waits.
    Thread* next = nullptr;
};

// Threads that wait for one another.
struct Meeting {
    unsigned arrived = 0, round = 0;
};

// Who wrote and read sixteen bytes of shared memory last, counted in barriers of the block.
struct Line {
    bool written = false, pending = false;
    unsigned visible = 0, read = 0;
};

struct Block {
    const void* parameter = nullptr;
    void (*kernel)(const void*) = nullptr;
    Dimensions index{}, grid{};
    // Bytes of shared memory that the launch asked for.
    unsigned shared = 0;
    // Barriers so far, from 1 on.
    unsigned epoch = 1;
    // Turns since a thread last got further.
    unsigned idle = 0;
    Line lines[MOST_SHARED / PIECE];
    Thread threads[THREADS_A_BLOCK];
    Meeting warps[THREADS_A_BLOCK / LANES], all;
};

extern thread_local Block* block;
extern thread_local Thread* thread;

// Ends the launch with these words.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Lets the others run.
void wait();

// Has as many threads wait for one another; the last one to come calls `last` first.
template <typename Last>
void meet(Meeting& meeting, unsigned threads, Last last) {
    block->idle = 0;
    if (++meeting.arrived == threads) {
        last();
        meeting.arrived = 0;
        meeting.round += 1;
        return;
    }
    for (unsigned round = meeting.round; round == meeting.round;) wait();
    block->idle = 0;
}

inline unsigned number() { return (unsigned)(thread - block->threads); }

// Has the threads of this warp meet; the last one calls `last` with all of them.
template <typename Last>
void as_warp(const char* collective, Last last) {
    unsigned warp = number() / LANES;
    thread->collective = collective;
    Thread* lanes = block->threads + warp * LANES;
    meet(block->warps[warp], LANES, [=] {
        for (unsigned lane = 0; lane < LANES; lane++)
            if (lanes[lane].collective != collective) fail("lanes of a warp meet in %s and %s", lanes[lane].collective, collective);
        last(lanes);
    });
}

}  // namespace emulator

#define threadIdx (emulator::thread->index)
#define blockIdx (emulator::block->index)
#define gridDim (emulator::block->grid)
inline constexpr emulator::Dimensions blockDim{emulator::THREADS_A_BLOCK, 1, 1};

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

template <typename T>
inline T min(T a, T b) {
    return b < a ? b : a;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }

inline unsigned atomicAdd(unsigned* to, unsigned value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

inline void __syncthreads() {
    using namespace emulator;
    meet(block->all, THREADS_A_BLOCK, [] { block->epoch += 1; });
}

// What lane `from` brings; all lanes of a warp take part.
inline unsigned exchanged(const char* name, unsigned mask, unsigned value, unsigned from) {
    using namespace emulator;
    if (mask != ~0u) fail("%s of some lanes is not emulated", name);
    if (from >= LANES) fail("%s from lane %u", name, from);
    uint32_t result = 0;
    thread->value = value;
    thread->from = from;
    thread->words = &result;
    as_warp(name, [](Thread* lanes) {
        for (unsigned lane = 0; lane < LANES; lane++) *lanes[lane].words = lanes[lanes[lane].from].value;
    });
    return result;
}

inline unsigned __shfl_xor_sync(unsigned mask, unsigned value, int other) {
    return exchanged("__shfl_xor_sync", mask, value, emulator::number() % emulator::LANES ^ (unsigned)other);
}

inline unsigned __shfl_sync(unsigned mask, unsigned value, int from) {
    return exchanged("__shfl_sync", mask, value, (unsigned)from);
}

// The block's shared memory; addresses in it begin with 0.
extern thread_local unsigned char memory[];

inline uint64_t __cvta_generic_to_shared(const void* pointer) { return (uint64_t)((const unsigned char*)pointer - memory); }

// What linear.cu does by PTX.

inline emulator::Line& line_at(unsigned address) {
    using namespace emulator;
    if (address % PIECE != 0 || address >= block->shared) fail("shared memory has no piece at %u", address);
    return block->lines[address / PIECE];
}

// cp.async: nothing is there before it was awaited; without `inside` it becomes zeros.
inline void copy_piece(unsigned to, const void* from, bool inside) {
    using namespace emulator;
    if ((uintptr_t)from % PIECE != 0) fail("a copy from an address that is no multiple of 16");
    Line& line = line_at(to);
    if (line.pending) fail("two copies to %u", to);
    if (line.read == block->epoch) fail("a copy to %u, which others read without a barrier between", to);
    line.pending = true;
    thread->copies.push_back({to, from, inside});
}

inline void end_copies() {
    using namespace emulator;
    thread->groups.push_back(std::move(thread->copies));
    thread->copies.clear();
}

template <int PENDING>
inline void await_copies() {
    using namespace emulator;
    while (thread->groups.size() > (size_t)PENDING) {
        for (const Copy& copy : thread->groups.front()) {
            if (copy.inside) memcpy(memory + copy.to, copy.from, PIECE);
            else memset(memory + copy.to, 0, PIECE);
            Line& line = line_at(copy.to);
            line.written = true, line.pending = false, line.visible = block->epoch + 1;
        }
        thread->groups.pop_front();
    }
}

// ldmatrix.x4: lanes 8i to 8i + 7 name the eight lines of matrix i, and lane l gets bytes 4 (l mod 4) on of line l / 4 of each.
inline void read_lines(unsigned (&words)[4], unsigned from) {
    using namespace emulator;
    thread->words = words;
    thread->value = from;
    as_warp("ldmatrix", [](Thread* lanes) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            unsigned from = lanes[lane].value;
            Line& line = line_at(from);
            if (!line.written || line.pending) fail("a read of %u before its copy was awaited", from);
            if (line.visible > block->epoch) fail("a read of %u, which others wrote, without a barrier between", from);
            line.read = block->epoch;
            for (unsigned to = 0; to < 4; to++) memcpy(&lanes[lane % 8 * 4 + to].words[lane / 8], memory + from + 4 * to, 4);
        }
    });
}

// mma.m16n8k32, without saturation: of lane l, with g = l / 4 and t = l mod 4, words of the left operand are rows g, g + 8, g and g + 8,
// from columns 4t, 4t, 4t + 16 and 4t + 16 on; of the right one column g, from rows 4t and 4t + 16 on; sums are rows g, g, g + 8 and g + 8,
// columns 2t, 2t + 1, 2t and 2t + 1.
template <typename Byte>
#ifdef __clang__
__attribute__((no_sanitize("undefined")))
#else
__attribute__((no_sanitize("undefined"), optimize("O3")))
#endif
inline void multiply_bytes(emulator::Thread* lanes) {
    using namespace emulator;
    Byte left[16][32], right[8][32];
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned group = lane / 4, four = lane % 4 * 4;
        for (unsigned i = 0; i < 4; i++) memcpy(&left[group + i % 2 * 8][four + i / 2 * 16], &lanes[lane].left[i], 4);
        for (unsigned i = 0; i < 2; i++) memcpy(&right[group][four + i * 16], &lanes[lane].right[i], 4);
    }
    for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 8; column++) {
            uint32_t sum = 0;
            for (unsigned k = 0; k < 32; k++) sum += (uint32_t)(left[row][k] * right[column][k]);
            lanes[row % 8 * 4 + column / 2].words[row / 8 * 2 + column % 2] += sum;
        }
}

template <bool RESIDUES>
inline void multiply(unsigned (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    using namespace emulator;
    unsigned right[2] = {b0, b1};
    thread->words = sums;
    thread->left = a;
    thread->right = right;
    if (RESIDUES) as_warp("mma.s8", multiply_bytes<int8_t>);
    else as_warp("mma.u8", multiply_bytes<uint8_t>);
}
