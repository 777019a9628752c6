//! Copies between views.

use super::body::Body;
use super::pool::PoolBase;
use super::resource::SourceBase;
use super::transfer;
use super::view::StridedMemoryView;
use crate::capsule::{self, Request};
use crate::context::open;
use crate::error::{Failure, Outcome, failed_as, refused, shown};
use crate::resource::MemoryResource;
use crate::signals;
use crate::stream::with_stream;
use core::ptr;
use cuda_mem::interchange::dlpack::{FLAG_IS_COPIED, ManagedTensor, export};
use cuda_mem::interchange::{SharedTensor, TensorDevice};
use cuda_mem::memory::SharedResource;
use cuda_mem::view::{Order, StridedLayout, StridedView, ViewCopyOptions};
use cuda_mem::{DataType, Error, Stream};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

type View<'a, 'py> = &'a Bound<'py, StridedMemoryView>;

/// Copies the elements of a view into another one.
pub fn copy(
    to: View<'_, '_>,
    from: View<'_, '_>,
    stream: Option<&Bound<'_, PyAny>>,
    allocator: Option<&Bound<'_, PyAny>>,
    blocking: Option<bool>,
) -> Outcome {
    let py = to.py();
    if to.get().readonly {
        return Err(refused("the destination of the copy is read-only"));
    }
    let temporary = allocator.map(resource_of).transpose()?;
    let data_type = common_type(to, from)?;
    let devices = (to.get().device(py)?, from.get().device(py)?);
    // Nobody closes the buffers during the call.
    let buffers = [to, from].into_iter().filter_map(|view| view.get().buffer(py));
    let bodies = buffers.map(|buffer| buffer.get().open()).collect::<Outcome<Vec<_>>>()?;
    let bodies: Vec<&Body> = bodies.iter().map(|body| &**body).collect();
    if devices == (TensorDevice::Cpu, TensorDevice::Cpu) {
        let (mut to, from) = (on_cpu(to, data_type)?, on_cpu(from, data_type)?);
        return py.detach(|| to.copy_from(&from)).map_err(wrong);
    }
    let default = Stream::legacy_default(&open(py, ordinal(to, from))?);
    with_stream(stream, &default, |stream| {
        let (mut to, from) = (side(to, devices.0, data_type, stream)?, side(from, devices.1, data_type, stream)?);
        let mut options = ViewCopyOptions::default();
        (options.stream, options.blocking, options.temporary) = (Some(stream), blocking, temporary.as_ref());
        signals::detach(py, || transfer::ordered(&bodies, stream, |_| to.copy_from_with(&from, &options)))?
            .map_err(wrong)
    })
}

/// The resource of an argument.
fn resource_of(allocator: &Bound<'_, PyAny>) -> Outcome<SharedResource> {
    if let Ok(resource) = allocator.cast::<MemoryResource>() {
        Ok(resource.get().source.share())
    } else if let Ok(resource) = allocator.cast::<SourceBase>() {
        resource.get().share()
    } else if let Ok(resource) = allocator.cast::<PoolBase>() {
        PoolBase::share(resource)
    } else {
        let text =
            format!("allocator must be a memory resource that cuda_mem implements, or None, not {}", shown(allocator));
        Err(PyTypeError::new_err(text).into())
    }
}

/// Shapes and types that do not fit are wrong arguments here.
fn wrong(error: Error) -> Failure {
    match error {
        Error::View(_) => failed_as("ArgumentError", &error),
        error => error.into(),
    }
}

/// The device whose stream orders a copy: the destination's, if it is on one.
fn ordinal(to: View<'_, '_>, from: View<'_, '_>) -> i32 {
    let mut ordinals = [to, from].into_iter().filter(|view| view.get().is_device_accessible);
    ordinals.next().map_or(0, |view| view.get().device_id.max(0))
}

/// The element type of both views; plain bytes if one has none that DLPack knows.
fn common_type(to: View<'_, '_>, from: View<'_, '_>) -> Outcome<DataType> {
    let (py, to, from) = (to.py(), to.get(), from.get());
    match (to.dtype(py)?, from.dtype(py)?) {
        (Some(one), Some(two)) if !one.eq(&two)? => {
            return Err(refused(format!("the views have different types: a copy of {two} into {one}")));
        }
        _ => {}
    }
    let (size, other) = (to.layout(py)?.get().inner.item_size(), from.layout(py)?.get().inner.item_size());
    if size != other {
        return Err(refused(format!("the views have elements of {size} and {other} bytes")));
    }
    Ok(DataType::opaque(size)?)
}

