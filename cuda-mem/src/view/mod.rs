//! Arrays in memory: layouts, views, and copies between them.
//!
//! A [`StridedLayout`] says where the elements of an array lie. A [`StridedView`] is a layout over memory: of a buffer, of
//! a slice of the CPU's, or of another library.
//!
//! | to | |
//! |---|---|
//! | make a view | [`Buffer::view`](crate::Buffer::view), [`view_mut`](crate::Buffer::view_mut), [`into_view`](crate::Buffer::into_view); of any type and layout: [`StridedView::shared`], [`exclusive`](StridedView::exclusive), [`borrowed`](StridedView::borrowed); of the CPU's memory: [`of_slice`](StridedView::of_slice) |
//! | take parts | [`sliced`](StridedView::sliced), [`permuted`](StridedView::permuted), [`reshaped`](StridedView::reshaped), [`broadcast_to`](StridedView::broadcast_to) |
//! | copy | [`copy_from`](StridedView::copy_from), [`copy_from_with`](StridedView::copy_from_with), [`to_vec`](StridedView::to_vec) |
//! | reach elements by the CPU | [`read`](StridedView::read), [`write`](StridedView::write) |

mod copy;
mod error;
mod host;
mod layout;
mod memory;
#[cfg(feature = "ndarray")]
mod ndarray;
mod parts;
mod strided;

pub use copy::ViewCopyOptions;
pub use error::ViewError;
pub use host::{HostElements, HostElementsMut};
pub use layout::{Index, LayoutError, MAX_DIMENSIONS, Order, Quantity, StridedLayout};
pub use strided::StridedView;
