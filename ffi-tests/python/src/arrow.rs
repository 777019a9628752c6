//! Arrow.

use crate::{Outcome, Session, boxed, code, run};
use cuda_mem::DataType;
use cuda_mem::interchange::arrow::{
    ArrayNode, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema, DeviceArray, DeviceArrayStream, Schema,
};
use cuda_mem::interchange::{SharedTensor, TensorDevice};
use std::ptr;

fn format_of(data_type: DataType) -> Outcome<&'static str> {
    Ok(match data_type {
        DataType::INT8 => "c",
        DataType::INT32 => "i",
        DataType::INT64 => "l",
        DataType::FLOAT32 => "f",
        DataType::FLOAT64 => "g",
        other => return Err(format!("{other} has no letter here").into()),
    })
}

/// The tensor as one Arrow column, without missing values.
fn column(tensor: &SharedTensor) -> Outcome<(ArrayNode, Schema)> {
    let format = format_of(tensor.tensor().data_type())?;
    let buffers = vec![None, Some(tensor.memory()?.clone())];
    let node = ArrayNode { length: tensor.tensor().len(), null_count: Some(0), buffers, ..ArrayNode::default() };
    Ok((node, Schema::new(format)))
}

/// Exports a tensor as an Arrow array.
///
/// # Safety
///
/// Session and tensor are alive, and there is room for both structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_to_arrow(
    session: &Session,
    tensor: &SharedTensor,
    array: *mut ArrowDeviceArray,
    schema: *mut ArrowSchema,
    as_cpu: bool,
) -> i32 {
    code(|| {
        let (node, kind) = column(tensor)?;
        let mut exported = node.export(&session.stream)?.into_raw();
        if as_cpu {
            // For consumers that know no other device: pinned and managed memory is also CPU memory.
            session.stream.synchronize()?;
            (exported.device_type, exported.sync_event) = (1, ptr::null_mut());
        }
        // SAFETY: this function's contract.
        unsafe {
            schema.write(kind.export()?);
            array.write(exported);
        }
        Ok(())
    })
}

/// Imports an array of numbers without missing values, after its event.
///
/// # Safety
///
/// The session is open. Both are Arrow structures, and the call consumes them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_from_arrow(
    session: &Session,
    array: *mut ArrowDeviceArray,
    schema: *mut ArrowSchema,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract.
        unsafe {
            let kind = Schema::import(schema.as_mut().ok_or("no schema")?)?;
            let array = DeviceArray::from_raw(array)?.check()?;
            let numbers = [DataType::INT8, DataType::INT32, DataType::INT64, DataType::FLOAT32, DataType::FLOAT64];
            let data_type = numbers.into_iter().find(|number| format_of(*number).ok() == Some(&kind.format));
            let data_type = data_type.ok_or_else(|| format!("format {:?} is none of numbers", kind.format))?;
            array.wait(&session.stream)?;
            let node = array.node();
            let [_, values] = node.buffers[..] else { return Err("an array of numbers has two buffers".into()) };
            let size = data_type.padded_size();
            let buffer = array.buffer(values, (node.offset + node.length) * size, &session.stream)?;
            let shape = [i64::try_from(node.length)?];
            Ok(buffer.tensor().with_type_and_layout(data_type, node.offset * size, &shape, None)?)
        }
    })
}

/// Exports a stream with that many arrays, each of the tensor.
///
/// # Safety
///
/// Session and tensor are alive, and there is room for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_to_arrow_stream(
    session: &Session,
    tensor: &SharedTensor,
    count: usize,
    out: *mut ArrowDeviceArrayStream,
) -> i32 {
    code(|| {
        let (node, kind) = column(tensor)?;
        let stream = session.stream.clone();
        let table = ArrayNode {
            length: node.length,
            null_count: Some(0),
            buffers: vec![None],
            children: vec![node],
            ..ArrayNode::default()
        };
        let schema = Schema { children: vec![Schema { name: "x".into(), ..kind }], ..Schema::new("+s") };
        let arrays = (0..count).map(move |_| {
            let mut array = table.export(&stream)?.into_raw();
            stream.synchronize()?;
            (array.device_type, array.sync_event) = (1, ptr::null_mut());
            // SAFETY: the array was exported just now.
            Ok(unsafe { DeviceArray::from_raw(&mut array) }?)
        });
        // SAFETY: this function's contract.
        unsafe { out.write(DeviceArrayStream::new(schema, TensorDevice::Cpu, arrays).into_raw()) };
        Ok(())
    })
}

/// Consumes a stream of arrays and counts its rows. Returns -1 on error.
///
/// # Safety
///
/// The stream is an Arrow stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_count_rows(stream: *mut ArrowDeviceArrayStream) -> i64 {
    let rows = run(|| {
        // SAFETY: this function's contract.
        let mut stream = unsafe { DeviceArrayStream::from_raw(stream) }?;
        stream.schema()?;
        stream.try_fold(0, |rows, array| Ok(rows + array?.check()?.node().length as i64))
    });
    rows.unwrap_or(-1)
}
