//! Captures that another library begins: cuda-mem does not see their beginning, and must neither end them nor give
//! their streams memory. Runs on any driver.

use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::cuda_sys::{CUgraph, CUresult, CUstream, CUstreamCaptureMode};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{FixedSizeOptions, FixedSizePool, Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Error, Stream};
use ffi_tests::suite::Outcome;
use ffi_tests::{Setup, alone, same};

/// A stream of another library, which captures it by its own calls.
struct Foreign<'setup> {
    setup: &'setup Setup,
    raw: CUstream,
}

impl<'setup> Foreign<'setup> {
    fn new(setup: &'setup Setup) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        let _current = setup.context.bind()?;
        // SAFETY: the place is writable.
        let made = unsafe { setup.driver.raw().cuStreamCreate(&mut raw, 1) }?;
        assert_eq!(made, CUresult::CUDA_SUCCESS);
        Ok(Self { setup, raw })
    }

    fn borrowed(&self) -> Stream {
        // SAFETY: the stream lives longer than its uses.
        unsafe { Stream::borrow_raw(&self.setup.context, self.raw) }
    }

    fn begin(&self) -> Result<(), Error> {
        // Global mode, the strictest: it forbids calls of all threads.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream lives.
        let begun = unsafe { self.setup.driver.raw().cuStreamBeginCapture_v2(self.raw, mode) }?;
        assert_eq!(begun, CUresult::CUDA_SUCCESS);
        Ok(())
    }

    /// Ends the capture, which nobody may have spoilt.
    fn end(&self) -> Result<(), Error> {
        let mut graph: CUgraph = std::ptr::null_mut();
        let cuda = self.setup.driver.raw();
        // SAFETY: the stream lives, the place is writable, and the graph is this test's.
        unsafe {
            assert_eq!(cuda.cuStreamEndCapture(self.raw, &mut graph)?, CUresult::CUDA_SUCCESS);
            assert_eq!(cuda.cuGraphDestroy(graph)?, CUresult::CUDA_SUCCESS);
        }
        Ok(())
    }
}

impl Drop for Foreign<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream is this test's, and no longer in use.
        let _ = unsafe { self.setup.driver.raw().cuStreamDestroy_v2(self.raw) };
    }
}

/// Every resource that allocates without a call of the driver.
fn pools(setup: &Setup) -> Result<Vec<(&'static str, SharedResource)>, Error> {
    let (device, pinned) = (DeviceMemory::new(&setup.context), PinnedMemory::new(&setup.context));
    let mut options = PoolOptions::default();
    options.initial = 0;
    let mut sizes = FixedSizeOptions::default();
    sizes.blocks_per_slab = 2;
    let mut all = vec![
        ("a pool", Pool::new(&device, &options)?.share()),
        ("a pool of pinned memory", Pool::new(&pinned, &options)?.share()),
        ("a pool of one size", FixedSizePool::new(&device, 4096, &sizes)?.share()),
        ("a ring", RingPool::new(&pinned, 1 << 20, &RingOptions::default())?.share()),
        ("a guard", Guarded::new(&Pool::new(&device, &options)?, &GuardOptions::default())?.share()),
    ];
    match VirtualMemory::new(&setup.context, &VirtualOptions::default()) {
        Ok(memory) => all.push(("a pool that grows in place", Pool::new(&memory, &options)?.share())),
        Err(error) => println!("skipped: {error}"),
    }
    Ok(all)
}

#[test]
fn a_stream_that_another_library_captures_gets_no_memory() -> Outcome {
    alone(|setup| {
        let foreign = Foreign::new(setup)?;
        let stream = foreign.borrowed();
        for (name, pool) in pools(setup)? {
            let before = Buffer::<u8, _>::filled(&pool, 4096, 1, &stream)?;
            foreign.begin()?;
            let refused = Buffer::<u8, _>::uninit(&pool, 4096, &stream);
            let Err(Error::Capturing { .. }) = &refused else {
                return Err(format!("{name}: {refused:?}").into());
            };
            foreign.end()?;
            same(name, &before.to_vec()?, &[1; 4096])?;
            let after = Buffer::<u8, _>::filled(&pool, 4096, 2, &stream)?;
            same(name, &after.to_vec()?, &[2; 4096])?;
            drop((before, after));
            stream.synchronize()?;
        }
        Ok(())
    })
}

#[test]
fn pools_work_on_beside_a_capture_of_another_library_and_do_not_end_it() -> Outcome {
    alone(|setup| {
        let foreign = Foreign::new(setup)?;
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for (name, pool) in pools(setup)? {
            foreign.begin()?;
            // Growth, frees, memory that moves from one stream to another, and the end of the memory. Fills and copies
            // are calls that no capture forbids.
            for round in 0..3u8 {
                let buffers = (0..6).map(|_| Buffer::<u8, _>::uninit(&pool, 4096, &one)).collect::<Result<Vec<_>, _>>();
                drop(buffers.map_err(|error| format!("{name}, round {round}: {error}"))?);
                let buffers = (0..6).map(|_| Buffer::<u8, _>::uninit(&pool, 4096, &two)).collect::<Result<Vec<_>, _>>();
                drop(buffers.map_err(|error| format!("{name}, round {round}, the other stream: {error}"))?);
            }
            drop(pool);
            foreign.end()?;
        }
        Ok(())
    })
}
