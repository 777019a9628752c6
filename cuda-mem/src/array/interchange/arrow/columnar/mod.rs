//! Record batches of the `arrow` crates with their buffers on a device.

mod ipc;
mod shape;

use super::raw::ArrowSchema;
use super::{ArrayNode, ArrowError, DeviceArray, ImportedArray, ImportedNode};
use crate::array::interchange::TensorDevice;
use crate::buffer::{TransferDestination, TransferSource};
use crate::memory::resource::{ResourceHandle, kind::Any};
use crate::{Buffer, Result, SharedBuffer, Stream};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_buffer::MutableBuffer;
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Fields, Schema, SchemaRef};
use core::mem::ManuallyDrop;
use shape::{Sizes, children_of, sizes};
use std::sync::Arc;

pub use ipc::{IpcMessage, read_message, read_record_batch, serialize_record_batch};

impl From<arrow_schema::ArrowError> for ArrowError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        ArrowError::Library { message: error.to_string().into() }
    }
}

impl From<arrow_schema::ArrowError> for crate::Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        ArrowError::from(error).into()
    }
}

/// A record batch in memory of buffers, on a device or on the host.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Stream, memory::DeviceMemory};
/// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
/// use arrow_array::{Int32Array, RecordBatch, StringArray};
/// use cuda_mem::interchange::arrow::DeviceBatch;
/// use std::sync::Arc;
/// let batch = RecordBatch::try_from_iter([
///     ("number", Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])) as _),
///     ("text", Arc::new(StringArray::from(vec!["a", "bc", ""])) as _),
/// ])?;
/// let there = DeviceBatch::upload(&batch, &memory, &stream)?;
/// assert_eq!(there.download()?, batch);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceBatch {
    schema: SchemaRef,
    /// A structure array of the columns.
    node: ArrayNode,
}

/// The alignment of each buffer in bytes, as Arrow recommends.
const ALIGNMENT: usize = 64;

// SAFETY: the bytes are on the heap, where a move leaves them, and nothing else reaches them.
unsafe impl TransferDestination<u8> for MutableBuffer {
    fn destination(&mut self) -> &mut [u8] {
        self.as_slice_mut()
    }
}

/// The bytes of an Arrow buffer.
struct BufferBytes(arrow_buffer::Buffer);

