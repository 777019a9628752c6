//! The functions, called as a program calls them. The environment decides the machine, so each test is a process.
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, reason = "a test may panic; its arguments are valid")]

use crate::*;
use std::ffi::{CStr, CString, c_char};
use std::process::Command;
use std::ptr;

/// Runs one of the parts below in a process with other settings.
fn run(part: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tests::{part}"), "--ignored", "--nocapture"]);
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn text(call: impl FnOnce(*mut c_char, u32) -> u32) -> String {
    let mut buffer = [1; 96];
    assert_eq!(call(buffer.as_mut_ptr(), 96), 0);
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().unwrap().to_owned()
}

fn device(index: u32) -> Device {
    let mut device = ptr::null_mut();
    assert_eq!(unsafe { nvmlDeviceGetHandleByIndex_v2(index, &mut device) }, 0);
    device
}

#[test]
fn nothing_works_before_the_start_and_after_the_end() {
    run("part_start", &[]);
}

#[test]
#[ignore = "a part of the test above"]
fn part_start() {
    let mut count = 77;
    unsafe {
        assert_eq!(nvmlDeviceGetCount_v2(&mut count), 1);
        assert_eq!(nvmlShutdown(), 1);
        assert_eq!((nvmlInit_v2(), nvmlInitWithFlags(0), nvmlInitWithFlags(9)), (0, 0, 2));
        assert_eq!((nvmlShutdown(), nvmlDeviceGetCount_v2(&mut count), count), (0, 0, 2));
        assert_eq!(nvmlDeviceGetCount_v2(ptr::null_mut()), 2);
        assert_eq!((nvmlShutdown(), nvmlDeviceGetCount_v2(&mut count)), (0, 1));
        assert!(CStr::from_ptr(nvmlErrorString(1)).to_str().unwrap().contains("nvmlInit"));
        assert_eq!(CStr::from_ptr(nvmlErrorString(12345)), c"unknown error");
    }
}

#[test]
fn a_wrong_setting_is_an_error_of_the_start() {
    run("part_wrong_setting", &[("SOFTGPU_DEVICES", "0")]);
}

#[test]
#[ignore = "a part of the test above"]
fn part_wrong_setting() {
    assert_eq!(unsafe { nvmlInit_v2() }, 9);
}

#[test]
fn devices_are_those_of_softgpu_and_are_found_by_every_name() {
    let machine = [("SOFTGPU_DEVICES", "3"), ("SOFTGPU_MEMORY", "1073741824"), ("CUDA_VISIBLE_DEVICES", "1")];
    run("part_devices", &machine);
}

#[test]
#[ignore = "a part of the test above"]
fn part_devices() {
    let settings = softgpu::Settings::from_environment().unwrap();
    let identities = softgpu::machine(&settings);
    let (mut count, mut found, mut index) = (0, ptr::null_mut(), 9);
    unsafe {
        assert_eq!((nvmlInit_v2(), nvmlDeviceGetCount_v2(&mut count), count), (0, 0, 3));
        for (unit, identity) in (0..3).zip(&identities) {
            let device = device(unit);
            assert_eq!(text(|at, room| nvmlDeviceGetName(device, at, room)), identity.name);
            let uuid = text(|at, room| nvmlDeviceGetUUID(device, at, room));
            assert_eq!(uuid, identity.uuid);
            assert_eq!(nvmlDeviceGetUUID(device, ptr::from_mut(&mut [0; 40]).cast(), 40), 7);
            let uuid = CString::new(uuid).unwrap();
            assert_eq!((nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut found), found), (0, device));
            let mut pci = std::mem::zeroed();
            assert_eq!(nvmlDeviceGetPciInfo_v3(device, &mut pci), 0);
            let legacy = CString::new(format!("0000:0{}:00.0", unit + 1)).unwrap();
            let (address, name) = (std::mem::transmute::<PciInfo, [c_char; 68]>(pci), legacy.as_c_str());
            assert_eq!(CStr::from_ptr(address.as_ptr()), name);
            assert_eq!((nvmlDeviceGetHandleByPciBusId_v2(address[36..].as_ptr(), &mut found), found), (0, device));
            assert_eq!((nvmlDeviceGetHandleByPciBusId(name.as_ptr(), &mut found), found), (0, device));
            assert_eq!((nvmlDeviceGetIndex(device, &mut index), index), (0, unit));
        }
        let (mut major, mut minor) = (0, 9);
        assert_eq!(nvmlDeviceGetCudaComputeCapability(device(0), &mut major, &mut minor), 0);
        assert_eq!((major, minor), (9, 0));
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(3, &mut found), 2);
        assert_eq!(nvmlDeviceGetHandleByUUID(c"GPU-0".as_ptr(), &mut found), 6);
        let text = CString::new(&*identities[2].uuid).unwrap();
        let digits: String = identities[2].uuid.chars().skip(4).filter(|sign| *sign != '-').collect();
        let bytes: Vec<u8> = (0..16).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap()).collect();
        let mut by_uuid = |version: u32, kind: u32, value: &[u8]| {
            let mut uuid = [0_u32; 13];
            (uuid[0], uuid[1]) = (version, kind);
            ptr::copy_nonoverlapping(value.as_ptr(), uuid[2..].as_mut_ptr().cast(), value.len());
            (nvmlDeviceGetHandleByUUIDV(uuid.as_ptr().cast(), &mut found), found)
        };
        let version = 52 | 1 << 24;
        assert_eq!(by_uuid(version, 1, text.as_bytes_with_nul()), (0, device(2)));
        assert_eq!(by_uuid(version, 2, &bytes), (0, device(2)));
        assert_eq!(
            [(version, 0), (version, 3), (51, 1)].map(|(version, kind)| by_uuid(version, kind, &bytes).0),
            [2, 2, 25]
        );
        assert_eq!((by_uuid(version, 2, &[1; 16]).0, by_uuid(version, 1, &[b'1'; 41]).0), (6, 6));
        let mut fabric = [9_u8; 32];
        assert_eq!(nvmlDeviceGetGpuFabricInfo(device(0), fabric.as_mut_ptr().cast()), 0);
        assert_eq!(fabric[..25], [0; 25]);
        let mut values = [[0_u32; 10]; 2];
        (values[0][0], values[1][0]) = (91, 1);
        assert_eq!(nvmlDeviceGetFieldValues(device(0), 2, values.as_mut_ptr().cast()), 0);
        assert_eq!((values[0][6..9].to_vec(), values[1][7]), (vec![1, 0, 2], 3));
        assert_eq!(nvmlDeviceGetFieldValues(device(0), 0, values.as_mut_ptr().cast()), 2);
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"0000:77:00.0".as_ptr(), &mut found), 6);
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"0000:01:00.1".as_ptr(), &mut found), 6);
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"nowhere".as_ptr(), &mut found), 2);
        assert_eq!(nvmlDeviceGetIndex(ptr::without_provenance_mut(16), &mut index), 2);

        let mut memory = [9_u64; 5];
        assert_eq!(nvmlDeviceGetMemoryInfo(device(0), memory.as_mut_ptr().cast()), 0);
        assert_eq!(memory, [1 << 30, 1 << 30, 0, 9, 9]);
        assert_eq!(nvmlDeviceGetMemoryInfo_v2(device(0), memory.as_mut_ptr().cast()), 25);
        memory[0] = 40 | 2 << 24;
        assert_eq!(nvmlDeviceGetMemoryInfo_v2(device(0), memory.as_mut_ptr().cast()), 0);
        assert_eq!(memory[1..], [1 << 30, 0, 1 << 30, 0]);
    }
}

