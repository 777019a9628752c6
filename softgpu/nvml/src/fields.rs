//! Values by their numbers, and the fabric of several hosts.

use crate::calls::{INVALID_ARGUMENT, NOT_SUPPORTED, nvml_calls, put, started, unit_of};
use crate::devices::Device;
use crate::links::links_of;
use std::ffi::{c_int, c_longlong, c_uint, c_ulonglong};

/// A value of a device by its number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    kind: c_uint,
    answer: c_uint,
    value: c_ulonglong,
}

/// A device's place in a fabric.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FabricInfo {
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
}

/// The number of a device's links.
const LINK_COUNT: c_uint = 91;
/// The kind of a value that is an unsigned number of 32 bits.
const UNSIGNED: c_uint = 1;
/// The state of a device that can be in no fabric.
const NO_FABRIC: u8 = 0;

nvml_calls! {
    /// Returns values by their numbers. Each says whether softgpu has it: only the number of links.
    fn nvmlDeviceGetFieldValues(device: Device, valuesCount: c_int, values: *mut FieldValue) {
        let machine = started()?;
        let unit = unit_of(&machine, device)?;
        let count = usize::try_from(valuesCount).map_err(|_| INVALID_ARGUMENT)?;
        if values.is_null() || count == 0 {
            return Err(INVALID_ARGUMENT);
        }
        for place in 0..count {
            let value = &mut *values.add(place);
            (value.answer, value.timestamp, value.latency) = (NOT_SUPPORTED, 0, 0);
            if value.field == LINK_COUNT {
                (value.answer, value.kind, value.value) = (0, UNSIGNED, links_of(&machine, unit) as c_ulonglong);
            }
        }
        Ok(())
    }

    /// Returns a device's place in the fabric of several hosts: softgpu has none.
    fn nvmlDeviceGetGpuFabricInfo(device: Device, gpuFabricInfo: *mut FabricInfo) {
        unit_of(&*started()?, device)?;
        put(gpuFabricInfo, FabricInfo { cluster: [0; 16], status: 0, clique: 0, state: NO_FABRIC })
    }
}
