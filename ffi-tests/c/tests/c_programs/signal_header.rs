//! `include/cudamem/signal.cuh`: compilers accept it, its layout and its comparisons match the library's, a thread that
//! uses it works with the library's rings and flags, and the checked-in PTX matches the kernels' source.

use cuda_mem::signal::{Comparison, RingDescriptor, SignalWord, Signals, WaitPolicy, Waiter};
use cuda_mem::{Driver, Error};
use libloading::Library;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;
use testkit::compilers::{WARNINGS, is_there, root, run};

const PATIENCE: Duration = Duration::from_secs(20);

fn include() -> String {
    format!("-I{}", root().join("include").display())
}

/// The header compiled as plain C++ into a library, by each installed compiler.
fn peers() -> &'static [Library] {
    static PEERS: OnceLock<Vec<Library>> = OnceLock::new();
    PEERS.get_or_init(make_peers)
}

fn make_peers() -> Vec<Library> {
    let source = root().join("ffi-tests/c/signal_peer.cpp");
    let make = |compiler: &&str| {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "signal_peer-{compiler}-{}-{:?}.so",
            std::process::id(),
            thread::current().id()
        ));
        let mut command = Command::new(compiler);
        command.args(["-std=c++11", "-O2", "-shared", "-fPIC", "-o"]).arg(&library).args(WARNINGS);
        run(command.arg(include()).arg(&source));
        // SAFETY: the library has no initialisation code.
        let loaded = unsafe { Library::new(&library) }.expect("a library that was just made");
        let _ = std::fs::remove_file(&library);
        loaded
    };
    ["g++", "clang++"].iter().filter(|compiler| is_there(compiler)).map(make).collect()
}

#[test]
fn compilers_take_the_header_in_every_language_that_it_is_for() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("signal_header.cpp");
    let text = "#include \"cudamem/signal.cuh\"\n#include \"cudamem/signal.cuh\"\n";
    std::fs::write(&file, text).expect("the folder for temporary files is writable");
    for compiler in ["g++", "clang++"].into_iter().filter(|compiler| is_there(compiler)) {
        for standard in ["c++11", "c++14", "c++17", "c++20"] {
            let mut command = Command::new(compiler);
            command.args(["-x", "c++", &format!("-std={standard}"), "-fsyntax-only"]).args(WARNINGS);
            run(command.arg(include()).arg(&file));
        }
    }
    if !is_there("clang++") {
        return;
    }
    // The device passes for before and after Volta, and the host's pass over the same text.
    let source = root().join("cuda-mem/src/driver/kernels/signal.cu");
    for pass in [
        &["--cuda-device-only", "--cuda-gpu-arch=sm_60", "-Xclang", "-target-feature", "-Xclang", "+ptx63"][..],
        &["--cuda-device-only", "--cuda-gpu-arch=sm_80", "-Xclang", "-target-feature", "-Xclang", "+ptx71"][..],
        &["--cuda-host-only"][..],
    ] {
        let mut command = Command::new("clang++");
        command.args(["-x", "cuda", "-nocudainc", "-nocudalib", "-std=c++14", "-O2", "-S", "-o", "-"]).args(pass);
        run(command.args(["-Wall", "-Wextra", "-Werror"]).arg(include()).arg(&source));
    }
}

#[test]
fn the_checked_in_ptx_is_what_the_source_gives() {
    let checked_in = std::fs::read_to_string(root().join("cuda-mem/src/driver/kernels/signal.ptx")).expect("the PTX");
    let source = std::fs::read_to_string(root().join("cuda-mem/src/driver/kernels/signal.cu")).expect("the source");
    let kernels: Vec<&str> =
        source.lines().filter_map(|line| line.strip_prefix("KERNEL ")?.split('(').next()).collect();
    let entries: Vec<&str> =
        checked_in.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.split('(').next()).collect();
    assert!(kernels.len() >= 5, "{kernels:?}");
    assert_eq!(entries, kernels, "run scripts/kernels");
    if !is_there("clang++") {
        return;
    }
    let made = Path::new(env!("CARGO_TARGET_TMPDIR"));
    run(Command::new(root().join("scripts/kernels")).arg(made));
    let made = std::fs::read_to_string(made.join("signal.ptx")).expect("the PTX that was just made");
    // Other clang releases allocate registers differently, but the kernels have the same effect on memory.
    if run(Command::new("clang++").arg("--version")).contains("version 14.") {
        assert!(
            made == checked_in,
            "cuda-mem/src/driver/kernels/signal.ptx is older than its source: run scripts/kernels"
        );
    }
    let count = |text: &str, what: &str| text.lines().filter(|line| line.contains(what)).count();
    for what in ["fence.acq_rel.sys", ".volatile", ".visible .entry", "%globaltimer"] {
        assert!(count(&checked_in, what) > 0 && count(&made, what) > 0, "{what}");
    }
}

#[test]
fn the_layouts_are_the_same() {
    for peer in peers() {
        // SAFETY: the function has this signature.
        let layout = unsafe { peer.get::<unsafe extern "C" fn(*mut u64)>(c"peer_layout") }.expect("the function");
        let mut theirs = [0; 8];
        // SAFETY: the array has eight words.
        unsafe { layout(theirs.as_mut_ptr()) };
        let ours = [
            size_of::<RingDescriptor>(),
            offset_of!(RingDescriptor, consumer_line),
            offset_of!(RingDescriptor, producer_line),
            offset_of!(RingDescriptor, items),
            offset_of!(RingDescriptor, capacity),
            offset_of!(RingDescriptor, item_size),
            RingDescriptor::LINE,
            RingDescriptor::INDEX + 256 * RingDescriptor::CLOSED,
        ];
        assert_eq!(theirs, ours.map(|value| value as u64));
    }
}

