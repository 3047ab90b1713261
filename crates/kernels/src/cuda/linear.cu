// Linear maps modulo 2^32 and 2^64 on int8 tensor cores. Compiled by NVRTC, so it includes nothing.
//
// A word becomes bytes, a plane of the operand for each: of 32 bits its four limbs, products of which are summed as
//   x·y = sum over d < 4 of 2^8d · sum over i + j = d of x_i·y_j   (mod 2^32),
// ten products of bytes; of 64 bits its signed residues modulo pairwise coprime numbers of 8 bits, one product each, from
// which the sum, an integer below half the product of the moduli, follows by the Chinese remainder theorem.
//
// The left operand has rows of `k` bytes. The right one is read as patches of a tensor [image][row][column][channel] of
// bytes: sixteen channels, a piece, for each place and kernel element; a table says where a piece of `k` lies. A matrix is
// a tensor of one row and a kernel of one element. Nothing branches or indexes on the operands' values.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Bytes of a row of a tile: one line of shared memory.
#define LINE 128
#define MOST_RESIDUES 19

// A piece of sixteen bytes of the inner dimension: how far down and right of a position's first element, and how far in
// memory, in pieces.
struct Piece {
    int down, right, ahead, unused;
};

struct Map {
    const u8* a;
    const u8* b;
    // The words of the output, or for 64-bit words the bytes of its residues.
    void* out;
    const Piece* pieces;
    // Bytes from a plane of an operand or of the output to the next.
    i64 a_plane, b_plane, out_plane;
    // Elements from a row of the output to the next.
    i64 out_row;
    // Rows and columns of one group's output, pieces of its inner dimension.
    int rows, columns, count;
    // Pieces from a row of `a` to the next.
    int a_row;
    // Of the right operand, in pieces: an image, a place, and a group of channels.
    int image, place, group;
    // Its height and width.
    int height, width;
    // Columns are positions from `start` on, `run` of each image from `first` on; `across` of them are a row.
    int first, start, run, across;
    int stride_down, stride_right, pad_top, pad_left;
    // Parts of the inner dimension's work, computed side by side and added.
    int slices;
    // Planes, for residues.
    int planes;
    // Of residue i: the modulus, floor(2^32 / modulus), a multiple of the modulus just above 2^31, and by what the residue is
    // multiplied.
    u32 modulus[MOST_RESIDUES], reciprocal[MOST_RESIDUES], offset[MOST_RESIDUES], factor[MOST_RESIDUES];
};

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Tests emulate what stands between these conditions (python/tests/gpu_emulator).
#ifndef EMULATED

