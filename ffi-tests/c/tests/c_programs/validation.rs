//! The Vulkan validation layer must report nothing during the suite over our libvkgdr, and must report a range that is
//! misaligned on purpose. Needs a CPU Vulkan driver and the layer. scripts/test installs them and names the ICD files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::{in_its_own_process, test_name};

/// What the layer prints before each complaint.
const COMPLAINT: &str = "Validation Error";

fn layer_is_there() -> bool {
    let there = ["/usr/share/vulkan", "/etc/vulkan", "/usr/local/share/vulkan"]
        .iter()
        .any(|folder| Path::new(folder).join("explicit_layer.d/VkLayer_khronos_validation.json").exists());
    if !there {
        assert!(
            std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none(),
            "the Vulkan validation layer is missing: apt-get install vulkan-validationlayers"
        );
        println!("skipped: the Vulkan validation layer is missing: apt-get install vulkan-validationlayers");
    }
    there
}

fn icds() -> Vec<PathBuf> {
    let files = std::env::var_os("CUDA_MEM_CPU_ICDS").unwrap_or_else(|| {
        println!("CUDA_MEM_CPU_ICDS is not set: lavapipe alone is tried");
        "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json".into()
    });
    std::env::split_paths(&files).filter(|path| path.exists()).collect()
}

fn under_the_layer(icd: &Path, vkgdr: &str, program: &mut Command) -> (Output, String) {
    let output = program
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
        // Makes the output show whether the layer is loaded at all.
        .env("VK_LOADER_DEBUG", "layer")
        .env("VK_DRIVER_FILES", icd)
        .env("VK_ICD_FILENAMES", icd)
        .env("SOFTGPU_VULKAN", "1")
        .env("CUDA_MEM_LIBVKGDR", vkgdr)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let loaded = |line: &str| line.contains("nsert instance layer") && line.contains("VK_LAYER_KHRONOS_validation");
    assert!(text.lines().any(loaded), "the layer was not loaded:\n{text}");
    (output, text)
}

/// The suite is another test program in the same folder. cargo names it only as a file with a hash, so look for the
/// newest. There is a benchmark of that name too.
fn suite() -> PathBuf {
    let folder = std::env::current_exe().expect("this program").parent().expect("it lies in a folder").to_owned();
    let mut programs: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder of this program")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let sources = std::fs::read_to_string(path.with_extension("d")).unwrap_or_default();
            name.starts_with("mapped-") && path.extension().is_none() && sources.contains("tests/mapped/main.rs")
        })
        .collect();
    programs.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    programs.pop().expect("the suite is built beside this program")
}

#[test]
fn the_layer_is_silent_through_the_suite() {
    let icds = icds();
    if !layer_is_there() || icds.is_empty() {
        println!("skipped: no CPU Vulkan driver: apt-get install mesa-vulkan-drivers");
        return;
    }
    for icd in icds {
        for name in ["preferred::", "forced_non_coherent::"] {
            // Small sizes suffice for the layer's checks; large sizes only take time.
            for size in ["::65", "::4097"] {
                let mut program = Command::new(suite());
                program.env("CUDA_MEM_LIBCUDA", "softgpu").arg(name).arg("--skip").arg("required");
                let (output, text) = under_the_layer(&icd, "vkgdr", program.args(skip_all_but(size)));
                assert!(output.status.success(), "{}: {text}", icd.display());
                assert!(!text.contains(COMPLAINT), "{}, {name}: {text}", icd.display());
                assert!(text.contains("test result: ok.") && !text.contains(" 0 passed"), "{text}");
            }
        }
    }
}

/// The arguments that leave only tests of one size.
fn skip_all_but(size: &str) -> Vec<String> {
    let sizes = testkit::suite::SIZES.map(|size| format!("::{size}"));
    // `--skip` matches a part of the name, and "::65" is a part of "::65...", so sizes with this prefix stay in.
    let others = sizes.iter().filter(|other| !other.starts_with(size) && !size.starts_with(other.as_str()));
    others.flat_map(|other| ["--skip".to_owned(), other.clone()]).collect()
}

#[test]
#[ignore = "a part of the test below, which gives it an environment"]
fn part_misaligned() {
    use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
    let setup = testkit::Setup::from_environment().expect("softgpu serves");
    let resource = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent).expect("it opens");
    let vkgdr = setup.driver.vkgdr().expect("it is open");
    let _current = setup.context.bind().expect("the context lives");
    // SAFETY: the handle is live, the memory is freed once, and the misaligned range lies within it.
    unsafe {
        let memory = vkgdr.vkgdr_memory_alloc(resource.raw(), 4096, 0).expect("it has the function");
        assert!(!memory.is_null());
        vkgdr.vkgdr_memory_flush(memory, 1, 3).expect("it has the function");
        vkgdr.vkgdr_memory_free(memory).expect("it has the function");
    }
}

/// Upstream's library passes a range to Vulkan unchanged; ours rounds it. So for the same misaligned call, the layer
/// must complain over upstream's and be silent over ours.
#[test]
fn the_layer_speaks_when_a_range_is_misaligned() {
    let icds = icds();
    let (upstream, softgpu) = (std::env::var("UPSTREAM_VKGDR"), std::env::var("SOFTGPU_LIBRARY"));
    let (Ok(upstream), Ok(softgpu), true, [icd, ..]) = (upstream, softgpu, layer_is_there(), &*icds) else {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none(), "scripts/test sets what this test needs");
        println!("skipped: needs UPSTREAM_VKGDR (upstream's library), SOFTGPU_LIBRARY (libsoftgpu.so), lavapipe");
        return;
    };
    let program = || {
        let mut program = in_its_own_process(&test_name!("part_misaligned"));
        program.env("CUDA_MEM_LIBCUDA", &softgpu);
        program
    };
    let (output, text) = under_the_layer(icd, &upstream, &mut program());
    assert!(output.status.success(), "{text}");
    assert!(text.contains(COMPLAINT) && text.contains("VUID-VkMappedMemoryRange-offset-00687"), "{text}");
    let (output, text) = under_the_layer(icd, "vkgdr", &mut program());
    assert!(output.status.success() && !text.contains(COMPLAINT), "{text}");
}
