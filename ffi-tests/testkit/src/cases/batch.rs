//! Many copies in one call, in the forms of CUDA 12.8 and 13.0.

use super::lab::codes::*;
use super::lab::{DEVICE_0, Lab, Run};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared copies,
    Shared bad_counts,
    Shared bad_attributes,
    Shared bad_copies,
    Shared on_the_default_stream,
}

/// The arguments of a call, all of them valid.
struct Batch {
    to: [CUdeviceptr; 2],
    from: [CUdeviceptr; 2],
    sizes: [usize; 2],
    attributes: [CUmemcpyAttributes; 2],
    indices: [usize; 2],
}

impl Batch {
    fn of(memory: CUdeviceptr) -> Self {
        let order = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        Self {
            to: [memory, memory + 64],
            from: [memory + 1024, memory + 2048],
            sizes: [64, 64],
            attributes: [CUmemcpyAttributes { srcAccessOrder: order, ..Default::default() }; 2],
            indices: [0, 1],
        }
    }

    /// Makes both calls, with these counts.
    fn ask(&mut self, l: &mut Lab, label: &str, stream: CUstream, count: usize, attributes: usize) {
        let (to, from, sizes) = (self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.sizes.as_mut_ptr());
        let (how, indices) = (self.attributes.as_mut_ptr(), self.indices.as_mut_ptr());
        let mut failed = 77;
        let old = format!("{label}, of 12.8");
        ask!(l, old.clone(), cuMemcpyBatchAsync(to, from, sizes, count, how, indices, attributes, &mut failed, stream));
        l.say(
            format!("{old}: the failed one"),
            if failed == usize::MAX { "all ones".to_owned() } else { failed.to_string() },
        );
        ask!(
            l,
            format!("{label}, of 13.0"),
            cuMemcpyBatchAsync_v2(to, from, sizes, count, how, indices, attributes, stream)
        );
    }
}

fn copies(l: &mut Lab) -> Run {
    let (memory, stream) = (l.alloc(4096)?, l.stream(1)?);
    need!(l, cuMemsetD8_v2(memory, 5, 4096))?;
    need!(l, cuMemsetD8_v2(memory, 0, 128))?;
    Batch::of(memory).ask(l, "two copies", stream, 2, 1);
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    l.bytes::<2>("bytes", memory + 63);
    for (name, order) in [("during the call", 2), ("at any time", 3)] {
        let mut batch = Batch::of(memory);
        batch.attributes[0].srcAccessOrder = CUmemcpySrcAccessOrder(order);
        batch.ask(l, name, stream, 2, 1);
    }
    let mut batch = Batch::of(memory);
    batch.attributes[0].srcLocHint = DEVICE_0;
    batch.attributes[0].dstLocHint = DEVICE_0;
    batch.ask(l, "with hints", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.attributes[0].flags = 1;
    batch.ask(l, "beside kernels", stream, 2, 1);
    let mut heap = vec![1_u8; 64];
    let mut batch = Batch::of(memory);
    batch.from[1] = heap.as_mut_ptr() as CUdeviceptr;
    batch.ask(l, "from the heap", stream, 2, 1);
    ask!(l, "the stream at the end" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn bad_counts(l: &mut Lab) -> Run {
    let (memory, stream) = (l.alloc(4096)?, l.stream(1)?);
    Batch::of(memory).ask(l, "no copies", stream, 0, 1);
    Batch::of(memory).ask(l, "no attributes", stream, 2, 0);
    Batch::of(memory).ask(l, "more attributes than copies", stream, 1, 2);
    let mut batch = Batch::of(memory);
    batch.indices[0] = 1;
    batch.ask(l, "attributes that do not begin at 0", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.indices[0] = 9;
    batch.ask(l, "attributes past the copies", stream, 2, 1);
    ask!(l, "the stream", cuStreamSynchronize(stream));
    Ok(())
}

fn bad_attributes(l: &mut Lab) -> Run {
    let (memory, stream) = (l.alloc(4096)?, l.stream(1)?);
    for (name, order) in [("order 0", 0), ("unknown order", 77)] {
        let mut batch = Batch::of(memory);
        batch.attributes[0].srcAccessOrder = CUmemcpySrcAccessOrder(order);
        batch.ask(l, name, stream, 2, 1);
    }
    let mut batch = Batch::of(memory);
    batch.attributes[0].flags = 0x100;
    batch.ask(l, "unknown flags", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.attributes[0].srcLocHint = CUmemLocation { type_: CUmemLocationType(77), id: 0 };
    batch.ask(l, "a hint of an unknown place", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.attributes[0].srcLocHint = CUmemLocation { id: 99, ..DEVICE_0 };
    batch.ask(l, "a hint of device 99", stream, 2, 1);
    ask!(l, "the stream", cuStreamSynchronize(stream));
    Ok(())
}

fn bad_copies(l: &mut Lab) -> Run {
    let (memory, stream) = (l.alloc(4096)?, l.stream(1)?);
    let mut batch = Batch::of(memory);
    batch.sizes[1] = 0;
    batch.ask(l, "0 bytes", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.to[1] = 0;
    batch.ask(l, "to 0", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.from[1] = 0;
    batch.ask(l, "from 0", stream, 2, 1);
    let mut batch = Batch::of(memory);
    batch.sizes[1] = 1 << 40;
    batch.ask(l, "past the end", stream, 2, 1);
    ask!(l, "the stream", cuStreamSynchronize(stream));
    let mut batch = Batch::of(memory);
    let (to, from, sizes) = (batch.to.as_mut_ptr(), batch.from.as_mut_ptr(), batch.sizes.as_mut_ptr());
    let (how, indices) = (batch.attributes.as_mut_ptr(), batch.indices.as_mut_ptr());
    let null = ptr::null_mut();
    ask!(
        l,
        "no place for the failed one",
        cuMemcpyBatchAsync(to, from, sizes, 2, how, indices, 1, ptr::null_mut(), stream)
    );
    ask!(l, "no destinations", cuMemcpyBatchAsync_v2(null, from, sizes, 2, how, indices, 1, stream));
    ask!(l, "no sources", cuMemcpyBatchAsync_v2(to, null, sizes, 2, how, indices, 1, stream));
    ask!(l, "no sizes", cuMemcpyBatchAsync_v2(to, from, ptr::null_mut(), 2, how, indices, 1, stream));
    ask!(l, "the stream goes on", cuStreamSynchronize(stream));
    Ok(())
}

fn on_the_default_stream(l: &mut Lab) -> Run {
    let memory = l.alloc(4096)?;
    Batch::of(memory).ask(l, "null", ptr::null_mut(), 2, 1);
    Batch::of(memory).ask(l, "legacy", ptr::without_provenance_mut(1), 2, 1);
    Batch::of(memory).ask(l, "per thread", ptr::without_provenance_mut(2), 2, 1);
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}
