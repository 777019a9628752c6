//! Memory, pools and events across real processes: each test runs an ignored test in another process.

use crate::common::{Machine, both, in_its_own_process, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::ptr;

const VALUE: u32 = 1;
const CONTEXT: u32 = 201;
const POSIX: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Word `n` of the arguments for this process.
fn given(n: usize) -> String {
    std::env::var("SOFTGPU_TEST_GIVEN").unwrap().split(' ').nth(n).unwrap().to_owned()
}

fn given_bytes(n: usize) -> [u8; 64] {
    let text = given(n);
    std::array::from_fn(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap())
}

/// Starts an ignored test in another process.
fn start(test: &str, words: &[String]) -> Child {
    let mut program = in_its_own_process(module_path!(), test);
    program.env("SOFTGPU_TEST_GIVEN", words.join(" "));
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn finish(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// Reads the other process's output up to a line with the word.
fn hear(child: &mut Child, word: &str) {
    let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 0 {
        if line.trim_end().ends_with(word) {
            return;
        }
        line.clear();
    }
    panic!("the other process ended before it said {word}");
}

/// Lets processes that are started from now on inherit a descriptor.
fn inherited(fd: i32) -> String {
    // SAFETY: the descriptor is ours.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
    fd.to_string()
}

fn close(fd: i32) {
    // SAFETY: the descriptor is ours, and no longer used.
    unsafe { libc::close(fd) };
}

fn as_pointer(fd: i32) -> *mut std::ffi::c_void {
    ptr::without_provenance_mut(fd as usize)
}

fn of_memory(bytes: [u8; 64]) -> CUipcMemHandle {
    CUipcMemHandle { reserved: bytes.map(|byte| byte as _) }
}

#[test]
fn a_block_is_opened_by_another_process_and_is_the_same_memory() {
    both(|m| {
        let memory = m.alloc(10_000);
        m.write(memory + 9_000, &[7]);
        let (mut handle, mut again) = (CUipcMemHandle::default(), CUipcMemHandle::default());
        assert_eq!(cu!(m, cuIpcGetMemHandle(&mut handle, memory)), 0);
        assert_eq!(cu!(m, cuIpcGetMemHandle(&mut again, memory + 256)), 0);
        assert_eq!(handle.reserved, again.reserved);
        let mut pooled = 0;
        assert_eq!(cu!(m, cuMemAllocAsync(&mut pooled, 64, ptr::null_mut())), 0);
        assert_eq!(cu!(m, cuIpcGetMemHandle(&mut again, pooled)), VALUE);
        assert_eq!(cu!(m, cuMemFree_v2(pooled)), 0);
        let mut own = 0;
        assert_eq!(cu!(m, cuIpcOpenMemHandle_v2(&mut own, handle, 1)), CONTEXT);
        assert_eq!(cu!(m, cuIpcOpenMemHandle_v2(&mut own, of_memory([0; 64]), 1)), VALUE);
        let bytes = handle.reserved.map(|byte| byte as u8);
        finish(start("part_open_block", &[hex(&bytes)]));
        assert_eq!(m.read(memory + 9_000, 2), [7, 8]);
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        // Freed memory cannot be opened.
        finish(start("part_open_freed_block", &[hex(&bytes)]));
    });
}

#[test]
#[ignore = "another test runs it in another process"]
fn part_open_block() {
    let m = machine(Settings::default());
    let (mut one, mut two, mut size) = (0, 0, 0);
    assert_eq!(cu!(m, cuIpcOpenMemHandle_v2(&mut one, of_memory(given_bytes(0)), 1)), 0);
    assert_eq!(cu!(m, cuIpcOpenMemHandle_v2(&mut two, of_memory(given_bytes(0)), 1)), 0);
    assert_eq!(one, two);
    assert_eq!(cu!(m, cuMemGetAddressRange_v2(ptr::null_mut(), &mut size, one)), 0);
    assert_eq!(size, 10_000);
    assert_eq!(m.read(one + 9_000, 1), [7]);
    m.write(one + 9_001, &[8]);
    assert_eq!(cu!(m, cuMemFree_v2(one)), VALUE);
    assert_eq!((cu!(m, cuIpcCloseMemHandle(one)), cu!(m, cuIpcCloseMemHandle(one))), (0, 0));
    assert_eq!(cu!(m, cuIpcCloseMemHandle(one)), VALUE);
    m.finish();
}

#[test]
#[ignore = "another test runs it in another process"]
fn part_open_freed_block() {
    let m = machine(Settings::default());
    let mut one = 0;
    assert_eq!(cu!(m, cuIpcOpenMemHandle_v2(&mut one, of_memory(given_bytes(0)), 1)), VALUE);
    m.finish();
}

fn pool(m: &Machine, shared: bool) -> CUmemoryPool {
    let props = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType(u32::from(shared)),
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        ..Default::default()
    };
    let mut pool = ptr::null_mut();
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &props)), 0);
    pool
}

