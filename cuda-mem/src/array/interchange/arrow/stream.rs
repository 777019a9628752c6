//! Streams of arrays.

use super::owned::DeviceArray;
use super::raw::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use super::{ArrowError, Schema};
use crate::Result;
use crate::array::interchange::TensorDevice;
use crate::array::interchange::dlpack::DLDevice;
use crate::error::callback::{call_back, call_through};
use core::ffi::{CStr, c_char, c_int};
use core::mem::ManuallyDrop;
use core::ptr;
use std::ffi::CString;

/// A sequence of arrays of one type, which a library makes on demand; an iterator. The drop calls `release`, once.
///
/// Only one thread at a time may use an Arrow stream.
#[derive(Debug)]
pub struct DeviceArrayStream {
    raw: ArrowDeviceArrayStream,
}

// SAFETY: Arrow allows any thread, one at a time; a shared reference gives no access to the stream.
unsafe impl Send for DeviceArrayStream {}

/// The data behind an exported stream.
struct ExportedStream {
    schema: Schema,
    arrays: Box<dyn Iterator<Item = Result<DeviceArray>> + Send>,
    error: CString,
}

impl DeviceArrayStream {
    /// Makes a stream from an iterator. An array that cannot be made is an error for the consumer, which may continue.
    pub fn new(
        schema: Schema,
        device: TensorDevice,
        arrays: impl Iterator<Item = Result<DeviceArray>> + Send + 'static,
    ) -> Self {
        let held = ExportedStream { schema, arrays: Box::new(arrays), error: CString::default() };
        let DLDevice { device_type, .. } = device.into();
        Self {
            raw: ArrowDeviceArrayStream {
                device_type,
                get_schema: Some(get_schema),
                get_next: Some(get_next),
                get_last_error: Some(get_last_error),
                release: Some(end),
                private_data: Box::into_raw(Box::new(held)).cast(),
            },
        }
    }

    /// Takes ownership of a stream and marks `raw` as released.
    ///
    /// # Errors
    ///
    /// The pointer is null, or the stream was released already or lacks a function.
    ///
    /// # Safety
    ///
    /// `raw` is null or points to a stream that nobody else uses.
    pub unsafe fn from_raw(raw: *mut ArrowDeviceArrayStream) -> Result<Self, ArrowError> {
        // SAFETY: this function's contract.
        let raw = unsafe { raw.as_mut() }.ok_or(ArrowError::Null { what: "the stream of arrays" })?;
        if raw.release.is_none() {
            return Err(ArrowError::Released { what: "the stream of arrays" });
        }
        // SAFETY: readable, by this function's contract; the next line marks the source as released.
        let this = Self { raw: unsafe { ptr::read(raw) } };
        raw.release = None;
        if this.raw.get_schema.is_none() || this.raw.get_next.is_none() {
            return Err(ArrowError::Null { what: "a function of the stream of arrays" });
        }
        Ok(this)
    }

    /// Hands the stream out. The receiver must call `release`.
    pub fn into_raw(self) -> ArrowDeviceArrayStream {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used afterwards.
        unsafe { ptr::read(&raw const this.raw) }
    }

    /// The type of device of all arrays, by DLPack's numbers.
    pub fn device_type(&self) -> i32 {
        self.raw.device_type
    }

    /// The type of all arrays.
    ///
    /// # Errors
    ///
    /// The producer reports an error, or its schema is invalid.
    pub fn schema(&mut self) -> Result<Schema, ArrowError> {
        let mut schema = ArrowSchema::RELEASED;
        let Some(get_schema) = self.raw.get_schema else { return Err(ArrowError::Null { what: "get_schema" }) };
        // SAFETY: a stream that was not released, and room for a schema.
        match call_through(|| unsafe { get_schema(&mut self.raw, &mut schema) }) {
            // SAFETY: the producer has handed the schema over.
            0 => unsafe { Schema::import(&mut schema) },
            code => Err(self.error(code)),
        }
    }

    fn error(&mut self, code: c_int) -> ArrowError {
        // SAFETY: a stream that was not released.
        let text = self.raw.get_last_error.map(|get| unsafe { get(&mut self.raw) }).filter(|text| !text.is_null());
        // SAFETY: a text that ends with zero, valid until the next call.
        let message = text.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        ArrowError::Stream { code, message: message.unwrap_or_default().into() }
    }
}

impl Iterator for DeviceArrayStream {
    type Item = Result<DeviceArray, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut array = ArrowDeviceArray::RELEASED;
        let get_next = self.raw.get_next?;
        // SAFETY: a stream that was not released, and room for an array.
        match call_through(|| unsafe { get_next(&mut self.raw, &mut array) }) {
            0 if array.array.release.is_none() => None,
            0 if array.device_type != self.raw.device_type => {
                let value = array.device_type.into();
                drop(DeviceArray::made(array));
                Some(Err(ArrowError::Number { what: "an array's device_type", value, rule: "it must be the stream's" }))
            }
            0 => Some(Ok(DeviceArray::made(array))),
            code => Some(Err(self.error(code))),
        }
    }
}

impl Drop for DeviceArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.raw.release {
            // SAFETY: this value owns the stream, and it was not released.
            call_through(|| unsafe { release(&mut self.raw) });
        }
    }
}

/// Runs a function of one of our streams, and keeps an error or a panic as text.
///
/// # Safety
///
/// `stream` is one of our streams and not released.
unsafe fn run(
    stream: *mut ArrowDeviceArrayStream,
    part: impl FnOnce(&mut ExportedStream) -> Result<(), Box<dyn core::error::Error>>,
) -> c_int {
    // SAFETY: this function's contract; Arrow allows only one thread at a time.
    let held = unsafe { &mut *(*stream).private_data.cast::<ExportedStream>() };
    let outcome = call_back(|| part(held).map_err(|error| error.to_string()));
    match outcome.unwrap_or_else(|panic| Err(format!("the producer of arrays panicked: {}", panic.text()))) {
        Ok(()) => 0,
        Err(text) => {
            held.error = CString::new(text.replace('\0', " ")).unwrap_or_default();
            libc::EIO
        }
    }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: a consumer's call, with one of our streams and room for a schema.
    unsafe {
        run(stream, |held| {
            out.write(held.schema.export()?);
            Ok(())
        })
    }
}

unsafe extern "C" fn get_next(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowDeviceArray) -> c_int {
    // SAFETY: a consumer's call, with one of our streams and room for an array.
    unsafe {
        run(stream, |held| {
            let array = held.arrays.next().transpose()?;
            out.write(array.map_or(ArrowDeviceArray::RELEASED, DeviceArray::into_raw));
            Ok(())
        })
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowDeviceArrayStream) -> *const c_char {
    // SAFETY: a consumer's call, with one of our streams.
    unsafe { (*(*stream).private_data.cast::<ExportedStream>()).error.as_ptr() }
}

unsafe extern "C" fn end(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: a consumer's last call, with one of our streams.
    let held = unsafe {
        (*stream).release = None;
        Box::from_raw((*stream).private_data.cast::<ExportedStream>())
    };
    let _ = call_back(|| drop(held));
}