#[test]
fn the_comparisons_are_the_same() {
    fn compare<W: SignalWord>(peer: &Library, name: &std::ffi::CStr, words: &[W]) {
        // SAFETY: the function takes the comparison's number and two words.
        let theirs = unsafe { peer.get::<unsafe extern "C" fn(u32, W, W) -> u32>(name) }.expect("the function");
        for (number, comparison) in (0..).zip(Comparison::ALL) {
            for (word, value) in words.iter().flat_map(|word| words.iter().map(move |value| (*word, *value))) {
                // SAFETY: the function only computes.
                let holds = unsafe { theirs(number, word, value) } == 1;
                assert_eq!(holds, comparison.holds(word, value), "{comparison:?} {word:?} {value:?}");
            }
        }
    }
    for peer in peers() {
        let half = 1 << 31;
        compare(peer, c"peer_holds_u32", &[0u32, 1, 6, half - 1, half, half + 1, u32::MAX - 1, u32::MAX]);
        let half = 1 << 63;
        compare(peer, c"peer_holds_u64", &[0u64, 1, 6, 1 << 32, half - 1, half, half + 1, u64::MAX - 1, u64::MAX]);
    }
}

/// Sends items there and back through a thread that uses the header.
fn echo<T: bytemuck::Pod + PartialEq + std::fmt::Debug + Send>(
    signals: &Signals,
    peer: &Library,
    name: &std::ffi::CStr,
    make: impl Fn(u32) -> T + Sync,
) -> Result<(), Error> {
    type Echo = unsafe extern "C" fn(*const RingDescriptor, *const RingDescriptor, u64) -> u32;
    // SAFETY: the function has this signature.
    let function = unsafe { peer.get::<Echo>(name) }.expect("the function");
    let policy = WaitPolicy::within(PATIENCE);
    for (capacity, count) in [(1, 200), (16, 5000)] {
        let mut to = signals.ring_to_device::<T>(capacity)?.at_position(u32::MAX - 100);
        let mut from = signals.ring_from_device::<T>(capacity)?.at_position(u32::MAX - 200);
        let rings = (to.descriptor(), from.descriptor());
        thread::scope(|scope| {
            // SAFETY: the rings outlive the threads. Their memory is pinned, so the device addresses are also valid for
            // the CPU.
            let device = scope.spawn(|| unsafe { function(&rings.0, &rings.1, PATIENCE.as_nanos() as u64) });
            let sender = scope.spawn(|| {
                let items: Vec<T> = (0..count).map(&make).collect();
                let sent = items.chunks(7).try_for_each(|part| to.send(part, &policy).map(drop));
                to.close();
                sent
            });
            let (mut items, mut next) = (vec![make(0); 5], 0);
            loop {
                let some = from.receive(&mut items, &policy)?;
                if some == 0 {
                    break;
                }
                for item in &items[..some] {
                    assert_eq!(*item, make(next), "item {next}");
                    next += 1;
                }
            }
            sender.join().expect("the sender does not panic")?;
            let closed = 3;
            assert_eq!((device.join().expect("the peer does not panic"), next), (closed, count));
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn c_header_threads_interoperate_with_library_rings_and_flags() -> Result<(), Error> {
    let context = Driver::software()?.device(0)?.primary_context()?;
    let signals = Signals::pinned_only(&context)?;
    for peer in peers() {
        echo(&signals, peer, c"peer_echo_u64", |number| u64::from(number) << 17 ^ 0x5555)?;
        echo(&signals, peer, c"peer_echo_bytes", |number| number as u8)?;
        echo(&signals, peer, c"peer_echo_items", |number| [number, !number, number << 3, number ^ 0xa5a5])?;

        let (flag, count) = (signals.flag::<u32>(Waiter::Device)?, signals.device_counter::<u64>()?);
        type Count = unsafe extern "C" fn(*const u32, *mut u64, u32, u64) -> u32;
        // SAFETY: the function has this signature.
        let function = *unsafe { peer.get::<Count>(c"peer_count") }.expect("the function");
        let (flag_at, count_at) = (flag.device_pointer(), count.device_pointer());
        let rounds = 1000;
        thread::scope(|scope| {
            // SAFETY: both words outlive the thread, and they are pinned memory.
            let device = scope.spawn(move || unsafe {
                function(flag_at as *const u32, count_at as *mut u64, rounds, PATIENCE.as_nanos() as u64)
            });
            for number in 1..=rounds {
                flag.store(number);
                count.wait(number.into(), &WaitPolicy::within(PATIENCE))?;
            }
            assert_eq!(device.join().expect("the peer does not panic"), 0);
            Ok::<(), Error>(())
        })?;
        // SAFETY: as above; nothing writes the flag, and the wait has a time limit.
        let late = unsafe { function(flag_at as *const u32, count_at as *mut u64, rounds + 1, 1_000_000) };
        assert_eq!(late, 4, "timed out");
    }
    Ok(())
}
