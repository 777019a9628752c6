//! softgpu reports misuse by name.

use crate::common::{Machine, in_its_own_process, machine};
use crate::cu;
use cuda_sys::{CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPoolProps};
use softgpu::{Misuse, Settings};
use std::ptr;
use std::sync::mpsc::channel;

fn start() -> Machine {
    machine(Settings { quarantine: 16 << 20, ..Settings::default() })
}

/// The reports: misuse and address.
fn reported() -> Vec<(Misuse, u64)> {
    softgpu::misuse().iter().map(|report| (report.misuse, report.address)).collect()
}

#[test]
fn a_double_free_and_a_wrong_one_are_told_apart() {
    let m = start();
    let memory = m.alloc(4096);
    assert_eq!(cu!(m, cuMemFree_v2(memory + 16)), 1);
    assert_eq!(cu!(m, cuMemFree_v2(0x1234)), 1);
    assert_eq!(cu!(m, cuMemFreeHost(ptr::without_provenance_mut(memory as usize))), 1);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 1);
    let want = [
        (Misuse::WrongFree, memory + 16),
        (Misuse::WrongFree, 0x1234),
        (Misuse::WrongFree, memory),
        (Misuse::DoubleFree, memory),
    ];
    assert_eq!(reported(), want);
    let text = softgpu::misuse()[3].to_string();
    assert!(text.starts_with(&format!("double free: {memory:#x} in cuMemFree_v2, block #")), "{text}");
    m.finish();
}

#[test]
fn a_call_with_freed_memory_is_a_use_after_free() {
    let m = start();
    let (memory, other) = (m.alloc(4096), m.alloc(64));
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuMemsetD8_v2(memory + 8, 0, 8)), 1);
    assert_eq!(cu!(m, cuMemcpy(other, memory, 8)), 1);
    assert_eq!(reported(), [(Misuse::UseAfterFree, memory + 8), (Misuse::UseAfterFree, memory)]);
    assert_eq!(cu!(m, cuMemFree_v2(other)), 0);
    m.finish();
}

#[test]
fn unordered_copy_after_a_pending_write_reports_missing_wait() {
    let m = start();
    let (stream, memory, mut seen) = (m.stream(1), m.alloc(4096), [0_u8; 4]);
    let (open, gate) = channel::<()>();
    m.launch(stream, move || {
        let _ = gate.recv();
    });
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 7, 4096, stream)), 0);
    // A copy on the legacy default stream does not wait for a non-blocking stream.
    assert_eq!(cu!(m, cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), memory, 4)), 0);
    assert_eq!(reported(), [(Misuse::MissingWait, memory)]);
    drop(open);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), memory, 4)), 0);
    assert_eq!((seen, reported().len()), ([7; 4], 1));
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn memory_that_queued_work_uses_is_freed_too_early() {
    let m = start();
    let (one, two) = (m.stream(1), m.stream(1));
    let mut memory = 0;
    let (open, gate) = channel::<()>();
    assert_eq!(cu!(m, cuMemAllocAsync(&mut memory, 4096, one)), 0);
    m.launch(one, move || {
        let _ = gate.recv();
    });
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 4096, one)), 0);
    // A free on the stream that uses the memory would be in order.
    assert_eq!(cu!(m, cuMemFreeAsync(memory, two)), 0);
    assert_eq!(reported(), [(Misuse::FreeWhileInUse, memory)]);
    open.send(()).unwrap();
    assert_eq!(cu!(m, cuStreamSynchronize(one)), 0);
    let mut memory = 0;
    assert_eq!(cu!(m, cuMemAllocAsync(&mut memory, 4096, one)), 0);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 4096, one)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(memory, one)), 0);
    assert_eq!(cu!(m, cuStreamSynchronize(one)), 0);
    assert_eq!(reported().len(), 1);
    for stream in [one, two] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    }
    m.finish();
}

