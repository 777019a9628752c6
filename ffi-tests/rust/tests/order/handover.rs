//! A litmus test on the real CPU. After every kind of write, the memory goes to another thread by a plain release
//! store, without a locked instruction that would drain the CPU's buffers. The other thread must find the new bytes,
//! twice.
//!
//! Streaming stores are weakly ordered in ordinary memory too, so the software GPU's memory shows a missing fence. Both
//! threads must run at the same time: a machine with one processor finds nothing.

use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions};
use cuda_mem::memory::{HostAccessible, PinnedMemory, PinnedOptions};
use cuda_mem::signal::{Producer, Signals};
use cuda_mem::{Buffer, MappedMemory, Stream};
use cudamem::engine::cudamem_engine_write_buffer;
use cudamem::engine_work::{cudamem_engine_scatter_to_buffer, cudamem_scatter};
use cudamem::mapped::{cudamem_buffer_store, cudamem_buffer_store_u64};
use cudamem::resource::CUDAMEM_COHERENCE_PREFERRED;
use softgpu::{CpuBorrow, Settings};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Setup;
use testkit::suite::Outcome;
use testkit::{MappedBuffer, SharedMapped};

/// How long each kind of write is tried, and the maximum number of rounds.
const TIME: Duration = Duration::from_millis(250);
const ROUNDS: usize = 100_000;

/// Runs a test alone. softgpu does not track borrows here, because that takes locks, which drain the CPU's buffers.
fn alone(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    softgpu::configure(Settings::default())?;
    testkit::alone(test)
}

/// A slot for one value, which passes between two threads by a plain store and a plain load.
struct Slot<T> {
    full: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: one thread puts a value while the slot is empty, and the other takes it while the slot is full. `full` orders
// the two.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn new() -> Self {
        Self { full: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    /// Puts a value into the empty slot.
    fn put(&self, value: T) {
        // SAFETY: the other thread reads the value only after `full` is set.
        unsafe { *self.value.get() = Some(value) };
        self.full.store(true, Ordering::Release);
    }

    /// Waits for a value and takes it. Returns `None` if the other thread has given up.
    fn take(&self, over: &AtomicBool) -> Option<T> {
        let mut turns = 0u32;
        while !self.full.load(Ordering::Acquire) {
            turns += 1;
            if turns.is_multiple_of(1 << 14) {
                if over.load(Ordering::Relaxed) {
                    return None;
                }
                thread::yield_now();
            }
            spin_loop();
        }
        // SAFETY: the slot is full, so the other thread has put the value and does not access it.
        let value = unsafe { (*self.value.get()).take() };
        self.full.store(false, Ordering::Release);
        value
    }
}

/// The errors that a hunt found.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// Rounds in which the first read found old bytes.
    stale: usize,
    /// Rounds in which the second read found other bytes than the first.
    changed: usize,
}

/// The number of rounds, and the errors.
type Hunted = Result<(usize, Found), Box<dyn std::error::Error>>;

/// One thread writes a byte everywhere, and another thread reads all of it twice.
fn hunt<M: Send>(
    memory: M,
    write: impl FnMut(&mut M, u8) -> Outcome,
    look: impl FnMut(&mut M, &mut [Vec<u8>; 2]) -> Outcome + Send,
) -> Hunted {
    hunt_for(ROUNDS, memory, write, look)
}

