//! Exports of views, and views of imported arrays.

use super::SharedTensor;
use crate::array::view::{StridedLayout, StridedView};
use crate::{Error, Result};

impl StridedView<'static> {
    /// The view as an array for other libraries. It shares the ownership of the memory.
    ///
    /// # Errors
    ///
    /// The view does not share the ownership of a buffer; its first element begins within a byte.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::interchange::dlpack::ManagedTensor;
    /// let buffer = Buffer::from_slice(&memory, &[0, 1, 2, 3, 4, 5], &stream)?.into_shared();
    /// let exported = buffer.into_view(&[2, 3])?.permuted(&[1, 0])?.to_tensor()?.to_dlpack(&Default::default())?;
    /// // SAFETY: exported just now, and ordered before the legacy stream.
    /// let imported = unsafe {
    ///     ManagedTensor::from_versioned(exported.into_versioned())?.check()?
    ///         .into_shared(&Stream::legacy_default(&context), None)?
    /// };
    /// assert_eq!(imported.into_view()?.to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn to_tensor(&self) -> Result<SharedTensor> {
        let refusal = |value: &str, rule| Error::invalid("StridedView::to_tensor", "the view", value, rule);
        let Some(memory) = self.shared_memory() else {
            return Err(refusal("one of memory that no buffer owns", "it must share the ownership of a buffer"));
        };
        let (layout, data_type) = (self.layout(), self.data_type());
        let offset = match layout.is_empty() {
            true => 0,
            false if !self.is_packed() => layout.byte_offset(),
            false => match layout.offset().checked_mul(data_type.element_bits() as i64) {
                Some(bits) if bits % 8 == 0 => bits / 8,
                _ => return Err(refusal("one that begins within a byte", "other libraries know only whole bytes")),
            },
        };
        let parts = (layout.shape(), Some(layout.strides()));
        SharedTensor::checked(memory, data_type, offset, parts, self.is_read_only(), !self.is_packed())
    }
}

impl SharedTensor {
    /// The array as a view.
    ///
    /// # Errors
    ///
    /// The elements share bytes, and the array's memory begins within an element.
    pub fn into_view(mut self) -> Result<StridedView<'static>> {
        self.narrow()?;
        let tensor = self.tensor();
        let data_type = tensor.data_type();
        let packed = data_type.is_sub_byte() && !tensor.is_padded();
        let bits = if packed { data_type.element_bits() } else { data_type.padded_size() * 8 } as u64;
        let before = if tensor.is_empty() { 0 } else { tensor.address() - tensor.byte_range().start };
        // `before` lies within memory, so eight times as much fits into 64 bits.
        if !(before * 8).is_multiple_of(bits) {
            let value = format!("elements of {bits} bits that begin {before} bytes before the first");
            let rule = "the memory of elements that share bytes must begin with a whole element";
            return Err(Error::invalid("SharedTensor::into_view", "the array", value, rule));
        }
        let layout = StridedLayout::new(tensor.shape(), tensor.strides(), data_type.padded_size())?;
        let layout = if before == 0 { layout } else { layout.with_offset((before * 8 / bits) as i64)? };
        let (read_only, padded) = (tensor.is_read_only(), tensor.is_padded());
        Ok(StridedView::of_array(self.memory, data_type, layout, read_only, padded))
    }
}
