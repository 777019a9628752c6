//! Parts of views, and other ways to see the same elements. They are the layout's operations.

use super::{Index, StridedView};
use crate::Result;
use crate::buffer::Access;

impl<A: Access> StridedView<'_, A> {
    /// A part of each axis: [`StridedLayout::sliced`](super::StridedLayout::sliced).
    ///
    /// # Errors
    ///
    /// An index is out of range, or there are too many.
    pub fn sliced(self, indices: &[Index]) -> Result<Self> {
        self.map_layout(|layout| layout.sliced(indices))
    }

    /// The same elements in another shape: [`StridedLayout::reshaped`](super::StridedLayout::reshaped).
    ///
    /// # Errors
    ///
    /// The shapes have not as many elements, or no strides give the new one.
    pub fn reshaped(self, shape: &[i64]) -> Result<Self> {
        self.map_layout(|layout| layout.reshaped(shape))
    }

    /// The axes in another order: [`StridedLayout::permuted`](super::StridedLayout::permuted).
    ///
    /// # Errors
    ///
    /// The axes are not each named once.
    #[doc(alias = "transpose")]
    pub fn permuted(self, axes: &[i64]) -> Result<Self> {
        self.map_layout(|layout| layout.permuted(axes))
    }

    /// Elements repeated: [`StridedLayout::broadcast_to`](super::StridedLayout::broadcast_to). Such a view can be read; a
    /// copy to it is refused.
    ///
    /// # Errors
    ///
    /// The shape cannot be broadcast to.
    pub fn broadcast_to(self, shape: &[i64]) -> Result<Self> {
        self.map_layout(|layout| layout.broadcast_to(shape))
    }

    /// Without the axes of extent 1.
    #[must_use]
    pub fn squeezed(mut self) -> Self {
        self.layout = self.layout.squeezed();
        self
    }

    /// With axes of extent 1 at places of the new shape.
    ///
    /// # Errors
    ///
    /// A place is past the end, or named twice.
    pub fn unsqueezed(self, axes: &[usize]) -> Result<Self> {
        self.map_layout(|layout| layout.unsqueezed(axes))
    }

    /// With all neighbouring axes merged that are one run of memory.
    #[must_use]
    pub fn flattened(mut self) -> Self {
        self.layout = self.layout.flattened();
        self
    }
}
