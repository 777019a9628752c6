//! Arrays in memory: layouts, views, and copies between them.
//!
//! A [`StridedLayout`] is the position of each element of an array. A [`StridedView`] is a layout over the memory of a
//! buffer, of a CPU slice, or of another library.
//!
//! | to | |
//! |---|---|
//! | make a view | [`Buffer::view`](crate::Buffer::view), [`view_mut`](crate::Buffer::view_mut), [`into_view`](crate::Buffer::into_view); with any type and layout: [`StridedView::shared`], [`exclusive`](StridedView::exclusive), [`borrowed`](StridedView::borrowed); of CPU memory: [`of_slice`](StridedView::of_slice) |
//! | take parts | [`sliced`](StridedView::sliced), [`permuted`](StridedView::permuted), [`reshaped`](StridedView::reshaped), [`broadcast_to`](StridedView::broadcast_to) |
//! | copy | [`copy_from`](StridedView::copy_from), [`copy_from_with`](StridedView::copy_from_with), [`to_vec`](StridedView::to_vec) |
//! | access elements on the CPU | [`read`](StridedView::read), [`write`](StridedView::write) |
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::view::Index;
//! use cuda_mem::{Buffer, memory::PinnedMemory};
//! let mut matrix = Buffer::from_slice(&PinnedMemory::new(&context), &[1u32, 2, 3, 4, 5, 6], &stream)?;
//! let column = matrix.view(&[2, 3])?.sliced(&[Index::ALL, Index::At(1)])?;
//! assert_eq!(column.to_vec::<u32>()?, [2, 5]);
//!
//! let mut turned = Buffer::<u32, _>::zeroed(&PinnedMemory::new(&context), 6, &stream)?;
//! turned.view_mut(&[3, 2])?.copy_from(&matrix.view(&[2, 3])?.permuted(&[1, 0])?)?;
//! assert_eq!(turned.to_vec()?, [1, 4, 2, 5, 3, 6]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod copy;
mod host;
mod memory;
#[cfg(feature = "ndarray")]
mod ndarray;
mod parts;
mod strided;

pub use crate::error::ViewError;
pub use copy::ViewCopyOptions;
pub use host::{HostElements, HostElementsMut};
pub use strided::StridedView;
pub use strided_layout::{Extent, Index, LayoutError, MAX_DIMENSIONS, Order, Quantity, StridedLayout};
