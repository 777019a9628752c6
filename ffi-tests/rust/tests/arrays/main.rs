//! Arrays: layouts, strided views, and the exchange with other libraries.

mod arrow;
mod interchange;
mod layouts;
mod strided;