__device__ __forceinline__ void copy_piece(u32 to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

__device__ __forceinline__ void end_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif

// value mod modulus, for value < 2^32 and reciprocal = floor(2^32 / modulus).
__device__ __forceinline__ u32 reduced(u32 value, u32 modulus, u32 reciprocal) {
    u32 rest = value - __umulhi(value, reciprocal) * modulus;
    return min(rest, rest - modulus);
}

// Which planes are multiplied, and which run of the inner dimension: work is ordered by `shift`, from high to low, then by
// the left plane, then by lines of the inner dimension.
template <bool RESIDUES>
struct Turn {
    int shift, plane, line, lines;

    __device__ __forceinline__ void seek(int turn, int all_lines, int residue) {
        lines = all_lines;
        if (RESIDUES) {
            shift = 0, plane = residue, line = turn;
            return;
        }
        int product = turn / lines;
        line = turn - product * lines;
        shift = product < 4 ? 3 : product < 7 ? 2 : product < 9 ? 1 : 0;
        plane = product - (shift == 3 ? 0 : shift == 2 ? 4 : shift == 1 ? 7 : 9);
    }

    __device__ __forceinline__ void advance() {
        line += 1;
        if (line == lines && !RESIDUES) {
            line = 0;
            plane += 1;
            if (plane > shift) {
                plane = 0;
                shift -= 1;
            }
        }
    }

    __device__ __forceinline__ int left() const { return plane; }
    __device__ __forceinline__ int right() const { return RESIDUES ? plane : shift - plane; }
};

// Copies lines of both operands to shared memory: piece j of row r of a tile goes to place j xor (r mod 8) of its line, so
// that the tensor cores' reads, eight rows at a time, meet no bank twice.
template <int ROWS, int COLUMNS, bool RESIDUES>
struct Loader {
    static const int A = ROWS / 32;
    static const int B = COLUMNS / 32;
    static const int BYTES = (ROWS + COLUMNS) * LINE;

    const Map& map;
    Turn<RESIDUES> turn;
    int column;
    u32 place;
    i64 a_start;
    u32 a_inside;
    int b_start[B];
    // Row and column of the position's first element, in halves of a word; far outside for what is no column.
    int b_at[B];

    __device__ __forceinline__ Loader(const Map& map, int first_row, int first_column, int group) : map(map) {
        int row = threadIdx.x / 8;
        column = threadIdx.x % 8;
        place = row * LINE + ((column ^ (row % 8)) << 4);
        a_inside = 0;
        for (int i = 0; i < A; i++) a_inside |= (u32)(first_row + row + 32 * i < map.rows) << i;
        a_start = (i64)(group * map.rows + first_row + row) * map.a_row + column;
#pragma unroll
        for (int i = 0; i < B; i++) {
            int at = first_column + row + 32 * i;
            bool inside = at < map.columns;
            at = inside ? at : 0;
            int image = map.first + at / map.run;
            int position = map.start + at % map.run;
            int down = position / map.across * map.stride_down - map.pad_top;
            int right = position % map.across * map.stride_right - map.pad_left;
            b_start[i] = image * map.image + (down * map.width + right) * map.place + group * map.group;
            b_at[i] = inside ? (int)((u32)down << 16 | ((u32)right & 0xFFFF)) : (int)0x80008000;
        }
    }

    __device__ __forceinline__ void load(u32 stage) {
        int piece = turn.line * 8 + column;
        bool has = piece < map.count;
        const u8* a = map.a + turn.left() * map.a_plane + (a_start + turn.line * 8) * 16;
        u32 to = stage + place;
#pragma unroll
        for (int i = 0; i < A; i++) {
            bool inside = has && (a_inside >> i & 1);
            copy_piece(to + i * 32 * LINE, inside ? a + (i64)i * 32 * map.a_row * 16 : map.a, inside);
        }
        Piece at = map.pieces[has ? piece : 0];
        const u8* b = map.b + turn.right() * map.b_plane;
        to += ROWS * LINE;
#pragma unroll
        for (int i = 0; i < B; i++) {
            int down = (b_at[i] >> 16) + at.down;
            int right = (short)b_at[i] + at.right;
            bool inside = has && (u32)down < (u32)map.height && (u32)right < (u32)map.width;
            copy_piece(to + i * 32 * LINE, inside ? b + (i64)(b_start[i] + at.ahead) * 16 : map.b, inside);
        }
        turn.advance();
    }
};

// Where an element of this group's output is.
__device__ __forceinline__ i64 place_of(const Map& map, int group, int row, int column) {
    return (i64)(group * map.rows + row) * map.out_row + column;
}

// A pair of neighbouring sums of a row becomes words of the output.
__device__ __forceinline__ void store_words(const Map& map, int group, int row, int column, u32 first, u32 second, int shift) {
    if (row >= map.rows || column >= map.columns) return;
    u32* out = (u32*)map.out + place_of(map, group, row, column);
    bool both = column + 1 < map.columns;
    first <<= shift, second <<= shift;
    if (map.slices > 1) {
        atomicAdd(out, first);
        if (both) atomicAdd(out + 1, second);
    } else if (both && map.out_row % 2 == 0) {
        *(uint2*)out = make_uint2(first, second);
    } else {
        out[0] = first;
        if (both) out[1] = second;
    }
}

// Four pairs of sums, eight columns apart, become residues. The four lanes that share the row exchange them first, so that each writes
// the eight columns of one pair of every lane.
__device__ __forceinline__ void store_residues(const Map& map, int group, int residue, int row, int column, const u32 (&sums)[8]) {
    u32 modulus = map.modulus[residue], reciprocal = map.reciprocal[residue], offset = map.offset[residue], factor = map.factor[residue];
    u64 own = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 y = reduced(sums[i] + offset, modulus, reciprocal) * factor;
        own |= (u64)reduced(y, modulus, reciprocal) << (8 * i);
    }
    int lane = threadIdx.x % 4;
    u64 line = 0;
#pragma unroll
    for (int other = 0; other < 4; other++) {
        u32 pair = (u32)(own >> (16 * (lane ^ other))) & 0xFFFF;
        line |= (u64)__shfl_xor_sync(~0u, pair, other) << (16 * (lane ^ other));
    }
    column += lane * 8;
    if (row >= map.rows || column >= map.columns) return;
    u8* out = (u8*)map.out + residue * map.out_plane + place_of(map, group, row, column);
    if (column + 8 <= map.columns && map.out_row % 8 == 0) {
        *(u64*)out = line;
    } else {
        for (int i = 0; i < min(8, map.columns - column); i++) out[i] = (u8)(line >> (8 * i));
    }
}

