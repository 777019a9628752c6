//! The module `cuda_mem._native.core`.

use pyo3::prelude::*;

/// The native part of `cuda_mem.core`.
#[pymodule(submodule)]
pub mod core {
    #[pymodule_export]
    use super::super::buffer::{Buffer, Ticket};
    #[pymodule_export]
    use super::super::current::{
        can_use_pools, context_of_stream, create_context, current_context, device_attribute, device_count,
        primary_context, set_current_context, synchronize_current,
    };
    #[pymodule_export]
    use super::super::event::EventBase;
    #[pymodule_export]
    use super::super::layout::StridedLayout;
    #[pymodule_export]
    use super::super::managed::{advise, discard, prefetch, range_attribute};
    #[pymodule_export]
    use super::super::pool::{PoolAttributes, PoolBase};
    #[pymodule_export]
    use super::super::resource::{MemoryResource, SourceBase};
    #[pymodule_export]
    use super::super::stream::StreamBase;
    #[pymodule_export]
    use super::super::transfer::copy_batch;
    #[pymodule_export]
    use super::super::view::StridedMemoryView;
}
