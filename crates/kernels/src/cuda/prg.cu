// Words of the pseudorandom generator (prg/mod.rs): AES-128 (FIPS 197) in counter mode. Compiled behind the others.
//
// Bitsliced, so that nothing branches or indexes on a key: bit i of a register belongs to block i of 32 that four lanes encrypt. Each
// lane has one column of their states, a register for each of its 32 bits. To shift rows is to exchange registers with the other three.
// A warp has 256 consecutive blocks: block 8i + g is bit i of lanes 4g to 4g + 3, so that a warp's stores are 32 consecutive words.

struct Drawn {
    // Eleven round keys of four words.
    const u32* keys;
    u32* out;
    // The stream.
    u64 nonce;
    // In words of 32 bits: the first in the stream, and how many.
    i64 start, count;
    // Whether they are added to what is there, and whether two of them are one number.
    int adds, wide;
};

// Words of 32 bits that a warp draws.
#define RUN 1024
#define ROUNDS 10

// sum += a·b in GF(16) = GF(2)[z] / (z^4 + z^3 + 1). An exclusive or of a product and something else is one instruction.
__device__ __forceinline__ void add_product(u32 (&sum)[4], const u32 (&a)[4], const u32 (&b)[4]) {
    u32 two = b[2] ^ b[3], three = b[1] ^ two, four = b[0] ^ three;
    sum[0] ^= (a[0] & b[0]) ^ (a[1] & b[3]) ^ (a[2] & two) ^ (a[3] & three);
    sum[1] ^= (a[0] & b[1]) ^ (a[1] & b[0]) ^ (a[2] & b[3]) ^ (a[3] & two);
    sum[2] ^= (a[0] & b[2]) ^ (a[1] & b[1]) ^ (a[2] & b[0]) ^ (a[3] & b[3]);
    sum[3] ^= (a[0] & b[3]) ^ (a[1] & two) ^ (a[2] & three) ^ (a[3] & four);
}

// The S-box without its constant 0x63, which the round keys have. In GF(16)[Y] / (Y^2 + Y + z^3), isomorphic to AES's field,
// (high·Y + low)^-1 = (high·Y + high + low) / D with D = z^3·high^2 + high·low + low^2. The lines with x hold the isomorphism, those of
// its inverse also AES's affine map. Satoh, Morioka, Takano and Munetoh (ASIACRYPT 2001) have the method.
__device__ __forceinline__ void substitute(u32* x) {
    u32 x67 = x[6] ^ x[7], x12 = x[1] ^ x[2], x46 = x[4] ^ x[6];
    u32 low[4] = {x[0] ^ x12 ^ x67, x[5] ^ x12 ^ x67, x[2] ^ x[5], x[3]};
    u32 high[4] = {x[4] ^ x67, x[2] ^ x[3], x12 ^ x[3] ^ x46 ^ x[5], x[1] ^ x[4] ^ x67};
    u32 x16 = x[1] ^ x[6], x45 = x[4] ^ x[5];
    u32 d[4] = {x[0] ^ x[3] ^ x16, x[3] ^ x45 ^ x16, x16, x45 ^ x67};
    add_product(d, high, low);
    u32 inverse[4] = {
        (d[0] & ~(d[1] ^ (d[3] & ~d[2]))) ^ (d[3] & ~(d[2] & ~d[1])),
        (d[0] & ((d[1] & d[2]) | (~d[1] & d[3]))) ^ ((d[2] & ~d[1]) | d[3]),
        (d[0] & ~d[2] & (d[1] ^ d[3])) ^ ((d[1] | d[2]) ^ (d[3] & (d[1] ^ d[2]))),
        (d[0] & (d[2] ^ (d[3] & ~(d[1] ^ d[2])))) ^ (d[1] & ~d[2]),
    };
    u32 sum[4] = {high[0] ^ low[0], high[1] ^ low[1], high[2] ^ low[2], high[3] ^ low[3]};
    u32 h[4] = {}, l[4] = {};
    add_product(h, high, inverse);
    add_product(l, sum, inverse);
    u32 both = l[0] ^ h[0];
    x[0] = both ^ l[1];
    x[1] = l[0] ^ l[2];
    x[2] = l[0];
    x[3] = both ^ l[1] ^ h[2];
    x[4] = both ^ l[3];
    x[5] = l[1] ^ l[3] ^ h[0];
    x[6] = h[0] ^ h[2] ^ h[3];
    x[7] = l[2] ^ h[0] ^ h[1];
}

// SubBytes and ShiftRows: row r of a column comes from the column r further on.
__device__ __forceinline__ void substitute_and_shift(u32 (&x)[32], int lane) {
#pragma unroll
    for (int row = 0; row < 4; row++) {
        substitute(x + 8 * row);
#pragma unroll
        for (int bit = 0; bit < 8; bit++)
            if (row > 0) x[8 * row + bit] = __shfl_sync(~0u, x[8 * row + bit], (lane & ~3) | ((lane + row) & 3));
    }
}

