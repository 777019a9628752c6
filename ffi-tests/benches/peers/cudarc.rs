//! The cost of an allocation and its free through cudarc, the Rust peer: the same pairs as in `cuda-mem bench pool`,
//! and random sizes with 1000 to 2000 live blocks. It needs an NVIDIA driver.

use cudarc::driver::{CudaContext, CudaStream, DriverError};
use ffi_tests::timing::{Numbers, median};
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if !ffi_tests::Setup::from_environment().is_ok_and(|setup| !setup.is_software()) {
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
    Ok(())
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
