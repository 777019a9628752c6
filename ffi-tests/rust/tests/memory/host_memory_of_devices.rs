//! Host memory that was made for one device, used with another device: by copies in both directions, fills, kernels and
//! comparisons.

use cuda_mem::buffer::{CopyBatch, PeerRoute};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::view::Index;
use cuda_mem::{Buffer, Context, Error, Feature, Stream, Support};
use testkit::sources::available;
use testkit::suite::Outcome;
use testkit::{Setup, alone, on_softgpu, pattern, same, test_name};

const SIZES: [usize; 2] = [100, 1 << 20];

/// Runs a test with two devices, whether they access each other or not.
fn with_two(test: impl FnOnce(&Setup, &Context, &Context) -> Outcome) -> Outcome {
    alone(|setup| {
        if setup.driver.device_count()? < 2 {
            println!("skipped: two devices are needed; run this on a machine with two, or unset CUDA_MEM_LIBCUDA");
            return Ok(());
        }
        let context = |ordinal| setup.driver.device(ordinal)?.primary_context();
        let (near, far): (Context, Context) = (context(0)?, context(1)?);
        test(setup, &near, &far)
    })
}

/// All host memory of the context, with its name. Each call makes new sources, to which no other device has access yet.
fn in_host(context: &Context) -> cuda_mem::Result<Vec<(&'static str, SharedResource)>> {
    let all = available(context)?.into_iter().map(|(name, memory)| (name, memory.share()));
    Ok(all.filter(|(_, memory)| memory.accessibility().host && !memory.is_on_device()).collect())
}