#[test]
fn a_pool_and_its_blocks_are_imported_by_another_process() {
    both(|m| {
        let (pool, private) = (pool(m, true), pool(m, false));
        let (mut fd, mut none) = (-1, -1);
        assert_eq!(cu!(m, cuMemPoolExportToShareableHandle((&raw mut none).cast(), private, POSIX, 0)), VALUE);
        assert_eq!(cu!(m, cuMemPoolExportToShareableHandle((&raw mut fd).cast(), pool, POSIX, 0)), 0);
        let mut blocks = [0; 2];
        let mut data = [CUmemPoolPtrExportData::default(); 2];
        for (n, block) in blocks.iter_mut().enumerate() {
            assert_eq!(cu!(m, cuMemAllocFromPoolAsync(block, 5000, pool, ptr::null_mut())), 0);
            m.write(*block, &[n as u8 + 1; 5000]);
            assert_eq!(cu!(m, cuMemPoolExportPointer(&mut data[n], *block)), 0);
        }
        let mut of_private = 0;
        assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut of_private, 64, private, ptr::null_mut())), 0);
        assert_eq!(cu!(m, cuMemPoolExportPointer(&mut CUmemPoolPtrExportData::default(), of_private)), VALUE);
        // Two imports from one descriptor, in the exporting process too.
        for _ in 0..2 {
            let mut imported = ptr::null_mut();
            assert_eq!(cu!(m, cuMemPoolImportFromShareableHandle(&mut imported, as_pointer(fd), POSIX, 0)), 0);
            assert_eq!(cu!(m, cuMemPoolDestroy(imported)), 0);
        }
        finish(start("part_import_pool", &[inherited(fd), hex(&data[0].reserved), hex(&data[1].reserved)]));
        assert_eq!(m.read(blocks[0], 2), [1, 9]);
        for block in blocks.into_iter().chain([of_private]) {
            assert_eq!(cu!(m, cuMemFreeAsync(block, ptr::null_mut())), 0);
        }
        assert_eq!((cu!(m, cuMemPoolDestroy(pool)), cu!(m, cuMemPoolDestroy(private))), (0, 0));
        close(fd);
    });
}

