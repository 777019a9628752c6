//! Which machine and device a profile describes.

use super::profile::MachineProfile;
use crate::Device;
use std::{env, fs};

/// The machine and device of a profile.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub device: String,
    pub device_name: String,
    pub cpu: String,
    pub processors: usize,
}

impl Identity {
    pub fn of(device: &Device) -> crate::Result<Self> {
        Ok(Self {
            device: device.uuid()?.to_string(),
            device_name: device.name()?,
            cpu: cpu_name(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
        })
    }

    /// A profile of this machine and device without figures.
    pub fn empty_profile(&self) -> MachineProfile {
        MachineProfile {
            device: self.device.clone(),
            device_name: self.device_name.clone(),
            cpu: self.cpu.clone(),
            processors: self.processors,
            ..MachineProfile::empty()
        }
    }
}

/// The CPU's name, as the system reports it.
fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    name.unwrap_or(env::consts::ARCH).to_owned()
}
