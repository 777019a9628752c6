//! Many copies in one call.

mod launch;
mod overlap;
mod way;

use super::copy::check_apart;
use super::{Access, Buffer, DeviceRoute, Viewed, route};
use crate::driver::kernels::PiecesKernels;
use crate::error::{PeerError, call, or_older};
use crate::memory::asleep;
use crate::memory::resource::{Accessibility, Kind};
use crate::stream::host_copies::{CopySide, waits_within};
use crate::{Context, Error, Result, Stream};
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Range, RangeBounds};
use cuda_sys::{
    CU_STREAM_LEGACY, CUdeviceptr, CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder as SourceAccess,
};
use launch::{KernelPiece, copy_by_kernel};
use overlap::overlapping;
use std::collections::BTreeMap;
use way::{Link, Place, Taken};

pub use way::BatchWay;

/// A piece of a copy between two buffers, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset in the destination.
    pub to: usize,
    /// The offset in the source.
    pub from: usize,
    /// The length of the piece.
    pub length: usize,
}

/// Options for the copies of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchOptions {
    /// The copies may read the sources before the stream's earlier work: the sources hold their values already, and do
    /// not change until a wait for the stream.
    pub sources_in_any_order: bool,
    /// Prefer copies that leave the device's processors to kernels. The driver makes all copies then.
    pub overlap_with_compute: bool,
    /// Refuse copies between devices that would go through the host ([`PeerError::ThroughHost`](crate::PeerError)).
    pub require_direct: bool,
    /// What makes the copies.
    pub way: BatchWay,
}

/// Many copies between buffers, unordered within a batch. A few launches of a kernel make them if they are many and small,
/// such as the blocks of a cache. The driver makes the others: in one call if it has a call for batches (CUDA 12.8),
/// otherwise each copy is a call. [`BatchOptions::way`] leaves them all to one of the two.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
/// use cuda_mem::buffer::{CopyBatch, Piece};
/// let source = Buffer::from_slice(&memory, &[1, 2, 3, 4], &stream)?;
/// let (mut left, mut right) = (Buffer::zeroed(&memory, 2, &stream)?, Buffer::zeroed(&memory, 3, &stream)?);
/// let mut batch = CopyBatch::new(&stream);
/// batch.copy(&mut left, 0, &source, 2..)?;
/// batch.copy_pieces(&mut right, &source, &[Piece { to: 0, from: 3, length: 1 }, Piece { to: 1, from: 0, length: 2 }])?;
/// batch.submit()?;
/// assert_eq!((left.to_vec()?, right.to_vec()?), (vec![3, 4], vec![4, 1, 2]));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # Kernel
///
/// The kernel copies between memory of the stream's device, and between that and page-locked host memory; the memory belongs
/// to the stream's context. The first batch with enough such pieces loads it, and
/// waits for all work of the context, which takes milliseconds or longer; the driver copies as long as queued work waits for
/// the CPU, or a capture is under way. A program that cannot accept this, for example because its kernels wait for the CPU,
/// calls [`Context::load_kernels`] at its start. Drivers before CUDA 12.1, and devices before Volta, do not take the kernel:
/// there the driver makes all copies.
#[must_use = "only `submit` makes the copies"]
pub struct CopyBatch<'buffers> {
    stream: Stream,
    options: BatchOptions,
    to: Vec<CUdeviceptr>,
    from: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    /// Between which memories each copy of the arrays is.
    links: Vec<Link>,
    /// The buffers' home streams. The batch's stream waits for them before the copies, and they for it afterwards.
    homes: Vec<Stream>,
    /// Copies with memory of other devices, or with host memory that is opened to each.
    far: Vec<FarCopies<'buffers>>,
    /// The buffers, which the copies keep busy.
    busy: Vec<&'buffers dyn Viewed>,
    /// Whether the driver waits for earlier work within some copy.
    waits: bool,
    /// The destinations that other buffers may share: first and last address.
    shared: BTreeMap<CUdeviceptr, CUdeviceptr>,
    buffers: PhantomData<&'buffers mut ()>,
}

/// Copies between a destination and a source, one of which the stream's device reaches only by access to it.
struct FarCopies<'buffers> {
    route: DeviceRoute<'buffers>,
    contexts: [&'buffers Context; 2],
    /// The copies in the batch's arrays that use access.
    direct: Range<usize>,
    /// Copies that use access only if there is any: addresses of the destination and the source, and the size in bytes.
    by_driver: Vec<(CUdeviceptr, CUdeviceptr, usize)>,
}