#[test]
#[ignore = "another test runs it in another process"]
fn part_import_pool() {
    let m = machine(Settings::default());
    let fd: i32 = given(0).parse().unwrap();
    let mut pool = ptr::null_mut();
    assert_eq!(cu!(m, cuMemPoolImportFromShareableHandle(&mut pool, as_pointer(fd), POSIX, 0)), 0);
    let (mut one, mut same, mut two) = (0, 0, 0);
    let mut data = [1, 2].map(|n| CUmemPoolPtrExportData { reserved: given_bytes(n) });
    assert_eq!(cu!(m, cuMemPoolImportPointer(&mut one, pool, &mut data[0])), 0);
    assert_eq!(cu!(m, cuMemPoolImportPointer(&mut same, pool, &mut data[0])), 0);
    assert_eq!(cu!(m, cuMemPoolImportPointer(&mut two, pool, &mut data[1])), 0);
    assert_eq!(one, same);
    assert_eq!((m.read(one, 5000), m.read(two, 5000)), (vec![1; 5000], vec![2; 5000]));
    m.write(one + 1, &[9]);
    let mut forged = CUmemPoolPtrExportData::default();
    assert_eq!(cu!(m, cuMemPoolImportPointer(&mut same, pool, &mut forged)), VALUE);
    assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut same, 64, pool, ptr::null_mut())), VALUE);
    // The driver does not count imports: the first free ends both.
    assert_eq!(cu!(m, cuMemFreeAsync(one, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemsetD8_v2(one, 0, 1)), VALUE);
    assert_eq!(cu!(m, cuMemFreeAsync(two, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemPoolDestroy(pool)), 0);
    m.finish();
}

#[test]
fn another_process_imports_physical_memory_and_address_ranges() {
    let m = machine(Settings::default());
    let prop = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: POSIX,
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 1 },
        ..Default::default()
    };
    let (unit, mut handle, mut at, mut fd, mut range) = (2 << 20, 0, 0, -1, -1);
    assert_eq!(cu!(m, cuMemCreate(&mut handle, unit, &prop, 0)), 0);
    assert_eq!(cu!(m, cuMemAddressReserve(&mut at, unit, 0, 0, 0)), 0);
    assert_eq!(cu!(m, cuMemMap(at, unit, 0, handle, 0)), 0);
    let wish = CUmemAccessDesc {
        location: CUmemLocation { id: 0, ..prop.location },
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    assert_eq!(cu!(m, cuMemSetAccess(at, unit, &wish, 1)), 0);
    m.write(at + 77, &[5]);
    assert_eq!(cu!(m, cuMemExportToShareableHandle((&raw mut fd).cast(), handle, POSIX, 0)), 0);
    let memory = m.alloc(8192);
    m.write(memory + 3, &[6]);
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let out = (&raw mut range).cast();
    assert_eq!(cu!(m, cuMemGetHandleForAddressRange(out, memory, 100, kind, 0)), VALUE);
    assert_eq!(cu!(m, cuMemGetHandleForAddressRange(out, memory, 3 << 20, kind, 0)), VALUE);
    assert_eq!(cu!(m, cuMemGetHandleForAddressRange(out, at, unit, kind, 0)), 0);
    close(range);
    assert_eq!(cu!(m, cuMemGetHandleForAddressRange((&raw mut range).cast(), memory, 8192, kind, 0)), 0);
    finish(start("part_import_physical", &[inherited(fd), inherited(range)]));
    assert_eq!((m.read(at + 78, 1), m.read(memory + 4, 1)), (vec![6], vec![7]));
    assert_eq!(cu!(m, cuMemUnmap(at, unit)), 0);
    assert_eq!(cu!(m, cuMemAddressFree(at, unit)), 0);
    assert_eq!((cu!(m, cuMemRelease(handle)), cu!(m, cuMemFree_v2(memory))), (0, 0));
    close(fd);
    close(range);
    m.finish();
}

