//! The cost of a C library call compared with the same call in Rust, in one run.
//!
//! `cargo bench -p benches --bench c_library` runs it over the driver that the environment names. `--brief` is a
//! short run that only shows that it works. The functions are linked in; a program that links the shared library pays 1
//! ns more for each call.

use core::mem::MaybeUninit;
use core::ptr;
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{Consumer, ExportOptions, SharedTensor};
use cuda_mem::memory::{DeviceMemory, SharedResource, kind::Any};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::view::Index;
use cuda_mem::{Buffer, MappedMemory, Stream};
use cudamem::buffer::{
    cudamem_buffer_allocate, cudamem_buffer_destroy, cudamem_buffer_get_device_pointer, cudamem_buffer_get_host_pointer,
};
use cudamem::context::{cudamem_context_destroy, cudamem_context_open_primary};
use cudamem::data_type::{CUDAMEM_TYPE_FLOAT, cudamem_data_type};
use cudamem::dlpack::{cudamem_dlpack_options, cudamem_view_export_dlpack, cudamem_view_import_dlpack};
use cudamem::handles::{cudamem_buffer, cudamem_context, cudamem_resource, cudamem_stream, cudamem_view};
use cudamem::mapped::cudamem_buffer_store;
use cudamem::pool::cudamem_pool_create;
use cudamem::resource::{cudamem_resource_create_device, cudamem_resource_create_mapped, cudamem_resource_destroy};
use cudamem::stream::{cudamem_stream_create, cudamem_stream_destroy};
use cudamem::view::{cudamem_view_create, cudamem_view_destroy, cudamem_view_layout};
use cudamem::view_parts::{cudamem_index, cudamem_view_slice};
use std::hint::black_box;
use testkit::timing::median_of;
use testkit::{Setup, c_calls};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The size of a block.
const SIZE: usize = 1000;

fn main() -> Result<()> {
    let (rounds, batch) = if std::env::args().any(|argument| argument == "--brief") { (3, 10) } else { (101, 10_000) };
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    c_calls::load();
    // Programs usually make the context current on the working thread, so do that here.
    let _current = setup.context.bind()?;
    let c = C::new();

    let memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 4096)?.into_shared();
    let mut pointer = MaybeUninit::uninit();
    let word = 5u32.to_ne_bytes();
    row(
        "write and flush 4 bytes",
        median_of(rounds, batch, || black_box(&memory).store(0, black_box(&word[..])).is_ok()),
        // SAFETY: the word has four bytes.
        median_of(rounds, batch, || unsafe { cudamem_buffer_store(black_box(c.mapped), 0, word.as_ptr().cast(), 4) }),
    );
    let host: *mut core::ffi::c_void = made(|place| cudamem_buffer_get_host_pointer(c.mapped, place));
    let raw = median_of(rounds, batch, || {
        // SAFETY: the memory has a page, and its address is aligned for every word.
        unsafe { host.cast::<u32>().write_volatile(black_box(5)) };
        store_fence();
    });
    println!("{:<24} raw  {raw:6.1} ns", "store and fence 4 bytes");
    let stream = Stream::new(&setup.context)?;
    let upstream: SharedResource = {
        use cuda_mem::memory::ResourceHandle;
        DeviceMemory::new(&setup.context).share()
    };
    let pool: Pool<Any> = Pool::new(&upstream, &PoolOptions::default())?;
    let buffer = Buffer::<u8, Any>::zeroed(&pool, SIZE, &stream)?;
    let kept = c.allocate();
    row(
        "address of a buffer",
        median_of(rounds, batch, || black_box(black_box(&buffer).device_pointer())),
        median_of(rounds, batch, || cudamem_buffer_get_device_pointer(black_box(kept), Some(&mut pointer))),
    );
    row(
        "pair of a pool",
        median_of(rounds, batch, || {
            Buffer::<u8, Any>::uninit(&pool, SIZE, &stream).map(|buffer| buffer.close().is_ok())
        }),
        median_of(rounds, batch, || cudamem_buffer_destroy(c.allocate())),
    );
    // 1024 by 1024 floats: exported as a tensor and imported as a view.
    let numbers = Buffer::<f32, Any>::zeroed(&pool, 1 << 20, &stream)?.into_shared().into_view(&[1024, 1024])?;
    let large = c.view();
    row(
        "part of a view",
        median_of(rounds, batch, || black_box(&numbers).clone().sliced(&[Index::At(5)]).is_ok()),
        median_of(rounds, batch, || {
            let indices = [cudamem_index { start: 5, end: 0, step: 0 }];
            // SAFETY: the list has one entry.
            cudamem_view_destroy(made(|place| unsafe { cudamem_view_slice(large, indices.as_ptr(), 1, place) }))
        }),
    );
    let unordered = ExportOptions { consumer: Consumer::Unordered, ..Default::default() };
    row(
        "DLPack out and in",
        median_of(rounds, batch, || {
            let raw =
                numbers.to_tensor().and_then(|tensor| tensor.to_dlpack(&unordered)).map(ManagedTensor::into_versioned);
            // SAFETY: the tensor was exported just now, and nothing uses it.
            let shared = raw.and_then(|raw| unsafe {
                ManagedTensor::from_versioned(raw)?.check()?.into_shared(&stream, Some(&stream))
            });
            shared.and_then(SharedTensor::into_view).is_ok()
        }),
        median_of(rounds, batch, || c.through_dlpack(large)),
    );
    cudamem_view_destroy(large);
    cudamem_buffer_destroy(kept);
    c.end();
    Ok(())
}

fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

fn row(what: &str, rust: f64, c: f64) {
    println!("{what:<24} Rust {rust:6.1} ns   C {c:6.1} ns   more {:6.1} ns", c - rust);
}

/// The same objects through C.
struct C {
    context: cudamem_context,
    stream: cudamem_stream,
    resources: [cudamem_resource; 3],
    mapped: cudamem_buffer,
}

impl C {
    fn new() -> Self {
        let context = made(|place| cudamem_context_open_primary(0, place));
        // SAFETY: there are no options.
        let stream = made(|place| unsafe { cudamem_stream_create(context, ptr::null(), place) });
        let device = made(|place| cudamem_resource_create_device(context, place));
        // SAFETY: there are no options.
        let pool = made(|place| unsafe { cudamem_pool_create(device, ptr::null(), place) });
        let source = made(|place| cudamem_resource_create_mapped(context, 0, place));
        let mapped = made(|place| cudamem_buffer_allocate(source, 4096, stream, place));
        Self { context, stream, resources: [pool, device, source], mapped }
    }

    fn allocate(&self) -> cudamem_buffer {
        made(|place| cudamem_buffer_allocate(self.resources[0], SIZE, self.stream, place))
    }

    fn view(&self) -> cudamem_view {
        let buffer = made(|place| cudamem_buffer_allocate(self.resources[0], 4 << 20, self.stream, place));
        let shape = [1024, 1024];
        let layout = cudamem_view_layout {
            size: size_of::<cudamem_view_layout>(),
            data_type: cudamem_data_type { code: CUDAMEM_TYPE_FLOAT, bits: 32, lanes: 1 },
            flags: 0,
            ndim: 2,
            shape: shape.as_ptr(),
            strides: ptr::null(),
            offset: 0,
        };
        // SAFETY: the list has two entries.
        let view = made(|place| unsafe { cudamem_view_create(buffer, &layout, place) });
        cudamem_buffer_destroy(buffer);
        view
    }

    fn through_dlpack(&self, view: cudamem_view) -> i32 {
        let options = cudamem_dlpack_options {
            size: size_of::<cudamem_dlpack_options>(),
            flags: 0,
            release: 0,
            stream: -1,
            resource: cudamem_resource { id: 0 },
            device_type: 0,
            device_id: 0,
        };
        // SAFETY: the options are as large as they say, and the tensor is imported once.
        cudamem_view_destroy(unsafe {
            let tensor = made(|place| cudamem_view_export_dlpack(view, &options, place, None));
            made(|place| cudamem_view_import_dlpack(tensor, core::ptr::null_mut(), self.stream, self.stream, place))
        })
    }

    fn end(self) {
        cudamem_buffer_destroy(self.mapped);
        for resource in self.resources {
            cudamem_resource_destroy(resource);
        }
        cudamem_stream_destroy(self.stream);
        cudamem_context_destroy(self.context);
    }
}

#[inline]
fn made<H>(call: impl FnOnce(Option<&mut MaybeUninit<H>>) -> i32) -> H {
    let mut place = MaybeUninit::uninit();
    assert_eq!(call(Some(&mut place)), 0, "{}", c_calls::last_message());
    // SAFETY: the call worked and wrote its result.
    unsafe { place.assume_init() }
}
