//! What cudarc and this library must not do with each other's memory is an error.

use crate::child::{self, Outcome, finish, parts};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Allocate, Buffer, Context, Driver, Error, Stream};
use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use cudarc::driver::{CudaContext, DriverError};
use testkit::test_name;

parts! {
    fn a_stream_that_cudarc_does_not_know_is_refused() runs part_unknown_stream;
    fn a_context_that_cudarc_cannot_hold_is_refused() runs part_own_context;
    fn a_stream_that_captures_is_refused() runs part_capture;
    fn a_per_thread_stream_is_refused_and_the_slice_returned() runs part_per_thread;
    fn a_range_outside_of_the_buffer_is_refused() runs part_range;
    fn memory_that_only_the_cpu_addresses_is_refused() runs part_host;
    fn a_destroyed_context_is_an_error() runs part_destroyed;
}

#[test]
fn a_context_of_another_library_is_refused() {
    child::part(&test_name!("part_other_library"), &[("CUDA_MEM_LIBCUDA", "softgpu")]);
}

#[test]
fn a_stream_of_another_device_and_a_copy_to_it_are_refused() {
    child::part(&test_name!("part_other_device"), &[("SOFTGPU_DEVICES", "2")]);
}

#[test]
fn a_machine_without_a_libcuda_is_an_error() -> Outcome {
    // The software GPU is linked in. cudarc finds no library, or on a machine with a GPU another one.
    let context = Driver::software()?.device(0)?.primary_context()?;
    match context.to_cudarc() {
        Err(Error::Panicked { function, .. }) => assert_eq!(function, "cudarc's CudaContext::new"),
        Err(other) => assert_eq!(rule_of(other), ("Context::to_cudarc", "the CudaContext")),
        Ok(_) => panic!("cudarc cannot have the context of a library that is linked in"),
    }
    Ok(())
}

