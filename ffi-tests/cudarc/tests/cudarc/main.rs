//! cudarc, with its own dynamic loading: over softgpu as libcuda.so.1, which it does not know, and beside this library.

mod child;
mod memory;
mod misuse;
mod other_libraries;

use child::Outcome;
use cudarc::driver::CudaContext;
use std::path::PathBuf;
use std::process::Command;
use testkit::{in_its_own_process, test_name};

#[test]
#[ignore = "a part of the test below, which gives it an environment"]
fn part_allocate_copy_read_back() -> Outcome {
    let context = CudaContext::new(0)?;
    println!("cudarc has {}", context.name()?);
    let stream = context.new_stream()?;
    let numbers: Vec<f32> = (0..100_000).map(|number| number as f32).collect();

    let first = stream.clone_htod(&numbers)?;
    let mut second = stream.alloc_zeros::<f32>(numbers.len())?;
    assert!(stream.clone_dtoh(&second)?.iter().all(|number| *number == 0.0));
    stream.memcpy_dtod(&first, &mut second)?;
    assert_eq!(stream.clone_dtoh(&second)?, numbers);

    let other = context.default_stream();
    other.join(&stream)?;
    let mut part = vec![0f32; 10];
    other.memcpy_dtoh(&second.slice(50..60), &mut part)?;
    other.synchronize()?;
    assert_eq!(part, numbers[50..60]);
    stream.memset_zeros(&mut second)?;
    assert_eq!(stream.clone_dtoh(&second)?[99_999], 0.0);
    drop((first, second));
    stream.synchronize()?;
    println!("cudarc is served");
    Ok(())
}

#[test]
fn cudarc_allocates_copies_and_reads_back() {
    let part = in_its_own_process(&test_name!("part_allocate_copy_read_back"));
    let Some(command) = child::with_softgpu(part) else { return };
    let text = child::run(command);
    assert!(text.contains("cudarc is served"), "{text}");
    assert!(text.contains("softgpu"), "another driver served: {text}");
}

/// The example of cuda-mem with this name, beside this program. `cargo build --workspace --examples` builds it.
fn example(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().expect("this program");
    let path = program.parent().and_then(|folder| folder.parent()).expect("a folder").join("examples").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "{} is not built", path.display());
    println!("skipped: {} is not built: cargo build --workspace --examples", path.display());
    None
}

#[test]
fn the_example_with_a_kernel_runs() {
    let command = example("cudarc_kernel").map(Command::new).and_then(child::with_softgpu);
    let Some(command) = command else { return };
    let text = child::run(command);
    assert!(text.contains("has added 1 to 1000000 words, twice"), "{text}");
}

#[test]
fn the_example_of_staging_brings_a_file_and_measures() {
    let Some(path) = example("staging") else { return };
    let with = |arguments: &[&str]| {
        let mut command = Command::new(&path);
        command.args(arguments);
        child::with_softgpu(command).map(child::run)
    };
    let Some(text) = with(&[]) else { return };
    assert!(text.contains("33566777 bytes of a file are on the device"), "{text}");
    let small = ["--measure", "--total", "8", "--piece", "64", "--slots", "4", "--threads", "3"];
    let text = with(&small).expect("as above");
    assert!(text.contains("3 threads, 43 pieces each of 64 KiB, 4 slots"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("cuda")).count(), 4, "{text}");
}

#[test]
fn the_guide_shows_the_example_as_it_is() {
    let root = testkit::compilers::root();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("the file is there");
    let (page, example) = (read("docs/guide/cudarc.md"), read("cuda-mem/examples/cudarc_kernel.rs"));
    let (_, program) = example.split_once("\n\n").expect("a head");
    assert!(page.contains(program), "the guide shows another program than cudarc_kernel.rs");
}