#[test]
#[ignore = "another test runs it in another process"]
fn part_import_physical() {
    use std::os::unix::fs::FileExt;
    let m = machine(Settings::default());
    let (fd, range): (i32, i32) = (given(0).parse().unwrap(), given(1).parse().unwrap());
    let (unit, mut handle, mut at, mut prop) = (2 << 20, 0, 0, CUmemAllocationProp::default());
    assert_eq!(cu!(m, cuMemImportFromShareableHandle(&mut handle, as_pointer(fd), POSIX)), 0);
    assert_eq!(cu!(m, cuMemGetAllocationPropertiesFromHandle(&mut prop, handle)), 0);
    assert_eq!(prop.location.id, 1);
    assert_eq!(cu!(m, cuMemAddressReserve(&mut at, unit, 0, 0, 0)), 0);
    assert_eq!(cu!(m, cuMemMap(at, unit, 0, handle, 0)), 0);
    // An import does not take over the exporter's rights.
    assert_eq!(cu!(m, cuMemsetD8_v2(at, 1, 1)), VALUE);
    let wish = CUmemAccessDesc {
        location: CUmemLocation { id: 0, ..prop.location },
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    assert_eq!(cu!(m, cuMemSetAccess(at, unit, &wish, 1)), 0);
    assert_eq!(m.read(at + 77, 1), [5]);
    m.write(at + 78, &[6]);
    assert_eq!(cu!(m, cuMemRelease(handle)), 0);
    assert_eq!(cu!(m, cuMemUnmap(at, unit)), 0);
    assert_eq!(cu!(m, cuMemAddressFree(at, unit)), 0);
    // SAFETY: the descriptor was passed to this process.
    let file = std::fs::File::from(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(range) });
    let mut byte = [0];
    file.read_exact_at(&mut byte, 3).unwrap();
    assert_eq!(byte, [6]);
    file.write_all_at(&[7], 4).unwrap();
    m.finish();
}

#[test]
fn an_event_orders_two_processes() {
    let m = machine(Settings::default());
    let (mut event, mut plain, mut handle) = (ptr::null_mut(), ptr::null_mut(), CUipcEventHandle::default());
    assert_eq!(cu!(m, cuEventCreate(&mut event, 4)), VALUE);
    assert_eq!((cu!(m, cuEventCreate(&mut event, 6)), cu!(m, cuEventCreate(&mut plain, 2))), (0, 0));
    assert_eq!(cu!(m, cuIpcGetEventHandle(&mut handle, plain)), 400);
    assert_eq!(cu!(m, cuIpcGetEventHandle(&mut handle, event)), 0);
    let mut own = ptr::null_mut();
    assert_eq!(cu!(m, cuIpcOpenEventHandle(&mut own, handle)), CONTEXT);
    let forged = CUipcEventHandle::default();
    assert_eq!(cu!(m, cuIpcOpenEventHandle(&mut own, forged)), 205);
    assert_eq!((cu!(m, cuEventQuery(event)), cu!(m, cuEventSynchronize(event))), (0, 0));
    let stream = m.stream(1);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    m.launch(stream, move || {
        let _ = gate.recv();
    });
    assert_eq!(cu!(m, cuEventRecord(event, stream)), 0);
    assert_eq!(cu!(m, cuEventQuery(event)), 600);
    let bytes = handle.reserved.map(|byte| byte as u8);
    let mut child = start("part_wait_for_event", &[hex(&bytes)]);
    hear(&mut child, "waiting");
    open.send(()).unwrap();
    hear(&mut child, "passed");
    // The other process also records the event.
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    hear(&mut child, "recorded");
    assert_eq!(cu!(m, cuEventSynchronize(event)), 0);
    finish(child);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!((cu!(m, cuEventDestroy_v2(event)), cu!(m, cuEventDestroy_v2(plain))), (0, 0));
    m.finish();
}

#[test]
#[ignore = "another test runs it in another process"]
fn part_wait_for_event() {
    let m = machine(Settings::default());
    let mut event = ptr::null_mut();
    let handle = CUipcEventHandle { reserved: given_bytes(0).map(|byte| byte as _) };
    assert_eq!(cu!(m, cuIpcOpenEventHandle(&mut event, handle)), 0);
    let stream = m.stream(1);
    assert_eq!(cu!(m, cuStreamWaitEvent(stream, event, 0)), 0);
    assert_eq!((cu!(m, cuStreamQuery(stream)), cu!(m, cuEventQuery(event))), (600, 600));
    println!("waiting");
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuEventQuery(event)), 0);
    println!("passed");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    assert_eq!(cu!(m, cuEventRecord(event, stream)), 0);
    println!("recorded");
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
    m.finish();
}
