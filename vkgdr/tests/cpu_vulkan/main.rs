//! Tests the library on a real Vulkan loader and a CPU driver, with a small fake of CUDA.
//!
//! Without a CPU Vulkan driver the tests print that they are skipped; with CUDA_MEM_REQUIRE_VULKAN=1 they fail.
//! VK_DRIVER_FILES chooses the driver, and VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation adds the validation layer.

mod fake_cuda;

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cuda_sys::CUresult;
use vkgdr::*;

/// Runs one test at a time, because the tests share the driver and its faults. Without a driver this prints a line and
/// returns `None`.
fn driver() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if fake_cuda::gpu().is_none() {
        let text = "skipped: no CPU Vulkan driver; apt-get install libvulkan1 mesa-vulkan-drivers";
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none_or(|value| value != "1"), "{text}");
        eprintln!("{text}");
        return None;
    }
    fake_cuda::set_context(true);
    Some(guard)
}

fn error() -> String {
    let text = vkgdr_last_error();
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library gave a fresh string, which is ours.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        owned
    }
}

fn open(device: i32, flags: u32) -> vkgdr_t {
    // SAFETY: the fake's functions live forever.
    unsafe { vkgdr_open_with_cuda(device, flags, Some(fake_cuda::resolve), ptr::null_mut()) }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

#[derive(Clone, Copy)]
struct View {
    host: *mut u8,
    device: *mut u8,
}

fn view(memory: vkgdr_memory_t) -> View {
    // SAFETY: the memory is live; the fake's device addresses are addresses of this process.
    unsafe {
        View {
            host: vkgdr_memory_get_host_ptr(memory).cast(),
            device: ptr::with_exposed_provenance_mut(vkgdr_memory_get_device_ptr(memory) as usize),
        }
    }
}

#[test]
fn cpu_writes_arrive_on_the_device_and_come_back() {
    let Some(_driver) = driver() else { return };
    for flags in [0, VKGDR_OPEN_REQUIRE_COHERENT_BIT, VKGDR_OPEN_FORCE_NON_COHERENT_BIT] {
        let g = open(0, flags);
        assert!(!g.is_null(), "{}", error());
        for size in [1usize, 63, 64, 65, 255, 256, 257, 4096, 4097, 1 << 20] {
            // SAFETY: handles are live; addresses are used inside the allocation only.
            unsafe {
                let memory = vkgdr_memory_alloc(g, size, 0);
                assert!(!memory.is_null(), "{}", error());
                let forced = flags == VKGDR_OPEN_FORCE_NON_COHERENT_BIT;
                assert_eq!(vkgdr_memory_is_coherent(memory), !forced);
                let atom = vkgdr_memory_non_coherent_atom_size(memory);
                assert!(if forced { atom >= 64 } else { atom == 1 });
                assert_eq!(vkgdr_memory_get_size(memory), size);
                let View { host, device } = view(memory);
                assert!(host.addr().is_multiple_of(64));
                for index in 0..size {
                    host.add(index).write(index as u8);
                }
                vkgdr_memory_flush(memory, 0, size);
                for index in 0..size {
                    assert_eq!(device.add(index).read(), index as u8);
                    device.add(index).write(!(index as u8));
                }
                vkgdr_memory_invalidate(memory, 0, size);
                for index in 0..size {
                    assert_eq!(host.add(index).read(), !(index as u8));
                }
                // Ranges near the edges of the first atom and near the end.
                for offset in (0..size.min(3)).chain(62..size.min(67)).chain(size.saturating_sub(3)..=size) {
                    for length in [0, 1, 2, 64, size] {
                        let inside = offset + length <= size;
                        assert_eq!(vkgdr_memory_flush_checked(memory, offset, length) == 0, inside);
                        assert_eq!(vkgdr_memory_invalidate_checked(memory, offset, length) == 0, inside);
                    }
                }
                vkgdr_memory_free(memory);
            }
        }
        // SAFETY: the handle is live and used no more.
        unsafe { vkgdr_close(g) };
    }
    assert_eq!(fake_cuda::gpu().expect("checked above").live(), 0);
}

#[test]
fn exported_memory_is_reimported_with_host_and_device_mappings() {
    let Some(_driver) = driver() else { return };
    let size = 4097;
    let g = open(0, 0);
    vkgdr_trim();
    let before = open_files();
    // SAFETY: handles are live; addresses are used inside the allocation only.
    unsafe {
        let memory = vkgdr_memory_alloc(g, size, 0);
        let mut fd = -1;
        assert_eq!(vkgdr_memory_export_fd(memory, &mut fd), 0, "{}", error());
        assert_ne!(libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC, 0);
        assert_eq!(vkgdr_memory_export_fd(memory, ptr::null_mut()), INVALID_VALUE);

        let fault = fake_cuda::failing("cuExternalMemoryGetMappedBuffer", CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert!(vkgdr_memory_import_fd(g, fd, size, 0).is_null());
        assert!(error().contains("CUDA_ERROR_OUT_OF_MEMORY"));
        drop(fault);
        assert_ne!(libc::fcntl(fd, libc::F_GETFD), -1, "a failed import leaves the descriptor to the caller");

        let second = vkgdr_memory_import_fd(g, fd, size, 0);
        assert!(!second.is_null(), "{}", error());
        let mut again = -1;
        assert_eq!(vkgdr_memory_export_fd(second, &mut again), 0, "{}", error());
        let third = vkgdr_memory_import_fd(g, again, size, 0);
        assert!(!third.is_null(), "{}", error());

        let views = [memory, second, third].map(view);
        for (round, from) in views.iter().enumerate() {
            from.host.add(round).write(100 + round as u8);
            from.device.add(size - 1 - round).write(200 + round as u8);
            for to in views {
                assert_eq!(to.host.add(round).read(), 100 + round as u8);
                assert_eq!(to.device.add(round).read(), 100 + round as u8);
                assert_eq!(to.host.add(size - 1 - round).read(), 200 + round as u8);
            }
        }
        vkgdr_memory_free(memory);
        assert_eq!(view(third).host.read(), 100, "the memory lives while anyone holds it");
        vkgdr_memory_free(third);
        vkgdr_memory_free(second);
        assert_eq!(open_files(), before);

        assert!(vkgdr_memory_import_fd(g, -1, size, 0).is_null());
        assert!(error().contains("VKGDR_ERROR_INVALID_VALUE"));
        assert!(vkgdr_memory_import_fd(g, 1_000_000, size, 0).is_null());
        assert!(error().contains("VKGDR_ERROR_SYSTEM"));
        vkgdr_close(g);
    }
}

#[test]
fn bad_input_gives_an_error_and_a_harmless_value() {
    let Some(_driver) = driver() else { return };
    let none: *mut c_void = ptr::null_mut();
    // SAFETY: NULL handles are allowed everywhere; others are live.
    unsafe {
        assert!(open(-1, 0).is_null());
        assert!(error().ends_with("(CUDA_ERROR_INVALID_DEVICE)"), "{}", error());
        assert!(open(0, 8).is_null());
        assert!(error().ends_with("(VKGDR_ERROR_INVALID_VALUE)"));
        assert!(open(1, 0).is_null());
        let text = error();
        assert!(text.contains("eeeeeeee-eeee") && text.contains("MIG") && text.contains("graphics"), "{text}");
        assert!(vkgdr_open_with_cuda(0, 0, None, none).is_null());
        assert!(error().contains("VKGDR_ERROR_INVALID_VALUE"));
        fake_cuda::set_context(false);
        assert!(open(0, VKGDR_OPEN_CURRENT_CONTEXT_BIT).is_null());
        assert!(error().ends_with("(CUDA_ERROR_INVALID_CONTEXT)"), "{}", error());
        let g = open(0, 0);
        assert!(!g.is_null());
        assert_eq!(error(), "");
        assert!(vkgdr_memory_alloc(g, 1, 0).is_null());
        assert!(error().ends_with("(CUDA_ERROR_INVALID_CONTEXT)"));
        fake_cuda::set_context(true);

        for (size, flags, code) in [
            (0, 0, "VKGDR_ERROR_INVALID_VALUE"),
            (1, 1, "VKGDR_ERROR_INVALID_VALUE"),
            (1_000_000_000_000_000, 0, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
            (usize::MAX, 0, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        ] {
            assert!(vkgdr_memory_alloc(g, size, flags).is_null());
            assert!(error().ends_with(&format!("({code})")), "{}", error());
        }
        assert!(vkgdr_memory_alloc(none.cast(), 1, 0).is_null());
        assert!(error().contains("NULL"));

        let memory: vkgdr_memory_t = none.cast();
        assert!(vkgdr_memory_get_host_ptr(memory).is_null());
        assert_eq!(vkgdr_memory_get_device_ptr(memory), 0);
        assert_eq!(vkgdr_memory_get_size(memory), 0);
        assert!(!vkgdr_memory_is_coherent(memory));
        assert_eq!(vkgdr_memory_non_coherent_atom_size(memory), 1);
        vkgdr_memory_flush(memory, 0, 1);
        vkgdr_memory_invalidate(memory, 0, 1);
        assert_eq!(vkgdr_memory_flush_checked(memory, 0, 1), INVALID_HANDLE);
        vkgdr_memory_free(memory);
        vkgdr_close(none.cast());

        let memory = vkgdr_memory_alloc(g, 100, 0);
        assert_eq!(error(), "");
        assert_eq!(vkgdr_memory_flush_checked(memory, usize::MAX, 2), INVALID_VALUE);
        assert_eq!(vkgdr_memory_invalidate_checked(memory, 101, 0), INVALID_VALUE);
        vkgdr_memory_flush(memory, 1, 100);
        assert!(error().contains("100 bytes"), "flush without a status sets the last error too");
        // The handle may be closed before its memory is freed.
        vkgdr_close(g);
        view(memory).host.add(99).write(1);
        vkgdr_memory_free(memory);
    }
}

#[test]
fn a_failing_cuda_call_leaks_nothing() {
    let Some(_driver) = driver() else { return };
    let gpu = fake_cuda::gpu().expect("checked above");
    let g = open(0, 0);
    let files = open_files();
    for name in ["cuCtxGetDevice", "cuCtxGetCurrent", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"] {
        let _fault = fake_cuda::failing(name, CUresult::CUDA_ERROR_ECC_UNCORRECTABLE);
        // SAFETY: the handle is live.
        assert!(unsafe { vkgdr_memory_alloc(g, 4097, 0) }.is_null());
        assert!(error().contains(name) && error().contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{}", error());
        assert_eq!((gpu.live(), open_files(), fake_cuda::stack_depth()), (0, files, 0), "{name}");
    }
    // A destroyed context or a driver that shut down is not an error. Every other code becomes the last error.
    for (code, silent) in [
        (CUresult::CUDA_ERROR_DEINITIALIZED, true),
        (CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, true),
        (CUresult::CUDA_ERROR_LAUNCH_FAILED, false),
    ] {
        // SAFETY: the handles are live.
        unsafe {
            let memory = vkgdr_memory_alloc(g, 1, 0);
            let _fault = fake_cuda::failing("cuMemFree_v2", code);
            vkgdr_memory_free(memory);
        }
        assert_eq!(error().is_empty(), silent, "{}", error());
        assert_eq!((gpu.live(), open_files(), fake_cuda::stack_depth()), (0, files, 0));
    }
    for name in [c"cuMemFree_v2", c"cuCtxPushCurrent_v2", c"cuImportExternalMemory"] {
        let left_out: CString = name.into();
        // SAFETY: the name lives across the call.
        let g = unsafe {
            vkgdr_open_with_cuda(0, 0, Some(fake_cuda::resolve), left_out.as_ptr().cast_mut().cast::<c_void>())
        };
        assert!(g.is_null());
        assert!(error().contains(&*name.to_string_lossy()), "{}", error());
    }
    // SAFETY: the handle is live and used no more.
    unsafe { vkgdr_close(g) };
}

#[test]
fn a_second_open_is_fast_and_trim_lets_go() {
    let Some(_driver) = driver() else { return };
    // SAFETY: handles are live and not used after closing.
    unsafe {
        vkgdr_close(open(0, 0));
        let start = Instant::now();
        vkgdr_close(open(0, 0));
        let warm = start.elapsed();
        assert!(warm.as_millis() < 5, "a second open took {warm:?}");
        let g = open(0, 0);
        let memory = vkgdr_memory_alloc(g, 64, 0);
        vkgdr_close(g);
        vkgdr_trim();
        assert_eq!(vkgdr_memory_flush_checked(memory, 0, 64), 0, "trim leaves what memory uses");
        vkgdr_memory_free(memory);
        vkgdr_trim();
        let g = open(0, 0);
        assert!(!g.is_null(), "{}", error());
        vkgdr_close(g);
    }
}

#[test]
fn a_forked_child_cannot_use_its_parents_handles() {
    let Some(_driver) = driver() else { return };
    let g = open(0, 0);
    // SAFETY: the handles are live; the child calls nothing but this library and _exit.
    unsafe {
        let memory = vkgdr_memory_alloc(g, 64, 0);
        let child = libc::fork();
        if child == 0 {
            let refused = vkgdr_memory_flush_checked(memory, 0, 64) == INVALID_HANDLE
                && vkgdr_memory_get_host_ptr(memory).is_null()
                && vkgdr_memory_alloc(g, 64, 0).is_null();
            vkgdr_memory_free(memory);
            vkgdr_close(g);
            vkgdr_trim();
            libc::_exit(if refused { 0 } else { 1 });
        }
        let mut status: c_int = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
        assert_eq!(vkgdr_memory_flush_checked(memory, 0, 64), 0, "the parent goes on");
        vkgdr_memory_free(memory);
        vkgdr_close(g);
    }
}

#[test]
fn threads_share_a_handle() {
    let Some(_driver) = driver() else { return };
    let g = open(0, VKGDR_OPEN_FORCE_NON_COHERENT_BIT).expose_provenance();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                let g: vkgdr_t = ptr::with_exposed_provenance_mut(g);
                for size in 1..50 {
                    // SAFETY: the handle is open until all threads have ended.
                    unsafe {
                        let memory = vkgdr_memory_alloc(g, size, 0);
                        assert!(!memory.is_null(), "{}", error());
                        vkgdr_memory_flush(memory, 0, size);
                        vkgdr_memory_free(memory);
                    }
                }
            });
        }
    });
    // SAFETY: the handle is live and used no more.
    unsafe { vkgdr_close(ptr::with_exposed_provenance_mut(g)) };
    assert_eq!(fake_cuda::gpu().expect("checked above").live(), 0);
}

#[test]
fn the_description_is_json_that_names_the_device() {
    let Some(_driver) = driver() else { return };
    let text = vkgdr_describe();
    // SAFETY: the library gave a fresh string, which is ours.
    let report: serde_json::Value = unsafe {
        let report = serde_json::from_slice(CStr::from_ptr(text).to_bytes());
        libc::free(text.cast());
        report.expect("valid JSON")
    };
    assert_eq!(report["error"], serde_json::Value::Null);
    let cpu = report["devices"].as_array().expect("a list").iter().find(|one| one["type"] == "CPU");
    let cpu = cpu.expect("the CPU device");
    assert_eq!(cpu["external_memory_fd"], true);
    assert!(cpu["chosen"]["memory_type"].is_u64());
}

#[test]
fn every_function_is_found_by_name() {
    for name in SYMBOLS {
        let name = CString::new(*name).expect("a C name");
        assert!(!symbol(&name).is_null());
    }
    assert!(symbol(c"vkgdr_other").is_null());
    // SAFETY: the text is static.
    let version = unsafe { CStr::from_ptr(vkgdr_version()) };
    assert!(version.to_string_lossy().starts_with("0.1.0+cuda-mem"));
}
