//! Access between devices: of every source of memory, given at the first need or on request, verified, and taken back.

mod topologies;

use cuda_mem::adaptor::Statistics;
use cuda_mem::buffer::{BatchOptions, CopyBatch, PeerRoute, Piece};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::view::{Index, ViewCopyOptions};
use cuda_mem::{Buffer, Context, Error, PeerError, Stream, Topology};
use softgpu::{Fault, When};
use testkit::suite::Outcome;
use testkit::{Setup, alone, pattern};

/// One of two devices.
struct Side {
    context: Context,
    stream: Stream,
}

impl Side {
    fn new(setup: &Setup, ordinal: i32) -> cuda_mem::Result<Self> {
        let context = setup.driver.device(ordinal)?.primary_context()?;
        Ok(Self { stream: Stream::new(&context)?, context })
    }

    fn plain(&self) -> SharedResource {
        DeviceMemory::new(&self.context).share()
    }

    /// Every source of device memory that can give access, and what wraps one.
    fn sources(&self) -> cuda_mem::Result<Vec<(&'static str, SharedResource)>> {
        let (plain, context) = (DeviceMemory::new(&self.context), &self.context);
        let driver_pool = DevicePool::new(context, &DriverPoolOptions::default())?;
        let virtual_memory = VirtualMemory::new(context, &VirtualOptions::default())?;
        let mut in_regions = PoolOptions::default();
        in_regions.in_place = false;
        Ok(vec![
            ("plain memory", plain.share()),
            ("the driver's pool", driver_pool.share()),
            ("virtual memory", virtual_memory.share()),
            ("a pool in place", Pool::new(&plain, &PoolOptions::default())?.share()),
            ("a pool in regions", Pool::new(&plain, &in_regions)?.share()),
            ("a pool over the driver's", Pool::new(&driver_pool, &PoolOptions::default())?.share()),
            ("a pool over virtual memory", Pool::new(&virtual_memory, &PoolOptions::default())?.share()),
            ("a ring", RingPool::new(&plain, 1 << 20, &RingOptions::default())?.share()),
            ("an adaptor", Statistics::new(&driver_pool).share()),
        ])
    }
}

/// Runs a test with two devices of the software GPU, or of the driver under test if these access each other.
fn with_two(test: impl FnOnce(&Setup, &Side, &Side) -> Outcome) -> Outcome {
    alone(|setup| {
        if setup.driver.device_count()? < 2 {
            println!("skipped: two devices are needed; run this on a machine with two, or unset CUDA_MEM_LIBCUDA");
            return Ok(());
        }
        if !Topology::of(&setup.driver)?.is_mesh() {
            println!("skipped: devices that access each other are needed (nvidia-smi topo -p2p r)");
            return Ok(());
        }
        test(setup, &Side::new(setup, 0)?, &Side::new(setup, 1)?)
    })
}

#[test]
fn copies_between_all_sources_of_two_devices_go_directly() -> Outcome {
    with_two(|_, near, far| {
        let bytes = pattern(70_000, 3);
        for (from, source) in far.sources()? {
            for (to, destination) in near.sources()? {
                let source = Buffer::from_slice(&source, &bytes, &far.stream)?;
                let mut copy = Buffer::<u8, _>::zeroed(&destination, bytes.len(), &near.stream)?;
                copy.copy_from_buffer(0, &source, ..)?;
                assert_eq!(source.route_to(&copy), PeerRoute::Direct, "{from} to {to}");
                source.require_direct_to(&copy)?;
                assert!(copy.to_vec()? == bytes, "{from} to {to}");
                let mut batch_options = BatchOptions::default();
                batch_options.require_direct = true;
                let mut batch = CopyBatch::with_options(&near.stream, batch_options);
                batch.copy_pieces(&mut copy, &source, &[Piece { to: 9, from: 500, length: 77 }])?;
                batch.submit()?;
                assert!(copy.to_vec()?[9..86] == bytes[500..577], "{from} to {to}, in a batch");
            }
        }
        Ok(())
    })
}

