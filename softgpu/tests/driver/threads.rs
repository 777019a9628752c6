//! Threads use the driver at the same time.

use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// One thread's work, on objects that the thread itself makes.
fn work(m: &Machine, context: usize, byte: u8) {
    assert_eq!(cu!(m, cuCtxSetCurrent(ptr::without_provenance_mut(context))), 0);
    let stream = m.stream(1);
    let unit = 2 << 20;
    let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let prop = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location,
        ..Default::default()
    };
    let wish = CUmemAccessDesc { location, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    for round in 1..40_usize {
        let size = round * 1000;
        let (plain, mut pooled, mut at, mut handle) = (m.alloc(size), 0, 0, 0);
        assert_eq!(cu!(m, cuMemAllocAsync(&mut pooled, size, stream)), 0);
        assert_eq!(cu!(m, cuMemsetD8Async(pooled, byte, size, stream)), 0);
        assert_eq!(cu!(m, cuMemAddressReserve(&mut at, unit, 0, 0, 0)), 0);
        assert_eq!(cu!(m, cuMemCreate(&mut handle, unit, &prop, 0)), 0);
        assert_eq!(cu!(m, cuMemMap(at, unit, 0, handle, 0)), 0);
        assert_eq!(cu!(m, cuMemRelease(handle)), 0);
        assert_eq!(cu!(m, cuMemSetAccess(at, unit, &wish, 1)), 0);
        assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(plain, pooled, size, stream)), 0);
        assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(at, plain, size, stream)), 0);
        assert_eq!(cu!(m, cuMemFreeAsync(pooled, stream)), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        assert!(m.read(at, size).iter().all(|seen| *seen == byte));
        assert_eq!(cu!(m, cuMemUnmap(at, unit)), 0);
        assert_eq!(cu!(m, cuMemAddressFree(at, unit)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(plain)), 0);
    }
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
}

#[test]
fn threads_do_not_disturb_each_other() {
    for (strict, quarantine, seed) in [(false, 0, None), (true, 4 << 20, None), (false, 0, Some(3))] {
        let m = machine(Settings { strict, quarantine, seed, ..Settings::default() });
        let mut context = ptr::null_mut();
        assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
        let context = context.addr();
        std::thread::scope(|threads| {
            for byte in 1..5 {
                let m = &m;
                threads.spawn(move || work(m, context, byte));
            }
        });
        let (mut free, mut total) = (0, 0);
        assert_eq!(cu!(m, cuMemGetInfo_v2(&mut free, &mut total)), 0);
        assert_eq!((free, softgpu::misuse()), (total, Vec::new()));
        m.finish();
    }
}

#[test]
fn a_look_at_the_ledger_is_no_use_of_memory() {
    let m = machine(Settings::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                softgpu::ledger();
            }
        });
        for _ in 0..5_000 {
            let memory = m.alloc(100);
            assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(softgpu::misuse(), []);
    m.finish();
}
