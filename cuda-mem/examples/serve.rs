//! A kernel that keeps running and serves requests by rings: no launch for each, and no call of the driver. It prints what
//! a request and its answer take, beside a launch and the wait for it.
//!
//! `cargo run --release --package cuda-mem --example serve` runs on a GPU, and with `CUDA_MEM_LIBCUDA=softgpu` in the
//! environment on the software GPU. The kernel is `cuda_mem_echo_ring` of `src/driver/kernels/signal.cu`.

use cuda_mem::signal::{SignalKernels, Signals, WaitPolicy};
use cuda_mem::{Context, Error, Stream};
use std::time::{Duration, Instant};

const REQUESTS: u64 = 10_000;

fn main() -> Result<(), Error> {
    let context = Context::open(0)?;
    println!("on {}", context.device().name()?);
    let (stream, kernels) = (Stream::new(&context)?, SignalKernels::of(&context)?);
    let signals = Signals::new(&context)?;
    if let Some(missing) = signals.why_not_mapped() {
        println!("all is in pinned memory: mapped memory needs {missing}");
    }

    // The kernel begins once, and runs until the requests are closed.
    let mut requests = signals.ring_to_device::<u64>(256)?;
    let mut answers = signals.ring_from_device::<u64>(256)?;
    let patience = Duration::from_secs(10);
    kernels.echo_ring(&requests, &answers, patience, &stream)?;

    let policy = WaitPolicy::within(patience);
    let mut times = Vec::new();
    for request in 0..REQUESTS {
        let start = Instant::now();
        requests.send(&[request], &policy)?;
        let mut answer = [0];
        // 0 items: the kernel has ended.
        assert_eq!((answers.receive(&mut answer, &policy)?, answer[0]), (1, request));
        times.push(start.elapsed());
    }
    requests.close();
    stream.synchronize()?;

    let mut launches = Vec::new();
    for _ in 0..REQUESTS / 10 {
        let start = Instant::now();
        kernels.nothing(&stream)?;
        stream.synchronize()?;
        launches.push(start.elapsed());
    }
    for (what, mut times) in [("a request and its answer", times), ("a launch and the wait for it", launches)] {
        times.sort();
        println!("{what}: {:.2?} (median), {:.2?} (99 of 100)", times[times.len() / 2], times[times.len() / 100 * 99]);
    }
    Ok(())
}