/// One thread writes a byte everywhere, and another thread reads all of it twice, for at most `most` rounds.
fn hunt_for<M: Send>(
    most: usize,
    memory: M,
    mut write: impl FnMut(&mut M, u8) -> Outcome,
    mut look: impl FnMut(&mut M, &mut [Vec<u8>; 2]) -> Outcome + Send,
) -> Hunted {
    let (there, back, over) = (Slot::new(), Slot::new(), AtomicBool::new(false));
    thread::scope(|threads| {
        let looking = threads.spawn(|| {
            let (mut found, mut seen) = (Found::default(), [vec![], vec![]]);
            while let Some((mut memory, byte)) = there.take(&over) {
                if let Err(error) = look(&mut memory, &mut seen) {
                    over.store(true, Ordering::Relaxed);
                    return Err(error.to_string());
                }
                found.stale += usize::from(seen[0].iter().any(|seen| *seen != byte));
                found.changed += usize::from(seen[0] != seen[1]);
                back.put(memory);
            }
            Ok(found)
        });
        let (mut memory, mut rounds, start) = (memory, 0, Instant::now());
        let outcome = loop {
            if rounds == most || start.elapsed() > TIME {
                break Ok(());
            }
            rounds += 1;
            let byte = rounds as u8;
            if let Err(error) = write(&mut memory, byte) {
                break Err(error);
            }
            there.put((memory, byte));
            memory = match back.take(&over) {
                Some(memory) => memory,
                None => break Ok(()),
            };
        };
        over.store(true, Ordering::Relaxed);
        let found = looking.join().map_err(|_| "the looking thread panicked")?;
        outcome?;
        Ok((rounds, found?))
    })
}

/// Forgets a guard, and tells softgpu that the borrow is over, because softgpu cannot see it.
fn forget(guard: impl DerefMut<Target = [u8]>) {
    CpuBorrow::end_all(guard.as_ptr().addr(), guard.len());
    std::mem::forget(guard);
}

/// Reads twice through a CPU slice.
fn look_at_slice(memory: &mut MappedBuffer, seen: &mut [Vec<u8>; 2]) -> Outcome {
    let guard = memory.read(..)?;
    two_looks(&guard, seen);
    Ok(())
}

fn look_at_buffer<K: HostAccessible>(buffer: &mut Buffer<u8, K>, seen: &mut [Vec<u8>; 2]) -> Outcome {
    let guard = buffer.read(..)?;
    two_looks(&guard, seen);
    Ok(())
}

fn two_looks(slice: &[u8], seen: &mut [Vec<u8>; 2]) {
    for seen in seen {
        // Opaque, because otherwise the compiler may merge the two reads.
        let slice = std::hint::black_box(slice);
        seen.clear();
        seen.extend_from_slice(slice);
    }
}

/// Reads twice by copying, the only read that shared memory offers.
fn look_at_copies(memory: &mut SharedMapped, seen: &mut [Vec<u8>; 2]) -> Outcome {
    for seen in seen {
        seen.resize(memory.len(), 0);
        memory.load(0, seen)?;
    }
    Ok(())
}

/// Fails if a kind of write was seen late.
fn expect_none(what: &str, hunted: Hunted) -> Outcome {
    let (rounds, found) = hunted.map_err(|error| format!("{what}: {error}"))?;
    println!("{what}: {rounds} rounds");
    if found == Found::default() { Ok(()) } else { Err(format!("{what}: {found:?} of {rounds} rounds").into()) }
}

const SIZES: [usize; 3] = [64, 1024, 16 << 10];

#[test]
fn a_streaming_store_without_a_fence_is_seen_late() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the planted store without a fence is written for x86-64");
        return Ok(());
    }
    alone(|setup| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            let memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 1024)?;
            let store = |memory: &mut MappedBuffer, byte: u8| {
                let start = memory.host_pointer();
                for at in (0..memory.len()).step_by(8) {
                    let (to, value) = (start.wrapping_add(at), u64::from_ne_bytes([byte; 8]));
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the words lie within the memory, which is borrowed exclusively. The fence is left out on
                    // purpose.
                    unsafe {
                        std::arch::asm!("movnti [{to}], {value}", to = in(reg) to, value = in(reg) value);
                    }
                    #[cfg(not(target_arch = "x86_64"))]
                    let _ = (to, value);
                }
                Ok(())
            };
            let (rounds, found) = hunt(memory, store, look_at_slice)?;
            if found != Found::default() {
                println!("{found:?} of {rounds} rounds");
                return Ok(());
            }
        }
        println!("skipped: no store was seen late here; two processors that are free at one moment would show it");
        Ok(())
    })
}

