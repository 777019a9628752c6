//! Arrays one after the other.

use super::owned::DeviceArray;
use super::raw::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use super::{ArrowError, Schema};
use crate::Result;
use crate::callback::call_back;
use crate::interchange::TensorDevice;
use crate::interchange::dlpack::DLDevice;
use core::ffi::{CStr, c_char, c_int};
use core::mem::ManuallyDrop;
use core::ptr;
use std::ffi::CString;

/// Arrays of one type, one after the other, of a library that makes them as they are asked for. Its end calls `release`,
/// once. It is an iterator.
///
/// Arrow's streams are for one thread at a time.
#[derive(Debug)]
pub struct DeviceArrayStream {
    raw: ArrowDeviceArrayStream,
}

// SAFETY: Arrow's streams may be used on any thread, on one at a time; nothing is reached through a shared reference.
unsafe impl Send for DeviceArrayStream {}

/// What an exported stream holds.
struct Held {
    schema: Schema,
    arrays: Box<dyn Iterator<Item = Result<DeviceArray>> + Send>,
    error: CString,
}

impl DeviceArrayStream {
    /// Makes a stream of what an iterator gives. An array that cannot be made is an error for the consumer, who may go on.
    pub fn new(
        schema: Schema,
        device: TensorDevice,
        arrays: impl Iterator<Item = Result<DeviceArray>> + Send + 'static,
    ) -> Self {
        let held = Held { schema, arrays: Box::new(arrays), error: CString::default() };
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

    /// Takes a stream over: what `raw` points to counts as released afterwards.
    ///
    /// # Errors
    ///
    /// It is a null pointer, was released already, or lacks a function.
    ///
    /// # Safety
    ///
    /// A pointer that is not null is one of a stream, which nobody else uses.
    pub unsafe fn from_raw(raw: *mut ArrowDeviceArrayStream) -> Result<Self, ArrowError> {
        // SAFETY: this function's contract.
        let raw = unsafe { raw.as_mut() }.ok_or(ArrowError::Null { what: "the stream of arrays" })?;
        if raw.release.is_none() {
            return Err(ArrowError::Released { what: "the stream of arrays" });
        }
        // SAFETY: readable, by this function's contract; the source counts as released.
        let this = Self { raw: unsafe { ptr::read(raw) } };
        raw.release = None;
        if this.raw.get_schema.is_none() || this.raw.get_next.is_none() {
            return Err(ArrowError::Null { what: "a function of the stream of arrays" });
        }
        Ok(this)
    }

    /// Hands the stream out: who gets it calls `release`.
    pub fn into_raw(self) -> ArrowDeviceArrayStream {
        let this = ManuallyDrop::new(self);
        // SAFETY: not used afterwards.
        unsafe { ptr::read(&raw const this.raw) }
    }

    /// The kind of device that all arrays are on, by DLPack's number.
    pub fn device_type(&self) -> i32 {
        self.raw.device_type
    }

    /// The type of all arrays.
    ///
    /// # Errors
    ///
    /// The producer's, or what is wrong with the schema.
    pub fn schema(&mut self) -> Result<Schema, ArrowError> {
        let mut schema = ArrowSchema::RELEASED;
        let Some(get_schema) = self.raw.get_schema else { return Err(ArrowError::Null { what: "get_schema" }) };
        // SAFETY: a stream that was not released, and room for a schema.
        match unsafe { get_schema(&mut self.raw, &mut schema) } {
            // SAFETY: what the producer gave is ours.
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
        match unsafe { get_next(&mut self.raw, &mut array) } {
            0 if array.array.release.is_none() => None,
            0 if array.device_type != self.raw.device_type => {
                let value = array.device_type.into();
                drop(DeviceArray::made(array));
                Some(Err(ArrowError::Number { what: "an array's device_type", value, rule: "it is the stream's" }))
            }
            0 => Some(Ok(DeviceArray::made(array))),
            code => Some(Err(self.error(code))),
        }
    }
}

impl Drop for DeviceArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.raw.release {
            // SAFETY: ours, and not released yet.
            unsafe { release(&mut self.raw) };
        }
    }
}

/// Runs a part of a stream of ours: an error is kept as text, and a panic is one.
///
/// # Safety
///
/// `stream` is one of ours, and not released.
unsafe fn run(
    stream: *mut ArrowDeviceArrayStream,
    part: impl FnOnce(&mut Held) -> Result<(), Box<dyn core::error::Error>>,
) -> c_int {
    // SAFETY: this function's contract; one thread at a time, by Arrow's rules.
    let held = unsafe { &mut *(*stream).private_data.cast::<Held>() };
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
    // SAFETY: a consumer's call, with a stream of ours and room for a schema.
    unsafe {
        run(stream, |held| {
            out.write(held.schema.export()?);
            Ok(())
        })
    }
}

unsafe extern "C" fn get_next(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowDeviceArray) -> c_int {
    // SAFETY: a consumer's call, with a stream of ours and room for an array.
    unsafe {
        run(stream, |held| {
            let array = held.arrays.next().transpose()?;
            out.write(array.map_or(ArrowDeviceArray::RELEASED, DeviceArray::into_raw));
            Ok(())
        })
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowDeviceArrayStream) -> *const c_char {
    // SAFETY: a consumer's call, with a stream of ours.
    unsafe { (*(*stream).private_data.cast::<Held>()).error.as_ptr() }
}

unsafe extern "C" fn end(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: a consumer's only call, with a stream of ours.
    let held = unsafe {
        (*stream).release = None;
        Box::from_raw((*stream).private_data.cast::<Held>())
    };
    let _ = call_back(|| drop(held));
}
