//! Signals between the CPU, streams and running kernels: flags, counters, and rings of items.
//!
//! A kernel launch and the wait for its end take about 8 us. A flag that a running kernel answers takes 1.5 us. Signals
//! are for programs that keep a kernel running and talk to it, and for streams that wait for the CPU or report to it.
//!
//! | type | what it is |
//! |---|---|
//! | [`Signals`] | the memory of all the others |
//! | [`Flag`] | a word that CPU, streams and kernels write and wait for |
//! | [`Counter`] and its [`CounterReader`]s, [`DeviceCounter`] | a word that only grows: the CPU counts, or the device does |
//! | [`Producer`] | the CPU's end of a ring of items to the device |
//! | [`Consumer`] | the CPU's end of a ring of items from the device |
//! | [`ByteProducer`], [`ByteConsumer`] | the same, for items whose size is chosen at run time |
//! | [`RingDescriptor`] | what a kernel needs to use the other end |
//! | [`WaitPolicy`] | how the CPU waits |
//! | [`SignalKernels`] | kernels that answer signals, for trials and measurements |
//!
//! The device's side is `include/cudamem/signal.cuh`, one header for CUDA C++ without dependencies.
//!
//! ```
//! use cuda_mem::signal::{Comparison, SignalKernels, Signals, WaitPolicy, Waiter};
//! use std::time::Duration;
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! let signals = Signals::new(&context)?;
//! let question = signals.flag::<u32>(Waiter::Device)?; // in device memory, which the kernel reads
//! let answer = signals.flag::<u32>(Waiter::Cpu)?; // in host memory, which the CPU reads
//! let patience = Duration::from_secs(10);
//! SignalKernels::of(&context)?.echo_flag(&question, &answer, 3, patience, &stream)?;
//! for number in 1..=3 {
//!     question.store(number);
//!     answer.wait(Comparison::Equal, number, &WaitPolicy::within(patience))?;
//! }
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! # Where words lie
//!
//! A read over PCIe takes 1 us or more; a write is posted and takes no time. So a word lies near its waiter: in
//! [mapped](Placement::Mapped) device memory for kernels and streams, in [pinned](Placement::Pinned) memory for the
//! CPU. On an H200, a round trip from the CPU to a kernel and back took 1.53 us, against 2.32 us with both words
//! pinned, and 2.09 to 2.31 us with the answer in mapped memory. A ring's tail and items lie near its consumer, its
//! head near its producer. Without coherent mapped memory, everything is pinned; [`Signals::why_not_mapped`] tells why.
//! The caller may choose the placement.
//!
//! # Memory order
//!
//! The CPU's write to a flag comes after all earlier writes of its thread to any memory, even to write-combining
//! memory, which needs a store fence on x86. A reader of the flag's new value sees those writes, if the memory is
//! [coherent](crate::memory::mapped::Coherence). When the CPU reads a value (an acquire), it sees everything that the device
//! wrote before that value, if the device first made its writes visible to the system, as the header does
//! (`fence.acq_rel.sys`, `__threadfence_system`). For a ring this means: a popped item is whole, and a slot is written
//! again only after it was read.
//!
//! CPU and device cannot do read-modify-writes on one word: over PCIe these would not be atomic. So each word has one
//! writer at a time, which the program chooses.
//!
//! # While a kernel runs
//!
//! A driver may wait for the device when it allocates or frees memory, launches a kernel for the first time, or loads a
//! module. A kernel that waits for the calling thread would then never end. So make flags, rings, other memory and
//! kernels before the launch. Reading, writing, waiting, pushing and popping make no driver call, except that a wait
//! queries after every 5 ms of sleep whether the device still works.
//!
//! # Ends
//!
//! A flag, counter or ring ends when its last clone is dropped, or when a flag is [closed](Flag::close). A
//! [`CounterReader`] does not keep its counter from ending. The memory stays until the device work that uses it is done:
//! the work that its own methods queued, and the work that [`record_use`](Flag::record_use) recorded. Only the end of
//! [`Signals`], and of everything made from it, waits for that work.
//!
//! The end of a flag or counter releases the streams that still wait for it ([`wait_on`](Flag::wait_on)). If a queued
//! [`store_on`](Flag::store_on) of another stream satisfies a wait, the wait goes on until then. Nobody can satisfy the
//! other waits any more. For these, the library writes the value that they need, and the stream's next
//! [`synchronize`](crate::Stream::synchronize), access to memory, or wait fails with [`SignalError::Abandoned`]. The
//! work behind such a wait runs without its condition. So an early return after `wait_on` does not hang:
//!
//! ```
//! use cuda_mem::signal::{Comparison, Flag, Signals, Waiter};
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! let ready: Flag<u32> = Signals::new(&context)?.flag(Waiter::Device)?.named("ready");
//! ready.wait_on(&stream, Comparison::AtLeast, 4)?;
//! drop(ready); // and nobody has written 4
//! let error = stream.synchronize().expect_err("the work behind the wait ran without its condition");
//! assert!(error.to_string().starts_with("flag \"ready\" was dropped while stream"));
//! stream.synchronize()?; // the error is returned once
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! The end of a [`Producer`] or [`Consumer`] closes its end of the ring. This ends a kernel that waits at the other end
//! with the header's functions. The library does not know what the program's own kernels wait for in a flag. The
//! program must release such a kernel before the flag ends, or the kernel must give up in time. A kernel that was not
//! recorded must have ended before the flag or ring does.
//!
//! A wait of the CPU fails when its time is up, its flag is closed, the context has ended, or the device has failed.

pub(crate) mod armed;
mod base;
mod compare;
mod counter;
mod flag;
pub mod frames;
mod kernels;
mod memory;
mod placement;
mod release;
mod ring;
mod satisfier;
mod signals;
mod streams;
mod uses;
mod wait;

pub use crate::error::SignalError;
pub use compare::{Comparison, SignalWord};
pub use counter::{Counter, CounterReader, DeviceCounter};
pub use flag::Flag;
pub use kernels::SignalKernels;
pub use placement::{Placement, Waiter};
#[doc(hidden)]
pub use ring::RingHandle;
pub use ring::{ByteConsumer, ByteProducer, Consumer, Producer, RingDescriptor};
pub use signals::Signals;
pub use wait::WaitPolicy;
pub(crate) use wait::{Waited, wait};
