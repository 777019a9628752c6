//! Large page-locked memory, whose pages the library makes and the driver locks.

use super::alone;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{PinnedMemory, PinnedOptions, ResourceHandle};
use cuda_mem::{Buffer, Error, HostBuffer};
use softgpu::Fault;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use testkit::Setup;
use testkit::forks::in_child;

/// More than the size from which memory is large, and no whole page.
const SIZE: usize = (256 << 20) + 1000;

/// Whether some mapping of the process contains an address.
fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    })
}

/// The anonymous memory that the process has, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

fn has_faults(setup: &Setup) -> bool {
    if !setup.is_software() {
        println!("skipped: faults need the software GPU: run the test without CUDA_MEM_LIBCUDA");
    }
    setup.is_software()
}

#[test]
fn large_pinned_memory_is_exact_and_leaves_no_mapping() {
    alone(|setup, stream| {
        let mut few = PinnedOptions::default();
        (few.portable, few.mapped) = (false, false);
        for options in [PinnedOptions::default(), few] {
            let source = PinnedMemory::with_options(&setup.context, options);
            let mut buffer = Buffer::filled(&source, SIZE, 3u8, stream)?;
            assert_eq!((buffer.len(), buffer.host_pointer().addr() % (2 << 20)), (SIZE, 0));
            buffer.fill(SIZE - 5.., 4)?;
            assert_eq!(buffer.read(..1)?[0], 3);
            assert_eq!(*buffer.read(SIZE - 6..)?, [3, 4, 4, 4, 4, 4]);
            buffer.write(100..103)?.copy_from_slice(&[7; 3]);
            let part = Buffer::from_slice(&source, &buffer.read(99..104)?, stream)?;
            assert_eq!(part.to_vec()?, [3, 7, 7, 7, 3]);
            let address = buffer.host_pointer().addr();
            assert!(is_mapped(address) && is_mapped(address + SIZE - 1));
            buffer.close()?;
            assert!(!is_mapped(address) && !is_mapped(address + SIZE - 1));
        }
        Ok(())
    });
}

#[test]
fn progress_of_large_memory_ends_at_its_size() {
    alone(|setup, _| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hear = {
            let seen = seen.clone();
            move |done, total| {
                seen.lock().unwrap().push((done, total));
                ControlFlow::Continue(())
            }
        };
        let source = PinnedMemory::on_progress(&setup.context, PinnedOptions::default(), hear);
        drop(HostBuffer::<u8>::uninit(&source, 1000)?);
        assert_eq!(*seen.lock().unwrap(), [], "small memory has no progress");
        let buffer = HostBuffer::<u8>::uninit(&source, SIZE)?;
        let seen = seen.lock().unwrap();
        assert_eq!(seen.last(), Some(&(SIZE, SIZE)));
        assert!(seen.iter().all(|(done, total)| done <= total && *total == SIZE), "{seen:?}");
        drop(buffer);
        Ok(())
    });
}

#[test]
fn a_canceled_allocation_leaves_no_memory() {
    alone(|setup, stream| {
        let before = resident();
        for from in [0, SIZE] {
            let cancel = move |done, _| if done >= from { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let source = PinnedMemory::on_progress(&setup.context, PinnedOptions::default(), cancel);
            let error = Buffer::<u8, _>::uninit(&source, SIZE, stream).unwrap_err();
            assert_eq!(error, Error::Canceled { call: "PinnedMemory::allocate" });
            let panic = move |done, _| if done >= from { panic!("planted") } else { ControlFlow::Continue(()) };
            let source = PinnedMemory::on_progress(&setup.context, PinnedOptions::default(), panic);
            let outcome = catch_unwind(AssertUnwindSafe(|| Buffer::<u8, _>::uninit(&source, SIZE, stream).map(drop)));
            assert!(outcome.is_err());
        }
        assert!(resident() < before + SIZE / 2, "{before} bytes before, {} after", resident());
        Ok(())
    });
}

#[test]
fn more_memory_than_the_host_has_is_refused_first() {
    alone(|setup, stream| {
        for size in [1 << 45, 1 << 60, isize::MAX as usize] {
            let error = Buffer::<u8, _>::uninit(&PinnedMemory::new(&setup.context), size, stream).unwrap_err();
            assert!(error.is_out_of_memory(), "{error}");
        }
        Ok(())
    });
}

#[test]
fn a_refused_registration_is_served_by_the_driver() {
    alone(|setup, stream| {
        if !has_faults(setup) {
            return Ok(());
        }
        for (code, is_served) in [
            (CUresult::CUDA_ERROR_NOT_SUPPORTED, true),
            (CUresult::CUDA_ERROR_OPERATING_SYSTEM, true),
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
        ] {
            softgpu::faults([Fault::call("cuMemHostRegister_v2", 1, code)]);
            let outcome = Buffer::<u8, _>::uninit(&PinnedMemory::new(&setup.context), SIZE, stream);
            let met = softgpu::injected();
            softgpu::faults([]);
            assert_eq!((met, outcome.is_ok()), (1, is_served), "{outcome:?}");
            if let Err(error) = outcome {
                assert!(error.to_string().contains("ulimit -l"), "{error}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_failed_free_keeps_large_memory_until_its_source_goes() {
    alone(|setup, stream| {
        if !has_faults(setup) {
            return Ok(());
        }
        let source = PinnedMemory::new(&setup.context);
        let block = source.share().allocate(SIZE, 1, stream)?;
        softgpu::faults([Fault::call("cuStreamSynchronize", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
        // SAFETY: allocated above, and unused.
        let freed = unsafe { source.share().deallocate(block, stream) };
        softgpu::faults([]);
        if freed.is_err() {
            assert!(is_mapped(block.host_pointer().addr()));
            // SAFETY: as above; the failed call has freed nothing.
            unsafe { source.share().deallocate(block, stream) }?;
        }
        assert!(!is_mapped(block.host_pointer().addr()));
        Ok(())
    });
}

#[test]
fn a_forked_child_has_no_large_memory_and_frees_none() {
    alone(|setup, stream| {
        let source = PinnedMemory::new(&setup.context);
        let mut buffer = Buffer::filled(&source, SIZE, 3u8, stream)?;
        stream.synchronize()?;
        let address = buffer.host_pointer().addr();
        let wrong = in_child(|| {
            if is_mapped(address) {
                return Err("the child has the memory");
            }
            // SAFETY: the parent's buffer is another in this process, and the child ends without a drop of it.
            drop(unsafe { core::ptr::read(&raw const buffer) });
            Ok(())
        });
        assert_eq!(wrong, None);
        // A page that moved at this store would be lost to the device.
        buffer.write(..3)?.copy_from_slice(&[4; 3]);
        buffer.fill(SIZE - 2.., 5)?;
        assert_eq!((buffer.read(..4)?.to_vec(), buffer.read(SIZE - 3..)?.to_vec()), (vec![4, 4, 4, 3], vec![3, 5, 5]));
        buffer.close()?;
        assert!(!is_mapped(address));
        Ok(())
    });
}
