//! Several devices: which of them can access each other's memory, and what fails without access.

use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Misuse, Peers, Settings};
use std::ptr;

const OK: u32 = 0;
const INVALID_DEVICE: u32 = 101;
const UNSUPPORTED: u32 = 217;
const ILLEGAL_ADDRESS: u32 = 700;

fn of(peers: Peers, devices: usize) -> Machine {
    machine(Settings { devices, peers, ..Settings::default() })
}

/// The pairs of devices of which the first can access the second.
fn pairs(m: &Machine, devices: i32) -> Vec<(i32, i32)> {
    let all = (0..devices).flat_map(|one| (0..devices).map(move |other| (one, other)));
    all.filter(|(one, other)| {
        let (mut can, mut supported) = (-1, -1);
        assert_eq!(cu!(m, cuDeviceCanAccessPeer(&mut can, *one, *other)), OK);
        if one != other {
            for attribute in [
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
            ] {
                assert_eq!(cu!(m, cuDeviceGetP2PAttribute(&mut supported, attribute, *one, *other)), OK);
                assert_eq!(supported, can);
            }
        }
        can == 1
    })
    .collect()
}

/// Launches a kernel of the current context that fills 16 bytes. Returns the answer of the wait.
fn fill_by_kernel(m: &Machine, address: CUdeviceptr, value: u64) -> u32 {
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, c"softgpu kernels: fill_bytes".as_ptr().cast())), OK);
    assert_eq!(cu!(m, cuModuleGetFunction(&mut function, module, c"fill_bytes".as_ptr())), OK);
    let mut values = [address, 16, value];
    let mut places = values.each_mut().map(|value| ptr::from_mut(value).cast());
    let (at, stream) = (places.as_mut_ptr(), ptr::null_mut());
    assert_eq!(cu!(m, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, at, ptr::null_mut())), OK);
    cu!(m, cuCtxSynchronize())
}

#[test]
fn the_topology_decides_who_can_access_whom() {
    let mesh = vec![(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    for (peers, expected) in [
        (Peers::Mesh, mesh.clone()),
        (Peers::Broken, mesh),
        (Peers::Pairs, vec![(0, 1), (1, 0)]),
        (Peers::None, vec![]),
        (Peers::OneWay, vec![(0, 1), (0, 2), (1, 2)]),
    ] {
        let m = of(peers, 3);
        assert_eq!(pairs(&m, 3), expected, "{peers:?}");
        m.finish();
    }
}

#[test]
fn hidden_devices_keep_their_place_in_the_topology() {
    let visible = Some("1,2,3".to_owned());
    let m = machine(Settings { devices: 4, peers: Peers::Pairs, visible, ..Settings::default() });
    assert_eq!(pairs(&m, 3), [(1, 2), (2, 1)]);
    m.finish();
}

#[test]
fn contexts_pools_and_mappings_refuse_what_has_no_path() {
    let m = of(Peers::OneWay, 2);
    let near = {
        let mut near = ptr::null_mut();
        assert_eq!(cu!(m, cuCtxGetCurrent(&mut near)), OK);
        near
    };
    let far = m.context(1);
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(near, 0)), UNSUPPORTED);
    assert_eq!(cu!(m, cuCtxSetCurrent(near)), OK);
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(far, 0)), OK);
    for (owner, other, answer) in [(0, 1, INVALID_DEVICE), (1, 0, OK)] {
        let (mut pool, mut handle, mut at) = (ptr::null_mut(), 0, 0);
        let place = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: owner };
        let made = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: place,
            ..Default::default()
        };
        assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &made)), OK);
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let wish = CUmemAccessDesc { location: CUmemLocation { id: other, ..place }, flags };
        assert_eq!(cu!(m, cuMemPoolSetAccess(pool, &wish, 1)), answer);
        assert_eq!(cu!(m, cuMemPoolDestroy(pool)), OK);
        let physical = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: place,
            ..Default::default()
        };
        let size = 2 << 20;
        assert_eq!(cu!(m, cuMemCreate(&mut handle, size, &physical, 0)), OK);
        assert_eq!(cu!(m, cuMemAddressReserve(&mut at, size, 0, 0, 0)), OK);
        assert_eq!(cu!(m, cuMemMap(at, size, 0, handle, 0)), OK);
        assert_eq!(cu!(m, cuMemSetAccess(at, size, &wish, 1)), answer);
        assert_eq!(cu!(m, cuMemUnmap(at, size)), OK);
        assert_eq!(cu!(m, cuMemAddressFree(at, size)), OK);
        assert_eq!(cu!(m, cuMemRelease(handle)), OK);
    }
    assert_eq!(cu!(m, cuCtxDestroy_v2(far)), OK);
    m.finish();
}

