//! Memory shared by CPU and NVIDIA GPU.
//!
//! The program loads the driver's libraries when it runs. Building needs no part of CUDA, and a program starts on a
//! machine without CUDA. The examples here run on the software GPU (feature `softgpu`).
//!
//! This crate is the safe facade over the raw function tables of [`cuda_sys`] and [`vkgdr_sys`]: types for memory,
//! streams and the order of their work. It opens no library itself and contains no Vulkan code: `cuda_sys` loads the
//! driver, and the vkgdr library makes mapped memory, which the CPU and the device both address.
//!
//! ```
//! use cuda_mem::{Buffer, Driver, MappedMemory, Stream};
//!
//! let driver = Driver::software()?; // softgpu; a GPU: Driver::load()
//! let context = driver.device(0)?.primary_context()?;
//! let stream = Stream::new(&context)?;
//! let mut memory = Buffer::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
//!
//! memory.store(0, &[1u32, 2, 3])?; // CPU stores, straight into device memory
//! let mut seen = [0; 3];
//! memory.copy_to_slice(0, &mut seen)?; // the driver copies what the device sees
//! assert_eq!(seen, [1, 2, 3]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! | item | purpose |
//! |---|---|
//! | [`Driver`], [`Device`], [`Context`] | the loaded driver, its devices and their contexts |
//! | [`Stream`], [`Event`], [`Completion`] | work in order, and futures of its end |
//! | [`Buffer`], [`memory`] | memory of any source, in stream order |
//! | [`pool`] | a pool over any source, faster than the driver's |
//! | [`copy`] | copies between host and device that take the fastest way |
//! | [`adaptor`] | sources that count, limit, track, log or retry the allocations of another source |
//! | [`io`] | buffers as readers and writers |
//! | [`graph`] | work that is captured once and launched often |
//! | [`view`] | arrays in memory: layouts, views, copies between them |
//! | [`interchange`] | memory to and from other libraries: DLPack, array interfaces, Arrow |
//! | [`HostBuffer`] | page-locked memory as a slice for the CPU |
//! | [`mapped`] | device memory that the CPU addresses too: a kind of buffer |
//! | [`signal`] | flags, counters and rings between the CPU, streams and running kernels |
//! | [`frames`] | frames that the CPU fills while the device's work on them is already queued |
//! | [`trace`] | recorded allocations, and their replay on any source |
//! | [`ipc`] | memory and events that several processes share |
//! | [`metrics`] | figures as text for Prometheus |
//! | [`waiting`] | reports of waits that take long |
//! | [`Error`], [`DropError`] | errors of calls and of drops |
//!
//! # Features
//!
//! - `vkgdr` (default) links the vkgdr library in.
//! - `sharing` shares memory and events with other processes ([`ipc`]).
//! - `trace` writes, reads and replays [`trace`]s.
//! - `json` gives snapshots, figures, profiles and array interfaces as JSON.
//! - `arrow` moves batches and messages of the `arrow` crates to devices and back.
//! - `cudarc` takes contexts, streams and memory of the crate cudarc, and lends it buffers ([`interchange`]).
//! - `half` makes `f16` and `bf16` of the crate `half` elements of views and exports.
//! - `ndarray` gives the elements of CPU views as arrays of `ndarray`.
//! - `tracing` tells subscribers of the crate `tracing` of pools that grow or are out of memory, of waits that take long,
//!   and of copies of engines.
//! - `softgpu` links softgpu in, the software GPU.
//!
//! softgpu serves a program only if its code or its environment (`CUDA_MEM_LIBCUDA`) names it; otherwise a missing driver
//! is an error with advice. The code is [`Driver::software()`], the variable `CUDA_MEM_LIBCUDA=softgpu`.

// The documentation describes the crate with all features. docs.rs shows which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests wait as they like"))]
#![cfg_attr(not(all(feature = "json", feature = "sharing", feature = "trace")), allow(rustdoc::broken_intra_doc_links))]

pub mod adaptor;
mod array;
pub mod buffer;
pub mod copy;
mod cpu;
mod driver;
mod error;
#[cfg(feature = "sharing")]
pub mod ipc;
mod lifetime;
#[doc(hidden)]
pub mod locks;
pub mod memory;
pub mod metrics;
pub mod pool;
pub mod signal;
mod stream;
#[cfg(doctest)]
mod values;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    //! The functions that the fuzz targets run.

    pub use crate::array::interchange::fuzzing::import;
}

#[doc(inline)]
pub use adaptor::trace;
#[doc(inline)]
pub use array::{interchange, view};
#[doc(inline)]
pub use buffer::io;
#[doc(inline)]
pub use lifetime::waiting;
#[doc(inline)]
pub use memory::mapped;
#[doc(inline)]
pub use signal::frames;
#[doc(inline)]
pub use stream::graph;

pub use array::element::Element;
pub use buffer::host_buffer::HostBuffer;
pub use buffer::{Allocate, Buffer, SharedBuffer};
#[doc(hidden)]
pub use cpu::uses;
pub use driver::context::{Bound, Context, ForeignOwner, MemoryInfo};
pub use driver::device::Device;
pub use driver::support::{Feature, Support};
pub use driver::topology::{DeviceSite, PeerLink, Topology};
pub use driver::{Driver, DriverBuilder};
#[doc(hidden)]
pub use error::check_not_forked;
pub use error::drop_errors::{DROP_ERROR_CAPACITY, DropError, DropErrorHook, DropErrorReport};
pub use error::{DriverError, Error, PeerError, Refused, Result, Uuid};
pub use memory::mapped::MappedMemory;
pub use memory::{GraphMemory, GraphMemoryAttributes};
pub use stream::completion::Completion;
pub use stream::event::{Event, EventOptions};
pub use stream::graph::{CaptureMode, ExecutableGraph, Graph, GraphOptions};
pub use stream::{Stream, StreamOptions};
pub use strided_layout::{DataType, DataTypeError, TypeCode};

