//! Memory and semaphores of other interfaces: the calls that need no such interface.

use super::lab::codes::*;
use super::lab::{Lab, MIB, Run};
use CUexternalMemoryHandleType as M;
use CUexternalSemaphoreHandleType as S;
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared bad_memory,
    Shared memory_of_other_systems,
    Shared null_memory,
    Shared bad_semaphores,
    Shared null_semaphores,
    Alone no_semaphores_but_a_count,
    Alone a_null_semaphore,
    Alone memory_handle_of_nobody,
}

fn memory(kind: M, fd: i32, size: u64, flags: u32) -> CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    let mut desc = CUDA_EXTERNAL_MEMORY_HANDLE_DESC { type_: kind, size, flags, ..Default::default() };
    desc.handle.fd = fd;
    desc
}

/// An anonymous file, which ends with the case.
fn file(l: &mut Lab, size: i64) -> i32 {
    // SAFETY: the name is a C string; the descriptor is this case's own.
    let fd = unsafe {
        let fd = libc::memfd_create(c"case".as_ptr(), 0);
        libc::ftruncate(fd, size);
        fd
    };
    l.finally(move |_| {
        // SAFETY: as above; a driver that took the descriptor answered success.
        unsafe { libc::close(fd) };
    });
    fd
}

fn bad_memory(l: &mut Lab) -> Run {
    let (fd, mut external) = (file(l, 4 << 20), ptr::null_mut());
    let size = 4 << 20;
    for (label, kind, fd, size, flags) in [
        ("descriptor -1", M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, -1, size, 0),
        ("a descriptor that is not open", M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, 9999, size, 0),
        ("a file", M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, fd, size, 0),
        ("a file, 0 bytes", M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, fd, 0, 0),
        ("a file, unknown flags", M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, fd, size, 0x100),
        ("a file as a dma-buf", M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD, fd, size, 0),
        ("type 0", M(0), fd, size, 0),
        ("unknown type", M(77), fd, size, 0),
    ] {
        if ask!(l, label, cuImportExternalMemory(&mut external, &memory(kind, fd, size, flags))) {
            let _ = call!(l, cuDestroyExternalMemory(external));
        }
    }
    let device = l.alloc(2 * MIB)?;
    let (mut shared, kind) = (-1_i32, CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
    let out = ptr::from_mut(&mut shared).cast();
    if ask!(l, "dma-buf of own memory", cuMemGetHandleForAddressRange(out, device, 2 * MIB, kind, 0)) {
        let desc = memory(M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD, shared, 2 << 20, 0);
        if ask!(l, "import of the own dma-buf", cuImportExternalMemory(&mut external, &desc)) {
            ask!(l, "destroy the import", cuDestroyExternalMemory(external));
        } else {
            // SAFETY: the driver did not take the descriptor.
            unsafe { libc::close(shared) };
        }
    }
    Ok(())
}

fn memory_of_other_systems(l: &mut Lab) -> Run {
    let mut external = ptr::null_mut();
    for kind in 2..=8 {
        let desc = CUDA_EXTERNAL_MEMORY_HANDLE_DESC { type_: M(kind), size: 4096, ..Default::default() };
        ask!(l, format!("type {kind}"), cuImportExternalMemory(&mut external, &desc));
    }
    Ok(())
}

fn null_memory(l: &mut Lab) -> Run {
    let (mut external, mut address) = (ptr::null_mut(), 0);
    let desc = memory(M::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, -1, 4096, 0);
    ask!(l, "import without a description", cuImportExternalMemory(&mut external, ptr::null()));
    ask!(l, "import without a result", cuImportExternalMemory(ptr::null_mut(), &desc));
    ask!(l, "destroy null", cuDestroyExternalMemory(ptr::null_mut()));
    let buffer = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size: 4096, flags: 0, reserved: [0; 16] };
    ask!(l, "map null", cuExternalMemoryGetMappedBuffer(&mut address, ptr::null_mut(), &buffer));
    Ok(())
}

fn bad_semaphores(l: &mut Lab) -> Run {
    let (fd, mut semaphore) = (file(l, 4096), ptr::null_mut());
    for (label, kind, fd, flags) in [
        ("descriptor -1", S::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, -1, 0),
        ("a descriptor that is not open", S::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, 9999, 0),
        ("a file", S::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, fd, 0),
        ("a file, unknown flags", S::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, fd, 0x100),
        ("a file as a timeline", S::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD, fd, 0),
        ("type 0", S(0), fd, 0),
        ("unknown type", S(77), fd, 0),
        ("win32", S::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32, 0, 0),
    ] {
        let mut desc = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { type_: kind, flags, ..Default::default() };
        desc.handle.fd = fd;
        if ask!(l, label, cuImportExternalSemaphore(&mut semaphore, &desc)) {
            let _ = call!(l, cuDestroyExternalSemaphore(semaphore));
        }
    }
    Ok(())
}

fn null_semaphores(l: &mut Lab) -> Run {
    let (mut semaphore, stream) = (ptr::null_mut(), l.stream(0)?);
    ask!(l, "import without a description", cuImportExternalSemaphore(&mut semaphore, ptr::null()));
    let desc = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { type_: S(1), ..Default::default() };
    ask!(l, "import without a result", cuImportExternalSemaphore(ptr::null_mut(), &desc));
    ask!(l, "destroy null", cuDestroyExternalSemaphore(ptr::null_mut()));
    ask!(l, "signal none", cuSignalExternalSemaphoresAsync(ptr::null(), ptr::null(), 0, stream));
    ask!(l, "wait for none", cuWaitExternalSemaphoresAsync(ptr::null(), ptr::null(), 0, stream));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn no_semaphores_but_a_count(l: &mut Lab) -> Run {
    ask!(l, "signal", cuSignalExternalSemaphoresAsync(ptr::null(), ptr::null(), 1, ptr::null_mut()));
    ask!(l, "wait", cuWaitExternalSemaphoresAsync(ptr::null(), ptr::null(), 1, ptr::null_mut()));
    Ok(())
}

fn a_null_semaphore(l: &mut Lab) -> Run {
    let null: CUexternalSemaphore = ptr::null_mut();
    let (signal, wait) =
        (CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::default(), CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::default());
    ask!(l, "signal", cuSignalExternalSemaphoresAsync(&null, &signal, 1, ptr::null_mut()));
    ask!(l, "wait", cuWaitExternalSemaphoresAsync(&null, &wait, 1, ptr::null_mut()));
    Ok(())
}

fn memory_handle_of_nobody(l: &mut Lab) -> Run {
    let nobody: CUexternalMemory = ptr::without_provenance_mut(0x1234_5678_0000);
    ask!(l, "destroy", cuDestroyExternalMemory(nobody));
    Ok(())
}