/// A view's memory and layout, for a copy on the stream.
fn side(
    view: View<'_, '_>,
    device: TensorDevice,
    data_type: DataType,
    stream: &Stream,
) -> Outcome<StridedView<'static>> {
    match device {
        TensorDevice::Cpu => on_cpu(view, data_type),
        _ => Ok(shared(view, data_type, stream)?.into_view()?),
    }
}

/// A view of memory that only the CPU addresses.
fn on_cpu(view: View<'_, '_>, data_type: DataType) -> Outcome<StridedView<'static>> {
    let (py, this) = (view.py(), view.get());
    this.check_open(py)?;
    let layout = this.layout(py)?.get().inner.clone();
    let (low, size) = match layout.offset_bounds() {
        Some(bounds) => (bounds.start() - layout.offset(), (bounds.end() - bounds.start() + 1) as usize),
        None => (0, 0),
    };
    let item_size = layout.item_size();
    let start = this.ptr.wrapping_add_signed(low * item_size as i64) as usize;
    let (start, layout) = (ptr::with_exposed_provenance_mut(start), layout.with_offset(-low).map_err(Error::from)?);
    let owner = Arc::new(view.clone().unbind());
    // SAFETY: the exporter describes memory that lives as long as the view, which the owner keeps. The program must not use
    // the memory during the copy, as it must not with numpy.
    Ok(unsafe { StridedView::of_host_memory(start, size * item_size, owner, data_type, layout) }?)
}

/// The view as an array whose work is ordered by the stream.
fn shared(view: View<'_, '_>, data_type: DataType, stream: &Stream) -> Outcome<SharedTensor> {
    let py = view.py();
    let imported = view.get().tensor(py, data_type)?.export(view.clone().unbind()).check()?;
    // SAFETY: the exporter describes memory that lives as long as the view, which the tensor keeps. The program orders its
    // work on the memory, and its free, with the stream of the copy.
    Ok(py.detach(|| unsafe { imported.into_shared(stream, Some(stream)) })?)
}

/// A copy of a view for a consumer of DLPack.
pub fn exported_copy(
    view: View<'_, '_>,
    stream: Option<&Bound<'_, PyAny>>,
    request: Request,
) -> Outcome<ManagedTensor> {
    let (py, this) = (view.py(), view.get());
    let data_type = this.data_type(py)?;
    let buffer = this.buffer(py);
    // Nobody closes the buffer during the copy.
    let body = buffer.as_ref().map(|buffer| buffer.get().open()).transpose()?;
    let cpu = capsule::device(TensorDevice::Cpu);
    if this.device(py)? == TensorDevice::Cpu && request.device.is_none_or(|wanted| wanted == cpu) {
        return copied_on_cpu(view, data_type);
    }
    let home = match body.as_ref().and_then(|body| body.memory.home()) {
        Some(home) => home.clone(),
        None => Stream::legacy_default(&open(py, this.device_id.max(0))?),
    };
    let stream = stream.map(super::view_import::integer).transpose()?;
    let array = shared(view, data_type, &home)?;
    capsule::managed(py, &array, stream.filter(|stream| *stream != 0), request)
}

/// A dense copy in memory of the heap.
fn copied_on_cpu(view: View<'_, '_>, data_type: DataType) -> Outcome<ManagedTensor> {
    let py = view.py();
    let from = on_cpu(view, data_type)?;
    let layout = StridedLayout::dense(from.shape(), data_type.padded_size(), Order::C).map_err(Error::from)?;
    let mut bytes = vec![0_u8; layout.size_in_bytes()];
    let address = bytes.as_mut_ptr();
    // SAFETY: the bytes outlive the view, which ends in this call.
    let mut to = unsafe { StridedView::of_host_memory(address, bytes.len(), Arc::new(()), data_type, layout.clone())? };
    py.detach(|| to.copy_from(&from))?;
    let tensor = view.get().tensor(py, data_type)?;
    let copied = cuda_mem::interchange::Tensor::new(&cuda_mem::interchange::TensorParts {
        address: address.expose_provenance() as u64,
        device: TensorDevice::Cpu,
        data_type,
        shape: tensor.shape(),
        strides: Some(layout.strides()),
        read_only: false,
        padded: true,
    })?;
    Ok(export(&copied, FLAG_IS_COPIED, bytes))
}