/// The traits of values that memory may hold, with their derives.
pub use bytemuck;
/// The raw bindings of CUDA.
pub use cuda_sys;
#[cfg(feature = "softgpu")]
pub use softgpu;
/// The raw bindings of vkgdr, which serves mapped memory.
pub use vkgdr_sys;

// A change that makes one of these types thread-bound must not compile. api/cuda-mem.txt lists all types that are not
// `Send` or not `Sync`.
const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Driver>();
    crosses_threads::<Device>();
    crosses_threads::<Context>();
    crosses_threads::<Stream>();
    crosses_threads::<Event>();
    crosses_threads::<Completion>();
    crosses_threads::<Buffer<*mut u8, memory::kind::Device>>();
    crosses_threads::<SharedBuffer<u8, memory::kind::Any>>();
    crosses_threads::<buffer::CopyBatch<'_>>();
    crosses_threads::<buffer::HostRead<'_, u8, memory::kind::Pinned>>();
    crosses_threads::<buffer::Transfer<Vec<u8>>>();
    crosses_threads::<memory::SharedResource>();
    crosses_threads::<memory::Block>();
    crosses_threads::<memory::PointerInfo>();
    crosses_threads::<memory::DevicePool>();
    crosses_threads::<memory::VirtualMemory>();
    crosses_threads::<memory::PhysicalMemory>();
    crosses_threads::<buffer::GrowableBuffer<*mut u8>>();
    crosses_threads::<memory::PinnedPool>();
    crosses_threads::<memory::ManagedMemory>();
    crosses_threads::<memory::RegisteredMemory<Vec<u8>>>();
    crosses_threads::<HostBuffer<u8>>();
    crosses_threads::<adaptor::Statistics<memory::kind::Any>>();
    crosses_threads::<adaptor::Section>();
    crosses_threads::<adaptor::Limit<memory::kind::Any>>();
    crosses_threads::<adaptor::Tracking<memory::kind::Any>>();
    crosses_threads::<adaptor::Logging<memory::kind::Any>>();
    crosses_threads::<adaptor::Recording<memory::kind::Any>>();
    crosses_threads::<adaptor::Fallback<memory::kind::Any>>();
    crosses_threads::<adaptor::Retry<memory::kind::Any>>();
    crosses_threads::<adaptor::Aligned<memory::kind::Any>>();
    crosses_threads::<adaptor::FailureInjection<memory::kind::Any>>();
    crosses_threads::<adaptor::Guarded<memory::kind::Any>>();
    #[cfg(feature = "cudarc")]
    {
        crosses_threads::<interchange::cudarc::CudarcView<'static, u8>>();
        crosses_threads::<interchange::cudarc::CudarcViewMut<'static, u8>>();
    }
    crosses_threads::<metrics::Exposition>();
    crosses_threads::<interchange::Tensor>();
    crosses_threads::<interchange::SharedTensor>();
    crosses_threads::<interchange::array_interface::ArrayInterface>();
    crosses_threads::<interchange::arrow::DeviceArray>();
    crosses_threads::<interchange::arrow::ImportedArray>();
    crosses_threads::<interchange::arrow::Schema>();
    crosses_threads::<interchange::dlpack::ManagedTensor>();
    crosses_threads::<interchange::dlpack::ImportedTensor>();
    crosses_threads::<io::BufferReader<&Buffer<u8, memory::kind::Device>>>();
    crosses_threads::<io::BufferWriter<Buffer<u8, memory::kind::Device>>>();
    crosses_threads::<MappedMemory>();
    crosses_threads::<buffer::SharedCell<u64>>();
    crosses_threads::<copy::CopyEngine>();
    crosses_threads::<copy::MachineProfile>();
    crosses_threads::<copy::PendingRead<'_>>();
    #[cfg(feature = "sharing")]
    {
        crosses_threads::<ipc::MappedExport>();
        crosses_threads::<ipc::Descriptor>();
        crosses_threads::<ipc::PoolExport>();
        crosses_threads::<ipc::VirtualExport>();
        crosses_threads::<ipc::Channel>();
        crosses_threads::<ipc::Export>();
        crosses_threads::<ipc::Listener>();
    }
    crosses_threads::<DataType>();
    crosses_threads::<view::StridedLayout>();
    crosses_threads::<view::StridedView<'static>>();
    crosses_threads::<view::StridedView<'static, buffer::Exclusive>>();
    crosses_threads::<view::HostElements<'_, u8>>();
    crosses_threads::<trace::Trace>();
    crosses_threads::<pool::Snapshot>();
    crosses_threads::<Error>();
    crosses_threads::<GraphMemory>();
    crosses_threads::<pool::Pool<memory::kind::Device>>();
    crosses_threads::<pool::RingPool<memory::kind::Device>>();
    crosses_threads::<signal::Signals>();
    crosses_threads::<signal::Flag<u32>>();
    crosses_threads::<signal::Counter<u64>>();
    crosses_threads::<signal::CounterReader<u64>>();
    crosses_threads::<signal::DeviceCounter<u64>>();
    crosses_threads::<signal::Producer<u64>>();
    crosses_threads::<signal::ByteProducer>();
    crosses_threads::<signal::ByteConsumer>();
    crosses_threads::<signal::Consumer<u64>>();
    crosses_threads::<signal::SignalKernels>();
    crosses_threads::<frames::FrameRing>();
    crosses_threads::<frames::Frame>();
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Graph>();
    moves_between_threads::<interchange::arrow::DeviceArrayStream>();
    moves_between_threads::<ExecutableGraph>();
};
