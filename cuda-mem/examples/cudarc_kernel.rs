//! A program of cudarc with buffers of a pool: two streams, each with an upload, a kernel and a download.
//!
//! `cargo run --release --package cuda-mem --features cudarc --example cudarc_kernel` needs a libcuda: a GPU's, or softgpu's in
//! the loader's path (`LD_LIBRARY_PATH`).

use cuda_mem::memory::DeviceMemory;
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Allocate, Stream};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// Adds 1 to each of `count` words. (softgpu has a kernel of this name.)
const KERNEL: &str = "
.version 6.4
.target sm_50
.address_size 64
.visible .entry increment_u32(.param .u64 memory, .param .u64 count)
{
    .reg .pred %outside;
    .reg .u32 %block, %size, %thread, %word;
    .reg .u64 %index, %offset, %count, %address;
    ld.param.u64 %address, [memory];
    ld.param.u64 %count, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %index, %block, %size;
    cvt.u64.u32 %offset, %thread;
    add.u64 %index, %index, %offset;
    setp.ge.u64 %outside, %index, %count;
    @%outside bra done;
    cvta.to.global.u64 %address, %address;
    shl.b64 %offset, %index, 2;
    add.u64 %address, %address, %offset;
    ld.global.u32 %word, [%address];
    add.u32 %word, %word, 1;
    st.global.u32 [%address], %word;
done:
    ret;
}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // As in any program of cudarc.
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(KERNEL))?.load_function("increment_u32")?;
    let theirs = [context.new_stream()?, context.new_stream()?];

    // Their streams here, and a pool for both.
    let ours = [Stream::from_cudarc(&theirs[0])?, Stream::from_cudarc(&theirs[1])?];
    let pool = Pool::new(&DeviceMemory::new(ours[0].context()), &PoolOptions::default())?;

    let count = 1_000_000_u64;
    let numbers: Vec<u32> = (0..count as u32).collect();
    let mut buffers = Vec::new();
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let mut buffer = pool.zeroed::<u32>(count as usize, ours)?;
        let mut view = buffer.cudarc_view_mut(..)?;
        theirs.memcpy_htod(&numbers, &mut view)?;
        let mut launch = theirs.launch_builder(&kernel);
        launch.arg(&mut view).arg(&count);
        // SAFETY: the kernel writes `count` words, which the buffer has, and the launch is on the buffer's home stream.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count as u32)) }?;
        drop(view); // ends the borrow: a view lives to its drop, not to its last use
        buffers.push(buffer);
    }
    for (theirs, buffer) in theirs.iter().zip(&buffers) {
        let seen = theirs.clone_dtoh(&buffer.cudarc_view(..)?)?;
        theirs.synchronize()?;
        assert!(seen.iter().zip(&numbers).all(|(seen, number)| *seen == number + 1));
    }
    // Each buffer returns to the pool in order of its stream. Nobody waits.
    drop(buffers);
    println!("{} has added 1 to {count} words, twice", context.name()?);
    Ok(())
}
