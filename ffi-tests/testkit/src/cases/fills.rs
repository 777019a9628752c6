//! Fills of words and of rows.

use super::lab::codes::*;
use super::lab::{Lab, MIB, Run};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared words,
    Shared words_in_stream_order,
    Shared rows,
    Shared bad_rows,
    Shared bad_places,
    Alone the_heap_in_stream_order,
}

fn words(l: &mut Lab) -> Run {
    let memory = l.alloc(64)?;
    ask!(l, "8 bits" => OK, cuMemsetD8_v2(memory, 0xab, 64));
    ask!(l, "16 bits" => OK, cuMemsetD16_v2(memory + 2, 0x1234, 2));
    ask!(l, "32 bits" => OK, cuMemsetD32_v2(memory + 8, 0x1234_5678, 1));
    l.bytes::<14>("bytes", memory);
    ask!(l, "16 bits at 1" => VALUE, cuMemsetD16_v2(memory + 1, 1, 1));
    ask!(l, "32 bits at 1" => VALUE, cuMemsetD32_v2(memory + 1, 1, 1));
    ask!(l, "32 bits at 2" => VALUE, cuMemsetD32_v2(memory + 2, 1, 1));
    ask!(l, "no bytes" => OK, cuMemsetD8_v2(memory, 1, 0));
    ask!(l, "no words of 16 bits" => OK, cuMemsetD16_v2(memory, 1, 0));
    ask!(l, "no words of 32 bits" => OK, cuMemsetD32_v2(memory, 1, 0));
    ask!(l, "no words of 32 bits at 1", cuMemsetD32_v2(memory + 1, 1, 0));
    Ok(())
}

fn words_in_stream_order(l: &mut Lab) -> Run {
    let (memory, stream) = (l.alloc(64)?, l.stream(1)?);
    ask!(l, "8 bits" => OK, cuMemsetD8Async(memory, 0xcd, 64, stream));
    ask!(l, "16 bits" => OK, cuMemsetD16Async(memory + 2, 0x1234, 2, stream));
    ask!(l, "32 bits" => OK, cuMemsetD32Async(memory + 8, 0x1234_5678, 1, stream));
    ask!(l, "16 bits at 1", cuMemsetD16Async(memory + 1, 1, 1, stream));
    ask!(l, "32 bits at 2", cuMemsetD32Async(memory + 2, 1, 1, stream));
    ask!(l, "no bytes" => OK, cuMemsetD8Async(memory, 1, 0, stream));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    l.bytes::<14>("bytes", memory);
    Ok(())
}

fn rows(l: &mut Lab) -> Run {
    let memory = l.alloc(4096)?;
    need!(l, cuMemsetD8_v2(memory, 0, 4096))?;
    ask!(l, "8 bits" => OK, cuMemsetD2D8_v2(memory, 64, 1, 5, 3));
    l.bytes::<7>("8 bits: second row", memory + 64);
    ask!(l, "16 bits" => OK, cuMemsetD2D16_v2(memory, 64, 0x1234, 2, 3));
    ask!(l, "32 bits" => OK, cuMemsetD2D32_v2(memory, 64, 0x1234_5678, 2, 3));
    l.bytes::<10>("32 bits: third row", memory + 128);
    let stream = l.stream(1)?;
    ask!(l, "8 bits in stream order" => OK, cuMemsetD2D8Async(memory, 64, 1, 5, 3, stream));
    ask!(l, "16 bits in stream order" => OK, cuMemsetD2D16Async(memory, 64, 1, 2, 3, stream));
    ask!(l, "32 bits in stream order" => OK, cuMemsetD2D32Async(memory, 64, 1, 2, 3, stream));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn bad_rows(l: &mut Lab) -> Run {
    let memory = l.alloc(4096)?;
    for (label, pitch, width, height) in [
        ("pitch 0", 0, 4, 4),
        ("pitch 0, one row", 0, 4, 1),
        ("pitch less than the width", 3, 4, 4),
        ("pitch less than the width, one row", 3, 4, 1),
        ("pitch as the width", 4, 4, 4),
        ("pitch 65", 65, 4, 4),
        ("an enormous pitch", 1 << 40, 4, 4),
        ("width 0", 64, 0, 4),
        ("height 0", 64, 4, 0),
        ("past the end", 64, 4, 1 << 30),
    ] {
        ask!(l, format!("8 bits, {label}"), cuMemsetD2D8_v2(memory, pitch, 1, width, height));
        ask!(l, format!("32 bits, {label}"), cuMemsetD2D32_v2(memory, pitch, 1, width, height));
    }
    ask!(l, "16 bits at 1", cuMemsetD2D16_v2(memory + 1, 64, 1, 2, 2));
    ask!(l, "32 bits at 2", cuMemsetD2D32_v2(memory + 2, 64, 1, 2, 2));
    ask!(l, "8 bits at 0", cuMemsetD2D8_v2(0, 64, 1, 2, 2));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn bad_places(l: &mut Lab) -> Run {
    let (memory, heap) = (l.alloc(64)?, vec![0_u8; 64]);
    ask!(l, "0", cuMemsetD8_v2(0, 1, 64));
    ask!(l, "0, no bytes", cuMemsetD8_v2(0, 1, 0));
    ask!(l, "garbage", cuMemsetD8_v2(0xdead_0000, 1, 64));
    ask!(l, "garbage, no bytes", cuMemsetD8_v2(0xdead_0000, 1, 0));
    ask!(l, "the heap", cuMemsetD8_v2(heap.as_ptr() as CUdeviceptr, 1, 64));
    ask!(l, "far past the end", cuMemsetD8_v2(memory, 1, 64 * MIB));
    ask!(l, "all bytes", cuMemsetD8_v2(memory, 1, usize::MAX));
    ask!(l, "more than all bytes", cuMemsetD32_v2(memory, 1, usize::MAX));
    let (host, managed) = (l.host(64)?, l.managed(64)?);
    // A real device faults in the two fills of all bytes above. The context is lost from there on.
    ask!(l, "pinned memory", cuMemsetD8_v2(host as CUdeviceptr, 2, 64));
    ask!(l, "managed memory", cuMemsetD8_v2(managed, 2, 64));
    ask!(l, "the context", cuCtxSynchronize());
    // SAFETY: pinned memory of this case, which no device writes any more.
    l.say("the CPU sees", unsafe { host.read_volatile() });
    Ok(())
}

fn the_heap_in_stream_order(l: &mut Lab) -> Run {
    let heap = vec![0_u8; 64];
    ask!(l, "memset", cuMemsetD8Async(heap.as_ptr() as CUdeviceptr, 1, 64, ptr::null_mut()));
    ask!(l, "the context", cuCtxSynchronize());
    Ok(())
}
