//! The software GPU that can replace a GPU.

use super::finding::{Finding, Recorder};
use crate::provider::{self, Choice};
use cuda_mem::Driver;
use cuda_mem::mapped::CoherenceWish;

/// Reports that softgpu is linked in. Without a driver, also tries it over CPU Vulkan.
pub(super) fn probe(out: &mut Recorder<'_>, driver: Option<&Driver>) {
    out.section("Stand-in");
    let text = "linked in; `cuda-mem demo --provider software` uses it, and CUDA_MEM_LIBCUDA=softgpu";
    out.add(Finding::note("stand_in.softgpu", "software GPU", text).value(true));
    if driver.is_some() {
        return;
    }
    out.step("opening the software GPU over CPU Vulkan");
    out.add(match provider::open(Choice::Vulkan, 0, CoherenceWish::Preferred) {
        Ok(opened) => {
            let name = opened.resource.context().device().name().unwrap_or_default();
            let text = format!("mapped memory works on {name} over a CPU Vulkan driver");
            Finding::note("stand_in.mapped", "over CPU Vulkan", text).value(true)
        }
        Err(error) => {
            let text = error.to_string();
            let (first, remedy) = text.split_once('\n').unwrap_or((&text, ""));
            let finding = Finding::note("stand_in.mapped", "over CPU Vulkan", first).value(false);
            if remedy.is_empty() { finding } else { finding.remedy(remedy) }
        }
    });
}
