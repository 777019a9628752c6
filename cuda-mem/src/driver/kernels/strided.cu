// Copies between two strided layouts. `scripts/kernels` compiles this file to strided.ptx; it needs no CUDA toolkit.
//
// An element here is a word of 1, 2, 4, 8 or 16 bytes, to which both sides are aligned. Axes are ordered by the
// destination's strides, the fastest first. A launch copies less than 2^31 words, so that indices fit into 32 bits.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#define KERNEL extern "C" __attribute__((global))
#define DEVICE static __attribute__((device, always_inline))
#define SHARED static __attribute__((shared))
#define THREADS 256

enum { AXES = 8 };

// All fields are words of 8 bytes; `Parameters` in view/copy/kernel.rs has the same layout.
struct Copy {
    u64 to, from;
    u64 word;
    u64 axes;
    u64 count;
    u64 extents[AXES];
    i64 to_strides[AXES], from_strides[AXES]; // in bytes
    u64 divisors[AXES];                       // by the extents
    u64 tiles[2];                             // number of tiles along the first two axes; only for the tiled kernels
    u64 tile_divisors[2];
};

// n / d for n below 2^31. The divisor holds a factor in its lower half and a shift in its upper half.
DEVICE u32 divide(u32 n, u64 divisor) {
    u32 high = (u32)(((u64)n * (u32)divisor) >> 32);
    return (high + n) >> (u32)(divisor >> 32);
}

template <class Word> using Global = __attribute__((address_space(1))) Word;

template <class Word> DEVICE Word load(u64 address) { return *(const Global<Word> *)address; }
template <class Word> DEVICE void store(u64 address, Word word) { *(Global<Word> *)address = word; }

// Each thread copies several words, so that many loads are in flight. Neighbouring threads write neighbouring words.
template <class Word, int EACH> DEVICE void copy(const Copy &c) {
    u32 first = __nvvm_read_ptx_sreg_ctaid_x() * (THREADS * EACH) + __nvvm_read_ptx_sreg_tid_x();
    u32 count = (u32)c.count, rest[EACH];
    u64 to[EACH], from[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        rest[k] = first + k * THREADS;
        to[k] = c.to;
        from[k] = c.from;
    }
#pragma unroll
    for (u32 axis = 0; axis < AXES; axis++) {
        if (axis >= c.axes) {
            break;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            u32 next = divide(rest[k], c.divisors[axis]);
            i64 at = rest[k] - next * (u32)c.extents[axis];
            to[k] += at * c.to_strides[axis];
            from[k] += at * c.from_strides[axis];
            rest[k] = next;
        }
    }
    Word words[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS < count) {
            words[k] = load<Word>(from[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS < count) {
            store<Word>(to[k], words[k]);
        }
    }
}

// The first axis is the destination's fastest, the second the source's. Tiles of both go through shared memory, so that
// neighbouring threads read and write neighbouring words. Each row of a tile is padded to an odd number of banks.
template <class Word, int TILE> struct Tile {
    static constexpr int pad = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;
    Word rows[TILE][TILE + pad];
};

template <class Word, int TILE> DEVICE void copy_tile(const Copy &c, Tile<Word, TILE> &tile) {
    constexpr u32 ROWS = THREADS / 32;
    u32 x = __nvvm_read_ptx_sreg_tid_x() % 32, y = __nvvm_read_ptx_sreg_tid_x() / 32;
    u32 block = __nvvm_read_ptx_sreg_ctaid_x();
    u32 rest = divide(block, c.tile_divisors[0]);
    u32 first = (block - rest * (u32)c.tiles[0]) * TILE;
    u32 others = divide(rest, c.tile_divisors[1]);
    u32 second = (rest - others * (u32)c.tiles[1]) * TILE;
    u64 to = c.to, from = c.from;
#pragma unroll
    for (u32 axis = 2; axis < AXES; axis++) {
        if (axis >= c.axes) {
            break;
        }
        u32 next = divide(others, c.divisors[axis]);
        u32 at = others - next * (u32)c.extents[axis];
        to += (u64)at * c.to_strides[axis];
        from += (u64)at * c.from_strides[axis];
        others = next;
    }
    u32 first_end = (u32)c.extents[0], second_end = (u32)c.extents[1];
#pragma unroll
    for (u32 row = 0; row < TILE; row += ROWS) {
#pragma unroll
        for (u32 column = 0; column < TILE; column += 32) {
            u32 a = first + row + y, b = second + column + x;
            if (a < first_end && b < second_end) {
                u64 place = from + (u64)a * c.from_strides[0] + (u64)b * c.from_strides[1];
                tile.rows[row + y][column + x] = load<Word>(place);
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 row = 0; row < TILE; row += ROWS) {
#pragma unroll
        for (u32 column = 0; column < TILE; column += 32) {
            u32 a = first + column + x, b = second + row + y;
            if (a < first_end && b < second_end) {
                u64 place = to + (u64)a * c.to_strides[0] + (u64)b * c.to_strides[1];
                store<Word>(place, tile.rows[column + x][row + y]);
            }
        }
    }
}

#define KERNELS(SIZE, WORD, EACH, TILE)                                                                                \
    KERNEL void cuda_mem_copy_##SIZE(Copy c) { copy<WORD, EACH>(c); }                                                  \
    KERNEL void cuda_mem_copy_tiles_##SIZE(Copy c) {                                                                   \
            SHARED Tile<WORD, TILE> tile;                                                                                  \
        copy_tile<WORD, TILE>(c, tile);                                                                                \
    }

KERNELS(1, u8, 8, 64)
KERNELS(2, u16, 8, 64)
KERNELS(4, u32, 4, 64)
KERNELS(8, u64, 4, 32)
KERNELS(16, u32x4, 4, 32)
