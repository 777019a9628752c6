//! Arrays in memory: layouts, views, and copies between them.
//!
//! A [`StridedLayout`] says where the elements of an array lie.

mod layout;

pub use layout::{Index, LayoutError, MAX_DIMENSIONS, Order, Quantity, StridedLayout};
