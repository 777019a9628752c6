// Copies of many pieces in one launch. `scripts/kernels` compiles this file to pieces.ptx; it needs no CUDA toolkit.
//
// The copy engines need some microseconds for each piece. Few thread blocks of this kernel fill the link with pieces of a
// few KiB.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#define DEVICE static __attribute__((device, always_inline))
#define THREADS 256

struct Piece {
    u64 to, from, size;
};

// All fields are words of 8 bytes; `Parameters` in buffer/batch/launch.rs has the same layout. The parameters of a kernel take
// at most 4 KiB on drivers before CUDA 12.1, and 32,764 bytes from then on. Drivers copy them at each launch, so few pieces
// have the small form.
template <u32 MOST> struct Pieces {
    u64 count;
    u64 group; // threads for one piece: a power of two from 32 to THREADS
    Piece pieces[MOST];
};

template <class Word> using Global = __attribute__((address_space(1))) Word;

// Each thread has several loads in flight. A group's threads load neighbouring words.
template <class Word> DEVICE void copy(u64 to, u64 from, u64 size, u32 thread, u32 threads) {
    const u32 EACH = 4;
    const u64 step = threads * sizeof(Word);
    for (u64 at = thread * sizeof(Word); at < size; at += EACH * step) {
        Word words[EACH];
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            if (at + k * step < size) {
                words[k] = *(const Global<Word> *)(from + at + k * step);
            }
        }
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            if (at + k * step < size) {
                *(Global<Word> *)(to + at + k * step) = words[k];
            }
        }
    }
}

// Copies the bytes before and after the whole words one by one.
template <class Word> DEVICE void copy_piece(Piece piece, u32 thread, u32 threads) {
    u64 head = -piece.to & (sizeof(Word) - 1);
    if (head > piece.size) {
        head = piece.size;
    }
    u64 words = (piece.size - head) & ~(u64)(sizeof(Word) - 1);
    if (head != 0) {
        copy<u8>(piece.to, piece.from, head, thread, threads);
    }
    copy<Word>(piece.to + head, piece.from + head, words, thread, threads);
    u64 done = head + words;
    if (done != piece.size) {
        copy<u8>(piece.to + done, piece.from + done, piece.size - done, thread, threads);
    }
}

template <u32 MOST> DEVICE void copy_pieces(const Pieces<MOST> &all) {
    u32 group = (u32)all.group;
    u32 thread = __nvvm_read_ptx_sreg_tid_x() & (group - 1);
    u32 groups = THREADS / group;
    u32 first = __nvvm_read_ptx_sreg_ctaid_x() * groups + __nvvm_read_ptx_sreg_tid_x() / group;
    for (u32 n = first; n < (u32)all.count; n += groups * __nvvm_read_ptx_sreg_nctaid_x()) {
        Piece piece = all.pieces[n];
        u64 differ = piece.to ^ piece.from;
        if ((differ & 15) == 0) {
            copy_piece<u32x4>(piece, thread, group);
        } else if ((differ & 3) == 0) {
            copy_piece<u32>(piece, thread, group);
        } else {
            copy<u8>(piece.to, piece.from, piece.size, thread, group);
        }
    }
}

#define KERNEL extern "C" __attribute__((global)) void

KERNEL cuda_mem_copy_pieces(Pieces<168> all) { copy_pieces(all); }
KERNEL cuda_mem_copy_many_pieces(Pieces<1360> all) { copy_pieces(all); }
