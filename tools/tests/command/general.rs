//! Tests the command as users see it: its output and its exit status.

use crate::common::{Ended, Temporary, command, ended};
use serde_json::Value;
use std::process::Stdio;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    ended(command(arguments).envs(environment.iter().copied()).output().unwrap())
}

#[test]
fn shells_complete_the_commands_and_their_options() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&["completions", shell], &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.error);
        for word in ["pool-map", "latency", "largest"] {
            assert!(ended.out.contains(word), "{shell} lacks {word}");
        }
    }
    assert_eq!(run(&["completions", "basic"], &[]).code, Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("cuda-mem-manual-{}", std::process::id()));
    let ended = run(&["man", folder.to_str().unwrap()], &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    for command in ["", "-demo", "-doctor", "-pool-map", "-replay", "-bench", "-bench-copy"] {
        let page = std::fs::read_to_string(folder.join(format!("cuda-mem{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{page}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let file = Temporary::new("no-folder", b"");
    let ended = run(&["man", file.path()], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error.contains("cuda-mem man: ") && ended.error.contains(file.path()), "{}", ended.error);
}

const SOFTWARE: [&str; 3] = ["demo", "--provider", "software"];

fn software(more: &[&str]) -> Ended {
    run(&[&SOFTWARE[..], more].concat(), &[])
}

#[test]
fn the_demo_streams_its_own_executable() {
    let ended = software(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert!(ended.out.starts_with("served by: softgpu (software), no GPU was used\n"), "{}", ended.out);
    let length = std::fs::metadata(env!("CARGO_BIN_EXE_cuda-mem")).unwrap().len();
    assert!(ended.out.contains("bytes, every one verified"), "{}", ended.out);
    assert!(ended.out.replace(',', "").contains(&format!("{length} bytes")), "{}", ended.out);
    for word in ["a 4-byte store with its flush", "CPU stores", "cuMemcpyHtoD", "CPU loads", "cuMemcpyDtoH", "GB/s"] {
        assert!(ended.out.contains(word), "{word}: {}", ended.out);
    }
}

#[test]
fn no_command_takes_the_software_gpu_unasked() {
    let ended = run(&["demo"], &[]);
    match ended.code {
        Some(0) => assert!(ended.out.contains("every one verified"), "{}", ended.out),
        // A machine without a GPU, or without Vulkan.
        Some(1) => assert!(ended.error.contains("--provider software"), "{}", ended.error),
        other => panic!("{other:?}: {}", ended.error),
    }
    assert!(!ended.out.contains("softgpu"), "{}", ended.out);
    let ended = run(&["bench", "latency", "--brief"], &[]);
    assert!(!ended.out.contains("No GPU was used"), "{}", ended.out);
    assert!(ended.code == Some(0) || ended.error.contains("CUDA_MEM_LIBCUDA"), "{}", ended.error);
}

#[test]
fn an_empty_file_is_no_failure() {
    let file = Temporary::new("empty", b"");
    let ended = software(&[file.path()]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert!(ended.out.contains(", 0 bytes in ") && ended.out.contains("nothing to verify"), "{}", ended.out);
}

#[test]
fn demo_copies_an_odd_sized_file_in_chunks_for_each_coherence() {
    let content: Vec<u8> = (0..100_003u32).map(|index| (index % 251) as u8).collect();
    let file = Temporary::new("odd", &content);
    for coherence in ["preferred", "required", "forced-non-coherent"] {
        let ended = software(&[file.path(), "--chunk", "4097", "--coherence", coherence, "--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.error);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        let file = &report["file"];
        assert_eq!((&file["bytes"], &file["chunks"]), (&100_003.into(), &25.into()));
        assert_eq!((&file["stored_by_cpu"], &file["loaded_by_cpu"]), (&100_003.into(), &100_003.into()));
        assert_eq!((&report["ok"], &report["served"]["software"]), (&true.into(), &true.into()));
        assert_eq!(report["served"]["coherent"], coherence != "forced-non-coherent");
        assert_eq!(report["served"]["mapping_bytes"], 4097);
        assert!(report["speeds"][0]["cpu_store_seconds"].as_f64().unwrap() > 0.0);
        assert!(report["store_4_bytes"]["driver_seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_missing_file_is_named() {
    let ended = software(&["/no/such/file"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error.contains("/no/such/file"), "{}", ended.error);
    let ended = software(&["/no/such/file", "--json"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(report["ok"] == false && report["error"].as_str().unwrap().contains("/no/such/file"));
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_what_is_wrong() {
    for (arguments, words) in [
        (&["demo", "--chunk", "0"][..], "at least one byte"),
        (&["demo", "--chunk", "many"], "64K, 16M, 1G"),
        (&["demo", "--provider", "magic"], "possible values"),
        (&["demo", "--device", "-1"], "-1"),
        (&["demo", "--coherence", "yes"], "possible values"),
        (&["dance"], "dance"),
        (&[], "Usage"),
    ] {
        let ended = run(arguments, &[]);
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(ended.error.contains(words), "{arguments:?}: {}", ended.error);
    }
}

#[test]
fn a_device_that_is_not_there_is_told_with_how_many_there_are() {
    let ended = software(&["--device", "7"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error.contains("there is no device 7: this driver has 2"), "{}", ended.error);
}

#[test]
fn a_driver_that_the_environment_names_is_never_replaced() {
    for provider in ["auto", "cuda"] {
        let ended = run(&["demo", "--provider", provider], &[("CUDA_MEM_LIBCUDA", "/nonexistent")]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.error.contains("/nonexistent") && ended.error.contains("CUDA_MEM_LIBCUDA"), "{}", ended.error);
        assert!(!ended.out.contains("softgpu"), "{}", ended.out);
    }
    let ended = run(&["demo", "--provider", "vulkan"], &[("CUDA_MEM_LIBVKGDR", "/nonexistent")]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error.contains("/nonexistent"), "{}", ended.error);
}

#[test]
fn the_software_gpu_named_by_the_environment_serves_and_says_so() {
    let ended = run(&["demo"], &[("CUDA_MEM_LIBCUDA", "softgpu")]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert!(ended.out.starts_with("served by: softgpu (software), no GPU was used"), "{}", ended.out);
    let ended = run(&["demo", "--provider", "cuda"], &[("CUDA_MEM_LIBCUDA", "softgpu")]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error.contains("unset one of them"), "{}", ended.error);
}

#[test]
fn cpu_vulkan_serves_or_what_is_missing_is_told() {
    let ended = run(&["demo", "--provider", "vulkan", "--chunk", "1000001"], &[]);
    match ended.code {
        Some(0) => {
            assert!(ended.out.starts_with("served by: softgpu (software), no GPU was used"), "{}", ended.out);
            assert!(ended.out.contains("vkgdr over CPU Vulkan"), "{}", ended.out);
        }
        _ => assert!(ended.error.contains("apt-get install libvulkan1"), "{}", ended.error),
    }
    let ended = run(&["demo", "--provider", "vulkan"], &[("VKGDR_VULKAN_LIBRARY", "/no/vulkan")]);
    assert_eq!(ended.code, Some(1));
    for words in ["/no/vulkan", "apt-get install libvulkan1"] {
        assert!(ended.error.contains(words), "{}", ended.error);
    }
}

#[test]
fn bad_settings_of_the_software_gpu_are_an_error() {
    let ended = run(&["demo"], &[("CUDA_MEM_LIBCUDA", "softgpu"), ("SOFTGPU_ATOM", "48")]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error.contains("SOFTGPU_ATOM"), "{}", ended.error);
}

#[test]
fn the_doctor_without_a_driver_fails_with_remedies() {
    let ended = run(&["doctor"], &[("CUDA_MEM_LIBCUDA", "/nonexistent")]);
    assert_eq!(ended.code, Some(1));
    for words in ["missing", "/nonexistent", "-> ", "there is no NVIDIA driver, so no GPU can be used"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    assert!(!ended.out.contains('\x1b'), "no colour into a pipe");
}

#[test]
fn the_doctors_json_is_whole() {
    for environment in [&[][..], &[("CUDA_MEM_LIBCUDA", "softgpu")], &[("CUDA_MEM_LIBCUDA", "/nonexistent")]] {
        let ended = run(&["doctor", "--json"], environment);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!((&report["format"], ended.code == Some(0)), (&1.into(), report["ok"] == true));
        let findings = report["findings"].as_array().unwrap();
        for finding in findings {
            for field in ["section", "id", "state", "label", "text", "value", "remedy"] {
                assert!(finding.get(field).is_some(), "{field}: {finding}");
            }
            // A missing thing comes with a remedy.
            assert!(finding["state"] != "missing" || finding["remedy"].is_string(), "{finding}");
        }
        assert!(findings.iter().any(|one| one["id"] == "driver.library"), "{}", ended.out);
        assert!(!findings.iter().any(|one| one["id"].as_str().unwrap().starts_with("probe.")), "{}", ended.out);
    }
}

#[test]
fn doctor_examines_softgpu_but_does_not_count_it_as_a_gpu() {
    let ended = run(&["doctor", "--json"], &[("CUDA_MEM_LIBCUDA", "softgpu"), ("SOFTGPU_COHERENT", "0")]);
    assert_eq!(ended.code, Some(0));
    assert!(!ended.out.contains("NVIDIA's Vulkan driver"), "{}", ended.out);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let find = |id: &str| {
        let all = report["findings"].as_array().unwrap();
        all.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{id}: {}", ended.out)).clone()
    };
    assert_eq!(find("driver.kind")["value"], "software");
    assert_eq!(find("mapped.1.transfer")["value"], true);
    assert_eq!(find("mapped.0.coherence")["value"], "non-coherent 64");
    assert_eq!(find("device.0.can.memory_pools")["value"], true);
    assert!(report["verdict"].as_str().unwrap().contains("software GPU"));
}

/// What the doctor finds of UCX, if the environment names a library.
fn ucx(library: &str) -> (Value, String) {
    let ended = run(&["doctor", "--json"], &[("CUDA_MEM_LIBCUDA", "softgpu"), ("CUDA_MEM_LIBUCP", library)]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let all = report["findings"].as_array().unwrap();
    (all.iter().find(|one| one["id"] == "network.ucx").unwrap().clone(), ended.out)
}

#[test]
fn the_doctor_without_ucx_says_what_to_install() {
    let (finding, out) = ucx("/nowhere/libucp.so.0");
    assert_eq!(finding["state"], "note");
    assert!(finding["text"].as_str().unwrap().starts_with("/nowhere/libucp.so.0: "), "{out}");
    assert!(finding["remedy"].as_str().unwrap().contains("pip install libucx-cu13"), "{out}");
}

#[test]
fn the_doctor_says_which_ucx_there_is() {
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/ucx/1.22.0/lib/libucp.so.0");
    if !std::path::Path::new(library).exists() {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "run scripts/ucx-wheels");
        return println!("skipped: UCX's library is missing: run scripts/ucx-wheels");
    }
    let (finding, out) = ucx(library);
    assert_eq!((&finding["state"], &finding["value"]["version"]), (&"ok".into(), &"1.22".into()), "{out}");
    assert!(finding["text"].as_str().unwrap().ends_with("/libucp.so.0), UCX 1.22"), "{out}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    for arguments in [&["doctor"][..], &SOFTWARE, &["demo", "--help"]] {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = ended(child.wait_with_output().unwrap());
        assert!(ended.code.is_some(), "{arguments:?}: ended by a signal");
    }
}

#[test]
fn help_and_version_are_there() {
    let ended = run(&["--version"], &[]);
    assert_eq!((ended.code, ended.out.trim()), (Some(0), concat!("cuda-mem ", env!("CARGO_PKG_VERSION"))));
    for arguments in [["demo", "--help"], ["doctor", "--help"]] {
        let ended = run(&arguments, &[]);
        assert!(
            ended.code == Some(0) && ended.out.contains("Examples:") && ended.out.contains("JSON"),
            "{}",
            ended.out
        );
    }
}
