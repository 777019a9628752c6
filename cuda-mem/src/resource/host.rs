//! What the system says of the host's memory.

use crate::Error;
use cuda_sys::CUresult;
use std::path::Path;

/// The host's physical memory in bytes.
pub(crate) fn physical_memory() -> usize {
    // SAFETY: both take nothing but a number.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (usize::try_from(pages), usize::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => usize::MAX,
    }
}

/// What the system could give at present, in bytes.
fn available_memory() -> Option<usize> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Whether the host has a NUMA node; `None` where the system does not say.
pub(crate) fn has_node(node: i32) -> Option<bool> {
    let nodes = Path::new("/sys/devices/system/node");
    nodes.join("node0").exists().then(|| nodes.join(format!("node{node}")).exists())
}

/// Gives "no room" its own error, with what the host has free.
pub(crate) fn out_of_host_memory(call: &'static str, error: Error, requested: usize) -> Error {
    if error.driver_code() != Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
        return error;
    }
    no_room(call, requested, error.to_string())
}

/// No room in the host's memory.
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
        assert!(physical_memory() > 1 << 20);
    }
}