#[test]
fn mapped_memory_is_handed_over_whole_after_every_kind_of_write() -> Outcome {
    alone(|setup| {
        let resource = MappedMemory::new(&setup.context)?;
        for size in SIZES {
            let hunt = |what: &str, write: &mut dyn FnMut(&mut MappedBuffer, &[u8]) -> Outcome| {
                let mut bytes = vec![0; size];
                let write = |memory: &mut MappedBuffer, byte| {
                    bytes.fill(byte);
                    write(memory, &bytes)
                };
                let what = format!("{what}, {size} bytes");
                expect_none(&what, hunt(testkit::mapped(&resource, size)?, write, look_at_slice))
            };
            hunt("store", &mut |memory, bytes| Ok(memory.store(0, bytes)?))?;
            hunt("two odd copies", &mut |memory, bytes| {
                let (head, tail) = bytes.split_at(size / 2 + 3);
                memory.store(head.len(), tail)?;
                Ok(memory.store(0, head)?)
            })?;
            hunt("a scope", &mut |memory, bytes| {
                Ok(memory.store_scope(|scope| {
                    bytes.chunks(64).enumerate().try_for_each(|(turn, line)| scope.store(turn * 64, line))
                })?)
            })?;
            hunt("a scope that panics", &mut |memory, bytes| {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    memory.store_scope::<()>(|scope| {
                        scope.store(0, bytes)?;
                        std::panic::resume_unwind(Box::new(()))
                    })
                }));
                if panicked.is_ok() { Err("the panic went no further".into()) } else { Ok(()) }
            })?;
            hunt("a scope that fails", &mut |memory, bytes| {
                let outcome = memory.store_scope(|scope| {
                    scope.store(0, bytes)?;
                    scope.store(size, bytes)
                });
                if outcome.is_ok() { Err("a copy past the end".into()) } else { Ok(()) }
            })?;
            hunt("a guard that is dropped", &mut |memory, bytes| {
                memory.write(..)?.copy_from_slice(bytes);
                Ok(())
            })?;
            hunt("a guard that is finished", &mut |memory, bytes| {
                let mut guard = memory.write(..)?;
                guard.copy_from_slice(bytes);
                Ok(guard.finish()?)
            })?;
            hunt("a guard that is forgotten", &mut |memory, bytes| {
                let mut guard = memory.write(..)?;
                guard.copy_from_slice(bytes);
                forget(guard);
                Ok(())
            })?;
            hunt("copy_from_slice", &mut |memory, bytes| Ok(memory.copy_from_slice(0, bytes)?))?;
        }
        Ok(())
    })
}

#[test]
fn memory_is_handed_over_whole_after_every_write_of_an_engine() -> Outcome {
    alone(|setup| {
        let (context, resource) = (&setup.context, MappedMemory::new(&setup.context)?);
        let (engine, stream) = (CopyEngine::new(context)?, Stream::new(context)?);
        for size in SIZES {
            let hunt_mapped = |what: &str, write: &mut dyn FnMut(&mut MappedBuffer, &[u8]) -> Outcome| {
                let mut bytes = vec![0; size];
                let write = |memory: &mut MappedBuffer, byte| {
                    bytes.fill(byte);
                    write(memory, &bytes)
                };
                let what = format!("{what}, {size} bytes");
                expect_none(&what, hunt(testkit::mapped(&resource, size)?, write, look_at_slice))
            };
            hunt_mapped("write", &mut |memory, bytes| Ok(engine.write(memory, 0, bytes)?))?;
            hunt_mapped("write_complete", &mut |memory, bytes| Ok(engine.write_complete(memory, 0, bytes)?))?;
            hunt_mapped("write_scattered", &mut |memory, bytes| {
                let lines = bytes.chunks(64).enumerate().map(|(turn, line)| (turn * 64, line));
                Ok(engine.write_scattered(memory, lines)?)
            })?;
            hunt_mapped("write_on", &mut |memory, bytes| Ok(engine.write_on(&stream, memory, 0, bytes)?))?;
            for threads in [1, 2] {
                let mut options = CopyOptions::default();
                options.method = Some(CopyMethod::Cpu { threads });
                hunt_mapped(&format!("write_with {threads} threads"), &mut |memory, bytes| {
                    Ok(engine.write_with(memory, 0, bytes, &options)?)
                })?;
            }
            let mut write_combined = PinnedOptions::default();
            write_combined.write_combined = true;
            let pinned = Buffer::<u8, _>::zeroed(&PinnedMemory::with_options(context, write_combined), size, &stream)?;
            let mut bytes = vec![0; size];
            let write = |buffer: &mut Buffer<u8, _>, byte| {
                bytes.fill(byte);
                Ok(engine.write(buffer, 0, &bytes)?)
            };
            expect_none(&format!("write to pinned memory, {size} bytes"), hunt(pinned, write, look_at_buffer))?;
        }
        Ok(())
    })
}