#[test]
fn a_pool_of_several_streams_ends_before_its_memory_is_freed() {
    // How many streams use the pool, how many blocks are freed behind work, and whether that work is awaited.
    for (users, busy, is_awaited) in [(1, 1, false), (2, 0, false), (2, 1, false), (2, 2, false), (2, 2, true)] {
        let m = machine(Settings { races: true, ..Settings::default() });
        let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location,
            ..Default::default()
        };
        let mut pool = ptr::null_mut();
        assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &properties)), 0);
        let streams = [m.stream(1), m.stream(1)];
        let mut open = Vec::new();
        for n in 0..2 {
            let (stream, mut memory) = (streams[n % users], 0);
            assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut memory, 100, pool, stream)), 0);
            if n < busy {
                let (opens, gate) = channel::<()>();
                m.launch(stream, move || {
                    let _: Result<(), _> = gate.recv();
                });
                open.push(opens);
            }
            assert_eq!(cu!(m, cuMemFreeAsync(memory, stream)), 0);
        }
        if is_awaited {
            open.clear();
            streams.iter().for_each(|stream| assert_eq!(cu!(m, cuStreamSynchronize(*stream)), 0));
        }
        assert_eq!(cu!(m, cuMemPoolDestroy(pool)), 0);
        let is_misuse = users > 1 && busy > 0 && !is_awaited;
        let want = is_misuse.then_some((Misuse::EndOfPool, pool.addr() as u64));
        assert_eq!(reported(), want.into_iter().collect::<Vec<_>>(), "{users} {busy} {is_awaited}");
        drop(open);
        streams.iter().for_each(|stream| assert_eq!(cu!(m, cuStreamSynchronize(*stream)), 0));
        streams.iter().for_each(|stream| assert_eq!(cu!(m, cuStreamDestroy_v2(*stream)), 0));
        m.finish();
    }
}

#[test]
fn good_programs_are_not_reported() {
    let m = start();
    let (stream, pinned) = (m.stream(0), m.host(4096));
    for size in [1, 4096, 1 << 20] {
        let memory = m.alloc(size);
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, size, stream)), 0);
        assert_eq!(cu!(m, cuMemcpyDtoHAsync_v2(pinned.as_mut_ptr().cast(), memory, 1, stream)), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    }
    assert_eq!(cu!(m, cuMemFreeHost(pinned.as_mut_ptr().cast())), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(reported(), []);
    m.finish();
}

/// Runs one of the ignored tests below in a process of its own. Returns the signal that ended it, and its standard
/// error.
fn in_a_process(test: &str) -> (Option<i32>, String) {
    use std::os::unix::process::ExitStatusExt;
    let mut program = in_its_own_process(module_path!(), test);
    let ended = program.output().unwrap();
    (ended.status.signal(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
#[ignore = "ends the process: a test below runs it"]
fn part_device_memory() {
    let m = machine(Settings { strict: true, ..Settings::default() });
    let memory = m.alloc(4096);
    assert_eq!(cu!(m, cuMemsetD8_v2(memory, 5, 4096)), 0);
    assert_eq!(m.read(memory, 1), [5]);
    // SAFETY: none: the test expects this fault.
    unsafe { ptr::with_exposed_provenance::<u8>(memory as usize + 100).read_volatile() };
}

#[test]
#[ignore = "ends the process: a test below runs it"]
fn part_freed_memory() {
    let m = start();
    let pinned = m.host(4096).as_mut_ptr();
    assert_eq!(cu!(m, cuMemFreeHost(pinned.cast())), 0);
    // SAFETY: none: the test expects this fault.
    unsafe { pinned.add(7).write_volatile(1) };
}

#[test]
fn the_cpu_faults_on_memory_of_devices_and_on_freed_memory() {
    let (signal, text) = in_a_process("part_device_memory");
    assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
    assert!(text.contains("softgpu: the CPU touched device memory at 0x"), "{text}");
    let (signal, text) = in_a_process("part_freed_memory");
    assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
    assert!(text.contains("softgpu: the CPU touched freed memory at 0x"), "{text}");
}

#[test]
fn rows_beyond_all_addresses_are_refused() {
    use cuda_sys::{CUDA_MEMCPY3D, CUmemorytype};
    let m = start();
    let (to, from) = (m.alloc(64), m.alloc(64));
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcY: usize::MAX,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: 4,
        Height: 2,
        Depth: 1,
        ..Default::default()
    };
    assert_eq!(cu!(m, cuMemcpy3DAsync_v2(&copy, ptr::null_mut())), 1);
    assert_eq!(
        cu!(m, cuMemcpy3DAsync_v2(&CUDA_MEMCPY3D { srcY: 0, srcPitch: 4, dstPitch: 4, ..copy }, ptr::null_mut())),
        0
    );
}