fn on_device(context: &Context) -> cuda_mem::Result<[(&'static str, SharedResource); 3]> {
    Ok([
        ("plain memory", DeviceMemory::new(context).share()),
        ("the driver's pool", DevicePool::new(context, &DriverPoolOptions::default())?.share()),
        ("virtual memory", VirtualMemory::new(context, &VirtualOptions::default())?.share()),
    ])
}

/// Copies between host memory of the first device and memory of the second one. The program may have denied the first
/// device access to the latter.
fn copied(near: &Context, far: &Context, denied: bool) -> Outcome {
    let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
    for number in 0..in_host(near)?.len() {
        for (to, memory) in on_device(far)? {
            if denied {
                memory.deny_access(near.device())?;
            }
            for size in SIZES {
                let (from, host) = in_host(near)?.swap_remove(number);
                let what = format!("{size} bytes of {from}, {to}, denied: {denied}");
                let bytes = pattern(size, 3);
                let mut here = Buffer::from_slice(&host, &bytes, &stream)?;
                let mut there = Buffer::<u8, _>::zeroed(&memory, size, &far_stream)?;
                there.copy_from_buffer(0, &here, ..)?;
                assert_eq!(here.route_to(&there), PeerRoute::HostMemory, "{what}");
                same(&what, &there.to_vec()?, &bytes)?;
                here.fill(.., 0)?;
                here.copy_from_buffer(0, &there, ..)?;
                same(&what, &here.to_vec()?, &bytes)?;
                there.fill(.., 0)?;
                let mut batch = CopyBatch::new(&far_stream);
                batch.copy(&mut there, 0, &here, ..)?;
                batch.submit()?;
                same(&what, &there.to_vec()?, &bytes)?;
                here.fill(.., 0)?;
                let mut batch = CopyBatch::new(&far_stream);
                batch.copy(&mut here, 0, &there, ..)?;
                batch.submit()?;
                same(&what, &here.to_vec()?, &bytes)?;
            }
            memory.allow_access(near.device()).or_else(|error| if denied { Err(error) } else { Ok(()) })?;
        }
    }
    Ok(())
}

#[test]
fn host_memory_of_one_device_is_copied_to_and_from_another() -> Outcome {
    with_two(|_, near, far| copied(near, far, false))
}

#[test]
fn without_paths_the_other_device_copies_host_memory() {
    on_softgpu(&test_name!("part_none"), "none", "2");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_none() -> Outcome {
    with_two(|_, near, far| copied(near, far, false))
}

#[test]
fn denied_access_leaves_copies_with_host_memory_possible() -> Outcome {
    with_two(|_, near, far| {
        if !far.device().can_access_peer(near.device())? || !near.device().can_access_peer(far.device())? {
            println!("skipped: devices that access each other are needed (nvidia-smi topo -p2p r)");
            return Ok(());
        }
        copied(near, far, true)
    })
}

/// Two sources of virtual memory of the host, if there are such.
fn virtual_memory(context: &Context) -> cuda_mem::Result<Vec<VirtualMemory<cuda_mem::memory::kind::Pinned>>> {
    let (device, mut all) = (context.device(), Vec::new());
    if device.supports(Feature::HostVirtualMemory)? != Support::No {
        all.push(VirtualMemory::host(context, &VirtualOptions::default())?);
    }
    if device.supports(Feature::HostNumaVirtualMemory)? != Support::No {
        all.push(VirtualMemory::host_numa(context, 0, &VirtualOptions::default())?);
    }
    if all.is_empty() {
        println!("skipped: the device has no virtual memory of the host; run this with driver 12.6 or later");
    }
    Ok(all)
}

#[test]
fn another_device_fills_reads_and_compares_host_memory() -> Outcome {
    with_two(|_, near, far| {
        let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
        // A buffer whose home stream is another device's.
        for memory in virtual_memory(near)? {
            let mut of_far = Buffer::<u8, _>::zeroed(&memory, 5000, &far_stream)?;
            of_far.fill(1000.., 7)?;
            assert_eq!(of_far.to_vec()?.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 4000 * 7);
        }
        // A kernel copies a view.
        for memory in virtual_memory(near)? {
            let bytes = pattern(6000, 5);
            let source = Buffer::from_slice(&memory, &bytes, &stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(far), 3000, &far_stream)?;
            let even = source.view(&[60, 100])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
            copy.view_mut(&[60, 50])?.copy_from(&even)?;
            assert!(copy.to_vec()? == bytes.iter().copied().step_by(2).collect::<Vec<_>>());
        }
        for memory in virtual_memory(near)? {
            let bytes = pattern(1 << 20, 9);
            let source = Buffer::from_slice(&memory, &bytes, &stream)?;
            source.synchronize()?;
            let copy = Buffer::from_slice(&DeviceMemory::new(far), &bytes, &far_stream)?;
            assert!(copy.equals(&source)?);
        }
        Ok(())
    })
}

#[test]
fn a_device_that_the_program_denies_gets_a_named_error() -> Outcome {
    with_two(|_, near, far| {
        let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
        for memory in virtual_memory(near)? {
            memory.deny_access(far.device())?;
            let source = Buffer::from_slice(&memory, &[1u8, 2, 3], &stream)?;
            let mut there = Buffer::<u8, _>::zeroed(&DeviceMemory::new(far), 3, &far_stream)?;
            let mut batch = CopyBatch::new(&far_stream);
            let refused = batch.copy(&mut there, 0, &source, ..).unwrap_err();
            assert!(matches!(refused, Error::InvalidArgument { argument: "stream", .. }), "{refused}");
            assert!(refused.to_string().contains("of device 1"), "{refused}");
            drop(batch);
            let home = Buffer::<u8, _>::zeroed(&memory, 3, &far_stream).map(drop);
            assert!(matches!(home, Err(Error::Peer(_))), "{home:?}");
            memory.allow_access(far.device())?;
            there.copy_from_buffer(0, &source, ..)?;
            assert_eq!(there.to_vec()?, [1, 2, 3]);
        }
        Ok(())
    })
}

/// Real drivers crash on this copy, so only the software GPU is asked.
#[test]
fn softgpu_refuses_copies_by_a_device_without_access() -> Outcome {
    with_two(|setup, near, far| {
        if !setup.is_software() {
            println!("skipped: real drivers crash on such a copy; unset CUDA_MEM_LIBCUDA");
            return Ok(());
        }
        let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
        let there = Buffer::<u8, _>::zeroed(&DeviceMemory::new(far), 3, &far_stream)?;
        there.synchronize()?;
        for memory in virtual_memory(near)? {
            let here = Buffer::<u8, _>::zeroed(&memory, 3, &stream)?;
            here.synchronize()?;
            for (to, from) in
                [(here.device_pointer(), there.device_pointer()), (there.device_pointer(), here.device_pointer())]
            {
                let (cuda, mut popped) = (setup.driver.raw(), core::ptr::null_mut());
                // SAFETY: the context lives; both addresses are of three bytes that nothing else uses.
                let code = unsafe {
                    assert_eq!(cuda.cuCtxPushCurrent_v2(near.raw())?, CUresult::CUDA_SUCCESS);
                    let code = cuda.cuMemcpyAsync(to, from, 3, stream.raw())?;
                    assert_eq!(cuda.cuCtxPopCurrent_v2(&mut popped)?, CUresult::CUDA_SUCCESS);
                    code
                };
                assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    })
}
