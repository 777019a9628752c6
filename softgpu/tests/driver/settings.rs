//! What softgpu prints. A variable of the environment that it cannot read fails cuInit, and a line on the error stream names
//! it. Each case runs in a process of its own.

use crate::common::in_its_own_process;
use std::collections::BTreeSet;
use std::path::Path;

/// Every variable of softgpu, with a value that it cannot read.
const BAD: [(&str, &str); 19] = [
    ("SOFTGPU_ATOM", "48"),
    ("SOFTGPU_ATTRIBUTES", "144"),
    ("SOFTGPU_CHANNELS", "few"),
    ("SOFTGPU_COHERENT", "2"),
    ("SOFTGPU_DEVICES", "65"),
    ("SOFTGPU_FAIL", "cuMemAlloc:1=2"),
    ("SOFTGPU_KERNELS", "/there/is/none.so"),
    ("SOFTGPU_LOCKS", "no"),
    ("SOFTGPU_MEMORY", "80G"),
    ("SOFTGPU_PEERS", "ring"),
    ("SOFTGPU_QUARANTINE", "all"),
    ("SOFTGPU_RACES", "yes"),
    ("SOFTGPU_REPORT", "yes"),
    ("SOFTGPU_SEED", "x"),
    ("SOFTGPU_STRICT", "2"),
    ("SOFTGPU_TRACE", "/there/is/none/trace"),
    ("SOFTGPU_VERSION", "9000"),
    ("SOFTGPU_VULKAN", "yes"),
    ("SOFTGPU_WITHOUT", "cuMemAlloc"),
];

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_start() {
    // SAFETY: 0 is the one value that cuInit takes.
    println!("cuInit: {}", unsafe { softgpu::FUNCTIONS.cuInit.unwrap()(0) }.0);
}

#[test]
#[ignore = "a part of the tests below"]
fn part_of_the_runtime() {
    for _ in 0..2 {
        let mut table = std::ptr::null();
        // SAFETY: the result is written to a variable of ours, and the name is 16 bytes.
        let code =
            unsafe { softgpu::FUNCTIONS.cuGetExportTable.unwrap()(&mut table, &cuda_sys::CUuuid { bytes: [7; 16] }) };
        assert_eq!(code, cuda_sys::CUresult::CUDA_ERROR_INVALID_VALUE);
    }
}

/// What a process with these variables prints of its start.
fn start(variables: &[(&str, &str)]) -> String {
    run("part_start", variables)
}

fn run(part: &str, variables: &[(&str, &str)]) -> String {
    let mut command = in_its_own_process(module_path!(), part);
    for (name, _) in BAD {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_variable_that_cannot_be_read_fails_cuinit_by_name() {
    assert!(start(&[]).contains("cuInit: 0"));
    for (name, value) in BAD {
        let text = start(&[(name, value)]);
        let line = format!("softgpu: {name} is {value}, but must be ");
        assert!(text.contains("cuInit: 1") && text.contains(&line), "{name}: {text}");
    }
    let text = start(&[("SOFTGPU_RACE", "1")]);
    assert!(text.contains("cuInit: 1") && text.contains("is SOFTGPU_RACE, but must be one of "), "{text}");
    assert!(text.contains("; did you mean SOFTGPU_RACES?"), "{text}");
    let text = start(&[("SOFTGPU_FAIL", "cuMemAlloc:1=2")]);
    assert!(text.contains("did you mean `cuMemAlloc_v2`?"), "{text}");
}

#[test]
fn a_program_of_the_cuda_runtime_is_told_once_why_it_fails() {
    let text = run("part_of_the_runtime", &[]);
    assert_eq!(text.matches("softgpu: the CUDA runtime asks for private tables").count(), 1, "{text}");
}

#[test]
fn the_list_of_variables_is_whole() {
    fn look(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                look(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]").next().unwrap_or_default();
                let word =
                    |rest: &str| rest.chars().take_while(|letter| letter.is_ascii_uppercase()).collect::<String>();
                found.extend(text.split("SOFTGPU_").skip(1).map(word).filter(|name| !name.is_empty()));
            }
        }
    }
    let mut found = BTreeSet::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let listed = BAD.map(|(name, _)| name.trim_start_matches("SOFTGPU_").to_owned());
    // What is no setting: the library's path, and what tests pass on.
    let others = ["LIBRARY", "TEST"].map(str::to_owned);
    assert_eq!(found, listed.into_iter().chain(others).collect());
}
