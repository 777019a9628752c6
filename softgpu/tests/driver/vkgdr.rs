//! Memory that CPU and device both address: coherent, and non-coherent with missing flushes.

use crate::common::{Machine, machine, unstarted};
use crate::cu;
use softgpu::Settings;
use std::ffi::{CStr, CString};
use std::ptr;
use vkgdr_sys::{Functions, vkgdr_memory_t, vkgdr_t};

struct Vkgdr(Functions);

/// Calls a function, which must exist.
macro_rules! vk {
    ($vkgdr:expr, $name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are valid for the call, or invalid in a way that the call checks.
        unsafe { ($vkgdr.0.$name.unwrap())($($argument),*) }
    };
}

fn vkgdr() -> Vkgdr {
    // SAFETY: softgpu's functions have the signatures that vkgdr-sys states.
    Vkgdr(unsafe { Functions::fill(&mut |symbol| softgpu::vkgdr_symbol(symbol.name)) })
}

impl Vkgdr {
    fn error(&self) -> String {
        let text = vk!(self, vkgdr_last_error());
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the text is a C string that we must free.
        unsafe {
            let copy = CString::from(CStr::from_ptr(text)).into_string().unwrap();
            libc::free(text.cast());
            copy
        }
    }

    fn memory(&self, g: vkgdr_t, size: usize) -> vkgdr_memory_t {
        let memory = vk!(self, vkgdr_memory_alloc(g, size, 0));
        assert!(!memory.is_null(), "{}", self.error());
        memory
    }

    fn host(&self, memory: vkgdr_memory_t) -> &'static mut [u8] {
        let (at, size) = (vk!(self, vkgdr_memory_get_host_ptr(memory)), vk!(self, vkgdr_memory_get_size(memory)));
        // SAFETY: the memory has that many bytes, and lives until the last use in each test.
        unsafe { std::slice::from_raw_parts_mut(at.cast(), size) }
    }

    fn close(&self, m: Machine, g: vkgdr_t, memory: vkgdr_memory_t) {
        vk!(self, vkgdr_memory_free(memory));
        vk!(self, vkgdr_close(g));
        m.finish();
    }
}

#[test]
fn coherent_memory_is_one_memory_at_two_addresses() {
    for strict in [false, true] {
        coherent_memory(Settings { strict, ..Settings::default() });
    }
}

fn coherent_memory(settings: Settings) {
    let (m, v) = (machine(settings), vkgdr());
    let g = vk!(v, vkgdr_open(0, 4));
    let memory = v.memory(g, 4097);
    let (host, device) = (v.host(memory), vk!(v, vkgdr_memory_get_device_ptr(memory)));
    assert_ne!(host.as_ptr() as u64, device);
    assert!(vk!(v, vkgdr_memory_is_coherent(memory)));
    assert_eq!(vk!(v, vkgdr_memory_non_coherent_atom_size(memory)), 1);
    host[4096] = 5;
    assert_eq!(m.read(device + 4096, 1), [5]);
    m.write(device, &[6]);
    assert_eq!(host[0], 6);
    let mut kind = 0_u32;
    let attribute = cuda_sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let at = (&raw mut kind).cast();
    assert_eq!(cu!(m, cuPointerGetAttribute(at, attribute, device)), 0);
    assert_eq!(kind, 2);
    assert_eq!(cu!(m, cuPointerGetAttribute(at, attribute, host.as_ptr() as u64)), 1);
    v.close(m, g, memory);
}

