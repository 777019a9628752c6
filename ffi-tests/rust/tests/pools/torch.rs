//! The functions of the C library for PyTorch, called as PyTorch 2.11 calls them: `CUDAPluggableAllocator` passes the
//! current stream to the allocation, keeps size, device and stream by address, and passes the same to the free, on any
//! thread. The pools are those of the process, so they have one set of options.

use core::ffi::c_void;
use cudamem::address::*;
use cudamem::handles::cudamem_resource;
use cudamem::resource::cudamem_resource_destroy;
use cudamem::status::*;
use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr::{self, null_mut};
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::thread;
use testkit::c_objects::{Context, Result, pool_options, told};

const MAXIMUM: u64 = 256 << 20;

/// Sets the options before the first test, and opens a context.
fn begin() -> Result<Context> {
    static SET: OnceLock<cudamem_status> = OnceLock::new();
    let context = Context::open()?;
    let status = *SET.get_or_init(|| {
        let options = pool_options(MAXIMUM);
        // SAFETY: the options are as large as they say.
        unsafe { cudamem_malloc_set_options(&options) }
    });
    assert_eq!(status, CUDAMEM_SUCCESS);
    Ok(context)
}

fn message() -> String {
    // SAFETY: the text is this thread's.
    unsafe { CStr::from_ptr(cudamem_last_error_message()) }.to_string_lossy().into_owned()
}

/// What PyTorch keeps of an allocation.
#[derive(Clone, Copy)]
struct Metadata {
    size: isize,
    device: i32,
    stream: usize,
}

/// PyTorch's `CUDAPluggableAllocator`.
#[derive(Default)]
struct Allocator {
    metadata: Mutex<HashMap<usize, Metadata>>,
}

impl Allocator {
    fn malloc(&self, size: isize, device: i32, stream: *mut c_void) -> usize {
        // SAFETY: the tests' streams live during the call.
        let address = unsafe { cudamem_torch_alloc(size, device, stream) }.addr();
        let entry = Metadata { size, device, stream: stream.addr() };
        let former = self.metadata.lock().expect("no panic").insert(address, entry);
        assert!(former.is_none() || address == 0, "{address:#x} was live");
        address
    }

    fn raw_delete(&self, address: usize) {
        let known = self.metadata.lock().expect("no panic").remove(&address);
        let Metadata { size, device, stream } = known.expect("allocated here");
        let (pointer, stream) = (ptr::without_provenance_mut(address), ptr::without_provenance_mut(stream));
        // SAFETY: as above; no work uses the memory.
        unsafe { cudamem_torch_free(pointer, size, device, stream) };
    }
}

#[test]
fn tensors_of_many_streams_and_devices_end_on_any_thread() -> Result {
    let context = begin()?;
    let streams = [context.stream()?, context.stream()?, context.stream()?];
    let mut raw: Vec<(i32, usize)> = vec![(0, 0), (0, 1), (0, 2)];
    for stream in &streams {
        let handle: *mut c_void = told(|place| cudamem::objects::cudamem_get_raw(stream.0.id, place))?;
        raw.push((0, handle.addr()));
    }
    let (allocator, (sender, receiver)) = (Allocator::default(), channel());
    // Another allocator, because this one keeps a note of memory that it has not got, too.
    let of_second = Allocator::default();
    match of_second.malloc(1, 1, null_mut()) {
        0 => println!("skipped: tensors of a second device: it needs two devices"),
        address => {
            of_second.raw_delete(address);
            raw.push((1, 0));
        }
    }
    thread::scope(|scope| {
        for (device, stream) in raw {
            let (sender, allocator) = (sender.clone(), &allocator);
            scope.spawn(move || {
                for round in 0..300isize {
                    let size = 1 + round * 7919 % 200_000;
                    let address = allocator.malloc(size, device, ptr::without_provenance_mut(stream));
                    assert_ne!(address, 0, "{}", message());
                    if round % 3 == 0 { allocator.raw_delete(address) } else { sender.send(address).expect("it lives") }
                }
            });
        }
        drop(sender);
        receiver.iter().for_each(|address| allocator.raw_delete(address));
    });
    assert!(allocator.metadata.lock().expect("no panic").is_empty());
    Ok(())
}

