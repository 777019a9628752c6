//! The CUDA driver: its library, its release and its functions.

use super::finding::{Finding, GPU, KIND, LIBRARY, Recorder, count};
use crate::provider::{LIBCUDA, named};
use cuda_mem::cuda_sys::load::Attempt;
use cuda_mem::cuda_sys::{self, CUresult, Capability, Functions};
use cuda_mem::{Driver, Error};
use serde_json::{Value, json};

/// Loads and starts the driver.
pub(super) fn probe(out: &mut Recorder<'_>) -> Option<Driver> {
    out.section("CUDA driver");
    out.step("loading and starting the CUDA driver");
    let loaded = Driver::load();
    match &loaded {
        Ok(driver) => {
            library(out, driver.raw());
            kind(out, driver);
        }
        Err(error) => failure(out, error),
    }
    loaded.ok()
}

fn library(out: &mut Recorder<'_>, cuda: &cuda_sys::Driver) {
    let provider = cuda.provider();
    let name = provider.library.to_string();
    let file = std::fs::read_to_string("/proc/self/maps").ok().and_then(|maps| mapped_file(&maps, "libcuda.so"));
    let text = match &file {
        Some(file) if *file != name => format!("{name} ({file})"),
        _ => name.clone(),
    };
    out.add(Finding::ok(LIBRARY, "libcuda", text).value(json!({ "name": name, "file": file })));
    out.add(match provider.version {
        Some(version) => Finding::ok("driver.version", "release", format!("CUDA {version}")).value(version.to_string()),
        None => Finding::note("driver.version", "release", "the driver does not report it").value(Value::Null),
    });
    functions(out, cuda);
}

fn functions(out: &mut Recorder<'_>, cuda: &cuda_sys::Driver) {
    let table = cuda.functions();
    let missing: Vec<_> = Functions::SYMBOLS.iter().filter(|symbol| table.address(symbol.name).is_null()).collect();
    let whole = Functions::SYMBOLS.len();
    let id = "driver.missing_functions";
    if missing.is_empty() {
        let text = format!("all {whole} that cuda-mem knows");
        out.add(Finding::ok(id, "functions", text).value(json!([])));
    } else {
        let list: Vec<String> = missing.iter().map(|symbol| symbol.name.to_string_lossy().into_owned()).collect();
        let newest = missing.iter().map(|symbol| symbol.since).max();
        let first = list.iter().take(4).map(String::as_str).collect::<Vec<_>>().join(", ");
        let rest = if list.len() > 4 { ", ..." } else { "" };
        let text = format!("{} of {whole}; missing: {first}{rest}", whole - list.len());
        let finding = Finding::note(id, "functions", text).value(list);
        out.add(match newest {
            Some(newest) if cuda.provider().version.is_some_and(|version| version < newest) => {
                finding.remedy(format!("a driver of CUDA {newest} or newer has them all"))
            }
            _ => finding,
        });
    }
    for capability in Capability::ALL {
        let (name, label) = capability_name(capability);
        let has = cuda.supports(capability);
        let id = format!("driver.capability.{name}");
        out.add(match (has, capability) {
            (true, _) => Finding::ok(id, label, "yes").value(true),
            (false, Capability::ExternalMemory) => Finding::missing(id, label, "no, but mapped memory needs it")
                .value(false)
                .remedy("update NVIDIA's driver (CUDA 10.0 introduced it)"),
            (false, _) => Finding::note(id, label, "no").value(false),
        });
    }
}

fn capability_name(capability: Capability) -> (&'static str, &'static str) {
    match capability {
        Capability::MemoryPools => ("memory_pools", "memory pools"),
        Capability::LocatedPools => ("located_pools", "pools per location"),
        Capability::VirtualMemory => ("virtual_memory", "virtual memory"),
        Capability::ExternalMemory => ("external_memory", "external memory"),
        Capability::AddressRangeHandles => ("address_range_handles", "dma-buf of a range"),
        Capability::StreamMemoryOperations => ("stream_memory_operations", "stream wait and write"),
        Capability::BatchedCopies => ("batched_copies", "batched copies"),
        Capability::Ipc => ("ipc", "IPC"),
        // A group that is newer than this command. The test below detects it.
        _ => ("other", "another group"),
    }
}

fn kind(out: &mut Recorder<'_>, driver: &Driver) {
    let devices = driver.device_count().unwrap_or(0);
    out.add(match driver.is_software() {
        true => Finding::note(KIND, "kind", "the software GPU: host memory, no GPU").value("software").remedy(format!(
            "unset {LIBCUDA} to look for a real driver; in debug builds of your programs, set opt-level = 3 in \
                 [profile.dev.package.cuda-mem-softgpu]"
        )),
        false => Finding::ok(KIND, "kind", "NVIDIA's driver").value(GPU),
    });
    out.add(match devices {
        0 => Finding::missing("driver.devices", "devices", "the driver finds none").value(0).remedy(NO_DEVICE),
        devices => Finding::ok("driver.devices", "devices", count(devices, "device")).value(devices),
    });
}

