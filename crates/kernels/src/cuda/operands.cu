// From words to the operands of linear.cu and back. Compiled behind it.

// The limbs of a 32-bit word, or the signed residues of a 64-bit word.
struct Residues {
    u32 modulus[MOST_RESIDUES], reciprocal[MOST_RESIDUES];
    // 2^32 and -2^64 modulo the modulus.
    u32 high[MOST_RESIDUES], sign[MOST_RESIDUES];
};

__device__ __forceinline__ u32 limb(u32 word, int plane) {
    return word >> (8 * plane) & 0xFF;
}

// The residue between -modulus / 2 and modulus / 2 of a word that is taken for signed.
__device__ __forceinline__ u32 signed_residue(u64 word, const Residues& residues, int plane) {
    u32 modulus = residues.modulus[plane], reciprocal = residues.reciprocal[plane];
    u32 low = reduced((u32)word, modulus, reciprocal), high = reduced((u32)(word >> 32), modulus, reciprocal);
    u32 sum = low + high * residues.high[plane] + (u32)(word >> 63) * residues.sign[plane];
    u32 rest = reduced(sum, modulus, reciprocal);
    return (rest - (rest > (modulus - 1) / 2 ? modulus : 0)) & 0xFF;
}

// Writes sixteen words, `apart` from one another, as bytes of every plane.
__device__ __forceinline__ void write_piece(const u32* words, i64 apart, int count, const Residues&, int, u8* out, i64 plane) {
    u32 lines[4][4] = {};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        u32 word = i < count ? words[i * apart] : 0;
#pragma unroll
        for (int p = 0; p < 4; p++) lines[p][i / 4] |= limb(word, p) << (8 * (i % 4));
    }
#pragma unroll
    for (int p = 0; p < 4; p++) *(uint4*)(out + p * plane) = make_uint4(lines[p][0], lines[p][1], lines[p][2], lines[p][3]);
}

__device__ __forceinline__ void write_piece(const u64* words, i64 apart, int count, const Residues& residues, int planes, u8* out, i64 plane) {
    u64 kept[16];
#pragma unroll
    for (int i = 0; i < 16; i++) kept[i] = i < count ? words[i * apart] : 0;
    for (int p = 0; p < planes; p++) {
        u32 line[4] = {};
#pragma unroll
        for (int i = 0; i < 16; i++) line[i / 4] |= signed_residue(kept[i], residues, p) << (8 * (i % 4));
        *(uint4*)(out + p * plane) = make_uint4(line[0], line[1], line[2], line[3]);
    }
}

// A tensor [image][group][channel][place] of words as planes of bytes [image][place][group][channel], channels of a group padded to whole
// pieces with zeros. `image` and `place` are the pieces from one of them to the next.
struct Channels {
    const void* words;
    u8* out;
    i64 plane;
    int images, places, groups, channels, image, place, planes;
    Residues residues;
};

template <typename Word>
__device__ __forceinline__ void pack_channels(const Channels& of) {
    int pieces = (of.channels + 15) / 16;
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    int place = (int)(at % of.places);
    i64 rest = at / of.places;
    int piece = (int)(rest % pieces);
    rest /= pieces;
    int group = (int)(rest % of.groups);
    i64 image = rest / of.groups;
    if (image >= of.images) return;
    i64 channel = (image * of.groups + group) * of.channels + piece * 16;
    u8* out = of.out + (image * of.image + (i64)place * of.place + group * pieces + piece) * 16;
    write_piece((const Word*)of.words + channel * of.places + place, of.places, of.channels - piece * 16, of.residues, of.planes, out, of.plane);
}

extern "C" __global__ void pack_channels_u32(const __grid_constant__ Channels of) { pack_channels<u32>(of); }
extern "C" __global__ void pack_channels_u64(const __grid_constant__ Channels of) { pack_channels<u64>(of); }

// Rows [row][channel][element] of words as planes of bytes [row][element][channel], likewise padded; `row` pieces are from one to the next.
struct Rows {
    const void* words;
    u8* out;
    i64 plane;
    int rows, channels, elements, row, planes;
    Residues residues;
};

template <typename Word>
__device__ __forceinline__ void pack_rows(const Rows& of) {
    int pieces = (of.channels + 15) / 16;
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    int element = (int)(at % of.elements);
    i64 rest = at / of.elements;
    int piece = (int)(rest % pieces);
    i64 row = rest / pieces;
    if (row >= of.rows) return;
    u8* out = of.out + (row * of.row + element * pieces + piece) * 16;
    const Word* words = (const Word*)of.words + (row * of.channels + piece * 16) * of.elements + element;
    write_piece(words, of.elements, of.channels - piece * 16, of.residues, of.planes, out, of.plane);
}

extern "C" __global__ void pack_rows_u32(const __grid_constant__ Rows of) { pack_rows<u32>(of); }
extern "C" __global__ void pack_rows_u64(const __grid_constant__ Rows of) { pack_rows<u64>(of); }

// Words from residues y_i, already multiplied by the inverse of M / m_i: with M the product of the moduli, the sum of y_i · M / m_i
// is the word plus q times M, and q is the nearest integer to the sum of y_i / m_i.
struct Recombined {
    const u8* residues;
    u64* out;
    i64 plane, count;
    int planes;
    // M and M / m_i modulo 2^64; 2^56 / m_i, rounded down.
    u64 product, cofactor[MOST_RESIDUES], fraction[MOST_RESIDUES];
};

extern "C" __global__ void recombine(const __grid_constant__ Recombined of) {
    i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (at >= of.count) return;
    u64 sums[4] = {}, quotients[4] = {};
    for (int p = 0; p < of.planes; p++) {
        u32 four = *(const u32*)(of.residues + p * of.plane + at);
        u64 cofactor = of.cofactor[p], fraction = of.fraction[p];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 y = four >> (8 * i) & 0xFF;
            sums[i] += y * cofactor;
            quotients[i] += y * fraction;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u64 word = sums[i] - (quotients[i] + ((u64)1 << 55) >> 56) * of.product;
        if (at + i < of.count) of.out[at + i] = word;
    }
}
