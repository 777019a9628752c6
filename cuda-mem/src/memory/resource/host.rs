//! What the system reports about host memory.

use crate::Error;
use cuda_sys::CUresult;
use std::path::Path;

/// Bytes that the system could provide at present.
pub(crate) fn available_memory() -> Option<usize> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Whether the host has a NUMA node; `None` if the system does not report nodes.
pub(crate) fn has_node(node: i32) -> Option<bool> {
    let nodes = Path::new("/sys/devices/system/node");
    nodes.join("node0").exists().then(|| nodes.join(format!("node{node}")).exists())
}

/// Maps the driver's out-of-memory code to [`Error::OutOfMemory`].
pub(crate) fn out_of_host_memory(call: &'static str, error: Error, requested: usize) -> Error {
    if error.driver_code() != Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
        return error;
    }
    no_room(call, requested, error.to_string())
}

/// The error for no room in host memory.
pub(crate) fn no_room(call: &'static str, requested: usize, message: String) -> Error {
    let device = "the host".into();
    Error::OutOfMemory { call, requested, device, free: available_memory(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know the system")]
    fn the_systems_figures_are_read() {
        let text = "MemTotal:  100 kB\nMemAvailable:   12 kB\n";
        assert_eq!(available_in(text), Some(12 << 10));
        assert_eq!(available_in("MemAvailable: x kB"), None);
        assert_eq!(available_in(""), None);
    }
}
