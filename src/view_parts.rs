//! Parts of views
//!
//! Other layouts of the same elements, and parts of them. Nothing is copied: each function makes a new view of the same
//! memory, and leaves the original view unchanged. CUDAMEM_ERROR_INVALID_ARGUMENT means that no such layout exists.

use crate::call::{self, Out, Outcome, invalid, object, out, run};
use crate::data_type::cudamem_data_type;
use crate::handles::cudamem_view;
use crate::status::cudamem_status;
use crate::view::{Layout, cudamem_view_layout, numbers};
use cuda_mem::DataType;
use cuda_mem::view::{Index, StridedView};
use smallvec::SmallVec;

/// Makes a handle for a changed copy of a view.
fn derive(
    view: cudamem_view,
    result: Out<'_, cudamem_view>,
    change: impl FnOnce(StridedView<'static>) -> Outcome<StridedView<'static>>,
) -> Outcome {
    let result = out("result", result)?;
    let view = object("view", view)?;
    result.write(call::new_handle_with(|| change(view.clone()))?);
    Ok(())
}

/// Makes a view of the same elements, in C order, with another shape of ndim extents. One extent may be -1: it follows
/// from the others. Axes of extent 1 can be added and removed anywhere.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the number of elements differs, or if no strides express that shape: copy
/// the elements to a dense view first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_reshape(
    view: cudamem_view,
    shape: *const i64,
    ndim: usize,
    result: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_reshape", || {
        // SAFETY: the header requires `count` valid entries.
        let shape = unsafe { numbers("shape", shape, ndim) }?;
        derive(view, result, |view| Ok(view.reshaped(shape)?))
    })
}

/// Reorders the axes: axes has count entries and names each axis once. Negative numbers count from the end, so -1 is
/// the last axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_permute(
    view: cudamem_view,
    axes: *const i64,
    count: usize,
    result: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_permute", || {
        // SAFETY: the header requires `count` valid entries.
        let axes = unsafe { numbers("axes", axes, count) }?;
        derive(view, result, |view| Ok(view.permuted(axes)?))
    })
}

/// For start or end of a cudamem_index: where the axis begins or ends.
pub const CUDAMEM_INDEX_OPEN: i64 = i64::MIN;

/// Selects a part of an axis, by Python's rules: negative numbers count from the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_index {
    /// The first index, or the only one.
    pub start: i64,
    /// The end, which is excluded. Ignored if step is 0.
    pub end: i64,
    /// The distance from each index to the next; a negative step runs backwards. 0 selects the single index start and
    /// removes the axis.
    pub step: i64,
}

impl From<cudamem_index> for Index {
    fn from(index: cudamem_index) -> Self {
        let known = |end| Some(end).filter(|end| *end != CUDAMEM_INDEX_OPEN);
        match index.step {
            0 => Index::At(index.start),
            step => Index::Slice { start: known(index.start), end: known(index.end), step },
        }
    }
}

/// Selects a part of each axis: indices has one entry for each of the first count axes, and the other axes stay whole.
/// A count of 0 makes a second handle for the same view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_slice(
    view: cudamem_view,
    indices: *const cudamem_index,
    count: usize,
    result: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_slice", || {
        // SAFETY: the header requires `count` valid entries.
        let indices = unsafe { numbers("indices", indices, count) }?;
        let indices: SmallVec<[Index; 4]> = indices.iter().map(|index| Index::from(*index)).collect();
        derive(view, result, |view| Ok(view.sliced(&indices)?))
    })
}

/// Repeats axes of extent 1 and adds axes in front, without more memory: their strides are 0. Such a view can be read;
/// a copy to it is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_broadcast(
    view: cudamem_view,
    shape: *const i64,
    ndim: usize,
    result: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_broadcast", || {
        // SAFETY: the header requires `count` valid entries.
        let shape = unsafe { numbers("shape", shape, ndim) }?;
        derive(view, result, |view| Ok(view.broadcast_to(shape)?))
    })
}

/// Merges all neighbouring axes that form one run of memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_flatten(view: cudamem_view, result: Out<'_, cudamem_view>) -> cudamem_status {
    run("cudamem_view_flatten", || derive(view, result, |view| Ok(view.flattened())))
}

/// Makes a view of the same bytes as elements of another type: an axis of stride 1 gets fewer or more of them. A
/// negative axis counts from the end.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if neither element size divides the other, if an extent, a stride, the offset
/// or the address is not a multiple of the larger size, or if an element of either type is smaller than a byte.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_repack(
    view: cudamem_view,
    data_type: cudamem_data_type,
    axis: i64,
    result: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_repack", || {
        let data_type = DataType::try_from(data_type)?;
        derive(view, result, |view| {
            if data_type.is_sub_byte() || view.is_packed() {
                let value = format!("from {} to {data_type}", view.data_type());
                return Err(invalid("data_type", value, "both elements must have at least a byte"));
            }
            let layout = view.layout();
            let begin = view.device_pointer().wrapping_add_signed(layout.byte_offset().wrapping_neg());
            let layout =
                layout.repacked(data_type.padded_size(), begin as usize, axis).map_err(cuda_mem::Error::from)?;
            Ok(view.with_type_and_layout(data_type, layout)?)
        })
    })
}

/// Makes a view of the whole memory of a view in another layout. If the original view is read-only or has padded
/// elements, so does the new view.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_with_layout(
    view: cudamem_view,
    layout: *const cudamem_view_layout,
    result: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_with_layout", || {
        // SAFETY: the header requires NULL or `size` bytes.
        let layout = unsafe { Layout::read(layout, None) }?;
        derive(view, result, |view| layout.of(view))
    })
}

/// Makes a read-only view of the same elements.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_make_read_only(view: cudamem_view, result: Out<'_, cudamem_view>) -> cudamem_status {
    run("cudamem_view_make_read_only", || derive(view, result, |view| Ok(view.into_read_only())))
}
