//! [DLPack](https://dmlc.github.io/dlpack/latest/), release 1.3: libraries hand tensors to each other without copies.
//!
//! | to | use |
//! |---|---|
//! | export memory of a buffer | [`SharedTensor::to_dlpack`](crate::array::interchange::SharedTensor::to_dlpack), then [`ManagedTensor::into_versioned`] or [`into_legacy`](ManagedTensor::into_legacy) |
//! | export other memory | [`export()`] |
//! | import memory | [`ManagedTensor::from_versioned`] or [`from_legacy`](ManagedTensor::from_legacy), [`check`](ManagedTensor::check), [`ImportedTensor::into_shared`] |
//! | let another library make tensors, ask for its stream | [`ExchangeApi`] |
//! | offer both to other libraries | [`offer_exchange_api`] |
//!
//! An import trusts no description: it checks every number before use, and it calls the deleter exactly once, even if a
//! check fails. It cannot check that a pointer is valid; the caller of the `unsafe` function promises that.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::interchange::dlpack::ManagedTensor;
//! use cuda_mem::{Buffer, memory::DeviceMemory};
//! let buffer = Buffer::from_slice(&DeviceMemory::new(&context), &[1u8, 2, 3], &stream)?.into_shared();
//! let raw = buffer.tensor().to_dlpack(&Default::default())?.into_versioned(); // a `DLManagedTensorVersioned *`
//!
//! // A consumer of such a pointer does this.
//! // SAFETY: nobody else takes the tensor, and its memory is used in order of `stream`.
//! let taken = unsafe { ManagedTensor::from_versioned(raw)?.check()?.into_shared(&stream, None)? };
//! assert_eq!(taken.into_view()?.to_vec::<u8>()?, [1, 2, 3]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod exchange;
mod export;
mod managed;
mod raw;
#[cfg(test)]
mod tests;

pub use crate::error::DlpackError;
pub use exchange::{ExchangeApi, ExchangeProvider, offer_exchange_api};
pub use export::export;
pub use managed::{ImportedTensor, ManagedTensor};
pub use raw::*;
