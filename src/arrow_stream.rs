//! Arrow: streams of arrays
//!
//! Arrays of one type, one after the other. Such a stream has nothing to do with a CUDA stream.

use crate::arrow::{own, take};
use crate::arrow_schema::NamedSchema;
use crate::call::{
    self, Out, Outcome, check_struct, destroy, drop_object, handle_type, invalid, list, object, out, run,
};
use crate::handle::Kind;
use crate::handles::cudamem_arrow_array;
use crate::handles::cudamem_arrow_schema;
use crate::handles::cudamem_arrow_stream;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use cuda_mem::Error;
use cuda_mem::interchange::TensorDevice;
use cuda_mem::interchange::arrow::{ArrowDeviceArrayStream, DeviceArrayStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Arrow's streams are for one thread at a time.
#[derive(Debug)]
pub struct Arrays(Mutex<DeviceArrayStream>);

handle_type!(cudamem_arrow_stream: Arrays, Kind::ArrowStream);

impl Arrays {
    fn lock(&self) -> MutexGuard<'_, DeviceArrayStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fills in a struct ArrowDeviceArrayStream of the program's, which gives count arrays one after the other, all of the type that
/// schema says and on one kind of device. Its release has to be called once. The handles stay the program's. stream is the CUDA
/// stream of the events that consumers of the arrays wait for.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an array that was imported, or arrays on several kinds of device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_stream_export(
    schema: cudamem_arrow_schema,
    arrays: *const cudamem_arrow_array,
    count: usize,
    stream: cudamem_stream,
    result: Out<'_, ArrowDeviceArrayStream>,
) -> cudamem_status {
    run("cudamem_arrow_stream_export", || {
        let result = out("result", result)?;
        // SAFETY: the header's rule for pointers.
        let arrays = unsafe { list("arrays", arrays, count) }?;
        let schema = object("schema", schema)?.schema.clone();
        let stream = (*object("stream", stream)?).clone();
        let nodes = arrays.iter().map(|array| own("arrays", *array)).collect::<Outcome<Vec<_>>>()?;
        let mut device = None;
        for node in &nodes {
            let here = node.device()?;
            if here.is_some() && device.is_some() && here != device {
                let value = format!("on {device:?} and {here:?}");
                return Err(invalid("arrays", value, "the arrays of one stream lie on one device"));
            }
            device = device.or(here);
        }
        let exports = nodes.into_iter().map(move |node| node.export(&stream));
        result.write(DeviceArrayStream::new(schema, device.unwrap_or(TensorDevice::Cpu), exports).into_raw());
        Ok(())
    })
}

/// Takes a struct ArrowDeviceArrayStream over: what source points to counts as released afterwards. After a failure it is the
/// program's as before.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it was released, or lacks a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_stream_import(
    source: *mut ArrowDeviceArrayStream,
    arrow_stream: Out<'_, cudamem_arrow_stream>,
) -> cudamem_status {
    run("cudamem_arrow_stream_import", || {
        let arrow_stream = out("arrow_stream", arrow_stream)?;
        check_struct("source", source)?;
        // SAFETY: the program's struct.
        let lacks = unsafe { (*source).get_schema.is_none() || (*source).get_next.is_none() };
        if lacks {
            return Err(invalid("source", "a struct without get_schema or get_next", "a stream has both"));
        }
        arrow_stream.write(call::new_handle_with(|| {
            // SAFETY: the program promises a stream of arrays.
            Ok(Arrays(Mutex::new(unsafe { DeviceArrayStream::from_raw(source) }?)))
        })?);
        Ok(())
    })
}

/// Gives the type of all arrays.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_stream_get_schema(
    arrow_stream: cudamem_arrow_stream,
    schema: Out<'_, cudamem_arrow_schema>,
) -> cudamem_status {
    run("cudamem_arrow_stream_get_schema", || {
        let schema = out("schema", schema)?;
        let read = object("arrow_stream", arrow_stream)?.lock().schema().map_err(Error::from)?;
        schema.write(call::new_handle(NamedSchema::from(read))?);
        Ok(())
    })
}

/// Gives the next array; after the last one the null handle. Threads that ask at once do so in turns.
///
/// Errors: the producer's, as CUDAMEM_ERROR_INVALID_ARGUMENT with its words.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_stream_next(
    arrow_stream: cudamem_arrow_stream,
    array: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_stream_next", || {
        let array = out("array", array)?;
        let next = object("arrow_stream", arrow_stream)?.lock().next().transpose().map_err(Error::from)?;
        array.write(match next {
            Some(next) => {
                let mut raw = next.into_raw();
                // SAFETY: the producer's array, which nobody else has.
                let taken = unsafe { take(&mut raw) };
                if let (Err(_), Some(release)) = (&taken, raw.array.release) {
                    // SAFETY: still ours, and not released.
                    unsafe { release(&mut raw.array) };
                }
                taken?
            }
            None => cudamem_arrow_array { id: 0 },
        });
        Ok(())
    })
}

/// Destroys the handle: the stream of arrays is released, and arrays that it gave stay. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_stream_destroy(arrow_stream: cudamem_arrow_stream) -> cudamem_status {
    run("cudamem_arrow_stream_destroy", || destroy("arrow_stream", arrow_stream, drop_object))
}
