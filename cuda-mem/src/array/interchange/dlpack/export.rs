//! Exports of our tensors, with their owner.

use super::managed::ManagedTensor;
use super::raw::{
    DLDataType, DLManagedTensor, DLManagedTensorVersioned, DLTensor, FLAG_IS_SUBBYTE_TYPE_PADDED, FLAG_READ_ONLY,
    VERSION,
};
use crate::array::interchange::tensor::{Numbers, Tensor};
use crate::error::callback::call_back;
use core::ffi::c_void;
use core::ptr::{self, NonNull};

/// A tensor, its extents and strides, and the owner of its memory, in one heap allocation.
#[repr(C)]
struct ExportedTensor<R, O> {
    /// First, so that a pointer to it points to the whole struct.
    managed: R,
    numbers: Numbers,
    owner: O,
}

/// Makes a tensor that holds `owner` until its deleter is called, on any thread. `flags` are added to the tensor's own:
/// [`FLAG_IS_COPIED`](super::FLAG_IS_COPIED) if only the consumer has the memory.
///
/// The owner's drop must free the memory, or allow its free. A panic in it is caught, because no consumer could handle
/// it.
pub fn export<O: Send + 'static>(tensor: &Tensor, flags: u64, owner: O) -> ManagedTensor {
    let own = u64::from(tensor.read_only) * FLAG_READ_ONLY + u64::from(tensor.padded) * FLAG_IS_SUBBYTE_TYPE_PADDED;
    // DLPack requires null data for an array without elements.
    let address = if tensor.is_empty() { 0 } else { tensor.address };
    let data_type = tensor.data_type;
    let said = DLTensor {
        data: ptr::with_exposed_provenance_mut(address as usize),
        device: tensor.device.into(),
        ndim: tensor.shape().len() as i32,
        dtype: DLDataType { code: data_type.code() as u8, bits: data_type.bits(), lanes: data_type.lanes() },
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    make(said, flags | own, Numbers::from_slice(&tensor.numbers), owner)
}

/// A tensor around `owner`, which keeps the original tensor.
pub(super) fn wrap<O: Send + 'static>(said: DLTensor, flags: u64, owner: O) -> ManagedTensor {
    // Adds strides if there are none, because DLPack requires them since release 1.2.
    // SAFETY: the owner keeps arrays of the lengths that the tensor states.
    let checked = unsafe { super::managed::check(&said, flags) };
    make(said, flags, checked.map(|tensor| tensor.numbers).unwrap_or_default(), owner)
}

fn make<O: Send + 'static>(said: DLTensor, flags: u64, numbers: Numbers, owner: O) -> ManagedTensor {
    let deleter = Some(end::<DLManagedTensorVersioned, O> as _);
    let managed =
        DLManagedTensorVersioned { version: VERSION, manager_ctx: ptr::null_mut(), deleter, flags, dl_tensor: said };
    let all = Box::into_raw(Box::new(ExportedTensor { managed, numbers, owner }));
    // SAFETY: `all` was just created, and nobody else has it. The numbers do not move again.
    unsafe {
        let numbers = &mut (*all).numbers;
        if !numbers.is_empty() {
            let (dimensions, first) = (numbers.len() / 2, numbers.as_mut_ptr());
            (*all).managed.dl_tensor.shape = first;
            (*all).managed.dl_tensor.strides = first.add(dimensions);
        }
        (*all).managed.manager_ctx = all.cast::<c_void>();
        ManagedTensor::made(NonNull::new_unchecked(all.cast()))
    }
}

/// A tensor in the old layout around `owner`, which keeps the extents and strides.
pub(super) fn wrap_legacy<O: Send + 'static>(said: DLTensor, owner: O) -> *mut DLManagedTensor {
    let deleter = Some(end::<DLManagedTensor, O> as _);
    let managed = DLManagedTensor { dl_tensor: said, manager_ctx: ptr::null_mut(), deleter };
    let all = Box::into_raw(Box::new(ExportedTensor { managed, numbers: Numbers::new(), owner }));
    // SAFETY: `all` was just created, and nobody else has it.
    unsafe { (*all).managed.manager_ctx = all.cast::<c_void>() };
    all.cast()
}

/// The deleter of our tensors.
///
/// # Safety
///
/// `managed` is null or the first field of an `ExportedTensor<R, O>`, and the deleter is called once.
unsafe extern "C" fn end<R, O>(managed: *mut R) {
    if managed.is_null() {
        return;
    }
    // SAFETY: this function's contract.
    let all = unsafe { Box::from_raw(managed.cast::<ExportedTensor<R, O>>()) };
    // A panic must not unwind into foreign code.
    let _ = call_back(|| drop(all));
}