#[test]
fn kernels_read_memory_of_every_source_of_another_device() -> Outcome {
    with_two(|_, near, far| {
        let bytes = pattern(6000, 5);
        let expected: Vec<u8> = bytes.iter().copied().step_by(2).collect();
        let mut options = ViewCopyOptions::default();
        options.require_direct = true;
        for (name, source) in far.sources()? {
            let source = Buffer::from_slice(&source, &bytes, &far.stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3000, &near.stream)?;
            let even = source.view(&[60, 100])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
            copy.view_mut(&[60, 50])?.copy_from_with(&even, &options)?;
            assert!(copy.to_vec()? == expected, "{name}");
        }
        Ok(())
    })
}

#[test]
fn what_a_pool_grows_by_later_is_accessible_too() -> Outcome {
    with_two(|_, near, far| {
        for (name, pool) in far.sources()?.into_iter().filter(|(name, _)| *name != "a ring") {
            pool.allow_access(near.context.device())?;
            let mut held = Vec::new();
            for round in 0..5u8 {
                let bytes = vec![round; 3 << 20];
                let source = Buffer::from_slice(&pool, &bytes, &far.stream)?;
                let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), bytes.len(), &near.stream)?;
                // The driver refuses such a copy of a pool's or of virtual memory without access.
                let mut batch = CopyBatch::new(&near.stream);
                batch.copy(&mut copy, 0, &source, ..)?;
                batch.submit()?;
                assert!(copy.to_vec()? == bytes, "{name}, round {round}");
                held.push(source);
            }
        }
        Ok(())
    })
}

#[test]
fn denied_access_stays_away_until_it_is_allowed_again() -> Outcome {
    with_two(|_, near, far| {
        let device = near.context.device();
        let bytes = pattern(5000, 7);
        for (name, source) in far.sources()? {
            let memory = Buffer::from_slice(&source, &bytes, &far.stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), bytes.len(), &near.stream)?;
            for round in 0..2 {
                assert_eq!(memory.route_to(&copy), PeerRoute::Direct, "{name}, round {round}");
                source.deny_access(device)?;
                assert_eq!(memory.route_to(&copy), PeerRoute::ThroughHost, "{name}, round {round}");
                let error = memory.require_direct_to(&copy).unwrap_err();
                assert!(matches!(error, Error::Peer(PeerError::ThroughHost { device: 0, owner: 1, .. })), "{error}");
                let mut batch_options = BatchOptions::default();
                batch_options.require_direct = true;
                let mut batch = CopyBatch::with_options(&near.stream, batch_options);
                assert!(matches!(batch.copy(&mut copy, 0, &memory, ..), Err(Error::Peer(_))), "{name}");
                drop(batch);
                copy.fill(.., 0)?;
                copy.copy_from_buffer(0, &memory, ..)?;
                assert!(copy.to_vec()? == bytes, "{name}: through the host");
                copy.fill(.., 0)?;
                let mut batch = CopyBatch::new(&near.stream);
                batch.copy(&mut copy, 0, &memory, ..)?;
                assert_eq!(batch.len(), 1);
                batch.submit()?;
                assert!(copy.to_vec()? == bytes, "{name}: a batch through the host");
                source.allow_access(device)?;
            }
            let error = source.deny_access(far.context.device()).unwrap_err();
            assert!(error.to_string().contains("its own memory"), "{error}");
            source.allow_access(far.context.device())?;
        }
        Ok(())
    })
}

