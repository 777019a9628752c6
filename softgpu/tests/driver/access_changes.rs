//! softgpu reports access between devices that changes beside copies.

use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Misuse, Settings};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: usize = 2 << 20;

/// A handle that threads share.
type Address = usize;

fn at<T>(address: Address) -> *mut T {
    ptr::without_provenance_mut(address)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Pool,
    Virtual,
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::Pool, Kind::Virtual];

/// Memory of device 1, to which device 0 gets access.
struct Far {
    kind: Kind,
    context: Address,
    memory: CUdeviceptr,
    /// The pool or the physical memory.
    source: u64,
}

impl Far {
    /// Device 0's context stays current.
    fn new(m: &Machine, kind: Kind, context: Address) -> Self {
        let mut near = ptr::null_mut();
        assert_eq!(cu!(m, cuCtxGetCurrent(&mut near)), 0);
        assert_eq!(cu!(m, cuCtxSetCurrent(at(context))), 0);
        let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 1 };
        let pinned = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        let (mut memory, mut source) = (0, 0);
        match kind {
            Kind::Plain => memory = m.alloc(SIZE),
            Kind::Pool => {
                let made = CUmemPoolProps { allocType: pinned, location, ..Default::default() };
                let (mut pool, stream) = (ptr::null_mut(), ptr::null_mut());
                assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &made)), 0);
                assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut memory, SIZE, pool, stream)), 0);
                source = pool.addr() as u64;
            }
            Kind::Virtual => {
                let made = CUmemAllocationProp { type_: pinned, location, ..Default::default() };
                assert_eq!(cu!(m, cuMemCreate(&mut source, SIZE, &made, 0)), 0);
                assert_eq!(cu!(m, cuMemAddressReserve(&mut memory, SIZE, 0, 0, 0)), 0);
                assert_eq!(cu!(m, cuMemMap(memory, SIZE, 0, source, 0)), 0);
                let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
                assert_eq!(cu!(m, cuMemSetAccess(memory, SIZE, &CUmemAccessDesc { location, flags }, 1)), 0);
            }
        }
        assert_eq!(cu!(m, cuCtxSynchronize()), 0);
        assert_eq!(cu!(m, cuCtxSetCurrent(near)), 0);
        Self { kind, context, memory, source }
    }

    fn copy(&self, m: &Machine, to: CUdeviceptr, near: Address, stream: Address) {
        let (near, far) = (at(near), at(self.context));
        assert_eq!(cu!(m, cuMemcpyPeerAsync(to, near, self.memory, far, SIZE, at(stream))), 0);
    }

    /// Gives device 0 access, or takes it back. Returns the call.
    fn set(&self, m: &Machine, allowed: bool) -> &'static str {
        let flags = CUmemAccess_flags(if allowed { 3 } else { 0 });
        let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
        let wish = CUmemAccessDesc { location, flags };
        let (answer, call) = match (self.kind, allowed) {
            (Kind::Plain, true) => (cu!(m, cuCtxEnablePeerAccess(at(self.context), 0)), "cuCtxEnablePeerAccess"),
            (Kind::Plain, false) => (cu!(m, cuCtxDisablePeerAccess(at(self.context))), "cuCtxDisablePeerAccess"),
            (Kind::Pool, _) => (cu!(m, cuMemPoolSetAccess(at(self.source as usize), &wish, 1)), "cuMemPoolSetAccess"),
            (Kind::Virtual, _) => (cu!(m, cuMemSetAccess(self.memory, SIZE, &wish, 1)), "cuMemSetAccess"),
        };
        assert_eq!(answer, 0, "{call}");
        call
    }

    fn end(self, m: &Machine) {
        match self.kind {
            Kind::Plain => assert_eq!(cu!(m, cuMemFree_v2(self.memory)), 0),
            Kind::Pool => {
                assert_eq!(cu!(m, cuMemFree_v2(self.memory)), 0);
                assert_eq!(cu!(m, cuMemPoolDestroy(at(self.source as usize))), 0);
            }
            Kind::Virtual => {
                assert_eq!(cu!(m, cuMemUnmap(self.memory, SIZE)), 0);
                assert_eq!(cu!(m, cuMemAddressFree(self.memory, SIZE)), 0);
                assert_eq!(cu!(m, cuMemRelease(self.source)), 0);
            }
        }
    }
}

