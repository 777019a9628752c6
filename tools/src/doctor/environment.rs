//! Environment variables that decide which libraries are found.

use super::finding::{Finding, Recorder};

/// Reported by name: other variables of the same vendors may hold secrets, and users pass reports on.
const NAMES: [&str; 8] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
];
/// Reported by prefix.
const PREFIXES: [&str; 4] = ["CUDA_MEM_", "SOFTGPU_", "VKGDR_", "VK_"];

pub(super) fn probe(out: &mut Recorder<'_>) {
    out.section("Environment");
    let mut set: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| matters(name))
        // cargo sets it for what it runs.
        .filter(|(name, _)| name != "LD_LIBRARY_PATH" || std::env::var_os("CARGO").is_none())
        .collect();
    set.sort();
    if set.is_empty() {
        out.add(Finding::note("environment.none", "variables", "none of the relevant variables is set").value(false));
    }
    for (name, value) in &set {
        let finding = Finding::note(format!("environment.{name}"), name.as_str(), shown(value)).value(value.as_str());
        out.add(match advice(name, value) {
            Some(advice) => finding.remedy(advice),
            None => finding,
        });
    }
}

fn matters(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "(empty)" } else { value }
}

/// What to do about a value that is known to cause problems.
fn advice(name: &str, value: &str) -> Option<String> {
    let text = match (name, value) {
        ("CUDA_VISIBLE_DEVICES", "" | "-1" | "NoDevFiles") => "this hides every GPU: unset it",
        ("NVIDIA_VISIBLE_DEVICES", "" | "void" | "none") => "the container gets no GPU: set it to all",
        ("NVIDIA_DRIVER_CAPABILITIES", value) => {
            let has = |wanted| value.split(',').any(|one| one.trim() == wanted);
            if has("all") || has("graphics") {
                return None;
            }
            "Vulkan is not mapped into the container: start it with NVIDIA_DRIVER_CAPABILITIES=all (or with graphics \
             added)"
        }
        ("LD_LIBRARY_PATH", value) if value.split(':').any(|one| one.trim_end_matches('/').ends_with("/stubs")) => {
            "a folder of stubs contains a libcuda.so.1 that does nothing: remove it from the variable"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_advises_on_harmful_variables_and_ignores_secrets() {
        assert!(advice("CUDA_VISIBLE_DEVICES", "").is_some() && advice("CUDA_VISIBLE_DEVICES", "0").is_none());
        assert!(advice("NVIDIA_DRIVER_CAPABILITIES", "compute,utility").unwrap().contains("graphics"));
        assert!(advice("NVIDIA_DRIVER_CAPABILITIES", "compute,graphics").is_none());
        assert!(advice("LD_LIBRARY_PATH", "/a:/usr/local/cuda/lib64/stubs/").is_some());
        assert!(matters("CUDA_MEM_LIBCUDA") && matters("VK_DRIVER_FILES") && !matters("NVIDIA_API_KEY"));
    }
}