#[test]
fn missing_flush_or_invalidate_leaves_stale_atoms() {
    for atom in [64, 256] {
        let (m, v) = (machine(Settings { atom, coherent: atom == 64, ..Settings::default() }), vkgdr());
        let g = vk!(v, vkgdr_open(0, if atom == 64 { 2 } else { 0 }));
        let size = 4 * atom + 1;
        let memory = v.memory(g, size);
        let (host, device) = (v.host(memory), vk!(v, vkgdr_memory_get_device_ptr(memory)));
        assert_eq!(vk!(v, vkgdr_memory_non_coherent_atom_size(memory)), atom);
        host.fill(1);
        assert_eq!(m.read(device, size), vec![0; size]);
        // One byte on either side of a boundary: two atoms move, and the rest stays stale.
        vk!(v, vkgdr_memory_flush(memory, atom - 1, 2));
        assert_eq!(m.read(device, size), [vec![1; 2 * atom], vec![0; 2 * atom + 1]].concat());
        assert_eq!(vk!(v, vkgdr_memory_flush_checked(memory, size - 1, 1)), 0);
        assert_eq!(m.read(device + size as u64 - 1, 1), [1]);
        // Each read of stale bytes was reported, with the address of the first such byte.
        let reports: Vec<_> = softgpu::misuse().iter().map(|report| (report.misuse, report.address)).collect();
        let at = |offset: usize| (softgpu::Misuse::MissingFlush, device + offset as u64);
        assert_eq!(reports, [at(0), at(2 * atom)]);
        assert_eq!(cu!(m, cuMemsetD8_v2(device, 2, size)), 0);
        assert!(host.iter().all(|byte| *byte == 1));
        vk!(v, vkgdr_memory_invalidate(memory, atom, 1));
        assert_eq!(host[atom - 1..2 * atom + 1], [vec![1], vec![2; atom], vec![1]].concat());
        assert_eq!(vk!(v, vkgdr_memory_flush_checked(memory, size, 1)), -2001);
        assert!(v.error().contains("not inside the memory"), "{}", v.error());
        assert_eq!(vk!(v, vkgdr_memory_invalidate_checked(memory, 1, usize::MAX)), -2001);
        v.close(m, g, memory);
    }
}

#[test]
fn bad_calls_leave_an_error_with_its_code() {
    let (m, v) = (unstarted(Settings::default()), vkgdr());
    assert!(vk!(v, vkgdr_open(0, 0)).is_null());
    assert!(v.error().ends_with("(CUDA_ERROR_NOT_INITIALIZED)"), "{}", v.error());
    drop(m);
    let m = machine(Settings::default());
    let fails = |device, flags, code| {
        assert!(vk!(v, vkgdr_open(device, flags)).is_null());
        assert!(v.error().ends_with(code), "{}", v.error());
    };
    fails(-1, 0, "(CUDA_ERROR_INVALID_DEVICE)");
    fails(0, 8, "(VKGDR_ERROR_INVALID_VALUE)");
    fails(0, 2 | 4, "(VK_ERROR_FEATURE_NOT_PRESENT)");
    let (mut context, g) = (ptr::null_mut(), vk!(v, vkgdr_open(0, 0)));
    assert!(!g.is_null() && v.error().is_empty());
    let refused = |g, size, flags, code: &str| {
        assert!(vk!(v, vkgdr_memory_alloc(g, size, flags)).is_null());
        assert!(v.error().ends_with(code), "{}", v.error());
    };
    refused(g, 0, 0, "(VKGDR_ERROR_INVALID_VALUE)");
    refused(g, 64, 1, "(VKGDR_ERROR_INVALID_VALUE)");
    refused(g, 1_000_000_000_000_000, 0, "(VK_ERROR_OUT_OF_DEVICE_MEMORY)");
    refused(g, usize::MAX, 0, "(VK_ERROR_OUT_OF_DEVICE_MEMORY)");
    refused(ptr::null_mut(), 64, 0, "(VKGDR_ERROR_INVALID_HANDLE)");
    assert!(vk!(v, vkgdr_memory_import_fd(g, 1_000_000, 64, 0)).is_null());
    assert!(v.error().ends_with("(VK_ERROR_INVALID_EXTERNAL_HANDLE)"), "{}", v.error());
    assert_eq!(vk!(v, vkgdr_memory_get_size(ptr::null_mut())), 0);
    assert!(vk!(v, vkgdr_memory_get_host_ptr(ptr::null_mut())).is_null());
    vk!(v, vkgdr_memory_flush(ptr::null_mut(), 0, 1));
    vk!(v, vkgdr_memory_free(ptr::null_mut()));
    vk!(v, vkgdr_close(ptr::null_mut()));
    let other = m.context(1);
    refused(g, 64, 0, "(CUDA_ERROR_INVALID_CONTEXT)");
    assert_eq!(cu!(m, cuCtxDestroy_v2(other)), 0);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut context)), 0);
    fails(0, 1, "(CUDA_ERROR_INVALID_CONTEXT)");
    refused(g, 64, 0, "(CUDA_ERROR_INVALID_CONTEXT)");
    vk!(v, vkgdr_close(g));
    m.finish();
}