/// Runs a test with a machine, memory of device 0, the contexts of devices 0 and 1, and a stream of device 0.
fn with_two(races: bool, test: impl FnOnce(&Machine, CUdeviceptr, [Address; 2], Address)) {
    let m = machine(Settings { races, ..Settings::default() });
    let mut near = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut near)), 0);
    let (to, stream, far) = (m.alloc(SIZE), m.stream(1), m.context(1));
    assert_eq!(cu!(m, cuCtxSetCurrent(near)), 0);
    test(&m, to, [near.addr(), far.addr()], stream.addr());
    assert_eq!(cu!(m, cuMemFree_v2(to)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuCtxDestroy_v2(far)), 0);
    m.finish();
}

fn reported() -> Vec<(Misuse, &'static str, Option<&'static str>)> {
    softgpu::misuse().iter().map(|report| (report.misuse, report.call, report.other)).collect()
}

#[test]
fn access_that_changes_while_a_copy_is_queued_is_reported() {
    for kind in KINDS {
        with_two(true, |m, to, [near, far], stream| {
            let source = Far::new(m, kind, far);
            let (end, queued) = (AtomicBool::new(false), Some("a copy that is being queued"));
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    assert_eq!(cu!(m, cuCtxSetCurrent(at(near))), 0);
                    while !end.load(Ordering::Acquire) {
                        source.copy(m, to, near, stream);
                        assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
                    }
                });
                // Either of the two calls may begin first.
                let mut changes = (0..20_000).map(|n| source.set(m, n % 2 == 0));
                changes.find(|_| {
                    let seen = reported();
                    let first = seen.iter().any(|(_, call, _)| *call == "a copy");
                    first && seen.iter().any(|(.., other)| *other == queued)
                });
                end.store(true, Ordering::Release);
            });
            let seen = reported();
            let is_change = |call: &str| call.starts_with("cuMem") || call.starts_with("cuCtx");
            let expected = |(misuse, call, other): &(Misuse, &'static str, Option<&'static str>)| {
                let (first, second) = (is_change(call), other.is_some_and(is_change));
                *misuse == Misuse::AccessChange && first != second
            };
            assert!(seen.iter().all(expected), "{kind:?}: {seen:?}");
            assert!(seen.iter().any(|(_, call, _)| *call == "a copy"), "{kind:?}: {seen:?}");
            assert!(seen.iter().any(|(.., other)| *other == queued), "{kind:?}: {seen:?}");
            source.end(m);
        });
    }
}

#[test]
fn access_that_is_taken_back_under_a_copy_is_reported() {
    for kind in KINDS {
        with_two(true, |m, to, [near, far], stream| {
            let (source, other) = (Far::new(m, kind, far), Far::new(m, Kind::Pool, far));
            other.set(m, true);
            source.copy(m, to, near, stream);
            source.set(m, true);
            assert_eq!(reported(), [], "access is given while a copy runs");
            other.set(m, false);
            assert_eq!(reported(), [], "access to other memory");
            assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
            source.set(m, false);
            assert_eq!(reported(), [], "the copy has ended");
            source.set(m, true);
            source.copy(m, to, near, stream);
            let call = source.set(m, false);
            assert_eq!(reported(), [(Misuse::AccessChange, call, Some("a copy"))], "{kind:?}");
            if kind != Kind::Plain {
                source.set(m, false);
                assert_eq!(reported().len(), 1, "nothing was taken back");
            }
            assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
            source.end(m);
            other.end(m);
        });
    }
}

#[test]
fn access_taken_from_the_source_of_a_running_copy_is_reported() {
    for kind in KINDS {
        with_two(true, |m, from, [near, far], _| {
            let target = Far::new(m, kind, far);
            target.set(m, true);
            assert_eq!(cu!(m, cuCtxSetCurrent(at(far))), 0);
            let stream = m.stream(1).addr();
            assert_eq!(cu!(m, cuMemcpyPeerAsync(target.memory, at(far), from, at(near), SIZE, at(stream))), 0);
            assert_eq!(cu!(m, cuCtxSetCurrent(at(near))), 0);
            let call = target.set(m, false);
            assert_eq!(reported(), [(Misuse::AccessChange, call, Some("a copy"))], "{kind:?}");
            assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
            target.set(m, true);
            target.set(m, false);
            assert_eq!(reported().len(), 1, "the copy has ended");
            assert_eq!(cu!(m, cuStreamDestroy_v2(at(stream))), 0);
            target.end(m);
        });
    }
}