#[test]
fn taking_access_back_waits_for_the_devices_work() -> Outcome {
    with_two(|_, near, far| {
        // Of a context of its own: no work of the far context comes after the copies.
        let own = far.context.device().create_context()?;
        for (name, source) in far.sources()? {
            let bytes = vec![9u8; 1000];
            let memory = Buffer::from_slice(&source, &bytes, &Stream::new(&own)?)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), bytes.len(), &near.stream)?;
            source.allow_access(near.context.device())?;
            memory.synchronize()?;
            testkit::delay(&near.stream)?;
            copy.copy_from_buffer(0, &memory, ..)?;
            source.deny_access(near.context.device())?;
            assert!(near.stream.is_done()?, "{name}");
            assert!(copy.to_vec()? == bytes, "{name}");
        }
        Ok(())
    })
}

#[test]
fn taking_access_back_waits_for_copies_of_the_owner() -> Outcome {
    with_two(|_, near, far| {
        let bytes = vec![9u8; 1000];
        // Of a context of its own: no work of the near context comes after the copies.
        let own = near.context.device().create_context()?;
        let memory = Buffer::from_slice(&DeviceMemory::new(&own), &bytes, &Stream::new(&own)?)?;
        for (name, source) in far.sources()? {
            let mut there = Buffer::<u8, _>::zeroed(&source, bytes.len(), &far.stream)?;
            source.allow_access(near.context.device())?;
            memory.synchronize()?;
            testkit::delay(&far.stream)?;
            there.copy_from_buffer(0, &memory, ..)?;
            source.deny_access(near.context.device())?;
            assert!(far.stream.is_done()?, "{name}");
            assert!(there.to_vec()? == bytes, "{name}");
        }
        Ok(())
    })
}

#[test]
fn contexts_of_the_program_get_access_of_their_own() -> Outcome {
    with_two(|setup, _, far| {
        let (own, other) = (setup.driver.device(0)?.create_context()?, setup.driver.device(0)?.create_context()?);
        let memory = Buffer::from_slice(&far.plain(), &[1u8, 2, 3], &far.stream)?;
        far.context.allow_access(&own)?;
        far.context.allow_access(&own)?;
        for context in [&own, &other] {
            let stream = Stream::new(context)?;
            let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 3, &stream)?;
            copy.copy_from_buffer(0, &memory, ..)?;
            assert_eq!((memory.route_to(&copy), copy.to_vec()?), (PeerRoute::Direct, vec![1, 2, 3]));
        }
        far.context.deny_access(&own)?;
        far.context.deny_access(&other)?;
        own.allow_access(&other)?; // one device
        Ok(())
    })
}

#[test]
fn contexts_that_have_ended_are_a_named_error() -> Outcome {
    with_two(|setup, near, far| {
        for ends_first in [true, false] {
            let ended = setup.driver.device(i32::from(ends_first))?.create_context()?;
            let (owner, peer) = if ends_first { (&ended, &near.context) } else { (&far.context, &ended) };
            // SAFETY: nothing of the context is left but the value, which must notice.
            let code = unsafe { setup.driver.raw().cuCtxDestroy_v2(ended.raw()) }?;
            assert_eq!(code, CUresult::CUDA_SUCCESS);
            for error in [owner.allow_access(peer).unwrap_err(), owner.deny_access(peer).unwrap_err()] {
                assert_eq!(error.driver_code(), Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED), "{error}");
            }
        }
        Ok(())
    })
}

