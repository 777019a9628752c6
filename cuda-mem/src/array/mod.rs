//! Arrays: their elements, strided views, and the exchange with other libraries.

pub(crate) mod element;
pub mod interchange;
pub mod view;