#[test]
fn kernels_fault_on_a_peers_memory_until_access_is_enabled() {
    let m = of(Peers::Mesh, 2);
    let far = m.context(1);
    let memory = m.alloc(16);
    let near = m.context(0);
    assert_eq!(fill_by_kernel(&m, memory, 7), ILLEGAL_ADDRESS);
    let seen = softgpu::misuse();
    assert!(seen.iter().any(|report| report.misuse == Misuse::WrongAddress && report.address == memory), "{seen:?}");
    assert_eq!(cu!(m, cuCtxDestroy_v2(near)), OK);

    let near = m.context(0);
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(far, 0)), OK);
    assert_eq!(fill_by_kernel(&m, memory, 7), OK);
    assert_eq!(m.read(memory, 16), [7; 16]);
    assert_eq!(cu!(m, cuCtxDestroy_v2(near)), OK);
    assert_eq!(cu!(m, cuCtxDestroy_v2(far)), OK);
    m.finish();
}

#[test]
fn access_ends_with_the_life_of_either_context() {
    let m = of(Peers::Mesh, 2);
    let (mut near, mut far) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut near)), OK);
    assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut far, 1)), OK);
    for ended in [1, 0] {
        assert_eq!(cu!(m, cuCtxEnablePeerAccess(far, 0)), OK);
        assert_eq!(cu!(m, cuDevicePrimaryCtxReset_v2(ended)), OK);
        let mut same = ptr::null_mut();
        assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut same, ended)), OK);
        assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(ended)), OK);
    }
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(far, 0)), OK, "nothing of the earlier lives is left");
    assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(1)), OK);
    m.finish();
}

#[test]
fn broken_access_loses_copies_and_the_hosts_route_does_not() {
    let m = of(Peers::Broken, 2);
    let mut near = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut near)), OK);
    let here = m.alloc(16);
    let far = m.context(1);
    let there = m.alloc(16);
    assert_eq!(cu!(m, cuMemsetD8_v2(there, 1, 16)), OK);
    assert_eq!(cu!(m, cuCtxSetCurrent(near)), OK);
    assert_eq!(cu!(m, cuMemsetD8_v2(here, 2, 16)), OK);
    assert_eq!(cu!(m, cuMemcpyPeer(there, far, here, near, 16)), OK);
    assert_eq!(m.read(there, 16), [2; 16]);
    assert_eq!(cu!(m, cuMemsetD8_v2(here, 3, 16)), OK);
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(far, 0)), OK);
    assert_eq!(cu!(m, cuMemcpyPeer(there, far, here, near, 16)), OK);
    assert_eq!(cu!(m, cuMemcpy(there, here, 16)), OK);
    assert_eq!(m.read(there, 16), [2; 16], "lost");
    assert_eq!(cu!(m, cuCtxDisablePeerAccess(far)), OK);
    assert_eq!(cu!(m, cuMemcpyPeer(there, far, here, near, 16)), OK);
    assert_eq!(m.read(there, 16), [3; 16]);
    assert_eq!(cu!(m, cuMemFree_v2(here)), OK);
    assert_eq!(cu!(m, cuCtxDestroy_v2(far)), OK);
    m.finish();
}

#[test]
fn a_context_has_at_most_eight_peers() {
    let m = of(Peers::Mesh, 10);
    let others: Vec<_> = (1..10).map(|device| m.context(device)).collect();
    let mine = m.context(0);
    let answers: Vec<_> = others.iter().map(|other| cu!(m, cuCtxEnablePeerAccess(*other, 0))).collect();
    assert_eq!(answers, [OK, OK, OK, OK, OK, OK, OK, OK, CUresult::CUDA_ERROR_TOO_MANY_PEERS.0]);
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(others[0], 0)), CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED.0);
    assert_eq!(cu!(m, cuCtxDestroy_v2(others[1])), OK);
    assert_eq!(cu!(m, cuCtxEnablePeerAccess(others[8], 0)), OK);
    for context in others.into_iter().chain([mine]) {
        // The second one has ended.
        cu!(m, cuCtxDestroy_v2(context));
    }
    m.finish();
}
