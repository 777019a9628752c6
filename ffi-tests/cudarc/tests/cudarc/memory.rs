//! Memory, streams and contexts that go from cudarc to this library and back.

use crate::child::{self, Outcome, finish, parts};
use cuda_mem::interchange::cudarc::CudarcViewMut;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Allocate, Buffer, Context, Driver, Stream};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DevicePtr, DeviceSlice, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

const WORDS: usize = 100_000;

/// The kernel of the example, which adds 1 to each word.
fn kernel(context: &Arc<CudaContext>) -> Result<CudaFunction, Box<dyn std::error::Error>> {
    let example = include_str!("../../../../cuda-mem/examples/cudarc_kernel.rs");
    let text =
        example.split('"').find(|text| text.contains(".entry increment_u32")).ok_or("the example has a kernel")?;
    Ok(context.load_module(Ptx::from_src(text))?.load_function("increment_u32")?)
}

/// A stream of cudarc, and its value here.
type Pair = (Arc<CudaStream>, Stream);

fn two_streams(context: &Arc<CudaContext>) -> Result<[Pair; 2], Box<dyn std::error::Error>> {
    let pair = || -> Result<_, Box<dyn std::error::Error>> {
        let theirs = context.new_stream()?;
        let ours = Stream::from_cudarc(&theirs)?;
        Ok((theirs, ours))
    };
    Ok([pair()?, pair()?])
}

