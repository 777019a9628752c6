//! Graphs that another library captures on a stream of its own, with memory of a pool.

use crate::check_call as check;
use crate::soak::{Done, Hands, Trouble};
use cuda_mem::cuda_sys::{CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode};
use cuda_mem::graph::{CaptureMode, CaptureRefusal};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Context, Error, Stream};
use std::ptr;
use std::sync::PoisonError;

/// The other library's stream, and what it makes of a capture.
struct Library<'a> {
    context: &'a Context,
    stream: CUstream,
    graph: CUgraph,
    executable: CUgraphExec,
    captures: bool,
    /// The value for the stream. It goes after the capture and before the stream.
    borrowed: Option<Stream>,
}

impl<'a> Library<'a> {
    fn new(context: &'a Context) -> Result<Self, Error> {
        let mut made = Self {
            context,
            stream: ptr::null_mut(),
            graph: ptr::null_mut(),
            executable: ptr::null_mut(),
            captures: false,
            borrowed: None,
        };
        let _current = context.bind()?;
        // SAFETY: the place is writable.
        check("cuStreamCreate", unsafe { context.driver().raw().cuStreamCreate(&mut made.stream, 1) })?;
        Ok(made)
    }

    fn begin(&mut self, mode: CUstreamCaptureMode) -> Result<(), Error> {
        // SAFETY: the stream lives.
        let begun = unsafe { self.context.driver().raw().cuStreamBeginCapture_v2(self.stream, mode) };
        check("cuStreamBeginCapture", begun)?;
        self.captures = true;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        self.captures = false;
        // SAFETY: the stream lives, and the place is writable.
        let ended = unsafe { self.context.driver().raw().cuStreamEndCapture(self.stream, &mut self.graph) };
        check("cuStreamEndCapture", ended)
    }

    /// Makes the driver refuse everything in this capture from now on.
    fn spoil(&self) -> Result<bool, Error> {
        // SAFETY: the stream lives.
        let refused = unsafe { self.context.driver().raw().cuStreamSynchronize(self.stream) }?;
        Ok(refused == CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    fn launch(&mut self) -> Result<(), Error> {
        let cuda = self.context.driver().raw();
        // SAFETY: the graph lives, the memory of its work too, and the place is writable.
        unsafe {
            if self.executable.is_null() {
                let made = cuda.cuGraphInstantiateWithFlags(&mut self.executable, self.graph, 0);
                check("cuGraphInstantiate", made)?;
            }
            check("cuGraphLaunch", cuda.cuGraphLaunch(self.executable, self.stream))
        }
    }
}

impl Drop for Library<'_> {
    fn drop(&mut self) {
        if self.captures {
            // The graph of a capture that is given up.
            let _ = self.end();
        }
        self.borrowed = None;
        let cuda = self.context.driver().raw();
        // SAFETY: all are this value's, and nothing uses them any more.
        unsafe {
            if !self.executable.is_null() {
                let _ = cuda.cuGraphExecDestroy(self.executable);
            }
            if !self.graph.is_null() {
                let _ = cuda.cuGraphDestroy(self.graph);
            }
            let _ = cuda.cuStreamDestroy_v2(self.stream);
        }
    }
}

/// A capture of another library, whose work uses memory of a pool that also serves the other threads. A capture of this
/// library goes on beside it: some ends of memory wait for the whole context, which would spoil the other library's
/// capture, and only captures of this library postpone them.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let spoilt = |error: &Error| {
        error.driver_code() == Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
            || matches!(error, Error::Capturing { why: CaptureRefusal::Invalidated, .. })
    };
    let captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
    let (beside, mut done) = (Stream::new(&hands.world.context)?, Ok(()));
    let captured = beside.capture(CaptureMode::Relaxed, |_| {
        done = capture(hands);
        Ok(())
    });
    drop(captures);
    match done {
        Err(Trouble::Refused(error)) if spoilt(&error) => Ok(()),
        done => done.and(captured.map(drop).map_err(Trouble::from)),
    }
}

fn capture(hands: &mut Hands<'_>) -> Done {
    hands.doing("the stream of another library");
    let (context, world) = (&hands.world.context, hands.world);
    // The pools of device memory and of pinned memory.
    let pool = world.pools[hands.below(2)].clone();
    let mut library = Library::new(context)?;
    // SAFETY: the stream lives longer than this value, and only this thread captures it.
    let stream = unsafe { Stream::borrow_raw(context, library.stream) };
    library.borrowed = Some(stream.clone());
    let own = Stream::new(context)?;
    let size = hands.size(1 << 14);
    let mut result = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), size, &own)?;
    let mode = if hands.chance(2) {
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    } else {
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED
    };
    own.synchronize()?;
    hands.doing("a capture of another library");
    library.begin(mode)?;
    let (pieces, mut expected, mut held) = (1 + hands.below(6), vec![0; size], Vec::new());
    for _ in 0..pieces {
        let byte = hands.number() as u8;
        // SAFETY: the fill, which is recorded next, writes all of it at each launch.
        let mut scratch = unsafe { Buffer::<u8, _>::uninit(&pool, size, &stream)?.assume_init() };
        scratch.fill(.., byte)?;
        // Copies by the other library: `result` has another home stream.
        // SAFETY: both have that many bytes, and live at each launch.
        let copied = unsafe {
            let _current = context.bind()?;
            let (to, from) = (result.device_pointer(), scratch.device_pointer());
            context.driver().raw().cuMemcpyAsync(to, from, size, library.stream)
        };
        check("cuMemcpyAsync", copied)?;
        expected.fill(byte);
        // Some blocks serve the capture again, and some others until its end.
        if hands.chance(2) {
            held.push(scratch);
        }
    }
    if hands.chance(8) {
        hands.doing("a capture that is spoilt");
        hands.ensure(library.spoil()?, || "a capture allowed a wait for its stream".to_owned())?;
        let served = Buffer::<u8, _>::uninit(&pool, size, &stream).is_ok();
        hands.ensure(!served, || "a capture without a graph got memory".to_owned())?;
        drop(held);
        let ended = library.end().is_ok();
        return hands.ensure(!ended, || "a spoilt capture gave a graph".to_owned());
    }
    drop(held);
    library.end()?;
    for _ in 0..hands.below(4) {
        hands.doing("a launch of another library");
        result.fill(.., 0)?;
        own.synchronize()?;
        let launched = library.launch();
        stream.synchronize()?;
        launched?;
        hands.same("the result of another library's graph", &result.to_vec()?, &expected)?;
    }
    Ok(())
}
