//! The software GPU, which programs can name on a machine without a GPU.

use super::finding::{Finding, Recorder};
use crate::provider::{self, Choice};
use cuda_mem::Driver;
use cuda_mem::mapped::CoherencePolicy;
use std::path::PathBuf;

/// The library of the software GPU that `scripts/install` or a package has put beside this command.
fn installed_library() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?.canonicalize().ok()?;
    let libraries = executable.parent()?.parent()?.join("lib");
    // Debian has a folder for each architecture in between.
    let folders = std::fs::read_dir(&libraries).ok()?.flatten().map(|entry| entry.path());
    let mut places = std::iter::once(libraries.clone()).chain(folders).map(|folder| folder.join("cudamem/softgpu"));
    places.find_map(|folder| Some(folder.join("libsoftgpu.so")).filter(|path| path.exists()))
}

/// Reports that softgpu is linked in, and where programs in C find it. Without a driver, also tries it over CPU Vulkan.
pub(super) fn probe(out: &mut Recorder<'_>, driver: Option<&Driver>) {
    out.section("Stand-in");
    let text = "linked in; `cuda-mem demo --provider software` uses it, and CUDA_MEM_LIBCUDA=softgpu";
    out.add(Finding::note("stand_in.softgpu", "software GPU", text).value(true));
    let label = "for programs in C";
    out.add(match installed_library() {
        Some(path) => {
            let text = format!("CUDA_MEM_LIBCUDA={}", path.display());
            Finding::note("stand_in.library", label, text).value(path.display().to_string())
        }
        None => Finding::note("stand_in.library", label, "libsoftgpu.so is not installed with this command")
            .value(())
            .remedy("run scripts/install of cuda-mem's sources, or install the package libcudamem-softgpu"),
    });
    if driver.is_some() {
        return;
    }
    out.step("opening the software GPU over CPU Vulkan");
    out.add(match provider::open(Choice::Vulkan, 0, CoherencePolicy::Preferred) {
        Ok(resource) => {
            let name = resource.context().device().name().unwrap_or_default();
            let text = format!("mapped memory works on {name} over a CPU Vulkan driver");
            Finding::note("stand_in.mapped", "over CPU Vulkan", text).value(true)
        }
        Err(error) => {
            // What it tried stands under "Vulkan".
            let text = error.to_string();
            let remedy = text.split_once('\n').map_or("", |(_, remedy)| remedy);
            let finding =
                Finding::note("stand_in.mapped", "over CPU Vulkan", "no CPU Vulkan driver works").value(false);
            if remedy.is_empty() { finding } else { finding.remedy(remedy) }
        }
    });
}
