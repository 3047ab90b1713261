// Linear maps on words as they are: the twin of linear.cu, and convolutions of one channel a group. Compiled behind it.

#define MOST_PARTS 4

struct Plain {
    // Of each part: weights [group][row][channel][element] and tensors [image][group][channel][height][width].
    const void* a[MOST_PARTS];
    const void* b[MOST_PARTS];
    void* out;
    i64 out_row;
    int parts, groups, rows, columns, channels;
    int kernel_down, kernel_right, dilation_down, dilation_right;
    int height, width, first, start, run, across;
    int stride_down, stride_right, pad_top, pad_left;
};

// A column's image, and row and column of its first element.
struct Column {
    int image, down, right;

    __device__ __forceinline__ Column(const Plain& map, int at) {
        image = map.first + at / map.run;
        int position = map.start + at % map.run;
        down = position / map.across * map.stride_down - map.pad_top;
        right = position % map.across * map.stride_right - map.pad_left;
    }
};

template <typename Word>
__device__ __forceinline__ Word element(const Plain& map, const Word* b, int group, const Column& column, int k) {
    int elements = map.kernel_down * map.kernel_right;
    int channel = k / elements, element = k % elements;
    int down = column.down + element / map.kernel_right * map.dilation_down;
    int right = column.right + element % map.kernel_right * map.dilation_right;
    bool inside = (u32)down < (u32)map.height && (u32)right < (u32)map.width;
    i64 plane = ((i64)column.image * map.groups + group) * map.channels + channel;
    return inside ? b[(plane * map.height + down) * map.width + right] : 0;
}

// A tile of 128 by 128, eight by eight for each of 256 threads.
template <typename Word>
__device__ __forceinline__ void product(const Plain& map) {
    const int TILE = 128, DEPTH = 8;
    __shared__ Word left[DEPTH][TILE + 4], right[DEPTH][TILE];
    int group = blockIdx.z, first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    int depth = map.channels * map.kernel_down * map.kernel_right;
    int tall = threadIdx.x / 16, wide = threadIdx.x % 16;
    int at = first_column + threadIdx.x % TILE;
    Column column(map, at < map.columns ? at : 0);
    Word sums[8][8] = {};
    for (int part = 0; part < map.parts; part++) {
        const Word* a = (const Word*)map.a[part] + ((i64)group * map.rows + first_row) * depth;
        const Word* b = (const Word*)map.b[part];
        for (int start = 0; start < depth; start += DEPTH) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = threadIdx.x / DEPTH + i * 32, k = threadIdx.x % DEPTH;
                bool inside = first_row + row < map.rows && start + k < depth;
                left[k][row] = inside ? a[(i64)row * depth + start + k] : 0;
                k = threadIdx.x / TILE + i * 2;
                inside = at < map.columns && start + k < depth;
                right[k][threadIdx.x % TILE] = inside ? element(map, b, group, column, start + k) : 0;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                Word x[8], y[8];
#pragma unroll
                for (int i = 0; i < 8; i++) x[i] = left[k][tall * 4 + i % 4 + i / 4 * 64], y[i] = right[k][wide * 4 + i % 4 + i / 4 * 64];
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++) sums[i][j] += x[i] * y[j];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int row = first_row + tall * 4 + i % 4 + i / 4 * 64, column = first_column + wide * 4 + j % 4 + j / 4 * 64;
            if (row < map.rows && column < map.columns) ((Word*)map.out)[((i64)group * map.rows + row) * map.out_row + column] = sums[i][j];
        }
}

extern "C" __global__ void __launch_bounds__(256) product_u32(const __grid_constant__ Plain map) { product<u32>(map); }
extern "C" __global__ void __launch_bounds__(256) product_u64(const __grid_constant__ Plain map) { product<u64>(map); }

// One thread for each element of the output; `blockIdx.y` is its row.
template <typename Word>
__device__ __forceinline__ void depthwise(const Plain& map) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= map.columns) return;
    int row = blockIdx.y, group = row / map.rows, elements = map.kernel_down * map.kernel_right;
    Column column(map, at);
    Word sum = 0;
    for (int part = 0; part < map.parts; part++) {
        const Word* a = (const Word*)map.a[part] + (i64)row * elements;
        for (int k = 0; k < elements; k++) sum += a[k] * element(map, (const Word*)map.b[part], group, column, k);
    }
    ((Word*)map.out)[(i64)row * map.out_row + at] = sum;
}

extern "C" __global__ void depthwise_u32(const __grid_constant__ Plain map) { depthwise<u32>(map); }
extern "C" __global__ void depthwise_u64(const __grid_constant__ Plain map) { depthwise<u64>(map); }
