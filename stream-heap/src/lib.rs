//! Decides which bytes of a region of memory a stream of work may have.
//!
//! Work on a GPU, or on any other queue, still uses memory after the program has freed it. A stream may have its own
//! freed memory at once, because its next work runs after the old work. Another stream must wait. This crate keeps the
//! records: which bytes are free, which work they wait for, and which streams already wait for that work.
//!
//! | type | divides a region into | reuses |
//! |---|---|---|
//! | [`Heap`] | blocks of any size | in any order, by stream |
//! | [`RingQueue`] | blocks of any size | in the order of allocation, when their work is done |
//!
//! A heap gets memory in regions. Or it gets addresses ([`Heap::add_addresses`]) whose memory comes and goes in chunks,
//! and moves between addresses ([`Claim`], [`Heap::gather`]).
//!
//! Both order work by [`Timelines`], which records and queries events through a [`StreamDriver`]. [`suballocator`]
//! divides memory without regard to streams.
//!
//! The crate knows no CUDA, touches no memory, and takes no locks: addresses are numbers, and a program describes its
//! memory by the trait [`Region`]. No crate that it depends on does.
//!
//! ```
//! use stream_heap::{Effort, Heap, Mark, Span, StreamDriver};
//!
//! /// A driver whose work is always done.
//! struct Idle;
//!
//! impl StreamDriver for Idle {
//!     type Stream = u32;
//!     type Event = ();
//!     type Error = std::convert::Infallible;
//!
//!     fn record(&mut self, _stream: &u32) -> Result<Mark<()>, Self::Error> {
//!         Ok(Mark::Event(()))
//!     }
//!     fn has_passed(&mut self, _event: &()) -> Result<bool, Self::Error> {
//!         Ok(true)
//!     }
//!     fn wait(&mut self, _stream: &u32, _event: &()) -> Result<bool, Self::Error> {
//!         Ok(true)
//!     }
//!     fn retire(&mut self, _event: ()) {}
//!     fn release(&mut self, _stream: u32) {}
//! }
//!
//! let mut heap = Heap::<Idle, Span>::new(256)?;
//! heap.add(Span { address: 0x10000, size: 1024 })?;
//! let block = heap.allocate(1024, &1, Effort::Ready, &mut Idle).expect("no errors").expect("the heap is empty");
//! assert!(heap.free(block.address, &1));
//!
//! // Stream 2 must learn first that the work of stream 1 is done.
//! assert_eq!(heap.allocate(512, &2, Effort::Ready, &mut Idle), Ok(None));
//! assert!(heap.allocate(512, &2, Effort::Passed, &mut Idle).is_ok_and(|block| block.is_some()));
//! # Ok::<(), stream_heap::suballocator::SuballocatorError>(())
//! ```
#![forbid(unsafe_code)]

mod figure;
mod heap;
mod region;
mod ring_queue;
mod size_classes;
pub mod suballocator;
mod tags;
mod timeline;
#[cfg(any(test, fuzzing))]
mod world;

pub use figure::Figure;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use heap::model::history as heap_history;
pub use heap::{ChunkSizes, Claim, Effort, Gather, Heap, HeapFigures, HeapRange, Move};
pub use region::{Region, Span};
pub use ring_queue::{Full, Oldest, RingQueue};
pub use size_classes::{BlockSize, CLASSES, block_size};
pub use tags::Tags;
pub use timeline::{Mark, StreamDriver, StreamId, Ticket, Timelines};