impl FarCopies<'_> {
    /// Why the copies must not do without access.
    fn refusal(&self, call: &'static str, stream: &Stream, options: BatchOptions) -> Option<Error> {
        match self.route.between_devices() {
            Some([device, owner]) if options.require_direct => {
                Some(PeerError::ThroughHost { call, device, owner }.into())
            }
            _ => self.route.has_opened_host_memory().then(|| not_open(call, stream)),
        }
    }
}

impl<'buffers> CopyBatch<'buffers> {
    /// A batch in order of `stream`.
    pub fn new(stream: &Stream) -> Self {
        Self::with_options(stream, BatchOptions::default())
    }

    /// A batch in order of `stream`, with options. Without the driver's call for batches, `sources_in_any_order` has no
    /// effect.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::{DeviceMemory, PinnedMemory}};
    /// # let (device, pinned, stream) = (DeviceMemory::new(&context), PinnedMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::buffer::{BatchOptions, BatchWay, CopyBatch};
    /// context.load_kernels()?; // once, at the program's start
    /// let token = Buffer::from_slice(&pinned, &[7u32], &stream)?;
    /// let mut word = Buffer::<u32, _>::zeroed(&device, 1, &stream)?;
    /// let mut options = BatchOptions::default();
    /// options.way = BatchWay::Kernel; // does not wait behind large copies of other streams
    /// let mut batch = CopyBatch::with_options(&stream, options);
    /// batch.copy(&mut word, 0, &token, ..)?;
    /// batch.submit()?;
    /// assert_eq!(word.to_vec()?, [7]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn with_options(stream: &Stream, options: BatchOptions) -> Self {
        Self {
            stream: stream.clone(),
            options,
            to: vec![],
            from: vec![],
            sizes: vec![],
            links: vec![],
            homes: vec![],
            far: vec![],
            busy: vec![],
            waits: false,
            shared: BTreeMap::new(),
            buffers: PhantomData,
        }
    }

    /// Adds a copy of a range of `source` to the elements of `destination` from `offset` on.
    ///
    /// # Errors
    ///
    /// A range does not lie within its buffer; the two ranges overlap; another copy of the batch writes to the range
    /// through a clone of the destination; the copy would go through the host, which the options forbid; the options
    /// contradict each other. Nothing is added.
    pub fn copy<T, K: Kind, A: Access, L: Kind, B: Access>(
        &mut self,
        destination: &'buffers mut Buffer<T, K, A>,
        offset: usize,
        source: &'buffers Buffer<T, L, B>,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        let range = source.resolve("CopyBatch::copy", range)?;
        self.copy_pieces(destination, source, &[Piece { to: offset, from: range.start, length: range.len() }])
    }

    /// Adds copies of several pieces of one buffer to another buffer.
    ///
    /// # Errors
    ///
    /// As [`copy`](Self::copy); or two pieces overlap in the destination, or in a clone of it that is also in the batch.
    /// Nothing is added.
    pub fn copy_pieces<T, K: Kind, A: Access, L: Kind, B: Access>(
        &mut self,
        destination: &'buffers mut Buffer<T, K, A>,
        source: &'buffers Buffer<T, L, B>,
        pieces: &[Piece],
    ) -> Result<()> {
        const CALL: &str = "CopyBatch::copy_pieces";
        destination.check_writable(CALL)?;
        if self.options.overlap_with_compute && self.options.way == BatchWay::Kernel {
            let rule = "the kernel takes processors of the device from other kernels: choose another way, or do without \
                        `overlap_with_compute`";
            return Err(Error::invalid(CALL, "options.way", "BatchWay::Kernel with overlap_with_compute", rule));
        }
        let unit = size_of::<T>();
        let mut targets = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let to = destination.span(CALL, piece.to, piece.length)?;
            let from = source.span(CALL, piece.from, piece.length)?;
            check_apart(CALL, destination.address(to.start), source.address(from.start), piece.length * unit)?;
            targets.push(to);
        }
        let destination: &'buffers Buffer<T, K, A> = destination;
        let context = self.stream.context();
        let route = route(context, Some(destination), Some(source));
        let near = route.ensure_access(context);
        if !near {
            if self.options.require_direct {
                source.require_direct(CALL, destination)?;
            }
            if route.has_opened_host_memory() {
                return Err(not_open(CALL, &self.stream));
            }
        }
        targets.retain(|target| !target.is_empty());
        if let Some(pair) = overlapping(&mut targets) {
            let value = format!("elements {:?} and {:?} of the destination", pair[0], pair[1]);
            let rule = "the copies of a batch are unordered, so they must not overlap";
            return Err(Error::invalid(CALL, "pieces", value, rule));
        }
        let written: Vec<_> = match A::IS_SHARED {
            // No two exclusive buffers overlap.
            false => Vec::new(),
            true => targets
                .iter()
                .map(|part| (destination.address(part.start), destination.address(part.end) - 1))
                .collect(),
        };
        for ((first, last), target) in written.iter().zip(&targets) {
            if self.shared.range(..=last).next_back().is_some_and(|(_, end)| end >= first) {
                let value = format!("elements {target:?} of the destination");
                let rule =
                    "another copy of the batch writes there, through a clone, and they are unordered: use two batches";
                return Err(Error::invalid(CALL, "pieces", value, rule));
            }
        }
        // The buffers stay borrowed until the batch ends, so the CPU cannot write them meanwhile.
        destination.prepare()?;
        source.prepare()?;
        self.shared.extend(written);
        let link = if near { Link::of(place(destination, context), place(source, context)) } else { Link::Other };
        let (before, mut by_driver) = (self.sizes.len(), Vec::new());
        self.to.reserve(pieces.len());
        self.from.reserve(pieces.len());
        self.sizes.reserve(pieces.len());
        self.links.reserve(pieces.len());
        for piece in pieces.iter().filter(|piece| piece.length != 0) {
            let (to, from, size) = (destination.address(piece.to), source.address(piece.from), piece.length * unit);
            self.waits |= waits_within(destination.copy_side(), source.copy_side(), size);
            if !near {
                by_driver.push((to, from, size));
                continue;
            }
            self.to.push(to);
            self.from.push(from);
            self.sizes.push(size);
            self.links.push(link);
        }
        if route.needed.iter().any(Option::is_some) {
            self.far.push(FarCopies {
                route,
                contexts: [destination.context(), source.context()],
                direct: before..self.sizes.len(),
                by_driver,
            });
        }
        for home in [destination.stream(), source.stream()] {
            if *home != self.stream && !self.homes.contains(home) {
                self.homes.push(home.clone());
            }
        }
        self.busy.extend([destination as &dyn Viewed, source]);
        Ok(())
    }

    /// The number of copies in the batch.
    pub fn len(&self) -> usize {
        self.sizes.len() + self.far.iter().map(|copies| copies.by_driver.len()).sum::<usize>()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues the copies, after the work of all buffers so far and before their later work.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver); some of the copies may have begun. Access between
    /// devices was denied since the copies were added, and they must not do without.
    #[doc(alias = "cuMemcpyBatchAsync")]
    pub fn submit(mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // A pool may have fallen asleep since the copies were added.
        let driver = self.stream.context().driver();
        let mut all = self.to.iter().chain(&self.from);
        all.try_for_each(|address| asleep::check("CopyBatch::submit", driver, *address))?;
        let taken = Taken::of(self.options, &self.sizes, &self.links);
        // Before the batch waits for anything and keeps anything, because the load of a kernel waits.
        let kernels = if taken == Taken::NONE { None } else { self.stream.context().pieces_kernels() };
        self.homes.iter().try_for_each(|home| self.stream.order_work_after(home))?;
        let begun = self.begin(kernels.map(|kernels| (kernels, taken)));
        // Also after an error, because some copies may have begun.
        let ordered = self.homes.iter().try_for_each(|home| home.order_work_after_or_wait(&self.stream));
        self.busy.iter().for_each(|memory| memory.mark_busy());
        ordered.and(begun)
    }

    /// Queues the copies, those that `by_kernel` names by a kernel.
    fn begin(&mut self, by_kernel: Option<(PiecesKernels, Taken)>) -> Result<()> {
        if self.waits {
            self.stream.drain_unless_captured(&"CopyBatch::submit")?;
        }
        let context = self.stream.context();
        let mut held = Vec::new();
        for copies in &mut self.far {
            let access = copies.route.hold(context);
            if !copies.direct.is_empty() && !access.is_reached {
                // Another thread has denied access since.
                if let Some(refusal) = copies.refusal("CopyBatch::submit", &self.stream, self.options) {
                    return Err(refusal);
                }
                for place in core::mem::take(&mut copies.direct) {
                    let size = core::mem::take(&mut self.sizes[place]);
                    copies.by_driver.push((self.to[place], self.from[place], size));
                }
            }
            held.push(access);
        }
        for copies in self.far.iter().filter(|copies| !copies.by_driver.is_empty()) {
            let (cuda, _ready) = self.stream.ready()?;
            let [to_context, from_context] = copies.contexts.map(Context::raw);
            for &(to, from, size) in &copies.by_driver {
                let raw = self.stream.raw();
                // SAFETY: as below.
                unsafe { call!(cuda.cuMemcpyPeerAsync(to, to_context, from, from_context, size, raw)) }?;
            }
        }
        // What is left for the driver moves to the front of the arrays.
        let (mut pieces, mut left) = (Vec::with_capacity(by_kernel.map_or(0, |_| self.sizes.len())), 0);
        for place in 0..self.sizes.len() {
            let (to, from, size) = (self.to[place], self.from[place], self.sizes[place]);
            if by_kernel.is_some_and(|(_, taken)| taken.takes(self.links[place], size)) {
                pieces.push(KernelPiece { to, from, size: size as u64 });
            } else if size != 0 {
                (self.to[left], self.from[left], self.sizes[left]) = (to, from, size);
                left += 1;
            }
        }
        if let Some((kernels, _)) = by_kernel {
            // SAFETY: as below; the stream's device reaches the memory of the links that the kernel takes.
            unsafe { copy_by_kernel(kernels, &pieces, &self.stream) }?;
        }
        if left == 0 {
            return Ok(());
        }
        let (to, from, sizes) = (&mut self.to[..left], &mut self.from[..left], &mut self.sizes[..left]);
        // SAFETY: the ranges lie within their buffers, which are borrowed now and freed after the copies in stream
        // order.
        unsafe { copy_all(to, from, sizes, self.options, &self.stream) }
    }
}

