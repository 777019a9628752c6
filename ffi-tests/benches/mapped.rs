//! The cost of mapped memory through the safe interface, compared with raw stores, the driver's copies and upstream's
//! vkgdr.
//!
//! `cargo bench -p benches` runs it over the driver that the environment names. `UPSTREAM_VKGDR` is the path of
//! upstream's library, for the comparison. `--brief` is a short run that only shows that it works.

use cuda_mem::cuda_sys::{CU_MEMHOSTALLOC_DEVICEMAP, CUresult};
use cuda_mem::mapped::MappedMemory;
use cuda_mem::{Buffer, Context, Driver, Stream};
use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::kernel::Kernels;
use testkit::{MappedBuffer, Setup, timing};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The variable that makes this program measure one cold open in a separate process.
const OPEN: &str = "CUDA_MEM_BENCH_OPEN";

fn main() -> Result<()> {
    if let Ok(library) = std::env::var(OPEN) {
        return time_open(&library);
    }
    let brief = std::env::args().any(|argument| argument == "--brief");
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let upstream = std::env::var_os("UPSTREAM_VKGDR").map(PathBuf::from);
    let upstream = match &upstream {
        // SAFETY: the user names upstream's library.
        Some(path) => Some(unsafe { Driver::builder().vkgdr(path).load() }?),
        None => {
            println!("UPSTREAM_VKGDR is not set: no comparison with upstream's library");
            None
        }
    };

    writes(&setup, upstream.as_ref(), brief)?;
    reads(&setup, brief)?;
    allocations(&setup, upstream.as_ref(), brief)?;
    opens(&setup, brief)?;
    if setup.driver.provider().library.contains("softgpu") {
        println!("flag round trip: needs a GPU");
    } else {
        round_trips(&setup, brief)?;
    }
    Ok(())
}

/// The median time of one run, in microseconds.
fn median(rounds: usize, batch: usize, run: impl FnMut()) -> f64 {
    timing::median_of(rounds, batch, run) / 1e3
}

fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Raw streaming stores of whole lines with the widest instructions of the CPU, or of one word for 4 bytes.
///
/// # Safety
///
/// `to` is a multiple of 64. Both are valid for `length` bytes, which is 4 or a multiple of 64.
unsafe fn raw_store(from: *const u8, to: *mut u8, length: usize, wide: bool) {
    // SAFETY: this function's contract. `wide` says that the CPU has AVX-512, and every machine with a GPU has AVX2.
    unsafe {
        if length == 4 {
            to.cast::<u32>().write_volatile(from.cast::<u32>().read_unaligned());
            return;
        }
        #[cfg(target_arch = "x86_64")]
        for at in (0..length).step_by(64) {
            if wide {
                std::arch::asm!(
                    "vmovdqu64 zmm0, [{from}]",
                    "vmovntdq [{to}], zmm0",
                    from = in(reg) from.add(at),
                    to = in(reg) to.add(at),
                    out("xmm0") _,
                    options(nostack),
                );
                continue;
            }
            std::arch::asm!(
                "vmovdqu ymm0, [{from}]",
                "vmovdqu ymm1, [{from} + 32]",
                "vmovntdq [{to}], ymm0",
                "vmovntdq [{to} + 32], ymm1",
                from = in(reg) from.add(at),
                to = in(reg) to.add(at),
                out("xmm0") _,
                out("xmm1") _,
                options(nostack),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = wide;
            std::ptr::copy_nonoverlapping(from, to, length);
        }
    }
}

fn avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

fn writes(setup: &Setup, upstream: Option<&Driver>, brief: bool) -> Result<()> {
    let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 1 << 20)?;
    let other = match upstream {
        Some(driver) => Some(testkit::mapped(&MappedMemory::new(&context(driver)?)?, 1 << 20)?),
        None => None,
    };
    let source = vec![7u8; 1 << 20];
    let (rounds, batch) = if brief { (3, 10) } else { (501, 200) };
    println!("\nwrites with flush, us, median of {rounds} times {batch}");
    println!(
        "{:>8} {:>10} {:>10} {:>8} {:>14} {:>14} {:>8}",
        "bytes", "safe", "raw", "safe/raw", "upstream's", "cuMemcpyHtoD", "HtoD/safe"
    );
    for size in [4, 64, 256, 1024, 4096, 65536] {
        let batch = if size > 4096 { batch / 20 + 1 } else { batch };
        let bytes = &source[..size];
        let host = memory.host_pointer();
        // Hand-written code would use the faster of the two widths.
        let [narrow, wide] = [false, avx512()].map(|wide| {
            median(rounds, batch, || {
                // SAFETY: the mapping is aligned to 64 bytes and larger, and nothing else uses it.
                unsafe { raw_store(black_box(bytes).as_ptr(), host, size, wide) };
                fence();
            })
        });
        let raw = narrow.min(wide);
        let mut failed = None;
        let safe = median(rounds, batch, || {
            if let Err(error) = memory.store(0, black_box(bytes)) {
                failed = Some(error);
            }
        });
        // A program with upstream's library uses memcpy and a fence, because upstream's flush has no fence.
        let theirs = match &other {
            Some(other) => {
                let host = other.host_pointer();
                median(rounds, batch, || {
                    // SAFETY: as above.
                    unsafe { std::ptr::copy_nonoverlapping(black_box(bytes).as_ptr(), host, size) };
                    fence();
                })
            }
            None => f64::NAN,
        };
        let driver = median(rounds.min(101), batch / 10 + 1, || {
            if let Err(error) = memory.copy_from_slice(0, black_box(bytes)) {
                failed = Some(error);
            }
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        println!(
            "{size:>8} {safe:>10.3} {raw:>10.3} {:>8.2} {theirs:>14.3} {driver:>14.2} {:>8.0}",
            safe / raw,
            driver / safe
        );
    }
    Ok(())
}

fn reads(setup: &Setup, brief: bool) -> Result<()> {
    let memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 1 << 20)?;
    let mut room = vec![0u8; 1 << 20];
    let (rounds, batch) = if brief { (3, 3) } else { (201, 20) };
    println!("\nreads, us, median of {rounds} times {batch}");
    println!("{:>8} {:>10} {:>12} {:>14}", "bytes", "safe", "raw memcpy", "cuMemcpyDtoH");
    for size in [4, 8, 64, 256, 1024, 4096] {
        let room = &mut room[..size];
        let mut failed = None;
        let safe = median(rounds, batch, || {
            if let Err(error) = memory.load(0, black_box(&mut *room)) {
                failed = Some(error);
            }
        });
        let host = memory.host_pointer();
        let raw = median(rounds.min(51), batch.min(3), || {
            // SAFETY: the mapping is larger than that.
            unsafe { std::ptr::copy_nonoverlapping(host.cast_const(), black_box(&mut *room).as_mut_ptr(), size) };
        });
        let driver = median(rounds, batch, || {
            if let Err(error) = memory.copy_to_slice(0, black_box(&mut *room)) {
                failed = Some(error);
            }
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        println!("{size:>8} {safe:>10.3} {raw:>12.3} {driver:>14.2}");
    }
    Ok(())
}

fn context(driver: &Driver) -> Result<Context> {
    Ok(driver.device(0)?.primary_context()?)
}

fn allocations(setup: &Setup, upstream: Option<&Driver>, brief: bool) -> Result<()> {
    let rounds = if brief { 3 } else { 41 };
    println!("\nallocate / free, us, median of {rounds}");
    let mut resources = vec![("ours", MappedMemory::new(&setup.context)?)];
    if let Some(driver) = upstream {
        resources.push(("upstream's", MappedMemory::new(&context(driver)?)?));
    }
    for size in [4096, 65536, 2 << 20, 64 << 20] {
        for (name, resource) in &resources {
            let stream = Stream::new(resource.context())?;
            let rounds = if size > 1 << 20 { rounds.min(11) } else { rounds };
            let mut times: Vec<(Duration, Duration)> = Vec::new();
            for _ in 0..rounds {
                let start = Instant::now();
                // SAFETY: the driver's memory is always initialised bytes, and every byte is a value of `u8`.
                let memory: MappedBuffer = unsafe { Buffer::uninit_assumed(resource, size, &stream) }?;
                let allocated = start.elapsed();
                let start = Instant::now();
                drop(memory);
                times.push((allocated, start.elapsed()));
            }
            let middle = |mut times: Vec<Duration>| {
                times.sort();
                times[times.len() / 2].as_secs_f64() * 1e6
            };
            let allocate = middle(times.iter().map(|pair| pair.0).collect());
            let free = middle(times.iter().map(|pair| pair.1).collect());
            println!("{size:>10} {name:>12} {allocate:>10.1} / {free:.1}");
        }
    }
    Ok(())
}

/// Opens libraries in separate processes, in turns, so that each open is the first of its process and no library has
/// warmer files.
fn opens(setup: &Setup, brief: bool) -> Result<()> {
    let rounds = if brief { 1 } else { 9 };
    let mut libraries = vec![("ours".to_owned(), setup.driver.vkgdr()?.provider().library.to_string())];
    if let Some(path) = std::env::var_os("UPSTREAM_VKGDR") {
        libraries.push(("upstream's".to_owned(), path.to_string_lossy().into_owned()));
    }
    println!("\nopen and close, ms, median of {rounds} processes: first open, close, second open, close");
    let mut times: Vec<Vec<[f64; 4]>> = vec![Vec::new(); libraries.len()];
    // The first round warms the files.
    for round in 0..=rounds {
        for (index, (_, library)) in libraries.iter().enumerate() {
            let output = Command::new(std::env::current_exe()?).env(OPEN, library).output()?;
            let text = String::from_utf8(output.stdout)?;
            if !output.status.success() {
                return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into());
            }
            let numbers: Vec<f64> = text
                .lines()
                .last()
                .unwrap_or_default()
                .split_whitespace()
                .map(str::parse)
                .collect::<std::result::Result<_, _>>()?;
            if round > 0 {
                times[index].push(numbers.try_into().map_err(|_| "four numbers were expected")?);
            }
        }
    }
    for ((name, library), times) in libraries.iter().zip(times) {
        let column = |index: usize| {
            let mut column: Vec<f64> = times.iter().map(|row| row[index]).collect();
            column.sort_by(f64::total_cmp);
            column[column.len() / 2]
        };
        let [first, close, second, again] = [0, 1, 2, 3].map(column);
        println!("{name:>12} {first:>8.1} {close:>8.2} {second:>8.2} {again:>8.2}   ({library})");
    }
    Ok(())
}

fn time_open(library: &str) -> Result<()> {
    // SAFETY: the parent names a library that it has loaded itself.
    let driver = unsafe { Driver::builder().vkgdr(library).load() }?;
    let context = context(&driver)?;
    driver.vkgdr()?;
    let mut times = Vec::new();
    for _ in 0..2 {
        let start = Instant::now();
        let resource = MappedMemory::new(&context)?;
        times.push(start.elapsed());
        let start = Instant::now();
        drop(resource);
        times.push(start.elapsed());
    }
    println!("{}", times.iter().map(|time| format!("{:.4}", time.as_secs_f64() * 1e3)).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// The time from CPU to kernel and back, over one word in each direction.
fn round_trips(setup: &Setup, brief: bool) -> Result<()> {
    let (kernels, stream) = (Kernels::new(&setup.context)?, Stream::new(&setup.context)?);
    let rounds: u32 = if brief { 100 } else { 20_000 };
    let memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 8192)?.into_shared();
    let _current = setup.context.bind()?;
    let cuda = setup.driver.raw();
    let (mut pinned, mut pinned_device) = (std::ptr::null_mut(), 0);
    // SAFETY: both results are writable, and the memory is freed below.
    let results = unsafe {
        [
            cuda.cuMemHostAlloc(&mut pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP)?,
            cuda.cuMemHostGetDevicePointer_v2(&mut pinned_device, pinned, 0)?,
        ]
    };
    if results != [CUresult::CUDA_SUCCESS; 2] {
        return Err(format!("pinned memory: {results:?}").into());
    }
    let pinned = pinned.cast::<u32>();
    let question = memory.cell::<u32>(0)?;
    let mapped_answer = memory.cell::<u32>(4096)?;
    println!("\nflag round trip CPU, kernel, CPU, us, mean of {rounds}");

    question.store(0)?;
    // SAFETY: the pinned memory has 4096 bytes.
    unsafe { pinned.write_volatile(0) };
    // SAFETY: the words live until the stream is waited for.
    unsafe { kernels.answer(question.device_pointer(), pinned_device, rounds, &stream) }?;
    let start = Instant::now();
    for number in 1..=rounds {
        question.store(number)?;
        // SAFETY: as above.
        while unsafe { pinned.read_volatile() } != number {
            if start.elapsed() > Duration::from_secs(30) {
                return Err("the kernel does not answer".into());
            }
        }
    }
    println!("  mapped in, pinned out: {:.3}", start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
    stream.synchronize()?;

    // The same with a raw store and a fence.
    question.store(0)?;
    let raw_question = memory.host_pointer().cast::<u32>();
    // SAFETY: as above.
    unsafe { pinned.write_volatile(0) };
    // SAFETY: as above.
    unsafe { kernels.answer(question.device_pointer(), pinned_device, rounds, &stream) }?;
    let start = Instant::now();
    for number in 1..=rounds {
        // SAFETY: the word is mapped and aligned, and only this thread writes it.
        unsafe { raw_question.write_volatile(number) };
        fence();
        // SAFETY: as above.
        while unsafe { pinned.read_volatile() } != number {
            if start.elapsed() > Duration::from_secs(30) {
                return Err("the kernel does not answer".into());
            }
        }
    }
    println!("  the same, raw store:   {:.3}", start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
    stream.synchronize()?;

    question.store(0)?;
    mapped_answer.store(0)?;
    // SAFETY: as above.
    unsafe { kernels.answer(question.device_pointer(), mapped_answer.device_pointer(), rounds, &stream) }?;
    let start = Instant::now();
    for number in 1..=rounds {
        question.store(number)?;
        while mapped_answer.load()? != number {
            if start.elapsed() > Duration::from_secs(30) {
                return Err("the kernel does not answer".into());
            }
        }
    }
    println!("  mapped in, mapped out: {:.3}", start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
    stream.synchronize()?;
    // SAFETY: this function owns the memory, and the kernels that used it are done.
    let freed = unsafe { cuda.cuMemFreeHost(pinned.cast()) }?;
    if freed == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("cuMemFreeHost: {freed:?}").into()) }
}
