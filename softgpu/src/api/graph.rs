//! The memory of graphs: there are no graphs, so there is none.

use crate::call::{driver_calls, ensure, put};
use crate::state::Global;
use cuda_sys::{CUdevice, CUgraphMem_attribute, CUresult};
use std::ffi::c_void;

driver_calls! {
    /// Gives an attribute of the memory that graphs hold: 0.
    fn cuDeviceGetGraphMemAttribute[Started](device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        Global::get()?.device(device)?;
        ensure(attr.0 <= CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH.0)?;
        put(value.cast::<u64>(), 0)
    }

    /// Sets a high-water mark back, by 0; nothing else can be set.
    fn cuDeviceSetGraphMemAttribute[Started](device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        Global::get()?.device(device)?;
        ensure(!value.is_null())?;
        match attr {
            CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH
            | CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => ensure(value.cast::<u64>().read() == 0),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Gives memory that graphs do not use back to the system.
    fn cuDeviceGraphMemTrim[Started](device: CUdevice) {
        Global::get()?.device(device).map(drop)
    }
}