/// Where memory lies, if a kernel of the context reaches it.
fn place<T, K: Kind, A: Access>(buffer: &Buffer<T, K, A>, context: &Context) -> Option<Place> {
    let Accessibility { device, managed, .. } = buffer.accessibility();
    let is_reached = device && !managed && buffer.context() == context && buffer.copy_side() != CopySide::Pageable;
    is_reached.then(|| if buffer.device_ordinal().is_some() { Place::Device } else { Place::Host })
}

/// A copy with host memory that is opened to each device, by a device that does not access both sides. Drivers fail or crash
/// on it.
pub(crate) fn not_open(call: &'static str, stream: &Stream) -> Error {
    let value = format!("of device {}", stream.context().device().ordinal());
    let rule = "its device must access both sides if one is virtual memory of the host: allow it access, or use a stream \
                of the other side's device";
    Error::invalid(call, "stream", value, rule)
}

/// Queues many copies, in one call if the driver has one for batches. The slices have the same length.
///
/// # Safety
///
/// All ranges are valid until the copies are done in stream order. No destination overlaps another, or its source.
pub(crate) unsafe fn copy_all(
    to: &mut [CUdeviceptr],
    from: &mut [CUdeviceptr],
    sizes: &mut [usize],
    options: BatchOptions,
    stream: &Stream,
) -> Result<()> {
    let raw = stream.raw();
    // The driver refuses batches on its default streams, and in captures.
    let batches = raw != CU_STREAM_LEGACY && !raw.is_null() && !stream.is_capturing()?;
    let (cuda, _ready) = stream.ready()?;
    let count = sizes.len();
    let order = if options.sources_in_any_order {
        SourceAccess::CU_MEMCPY_SRC_ACCESS_ORDER_ANY
    } else {
        SourceAccess::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    };
    let flags = if options.overlap_with_compute {
        CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE
    } else {
        CUmemcpyFlags::CU_MEMCPY_FLAG_DEFAULT
    };
    // One set of attributes, which applies from the first copy on.
    let mut attributes = CUmemcpyAttributes { srcAccessOrder: order, flags: flags.0, ..Default::default() };
    let (attributes, mut first, mut failed) = (&raw mut attributes, 0, 0);
    let all = if batches {
        let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
        // SAFETY: the arrays have `count` elements, and the attributes one; the caller guarantees the ranges.
        let newer =
            unsafe { call!(cuda.cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, &mut first, 1, raw)) };
        // SAFETY: as above.
        or_older(newer, || unsafe {
            call!(cuda.cuMemcpyBatchAsync(to, from, sizes, count, attributes, &mut first, 1, &mut failed, raw))
        })
        .map(|()| true)
    } else {
        Ok(false)
    };
    if or_older(all, || Ok(false))? {
        return Ok(());
    }
    // SAFETY: the caller guarantees the ranges.
    (0..count).try_for_each(|n| unsafe { call!(cuda.cuMemcpyAsync(to[n], from[n], sizes[n], raw)) })
}

impl fmt::Debug for CopyBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyBatch").field("copies", &self.len()).field("options", &self.options).finish_non_exhaustive()
    }
}