#[test]
fn a_failed_allocation_is_null_and_has_a_message() -> Result {
    let _context = begin()?;
    let allocator = Allocator::default();
    assert_eq!(allocator.malloc(2 * MAXIMUM as isize, 0, null_mut()), 0);
    assert!(message().contains("no room for"), "{}", message());
    assert_eq!(allocator.malloc(-1, 0, null_mut()), 0);
    assert_eq!(allocator.malloc(1, 64, null_mut()), 0);
    assert!(message().contains("device is 64"), "{}", message());
    let address = allocator.malloc(0, 0, null_mut());
    assert_ne!(address, 0, "PyTorch asks for 0 bytes too");
    allocator.raw_delete(address);
    // SAFETY: PyTorch frees what it got, NULL too.
    unsafe { cudamem_torch_free(null_mut(), 0, 0, null_mut()) };
    Ok(())
}

#[test]
fn a_wrong_free_is_a_status_and_frees_nothing() -> Result {
    let _context = begin()?;
    // SAFETY: NULL is the legacy default stream.
    let address: u64 = told(|place| unsafe { cudamem_malloc(1000, 0, null_mut(), place) })?;
    // SAFETY: as above; the first three are refused.
    unsafe {
        assert_eq!(cudamem_free(address, 1001, 0, null_mut()), CUDAMEM_ERROR_INVALID_ARGUMENT);
        assert!(message().contains("1000 bytes"), "{}", message());
        assert_eq!(cudamem_free(address + 256, 1000, 0, null_mut()), CUDAMEM_ERROR_INVALID_ARGUMENT);
        assert_eq!(cudamem_free(address, 1000, 1, null_mut()), CUDAMEM_ERROR_INVALID_ARGUMENT);
        assert_eq!(cudamem_free(address, 1000, 0, null_mut()), CUDAMEM_SUCCESS);
        assert_eq!(cudamem_malloc(1, 0, null_mut(), None), CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    Ok(())
}

#[test]
fn a_tensor_that_a_second_stream_uses_waits_for_its_work() -> Result {
    let context = begin()?;
    let second = context.stream()?;
    let raw: *mut c_void = told(|place| cudamem::objects::cudamem_get_raw(second.0.id, place))?;
    let allocator = Allocator::default();
    let (size, stream) = (MAXIMUM as isize / 8, ptr::without_provenance_mut(2));
    let pointer = ptr::without_provenance_mut::<c_void>;
    // SAFETY: memory from elsewhere is left alone, whatever it is.
    unsafe { [0, 8, 1 << 60].into_iter().for_each(|elsewhere| cudamem_torch_record_stream(pointer(elsewhere), raw)) };
    for ends in [false, true] {
        let address = allocator.malloc(size, 0, stream);
        assert_ne!(address, 0, "{}", message());
        // SAFETY: the stream lives.
        unsafe { cudamem_torch_record_stream(pointer(address), raw) };
        allocator.raw_delete(address);
        // SAFETY: as above. It was freed.
        unsafe { assert_eq!(cudamem_malloc_record_use(address as u64, raw), CUDAMEM_ERROR_INVALID_ARGUMENT) };
        assert!(message().contains("freed before"), "{}", message());
        if ends {
            cudamem_torch_empty_cache();
        }
    }
    Ok(())
}

#[test]
fn options_come_before_the_first_allocation() -> Result {
    let _context = begin()?;
    let pool: cudamem_resource = told(|place| cudamem_malloc_get_pool(0, place))?;
    // SAFETY: NULL is allowed.
    unsafe {
        assert_eq!(cudamem_malloc_set_options(ptr::null()), CUDAMEM_ERROR_INVALID_ARGUMENT);
        assert!(message().contains("before the first allocation"), "{}", message());
    }
    assert_eq!(cudamem_resource_destroy(pool), CUDAMEM_SUCCESS);
    Ok(())
}
