//! Every source of memory refuses the same requests: no bytes, an alignment that is no power of two, a stream of another
//! loaded driver.

use cuda_mem::adaptor::{
    AfterFailure, Aligned, FailureInjection, Fallback, GuardOptions, Guarded, Limit, Logging, Recording, Retry,
    Statistics, Tracking,
};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::GraphMemory;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, RegisterOptions, RegisteredMemory, ResourceHandle, SharedResource};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Driver, Error, Stream};
use testkit::alone;
use testkit::sources::over_every_source;
use testkit::suite::Outcome;

/// Checks that a request is refused because of an argument.
fn refused(
    memory: &SharedResource,
    size: usize,
    alignment: usize,
    stream: &Stream,
    because: &str,
) -> Result<(), String> {
    match memory.allocate(size, alignment, stream) {
        Err(Error::InvalidArgument { argument, .. }) if argument == because => Ok(()),
        Err(Error::Alignment { .. }) if because == "alignment" => Ok(()),
        other => Err(format!("{size} bytes at a multiple of {alignment}: {other:?}, not refused for the {because}")),
    }
}

/// Checks what every source refuses, and that it serves the usual request.
fn check(memory: &SharedResource, stream: &Stream, others: &Stream) -> Outcome {
    let check_all = || -> Outcome {
        for alignment in [0, 3, 192, usize::MAX] {
            refused(memory, 64, alignment, stream, "alignment")?;
        }
        refused(memory, 0, 1, stream, "size")?;
        Ok(refused(memory, 64, 1, others, "stream")?)
    };
    check_all()?;
    let block = memory.allocate(64, 16, stream)?;
    assert!(block.size() >= 64);
    // SAFETY: the block is the resource's, and nothing uses it.
    unsafe { memory.deallocate(block, stream) }?;
    // Also where the source keeps a freed block.
    check_all()
}

#[test]
fn every_source_refuses_the_same_requests() -> Outcome {
    alone(|setup| {
        let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
        // SAFETY: the software GPU is linked in.
        let driver = unsafe { Driver::builder().cuda("softgpu").vkgdr("softgpu").load() }?;
        assert!(!driver.is_same(&setup.driver));
        let others = Stream::new(&driver.device(0)?.primary_context()?)?;
        let device = DeviceMemory::new(context);
        let more: [(&str, Result<SharedResource, Error>); _] = [
            ("a pool", Pool::new(&device, &PoolOptions::default()).map(|pool| pool.share())),
            ("a ring", RingPool::new(&device, 1 << 20, &RingOptions::default()).map(|ring| ring.share())),
            ("aligned", Aligned::new(&device, 1).map(|memory| memory.share())),
            ("aligned more", Aligned::new(&device, 4096).map(|memory| memory.share())),
            ("guarded", Guarded::new(&device, &GuardOptions::default()).map(|memory| memory.share())),
            ("limited", Ok(Limit::new(&device, 1 << 20).share())),
            ("logged", Ok(Logging::new(&device, std::io::sink()).share())),
            ("recorded", Ok(Recording::new(&device, 16).share())),
            ("tried again", Ok(Retry::new(&device, 2, |_, _| AfterFailure::GiveUp).share())),
            ("counted", Ok(Statistics::new(&device).share())),
            ("tracked", Ok(Tracking::new(&device).share())),
            ("made to fail", Ok(FailureInjection::new(&device, []).share())),
            (
                "one after the other",
                Fallback::new(&device.share(), &PinnedMemory::new(context).share()).map(|both| both.share()),
            ),
        ];
        over_every_source(setup, more, |_, memory| check(memory, &stream, &others))?;
        let options = RegisterOptions::default();
        let registered = RegisteredMemory::new(context, vec![0u8; 4096], options).map_err(Error::from)?;
        check(&registered.share(), &stream, &others)?;
        let mut outcome: Outcome = Ok(());
        // SAFETY: the graph is never launched.
        let memory = unsafe { GraphMemory::new(context) }.share();
        stream.capture(CaptureMode::ThreadLocal, |stream| {
            outcome = check(&memory, stream, &others);
            Ok(())
        })?;
        outcome
    })
}
