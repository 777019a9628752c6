//! The cost of an allocation and its free through cudarc, the Rust peer: the same pairs as in `cuda-mem bench pool`,
//! and random sizes with 1000 to 2000 live blocks. Then launches with memory of cudarc and with views of buffers. It needs
//! an NVIDIA driver.

use cuda_mem::memory::DeviceMemory;
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Allocate, Stream};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;
use std::time::Instant;
use testkit::timing::{Numbers, median};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if !testkit::Setup::from_environment().is_ok_and(|setup| !setup.is_software()) {
        println!("skipped: cudarc needs an NVIDIA driver");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    println!("cudarc, ns, medians");
    for size in [256, 4096, 1 << 20] {
        println!("{:>24} {:>10.1}", format!("pair, {size} B"), pairs(&stream, size)?);
    }
    println!("{:>24} {:>10.1}", "random, an operation", random(&stream)?);
    let ours = Stream::from_cudarc(&stream)?;
    let pool = Pool::new(&DeviceMemory::new(ours.context()), &PoolOptions::default())?;
    let pair = median(101, 1000, || pool.uninit::<u8>(4096, &ours).map(drop))?;
    println!("{:>24} {pair:>10.1}", "our pool, 4096 B");

    let module = context.load_module(Ptx::from_src(include_str!("../../testkit/src/kernels.ptx")))?;
    let kernel = module.load_function("double_bytes")?;
    let mut slice = stream.alloc_zeros::<u8>(BYTES as usize)?;
    let with_slice = launches(&stream, || launch(&kernel, &stream, &mut slice))?;
    println!("{:>24} {with_slice:>10.1}", "launch, CudaSlice");
    let mut buffer = pool.zeroed::<u8>(BYTES as usize, &ours)?;
    let with_view = launches(&stream, || launch(&kernel, &stream, &mut buffer.cudarc_view_mut(..)?))?;
    println!("{:>24} {with_view:>10.1}", "launch, view of a buffer");
    Ok(())
}

const BYTES: u64 = 1024;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn launch<'a, A>(kernel: &'a CudaFunction, stream: &'a CudaStream, memory: A) -> Outcome<()>
where
    cudarc::driver::LaunchArgs<'a>: PushKernelArg<A> + PushKernelArg<&'static u64>,
{
    let mut launch = stream.launch_builder(kernel);
    launch.arg(memory).arg(&BYTES);
    // SAFETY: the memory has as many bytes, and the stream is its home stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(BYTES as u32)) }?;
    Ok(())
}

/// The time of a launch while the device lags behind.
fn launches(stream: &CudaStream, mut launch: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..101 {
        stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..100 {
            launch()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e7);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[50])
}

fn allocate(stream: &Arc<CudaStream>, size: usize) -> Result<cudarc::driver::CudaSlice<u8>, DriverError> {
    // SAFETY: nothing reads the memory.
    unsafe { stream.alloc::<u8>(size) }
}

fn pairs(stream: &Arc<CudaStream>, size: usize) -> Result<f64, DriverError> {
    let time = median(101, 1000, || allocate(stream, size).map(drop))?;
    stream.synchronize()?;
    Ok(time)
}

/// Random sizes up to 1 MiB.
fn random(stream: &Arc<CudaStream>) -> Result<f64, DriverError> {
    const STEPS: u32 = 100_000;
    let (mut numbers, mut live) = (Numbers(1), Vec::new());
    let mut step = || -> Result<(), DriverError> {
        if live.len() < 1000 || (numbers.next_number() & 1 == 1 && live.len() < 2000) {
            live.push(allocate(stream, 1 + numbers.below(1 << 20))?);
        } else {
            let index = numbers.below(live.len());
            live.swap_remove(index);
        }
        Ok(())
    };
    for _ in 0..1000 {
        step()?;
    }
    let start = Instant::now();
    for _ in 0..STEPS {
        step()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS))
}
