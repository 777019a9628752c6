//! Captures that another library begins. cuda-mem does not see their beginning, and must not end them. A pool gives
//! their streams memory that belongs to the graph; the other resources give them none. Runs on any driver.

mod bad_graphs;
mod graphs;
mod old_driver;

use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::cuda_sys::{CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Error, Stream};
use testkit::suite::Outcome;
use testkit::{Setup, alone, alone_with_late_ends, same};

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
    fn end(&self) -> Result<ForeignGraph<'_>, Error> {
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (cuda, _current) = (self.setup.driver.raw(), self.setup.context.bind()?);
        // SAFETY: the stream lives, the places are writable, and the graph is this test's.
        unsafe {
            assert_eq!(cuda.cuStreamEndCapture(self.raw, &mut graph)?, CUresult::CUDA_SUCCESS);
            // Older drivers have no graphs to launch.
            if cuda.has("cuGraphInstantiateWithFlags") {
                assert_eq!(cuda.cuGraphInstantiateWithFlags(&mut executable, graph, 0)?, CUresult::CUDA_SUCCESS);
            }
        }
        Ok(ForeignGraph { foreign: self, graph, executable })
    }

    /// Queues a fill by a call of the other library.
    fn fill(&self, address: u64, value: u8, size: usize) -> Result<(), Error> {
        let _current = self.setup.context.bind()?;
        // SAFETY: the tests fill memory of their own, of that size.
        let filled = unsafe { self.setup.driver.raw().cuMemsetD8Async(address, value, size, self.raw) }?;
        assert_eq!(filled, CUresult::CUDA_SUCCESS);
        Ok(())
    }

    /// Queues a copy by a call of the other library.
    fn copy(&self, to: u64, from: u64, size: usize) -> Result<(), Error> {
        let _current = self.setup.context.bind()?;
        // SAFETY: the tests copy between memory of their own, of that size.
        let copied = unsafe { self.setup.driver.raw().cuMemcpyAsync(to, from, size, self.raw) }?;
        assert_eq!(copied, CUresult::CUDA_SUCCESS);
        Ok(())
    }
}

/// A graph of another library, and the executable graph made of it.
struct ForeignGraph<'stream> {
    foreign: &'stream Foreign<'stream>,
    graph: CUgraph,
    executable: CUgraphExec,
}

impl ForeignGraph<'_> {
    fn launch(&self) -> Result<(), Error> {
        // SAFETY: the graph lives, and what its work uses.
        let launched = unsafe { self.foreign.setup.driver.raw().cuGraphLaunch(self.executable, self.foreign.raw) }?;
        assert_eq!(launched, CUresult::CUDA_SUCCESS);
        Ok(())
    }

    /// Destroys the graph, and keeps the executable graph.
    fn keep_executable(&mut self) -> Result<(), Error> {
        // SAFETY: the graph is this test's, and destroyed once.
        let ended = unsafe { self.foreign.setup.driver.raw().cuGraphDestroy(self.graph) }?;
        assert_eq!(ended, CUresult::CUDA_SUCCESS);
        self.graph = std::ptr::null_mut();
        Ok(())
    }
}

impl Drop for ForeignGraph<'_> {
    fn drop(&mut self) {
        let cuda = self.foreign.setup.driver.raw();
        // SAFETY: both are this test's, and destroyed once.
        unsafe {
            if !self.graph.is_null() {
                assert_eq!(cuda.cuGraphDestroy(self.graph), Ok(CUresult::CUDA_SUCCESS));
            }
            if !self.executable.is_null() {
                assert_eq!(cuda.cuGraphExecDestroy(self.executable), Ok(CUresult::CUDA_SUCCESS));
            }
        }
    }
}

/// Waits until `done` says so. The driver reports the end of a graph on a thread of its own.
fn eventually(what: &str, mut done: impl FnMut() -> Result<bool, Error>) -> Outcome {
    let start = std::time::Instant::now();
    while !done()? {
        if start.elapsed() > testkit::LIMIT {
            return Err(format!("never: {what}").into());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
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
    let mut all = general_pools(setup)?;
    all.extend([
        ("a ring", RingPool::new(&pinned, 1 << 20, &RingOptions::default())?.share()),
        ("a guard", Guarded::new(&Pool::new(&device, &options)?, &GuardOptions::default())?.share()),
    ]);
    Ok(all)
}

/// Pools of blocks of any size, which have no memory yet.
fn general_pools(setup: &Setup) -> Result<Vec<(&'static str, SharedResource)>, Error> {
    let mut options = PoolOptions::default();
    options.initial = 0;
    let mut all = vec![
        ("a pool", Pool::new(&DeviceMemory::new(&setup.context), &options)?.share()),
        ("a pool of pinned memory", Pool::new(&PinnedMemory::new(&setup.context), &options)?.share()),
    ];
    match VirtualMemory::new(&setup.context, &VirtualOptions::default()) {
        Ok(memory) => all.push(("a pool that grows in place", Pool::new(&memory, &options)?.share())),
        Err(error) => println!("skipped: {error}"),
    }
    Ok(all)
}

#[test]
fn only_general_pools_serve_a_stream_that_others_capture() -> Outcome {
    alone_with_late_ends(|setup| {
        let foreign = Foreign::new(setup)?;
        let (stream, general) = (foreign.borrowed(), general_pools(setup)?);
        // A pool with memory of a graph ends after the graph, on another thread. All live until no capture is left that
        // such an end could meet.
        let pools = pools(setup)?;
        for (name, pool) in &pools {
            let refuses = general.iter().all(|(other, _)| other != name);
            let before = Buffer::<u8, _>::filled(pool, 4096, 1, &stream)?;
            foreign.begin()?;
            let refused = Buffer::<u8, _>::uninit(pool, 4096, &stream);
            match &refused {
                Err(Error::Capturing { .. }) => assert!(refuses, "{name}: {refused:?}"),
                served => assert!(!refuses && served.is_ok(), "{name}: {refused:?}"),
            }
            // Memory that a call must initialise is refused, because a capture does no work.
            for refused in [Buffer::<u8, _>::zeroed(pool, 4096, &stream), Buffer::from_slice(pool, &[1; 9], &stream)] {
                assert!(matches!(refused, Err(Error::Capturing { .. })), "{name}: {refused:?}");
            }
            drop(refused);
            drop(foreign.end()?);
            same(name, &before.to_vec()?, &[1; 4096])?;
            let after = Buffer::<u8, _>::filled(pool, 4096, 2, &stream)?;
            same(name, &after.to_vec()?, &[2; 4096])?;
            drop((before, after));
            stream.synchronize()?;
        }
        Ok(())
    })
}

#[test]
fn pools_work_during_a_foreign_capture_without_invalidating_it() -> Outcome {
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
            drop(foreign.end()?);
        }
        Ok(())
    })
}
