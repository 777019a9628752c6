//! Adaptors, readers and writers while every driver call fails in turn: the figures must stay those of the live blocks,
//! and no byte that was accepted may be lost. One test runs at a time, because faults and the ledger apply to the whole
//! process.

use cuda_mem::adaptor::{AfterFailure, Aligned, Fallback, Limit, Logging, Retry, Statistics, Tracking};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::io::BufferWriter;
use cuda_mem::memory::{DeviceMemory, ResourceHandle, kind};
use cuda_mem::{Buffer, Context, Driver, Error, Stream};
use softgpu::Fault;
use std::cell::RefCell;
use std::error::Error as StdError;
use std::io::{Seek, SeekFrom, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::{pattern, pop_all, same};

type Outcome = Result<(), Box<dyn StdError>>;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live blocks of device memory in softgpu, and their bytes.
fn live() -> (i64, i64) {
    let entries = softgpu::ledger().entries;
    let memory = entries.iter().filter(|entry| entry.kind == softgpu::Kind::DeviceMemory);
    memory.fold((0, 0), |(blocks, bytes), entry| (blocks + 1, bytes + entry.size as i64))
}

/// Runs `work` without a fault to count its calls, then with a fault at each call.
fn fail_each(
    driver: &Driver,
    mut work: impl FnMut() -> Outcome,
    mut check: impl FnMut(&str, &Outcome) -> Outcome,
) -> Outcome {
    work()?; // calls that are made only once are made now
    softgpu::faults([Fault::any(u64::MAX, CUresult::CUDA_ERROR_UNKNOWN)]); // starts the count
    let outcome = work();
    let calls = softgpu::calls();
    softgpu::faults([]);
    check("no fault", &outcome)?;
    outcome?;
    assert!(calls > 10, "only {calls} calls");
    for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN] {
        for number in 1..=calls {
            softgpu::faults([Fault::any(number, code)]);
            let outcome = work();
            assert_eq!(softgpu::injected(), 1, "call {number} of {calls}");
            softgpu::faults([]);
            pop_all(driver)?;
            check(&format!("call {number} of {calls} fails with {}", code.0), &outcome)?;
        }
    }
    Ok(())
}

/// Adaptors that count, in this order. Each sees the blocks of the adaptor behind it.
struct Counting {
    statistics: Statistics<kind::Device>,
    limit: Limit<kind::Device>,
    tracking: Tracking<kind::Device>,
}

impl Counting {
    fn new(context: &Context) -> Self {
        let statistics = Statistics::new(&DeviceMemory::new(context));
        let limit = Limit::new(&statistics, 1 << 20);
        Self { tracking: Tracking::new(&limit), statistics, limit }
    }

    /// Live blocks and bytes, on which all adaptors must agree.
    fn figures(&self, what: &str) -> (i64, i64) {
        let (counts, live) = (self.statistics.counts(), self.tracking.live());
        let bytes: usize = live.iter().map(|block| block.size).sum();
        assert_eq!((counts.blocks.current, counts.bytes.current), (live.len() as i64, bytes as i64), "{what}");
        assert_eq!(self.limit.used(), bytes, "{what}");
        (counts.blocks.current, counts.bytes.current)
    }
}

#[test]
fn figures_are_those_of_what_is_live_whatever_fails() -> Outcome {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let (first, second) = (Counting::new(&context), Counting::new(&context));
    let fallback = Fallback::new(&first.tracking, &second.tracking)?;
    let aligned = Aligned::new(&Logging::new(&fallback, std::io::sink()), 4096)?;
    let top = Retry::new(&aligned, 3, |_, _| AfterFailure::GiveUp).share();
    let mut failed_frees = 0;
    let (mut most_in_second, mut figures_before) = (0, (0, 0));
    let work = || -> Outcome {
        // Use the trait directly, so that a failed free can be tried again.
        let mut blocks = vec![];
        let mut result = Ok(());
        for size in [100, 5000, 1] {
            match top.allocate(size, 1, &stream) {
                Ok(block) => blocks.push(block),
                Err(error) => result = result.and(Err(error)),
            }
        }
        most_in_second = most_in_second.max(fallback.blocks_of_second());
        for block in blocks {
            let (before, mut attempts) = (live(), 0);
            // SAFETY: the block is the resource's, and nothing uses it.
            while let Err(error) = unsafe { top.deallocate(block, &stream) } {
                attempts += 1;
                assert_eq!(attempts, 1, "one fault fails two frees: {error}");
                assert_eq!(live(), before, "a free that failed freed: {error}");
                let sum = [first.figures("a failed free"), second.figures("a failed free")];
                assert_eq!((sum[0].0 + sum[1].0, sum[0].1 + sum[1].1), before, "{error}");
                failed_frees += 1;
                result = result.and(Err(error));
            }
        }
        Ok(result?)
    };
    fail_each(&driver, work, |what, outcome| {
        if let Err(error) = outcome {
            assert!(error.downcast_ref::<Error>().is_some(), "{what}: {error}");
        }
        let sum = [first.figures(what), second.figures(what)];
        figures_before = (sum[0].0 + sum[1].0, sum[0].1 + sum[1].1);
        assert_eq!(figures_before, (0, 0), "{what}");
        assert_eq!(live(), (0, 0), "{what}");
        Ok(())
    })?;
    assert!(failed_frees > 0 && most_in_second > 0, "{failed_frees} {most_in_second}");
    assert!(first.statistics.counts().failed_allocations > 0);
    assert!(first.statistics.counts().failed_frees > 0);
    Ok(())
}

