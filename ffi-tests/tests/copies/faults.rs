//! Copies while every call of the driver fails in turn: no thread is stuck, no staging is lost, nothing is left behind, and
//! a copy that says it was done was.

use crate::is_slow;
use cuda_mem::copy::{CopyEngine, CopyOptions, Measuring, ProfileCache, StagingOptions, ThreadPool, Way};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Context, MappedMemory, MappedResource, Stream, memory::kind};
use ffi_tests::suite::Outcome;
use ffi_tests::{alone, pattern, pop_all};
use softgpu::Fault;
use std::sync::Arc;

const SIZE: usize = 300_000;

struct Bench {
    engine: CopyEngine,
    stream: Stream,
    mapped: MappedMemory,
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
            engine: CopyEngine::builder(context)
                .profile_cache(ProfileCache::Off)
                .measuring(Measuring::OnRequest)
                .staging(staging)
                .threads(Arc::new(ThreadPool::new(2)))
                .build()?,
            mapped: MappedResource::new(context)?.allocate(SIZE)?,
            plain: Buffer::zeroed(&DeviceMemory::new(context), SIZE, &stream)?,
            stream,
            source: pattern(SIZE, 1),
            seen: vec![0; SIZE],
        })
    }

    /// Every kind of copy once; whether what was read is what was written.
    fn run(&mut self) -> cuda_mem::Result<()> {
        let Self { engine, stream, mapped, plain, source, seen } = self;
        let mut options = CopyOptions::default();
        for way in [Way::Staged { threads: 3 }, Way::Driver, Way::Registered] {
            options.way = Some(way);
            engine.write_with(plain, 0, source, &options)?;
            seen.fill(0);
            engine.read_with(plain, 0, seen, &options)?;
            assert!(seen == source, "{way}");
        }
        options.way = Some(Way::Mixed { storing: 1, staging: 2 });
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
fn a_fault_at_any_call_leaves_no_thread_stuck_and_no_staging_lost() -> Outcome {
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
        softgpu::count_calls(true);
        bench.run()?;
        let calls = softgpu::calls();
        softgpu::count_calls(false);
        assert!(calls > 100, "only {calls} calls");
        let mut failed = 0;
        for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN] {
            // Threads take their pieces in any order, so the count is not the same each time.
            for number in 1..=calls + 10 {
                if number % 3 == 0 {
                    bench.engine.trim(); // so that lanes are made while calls fail
                }
                softgpu::faults([Fault::any(number, code)]);
                let outcome = bench.run();
                let injected = softgpu::injected();
                softgpu::faults([]);
                failed += usize::from(outcome.is_err());
                assert!(outcome.is_ok() || injected == 1, "call {number}: {outcome:?}");
                pop_all(&setup.driver)?;
                // All is as before: no lane is missing, no stream is lost, nothing waits.
                bench.stream.synchronize()?;
            }
        }
        // Some are made good: without room for staging the driver has its own, and what is not known of memory is taken as pageable.
        assert!(failed as u64 * 2 > calls, "{failed} of 2 times {calls} calls were missed when they failed");
        bench.run()?;
        bench.engine.trim();
        assert_eq!(bench.engine.reserved_staging(), 0, "a lane did not come back");
        Ok(())
    })
}