#[test]
fn memory_that_others_cannot_be_let_into_says_so() -> Outcome {
    with_two(|_, near, far| {
        let pinned = PinnedMemory::new(&far.context);
        for error in [
            pinned.allow_access(near.context.device()).unwrap_err(),
            pinned.deny_access(near.context.device()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
        let host = Buffer::from_slice(&pinned, &[1u8, 2, 3], &far.stream)?;
        let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
        copy.copy_from_buffer(0, &host, ..)?;
        assert_eq!((host.route_to(&copy), copy.route_to(&host)), (PeerRoute::HostMemory, PeerRoute::HostMemory));
        let beside = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
        assert_eq!(copy.route_to(&beside), PeerRoute::SameDevice);
        assert_eq!(copy.to_vec()?, [1, 2, 3]);
        Ok(())
    })
}

#[test]
fn access_is_given_and_verified_once() -> Outcome {
    with_two(|setup, near, far| {
        if !setup.is_software() {
            println!("skipped: calls are counted by the software GPU only; unset CUDA_MEM_LIBCUDA");
            return Ok(());
        }
        let names = ["cuCtxEnablePeerAccess", "cuMemPoolSetAccess", "cuMemSetAccess", "cuMemAlloc_v2", "cuMemcpyAsync"];
        for (name, source) in far.sources()? {
            let memory = Buffer::from_slice(&source, &[1u8, 2, 3], &far.stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
            copy.copy_from_buffer(0, &memory, ..)?;
            softgpu::count_calls(true);
            let before = names.map(softgpu::calls_of);
            for _ in 0..10 {
                copy.copy_from_buffer(0, &memory, ..)?;
                source.allow_access(near.context.device())?;
            }
            let after = names.map(softgpu::calls_of);
            softgpu::count_calls(false);
            assert_eq!(after, before, "{name}: {names:?}");
        }
        Ok(())
    })
}

/// An event between devices takes longer than a small copy.
#[test]
fn a_copy_waits_for_the_other_device_only_if_it_must() -> Outcome {
    with_two(|setup, near, far| {
        let mut source = Buffer::from_slice(&far.plain(), &[1u8, 2, 3], &far.stream)?;
        let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
        copy.copy_from_buffer(0, &source, ..)?;
        for stream in [&near.stream, &far.stream] {
            stream.synchronize()?;
        }
        // The source's stream is idle, has other work, and writes the source.
        for (is_busy, writes) in [(false, false), (true, false), (true, true)] {
            let (open, gate) = std::sync::mpsc::channel::<()>();
            if is_busy {
                far.stream.launch_host_function(move || gate.recv().unwrap_or_default())?;
            }
            if writes {
                source.fill(.., 4)?;
            }
            softgpu::count_calls(setup.is_software());
            let before = softgpu::calls_of("cuStreamWaitEvent");
            copy.copy_from_buffer(0, &source, ..)?;
            let counted = softgpu::calls_of("cuStreamWaitEvent") - before;
            softgpu::count_calls(false);
            assert!(!setup.is_software() || counted == u64::from(writes), "{counted} events");
            match writes {
                true => assert!(!near.stream.is_done()?, "the copy did not wait for the write of its source"),
                false => near.stream.synchronize()?,
            }
            drop(open);
            assert_eq!(copy.to_vec()?, if writes { [4, 4, 4] } else { [1, 2, 3] });
            far.stream.synchronize()?;
        }
        Ok(())
    })
}

#[test]
fn too_many_peers_are_named_and_copies_work_without() -> Outcome {
    with_two(|setup, near, far| {
        if !setup.is_software() {
            println!("skipped: only the software GPU fails on request; unset CUDA_MEM_LIBCUDA");
            return Ok(());
        }
        let memory = Buffer::from_slice(&far.plain(), &[1u8, 2, 3], &far.stream)?;
        let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
        let mut full = Fault::call("cuCtxEnablePeerAccess", 1, CUresult::CUDA_ERROR_TOO_MANY_PEERS);
        full.when = When::Every(1);
        softgpu::faults([full]);
        let error = far.context.allow_access(&near.context).unwrap_err();
        copy.copy_from_buffer(0, &memory, ..)?;
        let route = memory.route_to(&copy);
        softgpu::faults([]);
        assert!(matches!(error, Error::Peer(PeerError::TooMany { device: 0, owner: 1, .. })), "{error}");
        assert_eq!((route, copy.to_vec()?), (PeerRoute::ThroughHost, vec![1, 2, 3]));
        // The device accesses fewer devices now, and the next copy asks again.
        assert_eq!(memory.route_to(&copy), PeerRoute::Direct);
        Ok(())
    })
}
