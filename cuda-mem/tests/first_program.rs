//! README's first program: on the software GPU if its environment names it, and an error with advice otherwise.

use std::path::Path;
use std::process::{Command, Output};

mod first {
    include!("../examples/first/program.rs");

    pub fn run() -> Result<(), cuda_mem::Error> {
        main()
    }
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_first() -> Result<(), cuda_mem::Error> {
    first::run()
}

fn run(driver: Option<&str>) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "part_first", "--nocapture", "--ignored"]);
    for variable in ["CUDA_MEM_LIBCUDA", "CUDA_MEM_LIBVKGDR"] {
        command.env_remove(variable);
    }
    command.envs(driver.map(|driver| ("CUDA_MEM_LIBCUDA", driver))).output().expect("the process starts")
}

#[test]
fn the_first_program_prints_what_softgpu_sees() {
    let ended = run(Some("softgpu"));
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(text.contains("softgpu 0 (host memory) sees [1.0, 2.0, 3.0]"), "{text}");
    assert!(ended.status.success() && !String::from_utf8_lossy(&ended.stderr).contains("error"), "{ended:?}");
}

#[test]
fn softgpu_serves_no_program_that_did_not_name_it() {
    let ended = run(None);
    let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(!text.contains("softgpu 0"), "{text}");
    // A machine with a GPU runs it, unless it lacks Vulkan.
    if cuda_mem::Driver::load().is_err() {
        assert!(!ended.status.success() && text.contains("CUDA_MEM_LIBCUDA=softgpu"), "{text}");
    }
}

#[test]
fn the_readme_shows_the_first_program() {
    let file = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a text");
    let program = file("examples/first/program.rs");
    assert!(file("../README.md").contains(&format!("```rust,no_run\n{program}```")), "README.md differs");
}
