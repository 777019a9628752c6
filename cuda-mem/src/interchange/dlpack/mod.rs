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