#[test]
fn shared_memory_is_handed_over_whole_after_every_kind_of_write() -> Outcome {
    alone(|setup| {
        let resource = MappedMemory::new(&setup.context)?;
        let engine = CopyEngine::new(&setup.context)?;
        for size in SIZES {
            let hunt = |what: &str, write: &mut dyn FnMut(&mut SharedMapped, &[u8]) -> Outcome| {
                let mut bytes = vec![0; size];
                let write = |memory: &mut SharedMapped, byte| {
                    bytes.fill(byte);
                    write(memory, &bytes)
                };
                let what = format!("shared, {what}, {size} bytes");
                expect_none(&what, hunt(testkit::mapped(&resource, size)?.into_shared(), write, look_at_copies))
            };
            hunt("store", &mut |memory, bytes| Ok(memory.store(0, bytes)?))?;
            hunt("by a clone", &mut |memory, bytes| Ok(memory.clone().copy_from_slice(0, bytes)?))?;
            hunt("by an engine", &mut |memory, bytes| Ok(engine.write(memory, 0, bytes)?))?;
            hunt("by cells", &mut |memory, bytes| {
                (0..size / 8)
                    .try_for_each(|word| Ok(memory.cell::<u64>(word * 8)?.store(u64::from_ne_bytes([bytes[0]; 8]))?))
            })?;
        }
        Ok(())
    })
}

#[test]
fn buffers_are_handed_over_whole_after_every_kind_of_write() -> Outcome {
    alone(|setup| {
        let (context, resource) = (&setup.context, MappedMemory::new(&setup.context)?);
        let (engine, stream) = (CopyEngine::new(context)?, Stream::new(context)?);
        for size in SIZES {
            type Mapped = Buffer<u8, cuda_mem::memory::kind::Mapped>;
            let hunt = |what: &str, write: &mut dyn FnMut(&mut Mapped, &[u8]) -> Outcome| {
                let mut bytes = vec![0; size];
                let write = |buffer: &mut Mapped, byte| {
                    bytes.fill(byte);
                    write(buffer, &bytes)
                };
                let what = format!("a buffer, {what}, {size} bytes");
                expect_none(&what, hunt(Buffer::zeroed(&resource, size, &stream)?, write, look_at_buffer))
            };
            hunt("a guard that is dropped", &mut |buffer, bytes| {
                buffer.write(..)?.copy_from_slice(bytes);
                Ok(())
            })?;
            hunt("a guard that is forgotten", &mut |buffer, bytes| {
                let mut guard = buffer.write(..)?;
                guard.copy_from_slice(bytes);
                forget(guard);
                Ok(())
            })?;
            hunt("a view's guard", &mut |buffer, bytes| {
                let mut view = buffer.view_mut(&[size as i64])?;
                let mut guard = view.write::<u8>()?;
                guard.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                Ok(())
            })?;
            hunt("an engine", &mut |buffer, bytes| Ok(engine.write(buffer, 0, bytes)?))?;
            hunt("the driver", &mut |buffer, bytes| Ok(buffer.copy_from_slice(0, bytes)?))?;
            hunt("a fill", &mut |buffer, bytes| Ok(buffer.fill(.., bytes[0])?))?;
        }
        Ok(())
    })
}

