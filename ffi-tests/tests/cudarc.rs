//! softgpu as libcuda.so.1 serves a program that does not know it: cudarc, with its own dynamic loading, allocates,
//! copies and reads back.

use cudarc::driver::{CudaContext, DriverError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the library under the names that cudarc looks for.
fn folder() -> Option<PathBuf> {
    let Some(library) = std::env::var_os("SOFTGPU_LIBRARY").map(PathBuf::from).filter(|path| path.exists()) else {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "SOFTGPU_LIBRARY is not set: use scripts/test");
        println!("skipped: SOFTGPU_LIBRARY is not set: scripts/test builds libsoftgpu.so and names it");
        return None;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cudarc");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&library, &link).expect("the folder is writable");
    }
    Some(folder)
}

#[test]
#[ignore = "a part of the test below, which gives it an environment"]
fn part_allocate_copy_read_back() -> Result<(), DriverError> {
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
    let Some(folder) = folder() else { return };
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "part_allocate_copy_read_back", "--ignored", "--nocapture"]);
    let output = command.env("LD_LIBRARY_PATH", &folder).output().expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("cudarc is served"), "{text}");
    assert!(text.contains("softgpu"), "another driver served: {text}");
}