const NO_DEVICE: &str = "look at nvidia-smi and at CUDA_VISIBLE_DEVICES; start a container with --gpus all";

/// Reports why there is no driver.
fn failure(out: &mut Recorder<'_>, error: &Error) {
    if let Error::Load(error) = error {
        let tried: Vec<String> =
            error.attempts.iter().map(|one| format!("{}: {}", one.candidate, plain(one))).collect();
        let value: Vec<Value> =
            error.attempts.iter().map(|one| json!({ "candidate": one.candidate, "reason": one.reason })).collect();
        let text = format!("not found; tried\n{}", tried.join("\n"));
        let remedy = error.remedy.replace(" (`cuda-mem doctor` prints it)", " (see below)");
        out.add(Finding::missing(LIBRARY, "libcuda", text).value(value).remedy(remedy));
        return;
    }
    // The library exists but does not start. Its name and file can still be reported.
    if named(LIBCUDA).as_deref() != Some("softgpu")
        && let Ok(cuda) = cuda_sys::Driver::load()
    {
        library(out, cuda);
    }
    // Leave out the advice in the error's own text, because the remedy gives it.
    let text = match error {
        Error::Driver(error) => {
            let name = error.code.name().unwrap_or("a code that this release does not know");
            format!("{} gave {name} ({})", error.call, error.code.0)
        }
        other => other.to_string(),
    };
    let finding = Finding::missing("driver.start", "start of the driver", text);
    let code = error.driver_code();
    out.add(match code {
        Some(CUresult::CUDA_ERROR_NO_DEVICE) => finding.remedy(NO_DEVICE),
        Some(CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) => finding.remedy("reboot, or load the new kernel module"),
        Some(CUresult::CUDA_ERROR_STUB_LIBRARY) => {
            finding.remedy("take the toolkit's stubs folder out of LD_LIBRARY_PATH")
        }
        _ => finding.remedy(
            "look at nvidia-smi and at the kernel's log (dmesg); update or reinstall the driver; in a container \
             the driver's library must be of the host kernel's release",
        ),
    });
}

/// The loader's words, without the repeated library name.
fn plain(attempt: &Attempt) -> &str {
    let reason = attempt.reason.strip_prefix("dlopen failed: ").unwrap_or(&attempt.reason);
    reason.strip_prefix(attempt.candidate.as_str()).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

/// The file mapped into this process whose name begins with `name`, from the text of /proc/self/maps.
pub(crate) fn mapped_file(maps: &str, name: &str) -> Option<String> {
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find_map(|path| {
        let file = path.rsplit('/').next()?;
        file.starts_with(name).then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_behind_a_library_is_found_among_the_mappings() {
        let maps = "7f00-7f01 r--p 00000000 08:01 12 /usr/lib/x/libc.so.6\n\
                    7f01-7f02 rw-p 00000000 00:00 0 \n\
                    7f02-7f03 r-xp 00000000 08:01 13                         /usr/lib/my dir/libcuda.so.580.1\n";
        assert_eq!(mapped_file(maps, "libcuda.so").as_deref(), Some("/usr/lib/my dir/libcuda.so.580.1"));
        assert_eq!(mapped_file(maps, "libvulkan.so"), None);
    }

    #[test]
    fn every_capability_has_its_own_id() {
        let mut names: Vec<_> = Capability::ALL.iter().map(|one| capability_name(*one).0).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == Capability::ALL.len() && !names.contains(&"other"));
    }

    #[test]
    fn driver_not_found_lists_all_tried_paths_and_a_remedy() {
        use cuda_sys::load::LoadError;
        let attempt =
            |name: &str| Attempt { candidate: name.to_owned(), reason: format!("dlopen failed: {name}: not there") };
        let error =
            LoadError { what: "it", attempts: vec![attempt("a.so"), attempt("b.so")], remedy: "Buy".to_owned() };
        let mut messages = Vec::new();
        let mut sink = |message| messages.push(message);
        failure(&mut Recorder::new(&mut sink), &error.into());
        let [super::super::finding::Message::Finding(finding)] = messages.as_slice() else { panic!("{messages:?}") };
        assert_eq!(finding.text, "not found; tried\na.so: not there\nb.so: not there");
        assert_eq!(finding.remedy.as_deref(), Some("Buy"));
    }
}