#[test]
fn every_pair_of_devices_has_one_link() {
    run("part_links", &[("SOFTGPU_DEVICES", "3"), ("SOFTGPU_VERSION", "12020")]);
    run("part_no_links", &[("SOFTGPU_DEVICES", "1")]);
}

#[test]
#[ignore = "a part of the test above"]
fn part_links() {
    unsafe {
        assert_eq!(nvmlInit_v2(), 0);
        let (mut active, mut can, mut release, mut status) = (9, 9, 9, 9);
        for (unit, others) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
            for (link, other) in (0..).zip(others) {
                let mut pci = std::mem::zeroed();
                assert_eq!((nvmlDeviceGetNvLinkState(device(unit), link, &mut active), active), (0, 1));
                assert_eq!(nvmlDeviceGetNvLinkRemotePciInfo_v2(device(unit), link, &mut pci), 0);
                let words = std::mem::transmute::<PciInfo, [u32; 17]>(pci);
                assert_eq!(words[5], other + 1, "link {link} of device {unit}");
                assert_eq!((nvmlDeviceGetNvLinkCapability(device(unit), link, 0, &mut can), can), (0, 1));
            }
            assert_eq!(nvmlDeviceGetNvLinkState(device(unit), 2, &mut active), 3);
        }
        assert_eq!(nvmlDeviceGetNvLinkState(device(0), 18, &mut active), 2);
        assert_eq!(nvmlDeviceGetNvLinkCapability(device(0), 0, 6, &mut can), 2);
        assert_eq!((nvmlDeviceGetP2PStatus(device(0), device(1), 2, &mut status), status), (0, 0));
        assert_eq!(nvmlDeviceGetP2PStatus(device(0), device(0), 2, &mut status), 2);
        assert_eq!((nvmlSystemGetCudaDriverVersion_v2(&mut release), release), (0, 12020));
        assert_eq!(text(|at, room| nvmlSystemGetDriverVersion(at, room)), "580.159.04");
    }
}

#[test]
#[ignore = "a part of the test above"]
fn part_no_links() {
    let mut active = 9;
    assert_eq!(unsafe { (nvmlInit_v2(), nvmlDeviceGetNvLinkState(device(0), 0, &mut active)) }, (0, 3));
}
