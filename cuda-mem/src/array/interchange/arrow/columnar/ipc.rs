//! Arrow's IPC messages in memory of buffers, with the functions of `pyarrow.cuda`: `serialize_record_batch`,
//! `read_message` and `read_record_batch`.

use super::{DeviceBatch, expect, structure};
use crate::array::interchange::arrow::{ArrayNode, ArrowError};
use crate::memory::resource::{Kind, ResourceHandle, kind::Any};
use crate::{Buffer, Error, Result, SharedBuffer, Stream};
use arrow_array::RecordBatch;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message};
use arrow_ipc::{MessageHeader, MetadataVersion};
use arrow_schema::{DataType, SchemaRef};

/// The first word of a message, since Arrow 0.15.
const CONTINUATION: u32 = u32::MAX;

fn library(error: impl core::fmt::Display) -> Error {
    ArrowError::Library { message: error.to_string().into() }.into()
}

/// Writes a batch as one message into memory of a resource: the same bytes as the `arrow` crates write on the host.
///
/// # Errors
///
/// A dictionary-encoded column, whose dictionary would need a message of its own; no memory is left.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Stream, memory::DeviceMemory};
/// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
/// use arrow_array::{Int32Array, RecordBatch};
/// use cuda_mem::interchange::arrow::{read_record_batch, serialize_record_batch};
/// use std::sync::Arc;
/// let batch = RecordBatch::try_from_iter([("x", Arc::new(Int32Array::from(vec![1, 2, 3])) as _)])?;
/// let message = serialize_record_batch(&batch, &memory, &stream)?.into_shared();
/// let there = read_record_batch(&message, &batch.schema())?; // its columns are parts of the message
/// assert_eq!(there.download()?, batch);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[doc(alias = "pyarrow.cuda.serialize_record_batch")]
pub fn serialize_record_batch<R>(batch: &RecordBatch, resource: &R, stream: &Stream) -> Result<Buffer<u8, R::Kind>>
where
    R: ResourceHandle + ?Sized,
{
    let options = IpcWriteOptions::default();
    let (mut tracker, mut context) = (DictionaryTracker::new(false), IpcWriteContext::default());
    let generator = IpcDataGenerator {};
    // The schema tells the tracker about the dictionaries.
    generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options);
    let (dictionaries, encoded) = generator.encode(batch, &mut tracker, &options, &mut context)?;
    if !dictionaries.is_empty() {
        return Err(library(
            "a dictionary-encoded column needs a message of its own: cast the column to its values first",
        ));
    }
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options)?;
    Buffer::from_slice(resource, &bytes, stream)
}

/// A message: its description, copied to the host, and its body, which stays in place.
#[derive(Clone, Debug)]
pub struct IpcMessage<K: Kind = Any> {
    metadata: Vec<u8>,
    body: SharedBuffer<u8, K>,
    size: usize,
}

impl<K: Kind> IpcMessage<K> {
    /// The description: a verified flatbuffer.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// The body.
    pub fn body(&self) -> &SharedBuffer<u8, K> {
        &self.body
    }