parts! {
    fn contexts_of_cudarc_are_the_same_contexts_here() runs part_contexts;
    fn streams_of_cudarc_are_the_same_streams_here() runs part_streams;
    fn values_here_keep_what_cudarc_has_dropped() runs part_kept;
    fn a_slice_of_cudarc_becomes_a_buffer_without_a_copy() runs part_slice;
    fn a_slice_waits_for_its_work_on_other_streams() runs part_slice_of_two_streams;
    fn a_slice_is_freed_on_a_thread_without_a_context() runs part_slice_elsewhere;
    fn cudarc_copies_and_fills_buffers() runs part_copies;
    fn kernels_of_cudarc_take_buffers() runs part_kernels;
    fn a_buffer_is_freed_after_the_kernel_that_uses_it() runs part_drop_after_launch;
    fn the_cpu_waits_for_a_kernel_of_cudarc() runs part_cpu;
    fn a_use_on_another_stream_is_refused() runs part_other_stream;
    fn a_forgotten_view_loses_no_work() runs part_forgotten;
    fn clones_are_read_on_two_streams() runs part_clones;
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_contexts() -> Outcome {
    {
        let theirs = CudaContext::new(0)?;
        let ours = Context::from_cudarc(&theirs)?;
        assert_eq!(ours, Driver::load()?.device(0)?.primary_context()?);
        assert!(Arc::ptr_eq(&ours.to_cudarc()?, &theirs), "it goes back as it came");
        // Current or not, the library is recognised, and the thread's contexts stay as they are.
        let bound = ours.bind()?;
        assert_eq!(Context::from_cudarc(&theirs)?, ours);
        drop(bound);
        let current = || cudarc::driver::result::ctx::get_current();
        let before = current()?;
        assert_eq!(Context::from_cudarc(&theirs)?, ours);
        assert_eq!(current()?, before);
        let elsewhere = std::thread::spawn({
            let theirs = theirs.clone();
            move || Context::from_cudarc(&theirs).map(|context| (context, current().map(|current| current.is_none())))
        });
        let (found, current) = elsewhere.join().expect("no panic")?;
        assert_eq!((found, current?), (ours, true));

        let primary = Driver::load()?.device(0)?.primary_context()?;
        assert_eq!(*primary.to_cudarc()?, *theirs);
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_streams() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        for theirs in [context.new_stream()?, context.default_stream()] {
            let stream = Stream::from_cudarc(&theirs)?;
            assert_eq!(stream, Stream::from_cudarc(&theirs)?);
            assert_eq!(*stream.context(), Context::from_cudarc(&context)?);
            let mut buffer = DeviceMemory::new(stream.context()).zeroed::<u32>(10, &stream)?;
            theirs.memcpy_htod(&[7; 10], &mut buffer.cudarc_view_mut(..)?)?;
            assert_eq!(buffer.to_vec()?, [7; 10]);
        }
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_kept() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let theirs = context.new_stream()?;
        let slice = theirs.clone_htod(&[1u32, 2, 3])?;
        let mut buffer = Buffer::from_cudarc(slice)?;
        let stream = Stream::from_cudarc(&theirs)?;
        let references = Arc::downgrade(&context);
        drop((context, theirs));
        assert!(references.upgrade().is_some());
        buffer.fill(1.., 9)?;
        assert_eq!(buffer.to_vec()?, [1, 9, 9]);
        drop(buffer);
        stream.synchronize()?;
        drop(stream);
        assert!(references.upgrade().is_none(), "the last value here lets cudarc's context end");
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_slice() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.new_stream()?;
        let slice = theirs.clone_htod(&[1.0f32, 2.0, 3.0])?;
        let address = slice.device_ptr(&theirs).0;
        let mut buffer = Buffer::from_cudarc(slice)?;
        assert_eq!(buffer.device_pointer(), address);
        assert_eq!(*buffer.stream(), Stream::from_cudarc(&theirs)?);
        buffer.copy_from_slice(1, &[5.0])?;
        theirs.memset_zeros(&mut buffer.cudarc_view_mut(2..)?)?;
        assert_eq!(buffer.to_vec()?, [1.0, 5.0, 0.0]);
        // The free comes after the work on another stream.
        let other = Stream::new(buffer.context())?;
        buffer.set_stream(&other)?;
        buffer.fill(.., 4.0)?;
        drop(buffer);
        let empty = Buffer::from_cudarc(theirs.null::<f32>()?)?;
        assert!(empty.is_empty());
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_slice_of_two_streams() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let kernel = kernel(&context)?;
        let (home, other) = (context.new_stream()?, context.new_stream()?);
        let mut slice = home.alloc_zeros::<u32>(WORDS)?;
        let count = WORDS as u64;
        for _ in 0..20 {
            let mut launch = other.launch_builder(&kernel);
            launch.arg(&mut slice).arg(&count);
            // SAFETY: the slice has as many words.
            unsafe { launch.launch(LaunchConfig::for_num_elems(WORDS as u32)) }?;
        }
        let buffer = Buffer::from_cudarc(slice)?;
        assert!(buffer.to_vec()?.iter().all(|word| *word == 20));
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_slice_elsewhere() -> Outcome {
    {
        let theirs = CudaContext::new(0)?.default_stream();
        let buffer = Buffer::from_cudarc(theirs.clone_htod(&[1u8; 100])?)?;
        std::thread::spawn(move || drop(buffer)).join().expect("no panic");
        theirs.context().check_err()?;
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_copies() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let [(theirs, ours), _] = two_streams(&context)?;
        let pool = Pool::new(&DeviceMemory::new(ours.context()), &PoolOptions::default())?;
        let mut buffer = pool.from_slice(&[1u32, 2, 3, 4], &ours)?;
        theirs.memcpy_htod(&[8, 9], &mut buffer.cudarc_view_mut(1..3)?)?;
        let mut slice = theirs.alloc_zeros::<u32>(4)?;
        theirs.memcpy_dtod(&buffer.cudarc_view(..)?, &mut slice)?;
        assert_eq!(theirs.clone_dtoh(&slice)?, [1, 8, 9, 4]);
        let mut copy = pool.zeroed::<u32>(4, &ours)?;
        theirs.memcpy_dtod(&buffer.cudarc_view(..2)?, &mut copy.cudarc_view_mut(2..)?)?;
        assert_eq!(theirs.clone_dtoh(&copy.cudarc_view(1..)?)?, [0, 1, 8]);
        theirs.memset_zeros(&mut copy.cudarc_view_mut(..)?)?;
        assert_eq!(copy.to_vec()?, [0; 4]);
    }
    finish()
}

/// Adds 1 to each word of a buffer, on its home stream.
fn add_one(kernel: &CudaFunction, view: &mut CudarcViewMut<'_, u32>) -> Result<(), DriverError> {
    let (stream, count) = (view.stream().clone(), view.len() as u64);
    let mut launch = stream.launch_builder(kernel);
    launch.arg(view).arg(&count);
    // SAFETY: the buffer has as many words, and the stream is its home stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count as u32)) }.map(drop)
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_kernels() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let kernel = kernel(&context)?;
        let [(_, ours), (_, others)] = two_streams(&context)?;
        let mut buffer = DeviceMemory::new(ours.context()).zeroed::<u32>(WORDS, &ours)?;
        for _ in 0..10 {
            add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
        }
        buffer.set_stream(&others)?;
        add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
        assert!(buffer.to_vec()?.iter().all(|word| *word == 11));
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_drop_after_launch() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let kernel = kernel(&context)?;
        let [(_, ours), (_, others)] = two_streams(&context)?;
        let pool = Pool::new(&DeviceMemory::new(ours.context()), &PoolOptions::default())?;
        for round in 0..20 {
            let mut buffer = pool.zeroed::<u32>(WORDS, &ours)?;
            add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
            drop(buffer);
            // The other stream may get the same block, and then waits for the kernel.
            let next = pool.filled(WORDS, round, &others)?;
            assert!(next.to_vec()?.iter().all(|word| *word == round));
        }
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_cpu() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let kernel = kernel(&context)?;
        let [(_, ours), _] = two_streams(&context)?;
        let mut buffer = PinnedMemory::new(ours.context()).zeroed::<u32>(WORDS, &ours)?;
        for round in 1..20 {
            add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
            assert!(buffer.read(..)?.iter().all(|word| *word == round), "the CPU reads before round {round} is done");
        }
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_other_stream() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let kernel = kernel(&context)?;
        let [(_, ours), (other, others)] = two_streams(&context)?;
        let pool = Pool::new(&DeviceMemory::new(ours.context()), &PoolOptions::default())?;
        for _ in 0..10 {
            let mut buffer = pool.zeroed::<u32>(WORDS, &ours)?;
            add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
            assert!(other.memset_zeros(&mut buffer.cudarc_view_mut(..)?).is_err());
            assert_eq!(context.check_err(), Err(DriverError(CUresult::CUDA_ERROR_NOT_PERMITTED)), "the reason");
            assert!(other.clone_dtoh(&buffer.cudarc_view(..)?).is_err());
            assert!(context.check_err().is_err());
            // As its home stream, the other stream comes after the kernel, and the next kernel after the fill.
            buffer.set_stream(&others)?;
            assert!(other.clone_dtoh(&buffer.cudarc_view(..)?)?.iter().all(|word| *word == 1));
            other.memset_zeros(&mut buffer.cudarc_view_mut(..)?)?;
            buffer.set_stream(&ours)?;
            add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
            assert!(buffer.to_vec()?.iter().all(|word| *word == 1));
        }
    }
    finish()
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_forgotten() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let kernel = kernel(&context)?;
        let [(theirs, ours), _] = two_streams(&context)?;
        let mut buffer = PinnedMemory::new(ours.context()).zeroed::<u32>(WORDS, &ours)?;
        let mut view = buffer.cudarc_view_mut(..)?;
        add_one(&kernel, &mut view)?;
        theirs.memset_zeros(&mut view)?;
        add_one(&kernel, &mut view)?;
        std::mem::forget(view);
        // The view keeps a reference to cudarc's stream, which is never destroyed then.
        assert!(buffer.read(..)?.iter().all(|word| *word == 1));
        add_one(&kernel, &mut buffer.cudarc_view_mut(..)?)?;
        assert!(buffer.read(..)?.iter().all(|word| *word == 2));
    }
    Ok(())
}

#[test]
#[ignore = "a part, with an environment of its own"]
fn part_clones() -> Outcome {
    {
        let context = CudaContext::new(0)?;
        let [(first, ours), (second, others)] = two_streams(&context)?;
        let pool = Pool::new(&DeviceMemory::new(ours.context()), &PoolOptions::default())?;
        for _ in 0..10 {
            let weights = pool.filled(WORDS, 3u32, &ours)?.into_shared();
            let mut there = weights.clone();
            there.set_stream(&others)?;
            let mut copies = [first.alloc_zeros::<u32>(WORDS)?, second.alloc_zeros::<u32>(WORDS)?];
            first.memcpy_dtod(&weights.cudarc_view(..)?, &mut copies[0])?;
            second.memcpy_dtod(&there.cudarc_view(..)?, &mut copies[1])?;
            drop((weights, there));
            // Freed after both reads.
            drop(pool.filled(WORDS, 4u32, &ours)?);
            for (stream, copy) in [(&first, &copies[0]), (&second, &copies[1])] {
                assert!(stream.clone_dtoh(copy)?.iter().all(|word| *word == 3));
            }
        }
    }
    finish()
}
