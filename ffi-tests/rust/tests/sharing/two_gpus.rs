//! Copies between two real GPUs, beside the driver's own calls. On a machine with fewer GPUs that access each other, each
//! test prints what is missing. `tests/peers/` checks the rules on the software GPU.

use cuda_mem::buffer::{CopyBatch, PeerRoute, Piece};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::view::Index;
use cuda_mem::{Buffer, Context, Stream, Topology};
use std::thread;
use std::time::Instant;
use testkit::suite::Outcome;
use testkit::{Setup, alone, pattern, same};

fn with_two(test: impl FnOnce(&Context, &Context) -> Outcome) -> Outcome {
    alone(|setup: &Setup| {
        let topology = Topology::of(&setup.driver)?;
        if setup.driver.is_software() || topology.link(0, 1).is_none_or(|link| !link.access) {
            println!("skipped: two GPUs that access each other are needed: run this on a machine with two");
            return Ok(());
        }
        println!("{topology}");
        test(&setup.driver.device(0)?.primary_context()?, &setup.driver.device(1)?.primary_context()?)
    })
}

fn sources(context: &Context) -> cuda_mem::Result<[(&'static str, SharedResource); 5]> {
    let plain = DeviceMemory::new(context);
    let mut in_regions = PoolOptions::default();
    in_regions.in_place = false;
    Ok([
        ("plain memory", plain.share()),
        ("the driver's pool", DevicePool::new(context, &DriverPoolOptions::default())?.share()),
        ("virtual memory", VirtualMemory::new(context, &VirtualOptions::default())?.share()),
        ("a pool in place", Pool::new(&plain, &PoolOptions::default())?.share()),
        ("a pool in regions", Pool::new(&plain, &in_regions)?.share()),
    ])
}

/// Copies of every source arrive, and are as fast as a link between GPUs, not as the host.
#[test]
fn every_source_is_copied_directly_in_both_directions() -> Outcome {
    with_two(|one, two| {
        let size = 256 << 20;
        let bytes = pattern(size, 3);
        for (near, far) in [(one, two), (two, one)] {
            let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
            for ((name, source), (_, destination)) in sources(far)?.into_iter().zip(sources(near)?) {
                let source = Buffer::from_slice(&source, &bytes, &far_stream)?;
                let mut copy = Buffer::<u8, _>::zeroed(&destination, size, &stream)?;
                assert_eq!(source.route_to(&copy), PeerRoute::Direct, "{name}");
                copy.copy_from_buffer(0, &source, ..)?;
                same(name, &copy.to_vec()?, &bytes)?;
                let start = Instant::now();
                copy.copy_from_buffer(0, &source, ..)?;
                copy.synchronize()?;
                println!("{name}: {:.1} GB/s", size as f64 / start.elapsed().as_secs_f64() / 1e9);
            }
        }
        Ok(())
    })
}

#[test]
fn denied_and_allowed_access_both_deliver() -> Outcome {
    with_two(|near, far| {
        let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
        let bytes = pattern(3 << 20, 5);
        for (name, source) in sources(far)? {
            let memory = Buffer::from_slice(&source, &bytes, &far_stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(near), bytes.len(), &stream)?;
            for round in 0..3 {
                copy.fill(.., 0)?;
                copy.copy_from_buffer(0, &memory, ..)?;
                same(name, &copy.to_vec()?, &bytes)?;
                let denied = round % 2 == 1;
                let route = if denied { PeerRoute::ThroughHost } else { PeerRoute::Direct };
                assert_eq!(memory.route_to(&copy), route, "{name}");
                if denied { source.allow_access(near.device())? } else { source.deny_access(near.device())? }
            }
            // Access to plain memory is that of its context, which the next source may share.
            source.allow_access(near.device())?;
        }
        Ok(())
    })
}

#[test]
fn kernels_and_batches_read_the_other_gpu() -> Outcome {
    with_two(|near, far| {
        let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
        near.load_kernels()?;
        let bytes = pattern(8 << 20, 7);
        let even: Vec<u8> = bytes.iter().copied().step_by(2).collect();
        let pieces: Vec<Piece> =
            (0..1000).map(|n| Piece { to: 8192 * n, from: 8192 * (n * 7 % 1000), length: 4096 }).collect();
        let mut scattered = vec![0; bytes.len()];
        for piece in &pieces {
            scattered[piece.to..][..piece.length].copy_from_slice(&bytes[piece.from..][..piece.length]);
        }
        for (name, source) in sources(far)? {
            let memory = Buffer::from_slice(&source, &bytes, &far_stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(near), even.len(), &stream)?;
            let view = memory.view(&[4 << 20, 2])?.sliced(&[Index::ALL, (..1).into()])?;
            copy.view_mut(&[4 << 20, 1])?.copy_from(&view)?;
            same(name, &copy.to_vec()?, &even)?;
            let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(near), bytes.len(), &stream)?;
            let mut batch = CopyBatch::new(&stream);
            batch.copy_pieces(&mut copy, &memory, &pieces)?;
            batch.submit()?;
            same(name, &copy.to_vec()?, &scattered)?;
        }
        Ok(())
    })
}

/// Threads grow a pool, copy from it and return its memory, while access is taken and given.
#[test]
fn growth_under_changing_access_loses_no_copy() -> Outcome {
    with_two(|near, far| {
        let pool = Pool::new(&DeviceMemory::new(far), &PoolOptions::default())?;
        let work = |seed: u8| -> cuda_mem::Result<bool> {
            let (stream, far_stream) = (Stream::new(near)?, Stream::new(far)?);
            let mut good = true;
            for round in 0..40usize {
                let bytes = pattern((round % 7 + 1) << 19, seed.wrapping_add(round as u8));
                let source = Buffer::from_slice(&pool, &bytes, &far_stream)?;
                let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(near), bytes.len(), &stream)?;
                copy.copy_from_buffer(0, &source, ..)?;
                good &= copy.to_vec()? == bytes;
            }
            Ok(good)
        };
        thread::scope(|scope| -> Outcome {
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed * 50))).collect();
            for _ in 0..20 {
                pool.allow_access(near.device())?;
                pool.release_unused()?;
            }
            for thread in threads {
                assert!(thread.join().expect("the thread does not panic")?, "a copy was lost");
            }
            Ok(())
        })
    })
}