    /// The size of the message in bytes. The next message begins there.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// Reads the message at the start of a buffer. Copies only its description to the host.
///
/// # Errors
///
/// No message, or the end of a stream; a message that is damaged or longer than the buffer.
#[doc(alias = "pyarrow.cuda.read_message")]
pub fn read_message<K: Kind>(buffer: &SharedBuffer<u8, K>) -> Result<IpcMessage<K>> {
    let word = |offset: usize| -> Result<u32> {
        let mut bytes = [0; 4];
        buffer.copy_to_slice(offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    if buffer.len() < 4 {
        return Err(library(format!("the buffer has {} bytes, but a message has at least 4", buffer.len())));
    }
    let (length, begin) = match word(0)? {
        CONTINUATION => (word(4)?, 8),
        length => (length, 4),
    };
    let length = match usize::try_from(length) {
        Ok(0) => return Err(library("the message has 0 bytes: it marks the end of a stream")),
        Ok(length) if length <= buffer.len() - begin => length,
        _ => {
            return Err(Error::OutOfRange {
                call: "read_message",
                offset: begin,
                length: length as usize,
                size: buffer.len(),
            });
        }
    };
    let metadata = buffer.slice(begin..begin + length)?.to_vec()?;
    let size = {
        let message = arrow_ipc::root_as_message(&metadata).map_err(library)?;
        let size = message.bodyLength();
        usize::try_from(size).map_err(|_| library(format!("the message's body has an invalid size of {size} bytes")))?
    };
    let body = begin + length;
    if size > buffer.len() - body {
        return Err(Error::OutOfRange { call: "read_message", offset: body, length: size, size: buffer.len() });
    }
    Ok(IpcMessage { metadata, body: buffer.slice(body..body + size)?, size: body + size })
}

/// Reads the batch of a message. Copies only the description; the columns are parts of the message's memory.
///
/// # Errors
///
/// As [`read_message`]; the message is no record batch, does not fit the schema, is compressed, or has dictionaries.
#[doc(alias = "pyarrow.cuda.read_record_batch")]
pub fn read_record_batch<K: Kind>(buffer: &SharedBuffer<u8, K>, schema: &SchemaRef) -> Result<DeviceBatch> {
    let message = read_message(buffer)?;
    let root = arrow_ipc::root_as_message(&message.metadata).map_err(library)?;
    if root.header_type() != MessageHeader::RecordBatch {
        return Err(library(format!("the message is a {:?}, but it must be a record batch", root.header_type())));
    }
    if root.version() < MetadataVersion::V5 {
        return Err(library(format!(
            "the message has version {:?}, but only V5 and newer can be read",
            root.version()
        )));
    }
    let batch = root.header_as_record_batch().ok_or_else(|| library("the message contains no batch"))?;
    if batch.compression().is_some() {
        return Err(library("the batch is compressed, but columns are used in place: write it without compression"));
    }
    let (nodes, buffers) = (batch.nodes().unwrap_or_default(), batch.buffers().unwrap_or_default());
    let mut walk = Walk {
        nodes: nodes.iter().map(|node| (node.length(), node.null_count())).collect::<Vec<_>>().into_iter(),
        buffers: buffers.iter().map(|buffer| (buffer.offset(), buffer.length())).collect::<Vec<_>>().into_iter(),
        variadic: batch.variadicBufferCounts().iter().flatten().collect::<Vec<_>>().into_iter(),
        body: message.body.clone().into_any(),
    };
    let children = schema.fields().iter().map(|field| walk.node(field.data_type())).collect::<Result<Vec<_>>>()?;
    let kind = structure(schema.fields());
    expect(&kind, "surplus buffers", walk.buffers.len(), 0)?;
    expect(&kind, "surplus nodes", walk.nodes.len(), 0)?;
    let length = usize::try_from(batch.length()).map_err(library)?;
    if let Some(odd) = children.iter().find(|child| child.length != length) {
        expect(&kind, "rows in a column", odd.length, length)?;
    }
    let node = ArrayNode { length, null_count: Some(0), buffers: vec![None], children, ..ArrayNode::default() };
    Ok(DeviceBatch { schema: schema.clone(), node })
}

/// The unread rest of a batch's description, in the order of the schema's fields, children after their parents.
struct Walk<V: Iterator<Item = i64>> {
    nodes: std::vec::IntoIter<(i64, i64)>,
    buffers: std::vec::IntoIter<(i64, i64)>,
    variadic: V,
    body: SharedBuffer<u8, Any>,
}

impl<V: Iterator<Item = i64>> Walk<V> {
    fn node(&mut self, kind: &DataType) -> Result<ArrayNode> {
        if matches!(kind, DataType::Dictionary(..)) {
            return Err(library(
                "a dictionary-encoded column needs a message of its own: cast the column to its values first",
            ));
        }
        let (length, null_count) =
            self.nodes.next().ok_or_else(|| library(format!("the message has no node for a column of {kind}")))?;
        let number = |what, value: i64| {
            usize::try_from(value).map_err(|_| ArrowError::Number { what, value, rule: "it must not be negative" })
        };
        let mut node = ArrayNode {
            length: number("a node's length", length)?,
            null_count: Some(number("a node's null_count", null_count)?),
            ..ArrayNode::default()
        };
        let layout = arrow_data::layout(kind);
        if layout.can_contain_null_mask {
            let validity = self.buffer(kind)?;
            node.buffers.push(Some(validity).filter(|validity| !validity.is_empty()));
        }
        let more = if layout.variadic { self.variadic.next().unwrap_or_default() } else { 0 };
        let count = layout.buffers.len() + number("a count of variadic buffers", more)?;
        for _ in 0..count {
            node.buffers.push(Some(self.buffer(kind)?));
        }
        if layout.variadic && count > layout.buffers.len() {
            return Err(library(format!(
                "a column of {kind} has {more} variadic buffers, which cannot be read: cast it to Utf8 or Binary first"
            )));
        }
        if layout.variadic {
            // Without variadic buffers there are no lengths either.
            node.buffers.push(None);
        }
        for child in super::children_of(kind) {
            node.children.push(self.node(&child)?);
        }
        Ok(node)
    }

    fn buffer(&mut self, kind: &DataType) -> Result<SharedBuffer<u8, Any>> {
        let (offset, length) =
            self.buffers.next().ok_or_else(|| library(format!("the message has no buffer for a column of {kind}")))?;
        let size = self.body.len();
        match (usize::try_from(offset), usize::try_from(length)) {
            (Ok(offset), Ok(length)) if offset <= size && length <= size - offset => {
                self.body.slice(offset..offset + length)
            }
            _ => Err(library(format!("the body of {size} bytes has no {length} bytes at {offset} for a buffer"))),
        }
    }
}