// MixColumns: with t_r = s_r + s_(r+1), row r becomes 2·t_r + s_(r+1) + t_(r+2). Twice a byte is it shifted, reduced by 0x1B.
__device__ __forceinline__ void mix(u32 (&x)[32]) {
    u32 t[32];
#pragma unroll
    for (int i = 0; i < 32; i++) t[i] = x[i] ^ x[(i + 8) % 32];
    u32 mixed[32];
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int row = i / 8 * 8, bit = i % 8;
        mixed[i] = t[row + (bit + 7) % 8] ^ x[(i + 8) % 32] ^ t[(i + 16) % 32];
        if (bit > 0 && 0x1B >> bit & 1) mixed[i] ^= t[row + 7];
    }
#pragma unroll
    for (int i = 0; i < 32; i++) x[i] = mixed[i];
}

// AddRoundKey. Masks lie [round][four bits][column]: lanes that read at once read one line.
__device__ __forceinline__ void add_key(u32 (&x)[32], const uint4* masks, int round, int column) {
#pragma unroll
    for (int four = 0; four < 8; four++) {
        uint4 mask = masks[(round * 8 + four) * 4 + column];
        x[4 * four] ^= mask.x, x[4 * four + 1] ^= mask.y, x[4 * four + 2] ^= mask.z, x[4 * four + 3] ^= mask.w;
    }
}

// Bit i of register k and bit k of register i change places.
__device__ __forceinline__ void transpose(u32 (&x)[32]) {
    u32 lower = ~0u;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        lower ^= lower << apart;
#pragma unroll
        for (int k = 0; k < 32; k++) {
            if (k & apart) continue;
            u32 one = x[k], other = x[k + apart];
            x[k] = (one & lower) | (other << apart & ~lower);
            x[k + apart] = (one >> apart & lower) | (other & ~lower);
        }
    }
}

// A register for each bit of a round key's column: all ones or zeros.
__device__ __forceinline__ void spread_keys(const u32* keys, u32* masks) {
    for (int at = threadIdx.x; at < (ROUNDS + 1) * 128; at += blockDim.x) {
        int round = at / 128, bit = at / 16 % 8 * 4 + at % 4, column = at / 4 % 4;
        // What substitute leaves out; rows and columns keep it as it is.
        u32 constant = round > 0 ? 0x63 >> bit % 8 & 1 : 0;
        masks[at] = 0 - ((keys[round * 4 + column] >> bit & 1) ^ constant);
    }
}

// Adds what is in memory. Of a number of 64 bits the lane with the high word takes the carry of the lane before it.
__device__ __forceinline__ void add_memory(const u32* out, int from, int to, bool wide, u32 (&x)[32], int lane) {
    u32 carries = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        u32 old = 32 * i >= from && 32 * i < to ? out[32 * i] : 0;
        x[i] += old;
        carries |= (u32)(x[i] < old) << i;
    }
    u32 below = __shfl_xor_sync(~0u, carries, 1);
    u32 taken = wide && lane % 2 ? below : 0;
#pragma unroll
    for (int i = 0; i < 32; i++) x[i] += taken >> i & 1;
}

extern "C" __global__ void __launch_bounds__(256, 2) draw(const __grid_constant__ Drawn of) {
    __shared__ uint4 masks[(ROUNDS + 1) * 32];
    spread_keys(of.keys, (u32*)masks);
    __syncthreads();
    int lane = threadIdx.x % 32, column = lane % 4;
    u64 run = (u64)of.start / RUN + (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u64 counter = run * (RUN / 4) + lane / 4, half = column < 2 ? counter : of.nonce;
    u32 word = (u32)(half >> column % 2 * 32), x[32];
    // Blocks that are eight apart: bits 3 to 7 of the counter are those of i.
    const u32 BITS[5] = {0xAAAAAAAA, 0xCCCCCCCC, 0xF0F0F0F0, 0xFF00FF00, 0xFFFF0000};
#pragma unroll
    for (int bit = 0; bit < 32; bit++) {
        x[bit] = 0 - (word >> bit & 1);
        if (bit / 8 == 0 && bit >= 3 && column == 0) x[bit] = BITS[bit - 3];
    }
    add_key(x, masks, 0, column);
#pragma unroll 1
    for (int round = 1; round < ROUNDS; round++) {
        substitute_and_shift(x, lane);
        mix(x);
        add_key(x, masks, round, column);
    }
    substitute_and_shift(x, lane);
    add_key(x, masks, ROUNDS, column);
    transpose(x);
    // Every 32nd word from `at` on is this lane's, of them those from `from` up to `to`: the first run may begin before the first word.
    i64 at = (i64)(run * RUN) + lane - of.start;
    int from = at < 0 ? (int)-at : 0, to = (int)min(of.count - at, (i64)RUN);
    u32* out = of.out + at;
    if (of.adds) add_memory(out, from, to, of.wide, x, lane);
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (32 * i >= from && 32 * i < to) out[32 * i] = x[i];
    // Shared memory is not cleared before another block has it.
    __syncthreads();
    for (int i = threadIdx.x; i < (ROUNDS + 1) * 32; i += blockDim.x) masks[i] = make_uint4(0, 0, 0, 0);
}
