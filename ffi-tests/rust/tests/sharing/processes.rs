//! Two processes share one mapped allocation. Each writes it with the CPU and with CUDA, and sees the other's bytes
//! both ways.

use cuda_mem::ipc::{MappedDescriptor, MappedExport};
use cuda_mem::mapped::MappedMemory;
use cuda_mem::{Error, Stream};
use std::error::Error as StdError;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use testkit::{Setup, SharedMapped, in_its_own_process, pattern, same, test_name};

const SIZE: usize = 1 << 20;
const PART: usize = 64 << 10;
/// The child is this test program. This variable tells it to be the other process.
const CHILD: &str = "CUDA_MEM_TEST_CHILD_FD";

/// Writes one part with the CPU and one with the driver.
fn write(memory: &mut SharedMapped, first_part: usize, seed: u8) -> Result<(), Error> {
    memory.store(first_part * PART, &pattern(PART, seed))?;
    memory.copy_from_slice((first_part + 1) * PART, &pattern(PART, seed + 1))
}

/// Reads both parts with the CPU and with the driver.
fn check(memory: &SharedMapped, first_part: usize, seed: u8) -> Result<(), Box<dyn StdError>> {
    for (part, seed) in [(first_part, seed), (first_part + 1, seed + 1)] {
        let mut seen = vec![0; PART];
        memory.load(part * PART, &mut seen)?;
        same(&format!("part {part} by the CPU"), &seen, &pattern(PART, seed))?;
        seen.fill(0);
        memory.copy_to_slice(part * PART, &mut seen)?;
        same(&format!("part {part} by the driver"), &seen, &pattern(PART, seed))?;
    }
    Ok(())
}

fn child(fd: i32) -> Result<(), Box<dyn StdError>> {
    let setup = Setup::from_environment()?;
    let resource = MappedMemory::new(&setup.context)?;
    let mut descriptor = [0; MappedDescriptor::SIZE];
    std::io::Read::read_exact(&mut std::io::stdin(), &mut descriptor)?;
    let descriptor = MappedDescriptor::from_bytes(&descriptor)?;
    // SAFETY: the parent left this descriptor open for this process, and nothing else here uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let stream = Stream::new(&setup.context)?;
    let mut memory: SharedMapped = resource.import(MappedExport::from_parts(fd, descriptor), &stream)?;
    check(&memory, 0, 10)?;
    write(&mut memory, 2, 20)?;
    Ok(())
}

#[test]
fn two_processes_write_and_see_the_same_memory() -> Result<(), Box<dyn StdError>> {
    if let Ok(fd) = std::env::var(CHILD) {
        return child(fd.parse()?);
    }
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let resource = MappedMemory::new(&setup.context)?;
    let mut memory = testkit::mapped(&resource, SIZE)?.into_shared();
    let export = match resource.export(&memory) {
        Err(Error::MissingSymbol(missing)) => {
            println!("skipped: {missing}");
            return Ok(());
        }
        other => other?,
    };
    write(&mut memory, 0, 10)?;

    // As if it were sent through a socket, the descriptor must survive exec.
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(std::os::fd::AsFd::as_fd(&export).as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let mut process = in_its_own_process(&test_name!("two_processes_write_and_see_the_same_memory"))
        .env(CHILD, std::os::fd::AsFd::as_fd(&export).as_raw_fd().to_string())
        .stdin(Stdio::piped())
        .spawn()?;
    process.stdin.take().ok_or("no stdin")?.write_all(&export.descriptor().to_bytes())?;
    assert!(process.wait()?.success(), "the other process failed");

    check(&memory, 0, 10)?;
    check(&memory, 2, 20)?;
    Ok(())
}

#[test]
fn a_forged_export_is_refused() -> Result<(), Box<dyn StdError>> {
    if std::env::var_os(CHILD).is_some() {
        return Ok(());
    }
    let setup = Setup::from_environment()?;
    let resource = MappedMemory::new(&setup.context)?;
    let stream = Stream::new(&setup.context)?;
    let import = |path: &str, descriptor| -> Result<_, Box<dyn StdError>> {
        let file = OwnedFd::from(std::fs::File::open(path)?);
        Ok(resource.import::<u8>(MappedExport::from_parts(file, descriptor), &stream))
    };
    let uuid = setup.context.device().uuid()?;
    let good = MappedDescriptor { device: uuid, size: 4096, offset: 0, length: 4096 };

    let mut other = good;
    other.device.0[3] ^= 1;
    let result = import("/dev/null", other)?;
    assert!(matches!(result, Err(Error::InvalidArgument { .. })), "another device: {result:?}");

    let outside = MappedDescriptor { offset: 4000, ..good };
    let result = import("/dev/null", outside)?;
    assert!(matches!(result, Err(Error::OutOfRange { .. })), "a part outside: {result:?}");

    if setup.driver.vkgdr()?.has("vkgdr_memory_import_fd") {
        // A file that is not device memory.
        let result = import("/proc/self/exe", good)?;
        assert!(result.is_err(), "{result:?}");
        println!("a foreign file: {}", result.err().map_or_else(String::new, |error| error.to_string()));
    }
    Ok(())
}
