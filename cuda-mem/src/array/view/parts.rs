//! Parts and other shapes of views, by the operations of the layout.

use super::{Extent, Index, StridedView};
use crate::Result;
use crate::buffer::Access;

impl<A: Access> StridedView<'_, A> {
    /// A part of each axis: [`StridedLayout::sliced`](super::StridedLayout::sliced).
    ///
    /// # Errors
    ///
    /// An index is out of range, or there are too many.
    pub fn sliced(mut self, indices: &[Index]) -> Result<Self> {
        self.layout.slice_in_place(indices)?;
        Ok(self)
    }

    /// The same elements in another shape: [`StridedLayout::reshaped`](super::StridedLayout::reshaped).
    ///
    /// # Errors
    ///
    /// The shapes differ in their number of elements, or no strides produce the new shape.
    pub fn reshaped(self, shape: &[impl Extent]) -> Result<Self> {
        self.map_layout(|layout| layout.reshaped(shape))
    }

    /// The axes in another order: [`StridedLayout::permuted`](super::StridedLayout::permuted).
    ///
    /// # Errors
    ///
    /// An axis is out of range, named twice, or not named.
    #[doc(alias = "transpose")]
    pub fn permuted(self, axes: &[i64]) -> Result<Self> {
        self.map_layout(|layout| layout.permuted(axes))
    }

    /// The axes in reverse order: rows become columns. Nothing is copied.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.layout = self.layout.transposed();
        self
    }

    /// The same elements, repeated: [`StridedLayout::broadcast_to`](super::StridedLayout::broadcast_to). A view with
    /// repeated elements can only be read.
    ///
    /// # Errors
    ///
    /// The view cannot be broadcast to this shape.
    pub fn broadcast_to(self, shape: &[impl Extent]) -> Result<Self> {
        self.map_layout(|layout| layout.broadcast_to(shape))
    }

    /// The same elements without the axes of extent 1.
    #[must_use]
    pub fn squeezed(mut self) -> Self {
        self.layout = self.layout.squeezed();
        self
    }

    /// Inserts axes of extent 1. `axes` holds their positions in the new shape.
    ///
    /// # Errors
    ///
    /// A position is past the end, or named twice.
    pub fn unsqueezed(self, axes: &[usize]) -> Result<Self> {
        self.map_layout(|layout| layout.unsqueezed(axes))
    }

    /// Merges neighbouring axes that form one run of memory.
    #[must_use]
    pub fn flattened(mut self) -> Self {
        self.layout = self.layout.flattened();
        self
    }
}
