//! Signals between the CPU, streams and kernels that run: flags, counters, and rings of items.
//!
//! A kernel launch and the wait for its end take about 8 us; a flag that a running kernel answers takes 1.5. What is here
//! is for programs that keep a kernel running and talk to it, and for streams that wait for the CPU, or tell it where they
//! are.
//!
//! | type | what it is |
//! |---|---|
//! | [`Signals`] | the memory that all of these lie in |
//! | [`Flag`] | a word that anybody may write and wait for |
//! | [`Counter`], [`DeviceCounter`] | a word that only grows: the CPU counts, or the device does |
//! | [`Producer`] | the CPU's end of a ring of items to the device |
//! | [`Consumer`] | the CPU's end of a ring of items from the device |
//! | [`ByteProducer`], [`ByteConsumer`] | the same, of items whose size is chosen at run time |
//! | [`RingDescriptor`] | what a kernel gets to use the other end |
//! | [`WaitPolicy`] | how the CPU waits |
//! | [`SignalKernels`] | kernels that answer, to try and to measure with |
//!
//! The device's side is `include/cudamem/signal.cuh`, one header for CUDA C++ without dependencies.
//!
//! ```
//! use cuda_mem::signal::{Comparison, SignalKernels, Signals, WaitPolicy, Waiter};
//! use std::time::Duration;
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! # let stream = cuda_mem::Stream::new(&context)?;
//! let signals = Signals::new(&context)?;
//! let question = signals.flag::<u32>(Waiter::Device)?; // in device memory, where the kernel looks
//! let answer = signals.flag::<u32>(Waiter::Cpu)?; // in the host's memory, where the CPU looks
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
//! Looking is what takes time, over PCIe 1 us and more; writing is posted and takes none. So a word lies where the one who
//! waits looks: in [mapped](Placement::Mapped) device memory for kernels and streams, in [pinned](Placement::Pinned)
//! memory for the CPU. Measured on an H200, a round trip from the CPU to a kernel and back takes 1.53 us so, 2.32 with both
//! words pinned, and 2.09 to 2.31 with the answer in mapped memory. A ring's tail and items lie where its consumer looks,
//! its head where its producer does. Where there is no mapped memory, or only non-coherent, all is pinned;
//! [`Signals::why_not_mapped`] tells why. The caller may choose otherwise.
//!
//! # What is seen when
//!
//! A write of the CPU to a flag comes after all that its thread wrote before, to any memory: to write-combining memory
//! too, which keeps no order of its own (a store fence on x86). Who sees the flag's value sees those writes, if the memory
//! is [coherent](crate::mapped::Coherence). A look of the CPU that finds a value (an acquire) sees all that the device
//! wrote before it wrote the value, if the device's side made its writes visible to the system first, as the header does
//! (`fence.acq_rel.sys`, `__threadfence_system`). For a ring that means: a pushed item is whole when it is popped, and a
//! slot is written again only after it was read.
//!
//! There is no read-modify-write that CPU and device could do to one word at a time: over PCIe it would not be atomic. So
//! each word has one writer at a time; which, the program says.
//!
//! # While a kernel runs
//!
//! A driver may wait for the device when memory is allocated or freed, when a kernel is launched for the first time, and
//! when a module is loaded: so for a kernel that waits for this very thread. Flags, rings, other memory and kernels are made
//! before the kernel is launched. Reading, writing, waiting, pushing and popping make no call of the driver, but that a wait
//! of 5 ms and more asks whether the device still works.
//!
//! # Ends
//!
//! A flag, counter or ring ends when its last clone is dropped, or when a flag is [closed](Flag::close). Its memory stays until
//! the device work that it knows of is done: what its own methods gave to streams, and what
//! [`record_use`](Flag::record_use) told it. No end waits for that but the last: when [`Signals`] and all that is of it have
//! ended.
//!
//! The end of a flag or counter releases the streams that still wait for it ([`wait_on`](Flag::wait_on)). A wait that a queued
//! [`store_on`](Flag::store_on) of another stream satisfies goes on waiting for that. Any other wait is one that nobody
//! satisfies any more: the library writes what it needs, and the stream's next [`synchronize`](crate::Stream::synchronize),
//! access to memory, or wait fails with [`SignalError::Abandoned`]. The work behind such a wait runs without its condition. So
//! an early return after `wait_on` hangs nothing:
//!
//! ```
//! use cuda_mem::signal::{Comparison, Flag, Signals, Waiter};
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! # let stream = cuda_mem::Stream::new(&context)?;
//! let ready: Flag<u32> = Signals::new(&context)?.flag(Waiter::Device)?.named("ready");
//! ready.wait_on(&stream, Comparison::AtLeast, 4)?;
//! drop(ready); // and nobody has written 4
//! let error = stream.synchronize().expect_err("the work behind the wait ran without its condition");
//! assert!(error.to_string().starts_with("flag \"ready\" was dropped while stream"));
//! stream.synchronize()?; // the error is given once
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! The end of a [`Producer`] or [`Consumer`] closes its end of the ring, which ends a kernel that waits at the other end by the
//! header's functions. What a kernel of the program waits for in a flag, nobody else knows: it has to be released before the
//! flag ends, or to give up in time. Kernels that nobody told of must have ended before the flag or ring does.
//!
//! A wait of the CPU ends with an error when its time is up, when its flag is closed, when the context has ended, and when the
//! device has failed.

pub(crate) mod armed;
mod compare;
mod counter;
mod error;
mod flag;
mod hope;
mod kernels;
mod memory;
mod placement;
mod release;
mod ring;
mod signals;
mod state;
mod streams;
mod uses;
mod wait;

pub use compare::{Comparison, SignalWord};
pub use counter::{Counter, DeviceCounter};
pub use error::SignalError;
pub use flag::Flag;
pub use kernels::SignalKernels;
pub use placement::{Placement, Waiter};
pub use ring::{ByteConsumer, ByteProducer, Consumer, Producer, RingDescriptor};
pub use signals::Signals;
pub use wait::WaitPolicy;
pub(crate) use wait::{Waited, wait};