#[test]
fn a_pushed_item_is_there_for_who_is_given_the_ring() -> Outcome {
    const ITEMS: usize = 1 << 15;
    alone(|setup| {
        // With unified addressing, pinned items have the same address for the CPU.
        let signals = Signals::pinned_only(&setup.context)?;
        let ring = signals.ring_to_device::<[u8; 64]>(ITEMS)?;
        let items = ring.descriptor().items;
        let mut pushed = 0;
        let write = |(ring, last): &mut (Producer<[u8; 64]>, u64), byte| {
            *last = items + pushed * 64;
            pushed += 1;
            if ring.push([byte; 64])? { Ok(()) } else { Err("the ring is full".into()) }
        };
        let look = |(_, last): &mut (Producer<[u8; 64]>, u64), seen: &mut [Vec<u8>; 2]| {
            // SAFETY: the item lies within the ring's pages, which live as long as the ring, and nothing writes it
            // again.
            two_looks(unsafe { std::slice::from_raw_parts(*last as *const u8, 64) }, seen);
            Ok(())
        };
        expect_none("pushed items", hunt_for(ITEMS, (ring, items), write, look))
    })
}

#[test]
fn what_the_c_functions_write_is_there_for_another_thread() -> Outcome {
    use testkit::c_objects::{Buffer, Context, done};
    alone(|_| {
        let context = Context::open()?;
        let (resource, engine) = (context.mapped_memory(CUDAMEM_COHERENCE_PREFERRED)?, context.engine()?);
        let stream = context.stream()?;
        for size in SIZES {
            let hunt = |what: &str, write: &mut dyn FnMut(&Buffer, &[u8]) -> Outcome| {
                let mut bytes = vec![0; size];
                let write = |memory: &mut Buffer, byte| {
                    bytes.fill(byte);
                    write(memory, &bytes)
                };
                let memory = resource.allocate(size, &stream)?;
                let start = memory.host_pointer()?.addr();
                let look = move |_: &mut Buffer, seen: &mut [Vec<u8>; 2]| {
                    let start = std::ptr::with_exposed_provenance::<u8>(start);
                    // SAFETY: the memory is alive, has that size, and nothing writes it while this thread has it.
                    two_looks(unsafe { std::slice::from_raw_parts(start, size) }, seen);
                    Ok(())
                };
                memory.host_pointer()?.expose_provenance();
                expect_none(&format!("C, {what}, {size} bytes"), hunt(memory, write, look))
            };
            hunt("store", &mut |memory, bytes| {
                // SAFETY: the handle is alive, and the bytes are readable.
                Ok(done(unsafe { cudamem_buffer_store(memory.0, 0, bytes.as_ptr().cast(), bytes.len()) })?)
            })?;
            hunt("store_u64", &mut |memory, bytes| {
                let word = u64::from_ne_bytes([bytes[0]; 8]);
                (0..size / 8).try_for_each(|at| Ok(done(cudamem_buffer_store_u64(memory.0, at * 8, word))?))
            })?;
            hunt("engine_write_buffer", &mut |memory, bytes| {
                let (source, size) = (bytes.as_ptr().cast(), bytes.len());
                // SAFETY: as above; there are no options.
                Ok(done(unsafe { cudamem_engine_write_buffer(engine.0, memory.0, 0, source, size, std::ptr::null()) })?)
            })?;
            hunt("engine_scatter_to_buffer", &mut |memory, bytes| {
                let piece = |(turn, line): (usize, &[u8])| cudamem_scatter {
                    offset: turn * 64,
                    source: line.as_ptr().cast(),
                    size: line.len(),
                };
                let pieces: Vec<_> = bytes.chunks(64).enumerate().map(piece).collect();
                // SAFETY: as above.
                Ok(done(unsafe {
                    cudamem_engine_scatter_to_buffer(engine.0, memory.0, pieces.as_ptr(), pieces.len())
                })?)
            })?;
        }
        Ok(())
    })
}