#[test]
fn memory_outlives_its_handle_and_its_context_and_is_freed_once() {
    let (m, v) = (machine(Settings::default()), vkgdr());
    let g = vk!(v, vkgdr_open(0, 2));
    let context = m.context(0);
    let memory = v.memory(g, 100);
    vk!(v, vkgdr_close(g));
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    v.host(memory)[0] = 1;
    vk!(v, vkgdr_memory_flush(memory, 0, 100));
    assert_eq!(softgpu::ledger().count(softgpu::Kind::VkgdrMemory), 1);
    vk!(v, vkgdr_memory_free(memory));
    vk!(v, vkgdr_memory_free(memory));
    assert!(v.error().ends_with("(VKGDR_ERROR_INVALID_HANDLE)"), "{}", v.error());
    m.finish();
}

#[test]
fn exported_memory_is_shared_and_cuda_imports_it_too() {
    for flags in [0, 2] {
        let (m, v) = (machine(Settings::default()), vkgdr());
        let g = vk!(v, vkgdr_open(0, flags));
        let first = v.memory(g, 5000);
        let mut fd = -1;
        assert_eq!(vk!(v, vkgdr_memory_export_fd(first, &mut fd)), 0);
        assert!(vk!(v, vkgdr_memory_import_fd(g, fd, 5001, 0)).is_null());
        let second = vk!(v, vkgdr_memory_import_fd(g, fd, 5000, 0));
        assert!(!second.is_null(), "{}", v.error());
        v.host(first)[4999] = 7;
        vk!(v, vkgdr_memory_flush(first, 0, 5000));
        vk!(v, vkgdr_memory_invalidate(second, 0, 5000));
        assert_eq!(v.host(second)[4999], 7);
        assert_eq!(m.read(vk!(v, vkgdr_memory_get_device_ptr(second)) + 4999, 1), [7]);

        let (mut memory, mut address) = (ptr::null_mut(), 0);
        assert_eq!(vk!(v, vkgdr_memory_export_fd(second, &mut fd)), 0);
        let mut wish = cuda_sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: cuda_sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            size: 5000,
            ..Default::default()
        };
        wish.handle.fd = fd;
        assert_eq!(cu!(m, cuImportExternalMemory(&mut memory, &wish)), 0);
        let range = cuda_sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { size: 5000, ..Default::default() };
        let past = cuda_sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { size: 5001, ..Default::default() };
        assert_eq!(cu!(m, cuExternalMemoryGetMappedBuffer(&mut address, memory, &past)), 1);
        assert_eq!(cu!(m, cuExternalMemoryGetMappedBuffer(&mut address, memory, &range)), 0);
        assert_eq!(m.read(address + 4999, 1), [7]);
        let part = cuda_sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 4990, size: 10, ..Default::default() };
        let mut end = 0;
        assert_eq!(cu!(m, cuExternalMemoryGetMappedBuffer(&mut end, memory, &part)), 0);
        assert_eq!(m.read(end + 9, 1), [7]);
        assert_eq!(cu!(m, cuMemFree_v2(end)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(address)), 0);
        assert_eq!(cu!(m, cuDestroyExternalMemory(memory)), 0);
        assert_eq!(cu!(m, cuDestroyExternalMemory(memory)), 400);
        vk!(v, vkgdr_memory_free(second));
        v.close(m, g, first);
    }
}