#[test]
fn what_ends_with_its_context_is_counted_as_freed() -> Outcome {
    let _alone = alone();
    let driver = Driver::software()?;
    // Discard the errors of tests with faults that ran before.
    driver.take_drop_errors();
    let context = driver.device(0)?.create_context()?;
    let stream = Stream::new(&context)?;
    let counting = Counting::new(&context);
    let aligned = Aligned::new(&Fallback::new(&counting.tracking, &DeviceMemory::new(&context))?, 8192)?;
    let buffers = [1, 10_000].map(|size| Buffer::<u8, _>::zeroed(&aligned, size, &stream));
    assert_eq!(counting.figures("both live").0, 2);
    // SAFETY: the handle is the context's. From now on its objects are only dropped.
    assert_eq!(unsafe { driver.raw().cuCtxDestroy_v2(context.raw()) }?, CUresult::CUDA_SUCCESS);
    drop(buffers);
    assert_eq!(counting.figures("after the context"), (0, 0));
    drop((aligned, counting, stream, context));
    assert_eq!(driver.take_drop_errors(), Default::default());
    Ok(())
}

/// Writes all bytes, and repeats each failed call once.
fn persist(writer: &mut impl Write, mut bytes: &[u8], failures: &mut u32) -> Outcome {
    while !bytes.is_empty() {
        match writer.write(bytes) {
            Ok(0) => return Err("the end".into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) => again(error, failures)?,
        }
    }
    Ok(())
}

fn again(error: std::io::Error, failures: &mut u32) -> Outcome {
    assert!(error.get_ref().is_some_and(|source| source.is::<Error>()), "{error}");
    *failures += 1;
    if *failures > 1 { Err("one fault gives two errors".into()) } else { Ok(()) }
}

#[test]
fn a_writer_that_is_asked_again_after_an_error_has_lost_nothing() -> Outcome {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let data = pattern(600, 4);
    let mut expected = data.clone();
    expected[70..75].copy_from_slice(&[1, 2, 1, 3, 3]);
    for staging in [0, 100] {
        let buffer = RefCell::new(Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 600, &stream)?);
        let mut met = 0;
        let work = || -> Outcome {
            let (mut failures, mut buffer) = (0, buffer.borrow_mut());
            let mut writer = BufferWriter::with_staging(&mut *buffer, staging);
            for chunk in data.chunks(17) {
                persist(&mut writer, chunk, &mut failures)?;
            }
            while let Err(error) = writer.seek(SeekFrom::Start(70)) {
                again(error, &mut failures)?;
            }
            persist(&mut writer, &[1; 3], &mut failures)?;
            while let Err(error) = writer.write_at(71, &[2]) {
                again(error.into(), &mut failures)?;
            }
            persist(&mut writer, &[3; 2], &mut failures)?;
            let mut closed = writer.close();
            while let Err(refused) = closed {
                again(refused.error.into(), &mut failures)?;
                closed = refused.value.close();
            }
            met += failures;
            Ok(())
        };
        fail_each(&driver, work, |what, outcome| {
            if let Err(error) = outcome {
                return Err(format!("{what}: {error}").into());
            }
            let mut buffer = buffer.borrow_mut();
            same(what, &buffer.to_vec()?, &expected)?;
            // Overwrite the buffer, so that a missing write of the next run shows.
            Ok(buffer.fill(.., 0xee)?)
        })?;
        assert!(met > 20, "only {met} errors with staging of {staging}");
    }
    Ok(())
}

#[test]
fn after_each_fault_the_buffer_holds_what_was_written() -> Outcome {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let memory = DeviceMemory::new(&context);
    for (number, drops) in (1..80).flat_map(|number| [(number, false), (number, true)]) {
        let data = pattern(300, number as u8);
        let mut buffer = Buffer::<u8, _>::zeroed(&memory, 300, &stream)?;
        let mut writer = BufferWriter::with_staging(&mut buffer, 100);
        softgpu::faults([Fault::any(number, CUresult::CUDA_ERROR_UNKNOWN)]);
        let mut failures = 0;
        persist(&mut writer, &data[..290], &mut failures)?;
        if drops {
            drop(writer);
        } else {
            let mut closed = writer.close();
            while let Err(refused) = closed {
                again(refused.error.into(), &mut failures)?;
                closed = refused.value.close();
            }
        }
        let met = softgpu::injected();
        softgpu::faults([]);
        pop_all(&driver)?;
        let (seen, dropped) = (buffer.to_vec()?, context.take_drop_errors().errors);
        if seen[..290] != data[..290] {
            // A drop flushes once and reports the failure.
            assert!(drops && met == 1 && failures == 0, "call {number}: bytes were lost");
            assert!(dropped.iter().any(|error| error.doing.contains("writer")), "call {number}: {dropped:?}");
        }
        assert_eq!(seen[290..], [0; 10]);
        drop(buffer);
        assert_eq!(live().0, 0);
    }
    Ok(())
}
