//! Copies while every driver call fails in turn: no thread may hang, no staging may be lost, nothing may be left
//! behind, and a copy that reports success must have been done.

use super::is_slow;
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, StagingOptions};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Context, MappedMemory, Stream, memory::kind};
use softgpu::Fault;
use std::collections::BTreeMap;
use testkit::MappedBuffer;
use testkit::suite::Outcome;
use testkit::{alone, pattern, pop_all};

const SIZE: usize = 300_000;

/// The maximum number of consecutive calls of one function that fail. Further calls come from the same places in the
/// code.
const MOST_CALLS: u64 = 100;

struct Bench {
    engine: CopyEngine,
    stream: Stream,
    mapped: MappedBuffer,
    plain: Buffer<u8, kind::Device>,
    source: Vec<u8>,
    seen: Vec<u8>,
}

impl Bench {
    fn new(context: &Context) -> cuda_mem::Result<Self> {
        let mut staging = StagingOptions::default();
        (staging.slot_size, staging.lanes) = (32 << 10, 2);
        let stream = Stream::new(context)?;
        Ok(Self {
            engine: CopyEngine::builder(context).staging(staging).helper_threads(2).build()?,
            // With one home stream, no copy makes and destroys an event. A failed destroy would leave it behind.
            // SAFETY: the driver's memory is always initialised bytes, and every byte is a value of `u8`.
            mapped: unsafe { Buffer::uninit_assumed(&MappedMemory::new(context)?, SIZE, &stream) }?,
            plain: Buffer::zeroed(&DeviceMemory::new(context), SIZE, &stream)?,
            stream,
            source: pattern(SIZE, 1),
            seen: vec![0; SIZE],
        })
    }

    /// Makes every kind of copy once. Checks that the bytes read are the bytes written.
    fn run(&mut self) -> cuda_mem::Result<()> {
        let Self { engine, stream, mapped, plain, source, seen } = self;
        let mut options = CopyOptions::default();
        for method in [CopyMethod::Staged { threads: 3 }, CopyMethod::Driver, CopyMethod::Registered] {
            options.method = Some(method);
            engine.write_with(plain, 0, source, &options)?;
            seen.fill(0);
            engine.read_with(plain, 0, seen, &options)?;
            assert!(seen == source, "{method}");
        }
        options.method = Some(CopyMethod::Mixed { storing: 1, staging: 2 });
        engine.write_with(mapped, 0, source, &options)?;
        seen.fill(0);
        engine.read(mapped, 0, seen)?;
        assert!(seen == source, "mapped");
        engine.write_on(stream, plain, 0, &source[1000..])?;
        engine.write_on(stream, mapped, 0, &source[1000..])?;
        seen.fill(0);
        engine.read_on(stream, plain, 0, &mut seen[1000..])?.wait()?;
        assert!(seen[1000..] == source[1000..], "in order");
        engine.read_on(stream, mapped, 0, &mut seen[1000..])?.wait()?;
        engine.write_scattered(plain, [(0, &source[..5]), (100_000, &source[..70_000])])?;
        Ok(())
    }
}

#[test]
fn copy_fault_at_any_call_leaks_no_staging_and_hangs_no_thread() -> Outcome {
    if is_slow() {
        return Ok(());
    }
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the linked-in software GPU injects faults: CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let mut bench = Bench::new(&setup.context)?;
        bench.run()?;
        softgpu::trace(100_000);
        bench.run()?;
        let mut calls = BTreeMap::new();
        for call in softgpu::take_trace() {
            *calls.entry(call.function).or_insert(0_u64) += 1;
        }
        for (function, count) in calls {
            let mut failed = 0;
            // Calls that poll for completion are made more often on slow machines, so limit their number.
            let places = count.min(MOST_CALLS);
            for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN] {
                for number in 1..=places {
                    if number % 3 == 0 {
                        bench.engine.trim(); // so that lanes are created while calls fail
                    }
                    softgpu::faults([Fault::call(function, number, code)]);
                    let outcome = bench.run();
                    let injected = softgpu::injected();
                    softgpu::faults([]);
                    failed += u64::from(outcome.is_err());
                    assert!(outcome.is_ok() || injected == 1, "{function}, call {number}: {outcome:?}");
                    pop_all(&setup.driver)?;
                    // Everything works as before: no lane is missing, no stream is lost, nothing waits.
                    bench.stream.synchronize()?;
                }
            }
            // The engine recovers from some failures: without room for staging it uses the driver's own staging, and
            // after a failed query it assumes the worst.
            let of_the_copies = ["cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize"];
            assert!(
                failed > places / 2 || !of_the_copies.contains(&function),
                "{function}: only {failed} of {} faults were told",
                2 * places
            );
        }
        bench.run()?;
        bench.engine.trim();
        assert_eq!(bench.engine.reserved_staging(), 0, "a lane was not returned");
        Ok(())
    })
}
