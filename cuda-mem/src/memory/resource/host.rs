//! What the system reports about host memory.

use crate::Error;
use cuda_sys::CUresult;
use std::path::Path;

mod group;

/// Bytes that the system could provide at present.
pub(crate) fn available_memory() -> Option<usize> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<usize> {
    figure_in(meminfo, "MemAvailable:")
}

/// A figure of /proc/meminfo, in bytes.
fn figure_in(meminfo: &str, name: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Refuses a request for which the system has no room, where it would otherwise kill processes to make some.
pub(crate) fn check_room(call: &'static str, requested: usize) -> Result<(), Error> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // Memory of other processes can be swapped out.
    let swap = figure_in(&meminfo, "SwapFree:").unwrap_or(0);
    if available_in(&meminfo).is_some_and(|available| requested > available.saturating_add(swap)) {
        let why = "the host has too little memory: free some, or request less";
        return Err(no_room(call, requested, why.into()));
    }
    match group::room() {
        Some(room) if requested > room => {
            let why = format!(
                "the control group of this process may use {room} bytes more: raise its limit (memory.max; `docker run \
                 --memory`; resources.limits.memory of a pod), or request less"
            );
            Err(no_room(call, requested, why))
        }
        _ => Ok(()),
    }
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
        assert!(check_room("test", 1).is_ok() && check_room("test", usize::MAX).unwrap_err().is_out_of_memory());
    }
}