// Sums of a row, `COUNT` pairs eight columns apart from `column` on. Every lane of a warp must come here.
template <int COUNT, int APART, bool RESIDUES>
__device__ __forceinline__ void store(const Map& map, int group, int part, int row, int column, const u32* sums, int shift) {
    int lane = threadIdx.x % 4;
    if (RESIDUES) {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            u32 four[8];
#pragma unroll
            for (int j = 0; j < 8; j++) four[j] = sums[(i + j / 2) * APART + j % 2];
            store_residues(map, group, part, row, column + i * 8, four);
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) store_words(map, group, row, column + i * 8 + lane * 2, sums[i * APART], sums[i * APART + 1], shift);
    }
}

// Turns of this block: all, or those of its slice.
struct Range {
    int start, end;

    __device__ __forceinline__ Range(const Map& map, int products, int slice) {
        int turns = products * ((map.count + 7) / 8);
        start = (int)((i64)turns * slice / map.slices);
        end = (int)((i64)turns * (slice + 1) / map.slices);
    }
};

// ---- Tensor cores since Ampere: each warp multiplies 64 rows by 32 columns of a tile of 128 by 128. ----

#ifndef EMULATED

template <bool RESIDUES>
__device__ __forceinline__ void multiply(u32 (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if (RESIDUES) {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// Four matrices of eight lines of sixteen bytes.
__device__ __forceinline__ void read_lines(u32 (&words)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
}

#endif

template <bool RESIDUES>
__device__ __forceinline__ void by_warps(const Map& map) {
    const int ROWS = 128, COLUMNS = 128, STAGES = 3;
    typedef Loader<ROWS, COLUMNS, RESIDUES> Load;
    extern __shared__ __align__(1024) u8 memory[];
    u32 stages = shared_address(memory);
    int groups = gridDim.z / (RESIDUES ? map.planes : map.slices);
    int group = blockIdx.z % groups, part = blockIdx.z / groups;
    Range range(map, RESIDUES ? 1 : 10, RESIDUES ? 0 : part);
    int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    int lines = (map.count + 7) / 8;

    Load loader(map, first_row, first_column, group);
    loader.turn.seek(range.start, lines, part);
    Turn<RESIDUES> turn = loader.turn;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
    u32 sums[4][4][4] = {};

    for (int ahead = 0; ahead < STAGES - 1; ahead++) {
        if (range.start + ahead < range.end) loader.load(stages + ahead * Load::BYTES);
        end_copies();
    }
    int shift = turn.shift;
    for (int at = range.start; at < range.end; at++) {
        await_copies<STAGES - 2>();
        __syncthreads();
        int stage = (at - range.start) % STAGES;
        if (at + STAGES - 1 < range.end) loader.load(stages + (stage + STAGES - 1) % STAGES * Load::BYTES);
        end_copies();
        if (turn.shift != shift) {
            shift = turn.shift;
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int k = 0; k < 4; k++) sums[i][j][k] <<= 8;
        }
        turn.advance();
        u32 left = stages + stage * Load::BYTES, right = left + ROWS * LINE;
        // Of the four matrices that are read at once, this lane's line is of one.
        int line = lane % 8, second = lane / 8 % 2, third = lane / 16;
#pragma unroll
        for (int step = 0; step < 4; step++) {
            u32 a[4][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = warp_row + i * 16 + second * 8 + line;
                read_lines(a[i], left + row * LINE + (((step * 2 + third) ^ line) << 4));
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int row = warp_column + j * 16 + third * 8 + line;
                read_lines(b[j], right + row * LINE + (((step * 2 + second) ^ line) << 4));
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) multiply<RESIDUES>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = first_row + warp_row + i * 16 + lane / 4, column = first_column + warp_column;
        store<4, 4, RESIDUES>(map, group, part, row, column, &sums[i][0][0], 8 * shift);
        store<4, 4, RESIDUES>(map, group, part, row + 8, column, &sums[i][0][2], 8 * shift);
    }
}

extern "C" __global__ void __launch_bounds__(256) limbs_by_warps(const __grid_constant__ Map map) { by_warps<false>(map); }

extern "C" __global__ void __launch_bounds__(256) residues_by_warps(const __grid_constant__ Map map) { by_warps<true>(map); }

// ---- Tensor cores of Hopper: each group of four warps multiplies 64 rows by 256 columns, out of shared memory. ----

#ifdef HOPPER

// A tile of lines as the tensor cores address it: lines of 128 bytes, swizzled; eight of them are 1,024 bytes.
__device__ __forceinline__ u64 descriptor(u32 address) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define SUMS8(n) "+r"(sums[n]), "+r"(sums[n + 1]), "+r"(sums[n + 2]), "+r"(sums[n + 3]), "+r"(sums[n + 4]), "+r"(sums[n + 5]), "+r"(sums[n + 6]), "+r"(sums[n + 7])
#define SUMS64(n) SUMS8(n), SUMS8(n + 8), SUMS8(n + 16), SUMS8(n + 24), SUMS8(n + 32), SUMS8(n + 40), SUMS8(n + 48), SUMS8(n + 56)

#define WARPGROUP_MULTIPLY(types)                                                                               \
    asm volatile(                                                                                               \
        "wgmma.mma_async.sync.aligned.m64n256k32.s32." types                                                    \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"  \
        "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"  \
        "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,"  \
        "%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,"     \
        "%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,"  \
        "%121,%122,%123,%124,%125,%126,%127}, %128, %129, 1;"                                                   \
        : SUMS64(0), SUMS64(64)                                                                                 \
        : "l"(left), "l"(right))

template <bool RESIDUES>
__device__ __forceinline__ void multiply_tiles(u32 (&sums)[128], u64 left, u64 right) {
    if (RESIDUES) {
        WARPGROUP_MULTIPLY("s8.s8");
    } else {
        WARPGROUP_MULTIPLY("u8.u8");
    }
}

// The compiler must not move what reads or writes the sums across.
__device__ __forceinline__ void hold(u32 (&sums)[128]) {
#pragma unroll
    for (int i = 0; i < 128; i++) asm volatile("" : "+r"(sums[i])::"memory");
}

template <int PENDING>
__device__ __forceinline__ void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <bool RESIDUES>
__device__ __forceinline__ void by_warpgroups(const Map& map) {
    const int ROWS = 128, COLUMNS = 256, STAGES = 4, AHEAD = 2;
    typedef Loader<ROWS, COLUMNS, RESIDUES> Load;
    extern __shared__ __align__(1024) u8 memory[];
    u32 stages = shared_address(memory);
    int groups = gridDim.z / (RESIDUES ? map.planes : map.slices);
    int group = blockIdx.z % groups, part = blockIdx.z / groups;
    Range range(map, RESIDUES ? 1 : 10, RESIDUES ? 0 : part);
    int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    int lines = (map.count + 7) / 8;

    Load loader(map, first_row, first_column, group);
    loader.turn.seek(range.start, lines, part);
    Turn<RESIDUES> turn = loader.turn;
    int warpgroup = threadIdx.x / 128;
    u32 sums[128];
#pragma unroll
    for (int i = 0; i < 128; i++) sums[i] = 0;

    for (int ahead = 0; ahead < AHEAD; ahead++) {
        if (range.start + ahead < range.end) loader.load(stages + ahead * Load::BYTES);
        end_copies();
    }
    int at = range.start;
    while (true) {
        // As long as the shift stays; products follow one another without a pause.
        int shift = turn.shift;
        int end = RESIDUES ? range.end : min(range.end, at + (shift + 1 - turn.plane) * lines - turn.line);
        hold(sums);
        for (; at < end; at++) {
            await_copies<AHEAD - 1>();
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            // Every thread's copies are there, and the products before the last have read theirs.
            __syncthreads();
            int stage = (at - range.start) % STAGES;
            u32 left = stages + stage * Load::BYTES;
            u64 a = descriptor(left + warpgroup * 64 * LINE), b = descriptor(left + ROWS * LINE);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int step = 0; step < 4; step++) multiply_tiles<RESIDUES>(sums, a + step * 2, b + step * 2);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (at + AHEAD < range.end) loader.load(stages + (stage + AHEAD) % STAGES * Load::BYTES);
            end_copies();
            await_products<1>();
        }
        await_products<0>();
        hold(sums);
        if (RESIDUES || at == range.end) break;
        turn.seek(at, lines, part);
#pragma unroll
        for (int i = 0; i < 128; i++) sums[i] <<= 8;
    }
    int lane = threadIdx.x % 32;
    int row = first_row + threadIdx.x / 32 * 16 + lane / 4;
    store<32, 4, RESIDUES>(map, group, part, row, first_column, sums, 8 * turn.shift);
    store<32, 4, RESIDUES>(map, group, part, row + 8, first_column, sums + 2, 8 * turn.shift);
}

extern "C" __global__ void __launch_bounds__(256, 1) limbs_by_warpgroups(const __grid_constant__ Map map) { by_warpgroups<false>(map); }

extern "C" __global__ void __launch_bounds__(256, 1) residues_by_warpgroups(const __grid_constant__ Map map) { by_warpgroups<true>(map); }

#endif
