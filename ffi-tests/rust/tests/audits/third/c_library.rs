//! Functions of the program that the C library calls: it holds no lock of its objects then.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::interchange::arrow::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use cudamem::arrow_stream::*;
use cudamem::buffer::{cudamem_buffer_destroy, cudamem_buffer_synchronize};
use cudamem::handles::*;
use cudamem::library::cudamem_set_drop_error_callback;
use cudamem::status::*;
use cudamem::virtual_memory::*;
use softgpu::Fault;
use std::sync::Mutex;
use testkit::c_objects::{Context, done, told};
use testkit::suite::Outcome;
use testkit::{alone, in_time};

/// What the callbacks got.
static SEEN: Mutex<Vec<cudamem_status>> = Mutex::new(Vec::new());

fn note(status: cudamem_status) {
    SEEN.lock().expect("no panic").push(status);
}

fn seen() -> Vec<cudamem_status> {
    core::mem::take(&mut SEEN.lock().expect("no panic"))
}

/// Waits for the buffer whose call has met an error.
extern "C" fn wait(_status: cudamem_status, _message: *const c_char, user: *mut c_void) {
    note(cudamem_buffer_synchronize(cudamem_buffer { id: user.addr() as u64 }));
}

#[test]
fn the_callback_for_drop_errors_uses_the_buffer_that_failed() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        in_time(setup, |_| {
            let context = Context::open()?;
            let stream = context.stream()?;
            let memory = context.virtual_memory(0, 0)?;
            let buffer: cudamem_buffer =
                told(|place| cudamem_buffer_create_growable(memory.0, 32 << 20, stream.0, place))?;
            done(cudamem_buffer_grow(buffer, 4 << 20, None))?;
            done(cudamem_buffer_grow(buffer, 16 << 20, None))?;
            stream.synchronize()?;
            done(cudamem_set_drop_error_callback(Some(wait), ptr::without_provenance_mut(buffer.id as usize)))?;
            // The call does its work, and reports an error.
            let fault = Fault::call("cuMemRelease", 1, CUresult::CUDA_ERROR_UNKNOWN);
            softgpu::faults([Fault { after: true, ..fault }]);
            let shrunk = cudamem_buffer_shrink(buffer, 1);
            softgpu::faults([]);
            done(cudamem_set_drop_error_callback(None, ptr::null_mut()))?;
            done(shrunk)?;
            assert_eq!(seen(), [CUDAMEM_SUCCESS]);
            Ok(done(cudamem_buffer_destroy(buffer))?)
        })
    })
}

/// The handle of a stream of arrays whose producer asks it again.
static ITSELF: Mutex<cudamem_arrow_stream> = Mutex::new(cudamem_arrow_stream { id: 0 });

unsafe extern "C" fn get_schema(_: *mut ArrowDeviceArrayStream, _: *mut ArrowSchema) -> c_int {
    let mut schema = core::mem::MaybeUninit::uninit();
    let itself = *ITSELF.lock().expect("no panic");
    note(cudamem_arrow_stream_get_schema(itself, Some(&mut schema)));
    1
}

unsafe extern "C" fn get_next(_: *mut ArrowDeviceArrayStream, _: *mut ArrowDeviceArray) -> c_int {
    let mut array = core::mem::MaybeUninit::uninit();
    let itself = *ITSELF.lock().expect("no panic");
    note(cudamem_arrow_stream_next(itself, Some(&mut array)));
    1
}

unsafe extern "C" fn why(_: *mut ArrowDeviceArrayStream) -> *const c_char {
    const WHY: &CStr = c"the test says so";
    WHY.as_ptr()
}

unsafe extern "C" fn release(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: the stream's owner calls this once.
    unsafe { (*stream).release = None };
}

#[test]
fn a_producer_of_arrays_is_called_without_a_lock() -> Outcome {
    alone(|setup| {
        in_time(setup, |_| {
            let mut raw = ArrowDeviceArrayStream {
                device_type: 1,
                get_schema: Some(get_schema),
                get_next: Some(get_next),
                get_last_error: Some(why),
                release: Some(release),
                private_data: ptr::null_mut(),
            };
            let stream: cudamem_arrow_stream =
                // SAFETY: the struct is valid.
                told(|place| unsafe { cudamem_arrow_stream_import(&mut raw, place) })?;
            *ITSELF.lock().expect("no panic") = stream;
            let (mut schema, mut array) = (core::mem::MaybeUninit::uninit(), core::mem::MaybeUninit::uninit());
            let failed = CUDAMEM_ERROR_INVALID_ARGUMENT;
            assert_eq!(cudamem_arrow_stream_get_schema(stream, Some(&mut schema)), failed);
            assert_eq!(cudamem_arrow_stream_next(stream, Some(&mut array)), failed);
            assert_eq!(seen(), [failed, failed]);
            Ok(done(cudamem_arrow_stream_destroy(stream))?)
        })
    })
}
