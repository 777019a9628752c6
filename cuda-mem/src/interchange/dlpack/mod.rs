//! [DLPack](https://dmlc.github.io/dlpack/latest/), release 1.3: tensors handed from library to library without a copy.
//!
//! | to | |
//! |---|---|
//! | hand memory out | [`SharedTensor::to_dlpack`](crate::interchange::SharedTensor::to_dlpack), then [`ManagedTensor::into_versioned`] or [`into_legacy`](ManagedTensor::into_legacy) |
//! | hand out what no buffer holds | [`export()`] |
//! | take memory over | [`ManagedTensor::from_versioned`] or [`from_legacy`](ManagedTensor::from_legacy), [`check`](ManagedTensor::check), [`ImportedTensor::into_shared`] |
//! | make tensors by another library, ask for its stream | [`ExchangeApi`] |
//! | offer both to others | [`offer_exchange_api`] |
//!
//! What others say is not believed: every number is checked before it is used, and the deleter is called once, whatever is
//! wrong. What cannot be checked, and is the promise of whoever hands a pointer in, is that it is one.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::interchange::dlpack::ManagedTensor;
//! use cuda_mem::{Buffer, memory::DeviceMemory};
//! let buffer = Buffer::from_slice(&DeviceMemory::new(&context), &[1u8, 2, 3], &stream)?.into_shared();
//! let raw = buffer.tensor().to_dlpack(&Default::default())?.into_versioned(); // a `DLManagedTensorVersioned *`
//!
//! // What a consumer does with such a pointer.
//! // SAFETY: nobody else takes the tensor, and its memory is used in order of `stream`.
//! let taken = unsafe { ManagedTensor::from_versioned(raw)?.check()?.into_shared(&stream, None)? };
//! assert_eq!(taken.into_view()?.to_vec::<u8>()?, [1, 2, 3]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod error;
mod exchange;
mod export;
mod managed;
mod raw;
#[cfg(test)]
mod tests;

pub use error::DlpackError;
pub use exchange::{ExchangeApi, ExchangeProvider, offer_exchange_api};
pub use export::export;
pub use managed::{ImportedTensor, ManagedTensor};
pub use raw::*;