// SAFETY: the bytes are on the heap, or the buffer holds their owner; nobody changes them.
unsafe impl TransferSource<u8> for BufferBytes {
    fn source(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl DeviceBatch {
    /// Copies a batch to memory of a resource: one allocation for all buffers, one copy for each.
    ///
    /// # Errors
    ///
    /// No memory is left.
    pub fn upload<R>(batch: &RecordBatch, resource: &R, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle + ?Sized,
    {
        let data = StructArray::from(batch.clone()).into_data();
        let mut pieces = Vec::new();
        let planned = plan(&data, &mut pieces);
        let size = pieces.last().map_or(0, |(offset, piece): &(usize, arrow_buffer::Buffer)| offset + piece.len());
        let memory = Buffer::<u8, R::Kind>::zeroed(resource, size, stream)?;
        let mut memory = memory.into_any();
        let mut transfers = Vec::new();
        for (offset, piece) in &pieces {
            transfers.push(memory.upload(*offset, BufferBytes(piece.clone()))?);
        }
        for transfer in transfers {
            transfer.wait()?;
        }
        let memory = memory.into_shared();
        Ok(Self { schema: batch.schema(), node: planned.place(&memory)? })
    }

    /// Copies the batch to the host and waits for the copy.
    ///
    /// # Errors
    ///
    /// The values are invalid for their types.
    pub fn download(&self) -> Result<RecordBatch> {
        let fields = self.schema.fields().clone();
        let data = download(&self.node, &DataType::Struct(fields))?;
        let columns = StructArray::from(data).into_parts().1;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(self.node.length));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// The columns' names and types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The numbers and buffers, as a structure array of the columns.
    pub fn node(&self) -> &ArrayNode {
        &self.node
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.node.length
    }

    /// The device of the buffers; `None` if the batch has no memory.
    ///
    /// # Errors
    ///
    /// The buffers lie on several devices.
    pub fn device(&self) -> Result<Option<TensorDevice>> {
        self.node.device()
    }

    /// Exports the batch by the C device data interface: [`ArrayNode::export`]. The receiver must release the schema,
    /// by `release` or [`Schema::import`](super::Schema::import).
    ///
    /// # Errors
    ///
    /// The interface has no format for a type; as [`ArrayNode::export`].
    pub fn export(&self, stream: &Stream) -> Result<(DeviceArray, ArrowSchema)> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref())?;
        let array = self.node.export(stream)?;
        let schema = ManuallyDrop::new(schema);
        // SAFETY: both have the layout of the specification, and `ManuallyDrop` prevents another use of the source.
        Ok((array, unsafe { core::ptr::read((&raw const *schema).cast::<ArrowSchema>()) }))
    }

    /// Imports a batch. `stream` becomes its home stream and waits for the producer's event. The call waits for the
    /// lengths of text and lists, which the device has.
    ///
    /// # Errors
    ///
    /// The schema is not a structure, or does not fit the array.
    ///
    /// # Safety
    ///
    /// As for [`ImportedArray::wait`] and [`ImportedArray::buffer`]. `schema` is a schema; this call releases it.
    pub unsafe fn import(array: &ImportedArray, schema: &mut ArrowSchema, stream: &Stream) -> Result<Self> {
        if schema.release.is_none() {
            return Err(ArrowError::Released { what: "the schema" }.into());
        }
        // SAFETY: a schema by this function's contract, with the layout of the specification. `from_raw` marks the
        // source as released.
        let schema = unsafe { FFI_ArrowSchema::from_raw((&raw mut *schema).cast()) };
        let schema = Arc::new(Schema::try_from(&schema)?);
        // SAFETY: this function's contract.
        unsafe { array.wait(stream) }?;
        let kind = DataType::Struct(schema.fields().clone());
        // SAFETY: this function's contract.
        let node = unsafe { adopt(array, array.node(), &kind, stream) }?;
        Ok(Self { schema, node })
    }
}

/// A node with planned buffers: where each begins, and its length.
struct Planned {
    node: ArrayNode,
    places: Vec<Option<(usize, usize)>>,
    children: Vec<Planned>,
    dictionary: Option<Box<Planned>>,
}

/// Plans the places of an array's buffers, and of its children's.
fn plan(data: &ArrayData, pieces: &mut Vec<(usize, arrow_buffer::Buffer)>) -> Planned {
    let layout = arrow_data::layout(data.data_type());
    let mut places = Vec::new();
    let mut place = |piece: arrow_buffer::Buffer| {
        let end = pieces.last().map_or(0, |(offset, piece)| offset + piece.len());
        let (offset, length) = (end.next_multiple_of(ALIGNMENT), piece.len());
        pieces.push((offset, piece));
        Some((offset, length))
    };
    if layout.can_contain_null_mask {
        places.push(validity(data).and_then(&mut place));
    }
    places.extend(data.buffers().iter().map(|buffer| place(buffer.clone())));
    if layout.variadic {
        let lengths: Vec<i64> = data.buffers()[1..].iter().map(|buffer| buffer.len() as i64).collect();
        places.push(place(arrow_buffer::Buffer::from_vec(lengths)));
    }
    let is_coded = matches!(data.data_type(), DataType::Dictionary(..));
    let mut inner = data.child_data().iter().map(|child| plan(child, pieces));
    let dictionary = if is_coded { inner.next().map(Box::new) } else { None };
    let node = ArrayNode {
        length: data.len(),
        null_count: Some(data.null_count()),
        offset: data.offset(),
        ..ArrayNode::default()
    };
    Planned { node, places, children: inner.collect(), dictionary }
}

/// The validity with the same offset as the values, as Arrow's structures have it.
fn validity(data: &ArrayData) -> Option<arrow_buffer::Buffer> {
    let nulls = data.nulls()?;
    if nulls.offset() == data.offset() {
        return Some(nulls.buffer().clone());
    }
    let mut bits = arrow_buffer::BooleanBufferBuilder::new(data.offset() + data.len());
    bits.append_n(data.offset(), true);
    bits.append_buffer(nulls.inner());
    Some(bits.finish().into_inner())
}

impl Planned {
    fn place(self, memory: &SharedBuffer<u8, Any>) -> Result<ArrayNode> {
        let part = |place: Option<(usize, usize)>| {
            place.map(|(offset, length)| memory.slice(offset..offset + length)).transpose()
        };
        Ok(ArrayNode {
            buffers: self.places.into_iter().map(part).collect::<Result<_>>()?,
            children: self.children.into_iter().map(|child| child.place(memory)).collect::<Result<_>>()?,
            dictionary: self.dictionary.map(|values| values.place(memory)).transpose()?.map(Box::new),
            ..self.node
        })
    }
}

/// Copies a node to the host as an array of type `kind`.
fn download(node: &ArrayNode, kind: &DataType) -> Result<ArrayData> {
    let layout = arrow_data::layout(kind);
    let mut transfers = Vec::new();
    // Without the lengths of variadic buffers, because the buffers know their own.
    let said = node.buffers.len() - usize::from(layout.variadic && !node.buffers.is_empty());
    let plan = sizes(kind, node.length.saturating_add(node.offset))?;
    for (index, buffer) in node.buffers[..said].iter().enumerate() {
        let size = wanted(node, &plan.buffers, index, layout.can_contain_null_mask)?;
        let room = MutableBuffer::from_len_zeroed(size);
        transfers.push(match buffer {
            Some(buffer) => Ok(buffer.download(0, room)?),
            None => Err(room),
        });
    }
    let mut buffers = Vec::new();
    for (transfer, buffer) in transfers.into_iter().zip(&node.buffers) {
        let bytes: arrow_buffer::Buffer = match transfer {
            Ok(transfer) => transfer.wait()?.into(),
            Err(room) => room.into(),
        };
        buffers.push(buffer.is_some().then_some(bytes));
    }
    let mut builder = ArrayDataBuilder::new(kind.clone()).len(node.length).offset(node.offset);
    let mut buffers = buffers.into_iter();
    if layout.can_contain_null_mask {
        let validity = buffers.next().flatten();
        builder = builder.null_bit_buffer(validity.filter(|_| node.null_count != Some(0)));
    }
    builder = builder.buffers(buffers.map(|bytes| bytes.unwrap_or_else(|| MutableBuffer::new(0).into())).collect());
    let kinds = children_of(kind);
    let inner = node.children.iter().chain(node.dictionary.as_deref());
    expect(kind, "children", inner.clone().count(), kinds.len())?;
    for (child, kind) in inner.zip(&kinds) {
        builder = builder.add_child_data(download(child, kind)?);
    }
    // Other libraries may send values that their types do not allow, or unaligned buffers.
    Ok(builder.align_buffers(true).build()?)
}

/// How many bytes of a buffer the node's values need. The `arrow` crates assume whole values.
fn wanted(node: &ArrayNode, plan: &[Sizes], index: usize, has_validity: bool) -> Result<usize, ArrowError> {
    let seen = node.buffers[index].as_ref().map_or(0, SharedBuffer::len);
    let Some(Sizes::Known(size)) = plan.get(index) else { return Ok(seen) };
    // A validity may be absent, and so may all buffers of an array without values.
    let may_lack = node.buffers[index].is_none() && has_validity && index == 0 || node.length + node.offset == 0;
    match seen {
        _ if seen >= *size => Ok(*size),
        _ if may_lack => Ok(0),
        _ => Err(ArrowError::Number {
            what: "the size of a buffer",
            value: seen as i64,
            rule: "it must hold all values of its array",
        }),
    }
}

fn expect(kind: &DataType, what: &'static str, seen: usize, expected: usize) -> Result<(), ArrowError> {
    if seen == expected {
        return Ok(());
    }
    Err(ArrowError::Shape { format: kind.to_string().into(), what, seen, expected })
}

/// Makes buffers from an array's addresses, with the sizes that its type requires.
///
/// # Safety
///
/// As for [`ImportedArray::buffer`].
unsafe fn adopt(array: &ImportedArray, node: &ImportedNode, kind: &DataType, stream: &Stream) -> Result<ArrayNode> {
    let mut made =
        ArrayNode { length: node.length, null_count: node.null_count, offset: node.offset, ..ArrayNode::default() };
    let end = node.length + node.offset;
    let plan = sizes(kind, end)?;
    if plan.variadic {
        let at_least = plan.buffers.len() + 1;
        if node.buffers.len() < at_least {
            expect(kind, "buffers", node.buffers.len(), at_least)?;
        }
    } else {
        expect(kind, "buffers", node.buffers.len(), plan.buffers.len())?;
    }
    let take = |address: u64, size: usize| -> Result<Option<SharedBuffer<u8, Any>>> {
        if address == 0 {
            return Ok(None);
        }
        // SAFETY: this function's contract; `size` follows from the type.
        unsafe { array.buffer(address, size, stream) }.map(Some)
    };
    for (address, size) in node.buffers.iter().zip(&plan.buffers) {
        let size = match size {
            Sizes::Known(size) => *size,
            Sizes::LastOffset { width } => last_offset(made.buffers.last(), *width, end)?,
        };
        made.buffers.push(take(*address, size)?);
    }
    if plan.variadic {
        let rest = &node.buffers[plan.buffers.len()..];
        let (addresses, lengths) = (&rest[..rest.len() - 1], rest[rest.len() - 1]);
        let lengths = take(lengths, addresses.len() * 8)?;
        let said = lengths.as_ref().map_or(Ok(Vec::new()), |lengths| lengths.to_vec())?;
        for (address, length) in addresses.iter().zip(said.chunks_exact(8)) {
            let length = i64::from_ne_bytes(length.try_into().unwrap_or_default());
            let rule = "it must not be negative";
            let error = ArrowError::Number { what: "a variadic buffer's length", value: length, rule };
            made.buffers.push(take(*address, usize::try_from(length).map_err(|_| error)?)?);
        }
        made.buffers.push(lengths);
    }
    let kinds = children_of(kind);
    let inner: Vec<&ImportedNode> = node.children.iter().chain(node.dictionary.as_deref()).collect();
    expect(kind, "children", inner.len(), kinds.len())?;
    for (child, kind) in inner.into_iter().zip(&kinds) {
        // SAFETY: this function's contract.
        made.children.push(unsafe { adopt(array, child, kind, stream) }?);
    }
    if node.dictionary.is_some() {
        made.dictionary = made.children.pop().map(Box::new);
    }
    Ok(made)
}

/// The last of `count` + 1 offsets, which is the size of the values in bytes.
fn last_offset(offsets: Option<&Option<SharedBuffer<u8, Any>>>, width: usize, count: usize) -> Result<usize> {
    let Some(Some(offsets)) = offsets else { return Ok(0) };
    let mut last = [0; 8];
    offsets.copy_to_slice(count * width, &mut last[..width])?;
    let value = match width {
        4 => i64::from(i32::from_ne_bytes([last[0], last[1], last[2], last[3]])),
        _ => i64::from_ne_bytes(last),
    };
    let error = ArrowError::Number { what: "the last offset of an array", value, rule: "it must not be negative" };
    Ok(usize::try_from(value).map_err(|_| error)?)
}

/// The columns of a schema as one structure type.
fn structure(fields: &Fields) -> DataType {
    DataType::Struct(fields.clone())
}

#[cfg(test)]
mod tests;
