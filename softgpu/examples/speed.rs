//! Prints how long calls into softgpu take: `cargo run --release -p cuda-mem-softgpu --example speed`.
#![allow(clippy::unwrap_used, reason = "it measures a table that has everything")]

use std::ptr;
use std::time::Instant;

fn measure(what: &str, mut run: impl FnMut()) {
    let mut times: Vec<u128> = (0..21)
        .map(|_| {
            let start = Instant::now();
            (0..10_000).for_each(|_| run());
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    println!("{what}: {:.1} ns", times[10] as f64 / 10_000.0);
}

fn main() {
    let functions = &softgpu::FUNCTIONS;
    let (mut context, mut free, mut total) = (ptr::null_mut(), 0, 0);
    // SAFETY: results are written to variables of ours, and all memory is freed as often as it is allocated.
    unsafe {
        let _ = functions.cuInit.unwrap()(0);
        let _ = functions.cuDevicePrimaryCtxRetain.unwrap()(&mut context, 0);
        let _ = functions.cuCtxSetCurrent.unwrap()(context);
        let (get_current, get_info) = (functions.cuCtxGetCurrent.unwrap(), functions.cuMemGetInfo_v2.unwrap());
        let (alloc, release) = (functions.cuMemAlloc_v2.unwrap(), functions.cuMemFree_v2.unwrap());
        measure("cuCtxGetCurrent", || _ = get_current(&mut context));
        measure("cuMemGetInfo", || _ = get_info(&mut free, &mut total));
        for size in [256, 4096, 1 << 20] {
            measure(&format!("cuMemAlloc + cuMemFree, {size} bytes"), || {
                let mut address = 0;
                let _ = alloc(&mut address, size);
                let _ = release(address);
            });
        }
        let (alloc, release) = (functions.cuMemAllocAsync.unwrap(), functions.cuMemFreeAsync.unwrap());
        measure("cuMemAllocAsync + cuMemFreeAsync, 4096 bytes", || {
            let mut address = 0;
            let _ = alloc(&mut address, 4096, ptr::null_mut());
            let _ = release(address, ptr::null_mut());
        });
    }
}
