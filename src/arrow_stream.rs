//! Arrow: streams of arrays
//!
//! An Arrow stream yields arrays of one type, one after the other. It is unrelated to a CUDA stream.

use crate::arrow::{own, take};
use crate::arrow_schema::NamedSchema;
use crate::call::{
    self, Out, Outcome, check_struct, destroy, drop_object, handle_type, invalid, list, object, out, run,
};
use crate::handles::cudamem_arrow_array;
use crate::handles::cudamem_arrow_schema;
use crate::handles::cudamem_arrow_stream;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use cuda_mem::Error;
use cuda_mem::interchange::TensorDevice;
use cuda_mem::interchange::arrow::{ArrowDeviceArrayStream, DeviceArrayStream};
use cuda_mem_dynamic::Mutex;

/// An Arrow stream. Arrow allows one thread at a time. None while a function of the producer runs.
#[derive(Debug)]
pub struct Arrays(Mutex<Option<DeviceArrayStream>>);

handle_type!(cudamem_arrow_stream: Arrays);

impl Arrays {
    /// Calls a function of the producer, without the lock. No thread waits for it: it may wait for that thread.
    fn with<R>(&self, call: impl FnOnce(&mut DeviceArrayStream) -> R) -> Outcome<R> {
        let rule = "one call at a time may read it; let the threads take turns";
        let taken = self.0.lock().take();
        let mut stream = taken.ok_or_else(|| invalid("arrow_stream", "in use by another call", rule))?;
        let result = call(&mut stream);
        *self.0.lock() = Some(stream);
        Ok(result)
    }
}

/// Fills in the program's struct ArrowDeviceArrayStream, which yields count arrays one after the other. All arrays must
/// have the type schema and lie on one kind of device. The consumer must call its release once. The handles stay the
/// program's. stream is the CUDA stream on which the library records the arrays' events for consumers.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an imported array, or for arrays on several kinds of device.
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
        // SAFETY: the header requires `count` valid entries.
        let arrays = unsafe { list("arrays", arrays, count) }?;
        let schema = object("schema", schema)?.schema.clone();
        let stream = (*object("stream", stream)?).clone();
        let nodes = arrays.iter().map(|array| own("arrays", *array)).collect::<Outcome<Vec<_>>>()?;
        let mut device = None;
        for node in &nodes {
            let here = node.device()?;
            if here.is_some() && device.is_some() && here != device {
                let value = format!("on {device:?} and {here:?}");
                return Err(invalid("arrays", value, "all arrays of one stream must lie on one device"));
            }
            device = device.or(here);
        }
        let exports = nodes.into_iter().map(move |node| node.export(&stream));
        result.write(DeviceArrayStream::new(schema, device.unwrap_or(TensorDevice::Cpu), exports).into_raw());
        Ok(())
    })
}

/// Takes over a struct ArrowDeviceArrayStream. On success source counts as released. On failure it stays unchanged.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream was released, or lacks a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_stream_import(
    source: *mut ArrowDeviceArrayStream,
    arrow_stream: Out<'_, cudamem_arrow_stream>,
) -> cudamem_status {
    run("cudamem_arrow_stream_import", || {
        let arrow_stream = out("arrow_stream", arrow_stream)?;
        check_struct("source", source)?;
        // SAFETY: the header requires a valid struct.
        let lacks = unsafe { (*source).get_schema.is_none() || (*source).get_next.is_none() };
        if lacks {
            return Err(invalid("source", "a struct without get_schema or get_next", "it must have both"));
        }
        arrow_stream.write(call::new_handle_with(|| {
            // SAFETY: the header requires a valid stream of arrays.
            Ok::<_, Error>(Arrays(Mutex::new(Some(unsafe { DeviceArrayStream::from_raw(source) }?))))
        })?);
        Ok(())
    })
}

/// Gets the type of all arrays.
///
/// Errors: as cudamem_arrow_stream_next.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_stream_get_schema(
    arrow_stream: cudamem_arrow_stream,
    schema: Out<'_, cudamem_arrow_schema>,
) -> cudamem_status {
    run("cudamem_arrow_stream_get_schema", || {
        let schema = out("schema", schema)?;
        let read = object("arrow_stream", arrow_stream)?.with(DeviceArrayStream::schema)?.map_err(Error::from)?;
        schema.write(call::new_handle(NamedSchema::from(read))?);
        Ok(())
    })
}

/// Gets the next array, or the null handle after the last one.
///
/// Errors: the producer's error, as CUDAMEM_ERROR_INVALID_ARGUMENT with the producer's message.
/// CUDAMEM_ERROR_INVALID_ARGUMENT also while another call reads the stream: threads must take turns.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_stream_next(
    arrow_stream: cudamem_arrow_stream,
    array: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_stream_next", || {
        let array = out("array", array)?;
        let next = object("arrow_stream", arrow_stream)?.with(Iterator::next)?.transpose().map_err(Error::from)?;
        array.write(match next {
            Some(next) => {
                let mut raw = next.into_raw();
                // SAFETY: the stream has just handed over this array.
                let taken = unsafe { take(&mut raw) };
                if let (Err(_), Some(release)) = (&taken, raw.array.release) {
                    // SAFETY: the import failed, so this call still owns the array.
                    unsafe { release(&mut raw.array) };
                }
                taken?
            }
            None => cudamem_arrow_array { id: 0 },
        });
        Ok(())
    })
}

/// Destroys the handle and releases the stream of arrays. Arrays that it yielded stay. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_stream_destroy(arrow_stream: cudamem_arrow_stream) -> cudamem_status {
    run("cudamem_arrow_stream_destroy", || destroy("arrow_stream", arrow_stream, drop_object))
}
