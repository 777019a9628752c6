//! Copies while every driver call fails in turn: no thread may hang, no staging may be lost, nothing may be left
//! behind, and a copy that reports success must have been done.

use super::is_slow;
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, StagingOptions};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Context, MappedMemory, Stream, memory::kind};
use testkit::MappedBuffer;
use testkit::each_call::{Failure, at_each_call};
use testkit::suite::Outcome;
use testkit::{alone, pattern};

const SIZE: usize = 300_000;

/// How many calls of one function fail in turn. Those that poll for completion are more on slow machines.
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
        let prepare = |bench: &mut Bench, number: u64| {
            if number.is_multiple_of(3) {
                bench.engine.trim(); // so that lanes are created while calls fail
            }
            bench.stream.synchronize()
        };
        let codes = [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN];
        let failures = codes.map(|code| Failure { code, after: false });
        for failed in at_each_call(setup, &failures, MOST_CALLS, &mut bench, prepare, Bench::run)? {
            // The engine recovers from some failures: without room for staging it uses the driver's own staging, and
            // after a failed query it assumes the worst.
            let of_the_copies = ["cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize"];
            let told = failed.errors > failed.calls / 2 || !of_the_copies.contains(&failed.function);
            assert!(told, "the copies hide faults: {failed:?}");
        }
        bench.engine.trim();
        assert_eq!(bench.engine.reserved_staging(), 0, "a lane was not returned");
        Ok(())
    })
}