fn rule_of(error: Error) -> (&'static str, &'static str) {
    match error {
        Error::InvalidArgument { call, argument, .. } => (call, argument),
        other => panic!("another error: {other}"),
    }
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_other_library() -> Outcome {
    let theirs = CudaContext::new(0)?;
    let current = cudarc::driver::result::ctx::get_current()?;
    for _ in 0..2 {
        let refused =
            Context::from_cudarc(&theirs).expect_err("the software GPU is linked in, and cudarc loads another");
        assert!(refused.to_string().contains("the same libcuda"), "{refused}");
        assert_eq!(rule_of(refused), ("Context::from_cudarc", "the CudaContext"));
        assert_eq!(cudarc::driver::result::ctx::get_current()?, current, "the thread's context stays");
        // The other library has a context current too.
        let ours = Driver::load()?.device(0)?.primary_context()?;
        std::mem::forget(ours.bind()?);
        assert_eq!(rule_of(ours.to_cudarc().expect_err("as above")), ("Context::to_cudarc", "the CudaContext"));
    }
    assert!(Stream::from_cudarc(&theirs.new_stream()?).is_err());
    let refused = Buffer::from_cudarc(theirs.default_stream().clone_htod(&[1u8, 2])?).expect_err("as above");
    assert_eq!(theirs.default_stream().clone_dtoh(&refused.value)?, [1, 2], "the slice is still cudarc's");
    Ok(())
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_unknown_stream() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.new_stream()?;
        let stream = Stream::new(&Context::from_cudarc(theirs.context())?)?;
        let mut buffer = DeviceMemory::new(stream.context()).zeroed::<u32>(4, &stream)?;
        let refused = buffer.cudarc_view(..).expect_err("the stream is cuda-mem's");
        assert!(refused.to_string().contains("Buffer::set_stream"), "{refused}");
        assert_eq!(rule_of(refused), ("Buffer::cudarc_view", "the buffer's home stream"));
        assert!(buffer.cudarc_view_mut(..).is_err());
        buffer.set_stream(&Stream::from_cudarc(&theirs)?)?;
        assert_eq!(theirs.clone_dtoh(&buffer.cudarc_view(..)?)?, [0; 4]);
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_other_device() -> Outcome {
    if Driver::load()?.device_count()? < 2 {
        println!("skipped: two devices are missing");
        return Ok(());
    }
    {
        let (theirs, far) = (CudaContext::new(0)?.new_stream()?, CudaContext::new(1)?.new_stream()?);
        let (near, other) = (Stream::from_cudarc(&theirs)?, Stream::from_cudarc(&far)?);
        let memory = DeviceMemory::new(near.context());
        assert!(memory.zeroed::<u32>(4, &other).is_err(), "its memory is another device's");
        let mut buffer = memory.from_slice(&[1u32, 2, 3, 4], &near)?;
        assert!(buffer.set_stream(&other).is_err());
        // cudarc does not order the source's later work after a copy to another device.
        let mut slice = far.alloc_zeros::<u32>(4)?;
        let refused = far.memcpy_dtod(&buffer.cudarc_view(..)?, &mut slice);
        assert_eq!(refused, Err(DriverError(CUresult::CUDA_ERROR_NOT_PERMITTED)));
        let mut copy = DeviceMemory::new(other.context()).zeroed::<u32>(4, &other)?;
        copy.copy_from_buffer(0, &buffer, ..)?;
        assert_eq!(far.clone_dtoh(&copy.cudarc_view(..)?)?, [1, 2, 3, 4]);
        let source = theirs.clone_htod(&[5u32, 6])?;
        far.memcpy_dtod(&source, &mut copy.cudarc_view_mut(..)?)?;
        far.synchronize()?; // cudarc frees the source without an order after the copy
        assert_eq!(copy.to_vec()?, [5, 6, 3, 4]);
        theirs.memset_zeros(&mut buffer.cudarc_view_mut(..)?)?;
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_own_context() -> Outcome {
    {
        let own = Driver::load()?.device(0)?.create_context()?;
        assert_eq!(rule_of(own.to_cudarc().expect_err("no primary context")), ("Context::to_cudarc", "the context"));
        // The other way there is no such limit.
        let theirs = CudaContext::new_non_primary(0, 0)?;
        let stream = theirs.new_stream()?;
        let ours = Stream::from_cudarc(&stream)?;
        assert_ne!(*ours.context(), own);
        let buffer = DeviceMemory::new(ours.context()).filled(4, 5u32, &ours)?;
        assert_eq!(stream.clone_dtoh(&buffer.cudarc_view(..)?)?, [5; 4]);
        assert!(std::sync::Arc::ptr_eq(&ours.context().to_cudarc()?, &theirs));
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_capture() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.new_stream()?;
        let stream = Stream::from_cudarc(&theirs)?;
        let mut buffer = DeviceMemory::new(stream.context()).zeroed::<u32>(4, &stream)?;
        let slice = theirs.clone_htod(&[1u32])?;
        theirs.synchronize()?;

        theirs.begin_capture(RELAXED)?;
        assert!(matches!(buffer.cudarc_view(..), Err(Error::Capturing { call: "Buffer::cudarc_view", .. })));
        assert!(matches!(buffer.cudarc_view_mut(..), Err(Error::Capturing { .. })));
        let refused = Buffer::from_cudarc(slice).expect_err("its stream captures");
        assert!(matches!(refused.error, Error::Capturing { .. }));
        theirs.end_capture(cudarc::driver::sys::CUgraphInstantiate_flags(0))?;
        assert_eq!(Buffer::from_cudarc(refused.value)?.to_vec()?, [1]);

        // A capture that begins later: the buffer's memory is in no graph. A GPU's driver takes the address 0 that the
        // call gets instead, softgpu refuses it; both times cudarc has the reason.
        let mut view = buffer.cudarc_view_mut(..)?;
        theirs.begin_capture(RELAXED)?;
        let refused = theirs.memset_zeros(&mut view).is_err();
        assert!(theirs.context().check_err().is_err(), "cudarc has the reason");
        assert!(refused || !cuda_mem::Driver::load()?.is_software());
        drop(theirs.end_capture(cudarc::driver::sys::CUgraphInstantiate_flags(0)));
        drop(view);
        assert_eq!(buffer.to_vec()?, [0; 4]);
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_per_thread() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.per_thread_stream();
        let refused = Buffer::from_cudarc(theirs.clone_htod(&[1u32, 2])?).expect_err("it differs between threads");
        assert_eq!(theirs.clone_dtoh(&refused.value)?, [1, 2]);
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_range() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.new_stream()?;
        let stream = Stream::from_cudarc(&theirs)?;
        let buffer = DeviceMemory::new(stream.context()).zeroed::<u32>(4, &stream)?;
        assert!(matches!(buffer.cudarc_view(2..5), Err(Error::OutOfRange { offset: 8, length: 12, size: 16, .. })));
        assert!(theirs.clone_dtoh(&buffer.cudarc_view(4..)?)?.is_empty());
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_host() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.new_stream()?;
        let stream = Stream::from_cudarc(&theirs)?;
        let heap = [1u32, 2, 3];
        // SAFETY: the array outlives the buffer, and nobody changes it.
        let buffer = unsafe { Buffer::<u32>::from_raw(heap.as_ptr().expose_provenance() as u64, 3, &stream) }?;
        match buffer.accessibility().device {
            true => println!("skipped: this device addresses pageable memory"),
            false => assert_eq!(
                rule_of(buffer.cudarc_view(..).expect_err("plain memory")),
                ("Buffer::cudarc_view", "the buffer")
            ),
        }
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_destroyed() -> Outcome {
    let driver = Driver::load()?;
    if !driver.is_software() {
        println!("skipped: a real driver may crash on objects of a context that is reset");
        return Ok(());
    }
    let theirs = CudaContext::new(0)?.new_stream()?;
    let stream = Stream::from_cudarc(&theirs)?;
    let buffer = DeviceMemory::new(stream.context()).zeroed::<u32>(4, &stream)?;
    // SAFETY: the call takes a device.
    let code = unsafe { driver.raw().cuDevicePrimaryCtxReset_v2(0) }?;
    assert_eq!(code, cuda_mem::cuda_sys::CUresult::CUDA_SUCCESS);
    assert!(buffer.cudarc_view(..).is_err());
    assert!(stream.synchronize().is_err());
    drop((buffer, stream));
    // cudarc would destroy the stream of a context that has ended.
    std::mem::forget(theirs);
    Ok(())
}