#[test]
fn access_that_changes_to_memory_that_a_copy_writes_is_reported() {
    for kind in KINDS {
        with_two(true, |m, from, [near, far], _| {
            let target = Far::new(m, kind, far);
            assert_eq!(cu!(m, cuCtxSetCurrent(at(far))), 0);
            let stream = m.stream(1).addr();
            assert_eq!(cu!(m, cuCtxSetCurrent(at(near))), 0);
            let end = AtomicBool::new(false);
            let met = std::thread::scope(|threads| {
                threads.spawn(|| {
                    assert_eq!(cu!(m, cuCtxSetCurrent(at(far))), 0);
                    while !end.load(Ordering::Acquire) {
                        let (to, near, far) = (target.memory, at(near), at(far));
                        assert_eq!(cu!(m, cuMemcpyPeerAsync(to, far, from, near, SIZE, at(stream))), 0);
                        assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
                    }
                });
                let met = (0..20_000).any(|n| {
                    target.set(m, n % 2 == 0);
                    !reported().is_empty()
                });
                end.store(true, Ordering::Release);
                met
            });
            assert!(met, "{kind:?}");
            assert!(reported().iter().all(|(misuse, ..)| *misuse == Misuse::AccessChange), "{:?}", reported());
            assert_eq!(cu!(m, cuStreamDestroy_v2(at(stream))), 0);
            target.end(m);
        });
    }
}

#[test]
fn changes_of_access_are_not_checked_without_the_setting() {
    with_two(false, |m, to, [near, far], stream| {
        let source = Far::new(m, Kind::Pool, far);
        source.set(m, true);
        source.copy(m, to, near, stream);
        source.set(m, false);
        assert_eq!(reported(), []);
        assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
        source.end(m);
    });
}

#[test]
fn each_way_of_copying_between_devices_is_checked() {
    type Way = fn(&Machine, CUdeviceptr, CUdeviceptr, Address) -> u32;
    let ways: [Way; 5] = [
        |m, to, from, stream| cu!(m, cuMemcpyAsync(to, from, SIZE, at(stream))),
        |m, to, from, stream| cu!(m, cuMemcpyDtoDAsync_v2(to, from, SIZE, at(stream))),
        |m, to, from, stream| {
            let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            let copy = CUDA_MEMCPY2D {
                srcMemoryType: unified,
                srcDevice: from,
                dstMemoryType: unified,
                dstDevice: to,
                WidthInBytes: 8,
                Height: 2,
                ..Default::default()
            };
            cu!(m, cuMemcpy2DAsync_v2(&copy, at(stream)))
        },
        |m, to, from, stream| {
            let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            let copy = CUDA_MEMCPY3D {
                srcMemoryType: unified,
                srcDevice: from,
                dstMemoryType: unified,
                dstDevice: to,
                WidthInBytes: 8,
                Height: 1,
                Depth: 1,
                ..Default::default()
            };
            cu!(m, cuMemcpy3DAsync_v2(&copy, at(stream)))
        },
        |m, mut to, mut from, stream| {
            let mut size = SIZE;
            let mut order =
                CUmemcpyAttributes { srcAccessOrder: CUmemcpySrcAccessOrder(1), ..CUmemcpyAttributes::default() };
            let (kind, index) = (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, &mut 0);
            (order.srcLocHint.type_, order.dstLocHint.type_) = (kind, kind);
            let (to, from, stream) = (&mut to, &mut from, at(stream));
            cu!(m, cuMemcpyBatchAsync_v2(to, from, &mut size, 1, &mut order, index, 1, stream))
        },
    ];
    for way in ways {
        with_two(true, |m, to, [_, far], stream| {
            let source = Far::new(m, Kind::Virtual, far);
            source.set(m, true);
            assert_eq!(way(m, to, source.memory, stream), 0);
            source.set(m, false);
            assert_eq!(reported(), [(Misuse::AccessChange, "cuMemSetAccess", Some("a copy"))]);
            assert_eq!(cu!(m, cuStreamSynchronize(at(stream))), 0);
            source.end(m);
        });
    }
}
