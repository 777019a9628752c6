//! Runs the steps of a plan.

use super::ViewCopyOptions;
use super::kernel::copy_by_kernel;
use super::processor::{self, Users};
use crate::array::view::memory::ViewMemory;
use crate::buffer::{BatchOptions, DeviceRoute, Viewed, copy_all, route};
use crate::error::call;
use crate::memory::resource::{SharedResource, kind::Any};
use crate::memory::{DeviceMemory, DevicePool};
use crate::stream::host_copies::{CopySide, waits_within};
use crate::{Buffer, Context, Result, Stream, memory::resource::ResourceHandle};
use core::mem::MaybeUninit;
use cuda_sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUmemorytype};
use strided_layout::{How, Pattern, Place, Reached, Step, size_of_temporary};

type Temporary = Buffer<MaybeUninit<u8>, Any>;

/// Temporary host memory.
enum HostTemporary {
    Heap(Vec<u8>),
    /// Memory of the caller's resource. Devices can address it too.
    Buffer(Temporary),
}

/// Runs the steps of one copy, and owns its temporary memory.
pub(super) struct StepRunner<'a> {
    to: &'a ViewMemory<'a>,
    from: &'a ViewMemory<'a>,
    /// The stream that orders the copy.
    stream: &'a Stream,
    /// The stream for work that only the source's device does. It differs from `stream` in a copy between devices.
    source_stream: &'a Stream,
    /// The access of the stream's device on which the plan relies.
    route: DeviceRoute<'a>,
    /// Whether that access has stayed. Without it, no more steps run.
    pub has_access: bool,
    host: Option<HostTemporary>,
    source: Option<Temporary>,
    destination: Option<Temporary>,
}

/// Copies a pattern by the CPU, without a stream.
///
/// # Safety
///
/// The pattern lies within both memories, which the CPU can address. No run of the destination overlaps another run or
/// the source.
pub(super) unsafe fn by_processor(pattern: &Pattern, to: &ViewMemory<'_>, from: &ViewMemory<'_>) -> Result<()> {
    let ((first, end), (from_first, from_end)) = (pattern.written(), pattern.read());
    from.fetch(from_first, from_end - from_first)?;
    let remembered = to.begin_write(first, end - first)?;
    // SAFETY: this function's contract. `fetch` and `begin_write` have waited for device work on both memories.
    unsafe { processor::copy(pattern, to.host_pointer(), from.host_pointer(), users(to, from)) };
    to.end_write(first, end - first, remembered)
}

/// Whether others may use one of the memories. Only slices are certainly not shared.
fn users(to: &ViewMemory<'_>, from: &ViewMemory<'_>) -> Users {
    if to.is_slice() && from.is_slice() { Users::Alone } else { Users::Others }
}

impl<'a> StepRunner<'a> {
    pub fn new(
        steps: &[Step],
        (to, from): (&'a ViewMemory<'a>, &'a ViewMemory<'a>),
        route: DeviceRoute<'a>,
        (stream, source_stream): (&'a Stream, &'a Stream),
        options: &ViewCopyOptions<'_>,
    ) -> Result<Self> {
        let on_device = |place: Place, stream: &Stream| {
            let Some(size) = size_of_temporary(steps, place) else { return Ok(None) };
            let given = options.temporary.filter(|resource| is_of(resource, stream.context()));
            let resource = given.map_or_else(|| default_resource(stream.context()), SharedResource::clone);
            Temporary::uninit_any(&resource, size, stream).map(Some)
        };
        let (source, destination) =
            (on_device(Place::SourceTemporary, source_stream)?, on_device(Place::DestinationTemporary, stream)?);
        let host = match size_of_temporary(steps, Place::HostTemporary) {
            None => None,
            Some(size) => Some(match options.temporary.filter(|resource| resource.accessibility().host) {
                None => HostTemporary::Heap(vec![0; size]),
                Some(resource) => {
                    let buffer = Temporary::uninit_any(resource, size, stream)?;
                    if buffer.is_coherent() {
                        // The allocation is in stream order, so the CPU must wait before it uses the memory.
                        stream.synchronize()?;
                        HostTemporary::Buffer(buffer)
                    } else {
                        HostTemporary::Heap(vec![0; size])
                    }
                }
            }),
        };
        Ok(Self { to, from, stream, source_stream, route, has_access: true, host, source, destination })
    }

    /// Whether queued work uses memory that the driver does not know, which may be freed when the call returns.
    pub fn uses_plain_memory(&self, steps: &[Step], to: Reached, from: Reached) -> bool {
        self.sides(steps, to, from).any(|(_, to, from)| to == CopySide::Pageable || from == CopySide::Pageable)
    }

    /// Whether the driver waits for earlier work within some step.
    pub fn waits_within(&self, steps: &[Step], to: Reached, from: Reached) -> bool {
        self.sides(steps, to, from).any(|(step, to, from)| {
            // Many small runs of pageable memory are too much for the driver's staging, as one large one is.
            let size = if step.how == How::Run { step.pattern.width as usize } else { usize::MAX };
            waits_within(to, from, size)
        })
    }

    /// The queued steps, with where they write and read. `to` and `from` tell who reaches the copy's own memory.
    fn sides<'s>(
        &'s self,
        steps: &'s [Step],
        to: Reached,
        from: Reached,
    ) -> impl Iterator<Item = (&'s Step, CopySide, CopySide)> {
        let own = |memory: &ViewMemory<'_>, reached: Reached| match reached {
            Reached::Host => CopySide::Pageable,
            _ if memory.device_ordinal().is_none() && !memory.accessibility().managed => CopySide::PageLocked,
            _ => CopySide::Device,
        };
        let (own_to, own_from) = (own(self.to, to), own(self.from, from));
        let side = move |place: Place| match (place, &self.host) {
            (Place::Source, _) => own_from,
            (Place::Destination, _) => own_to,
            (Place::HostTemporary, Some(HostTemporary::Heap(_))) => CopySide::Pageable,
            (Place::HostTemporary, _) => CopySide::PageLocked,
            (Place::SourceTemporary | Place::DestinationTemporary, _) => CopySide::Device,
        };
        let queued = steps.iter().filter(|step| step.how != How::Processor);
        queued.map(move |step| (step, side(step.to), side(step.from)))
    }

    /// Queues the devices' steps in stream order. The CPU's steps run within the call, after waits for earlier work.
    ///
    /// # Safety
    ///
    /// The patterns of the steps lie within the memories, which the devices can address as the plan assumed. No run of
    /// the destination overlaps another run or the source. The memories outlive the queued work.
    pub unsafe fn all(&mut self, steps: &[Step]) -> Result<()> {
        // SAFETY: this function's contract.
        steps.iter().try_for_each(|step| if self.has_access { unsafe { self.one(step) } } else { Ok(()) })
    }

    /// # Safety
    ///
    /// As [`all`](Self::all).
    unsafe fn one(&mut self, step: &Step) -> Result<()> {
        let (to, from, pattern) = (self.address(step.to), self.address(step.from), &step.pattern);
        let stream = if step.to == Place::SourceTemporary { self.source_stream } else { self.stream };
        let (to_start, from_start) = (to.wrapping_add_signed(pattern.to), from.wrapping_add_signed(pattern.from));
        let width = pattern.width as usize;
        // SAFETY: by this function's contract all runs lie within memory that outlives the work. Temporary buffers are
        // freed in stream order after the work; `copy` waits for work that uses the heap.
        unsafe {
            match step.how {
                How::Processor => return self.process(step),
                How::Peer => return self.copy_between_devices(step.from, to_start, from_start, width),
                _ => {}
            }
            let sides = [step.to == Place::Destination, step.from == Place::Source];
            let held = self.route.hold_sides(stream.context(), sides);
            if !held.is_reached {
                self.has_access = false;
                return Ok(());
            }
            match step.how {
                How::Rows => copy_rows(pattern, to_start, from_start, stream),
                How::Planes => copy_planes(pattern, to_start, from_start, stream),
                How::Runs => copy_runs(pattern, to, from, stream),
                How::Kernel => copy_by_kernel(pattern, to, from, stream),
                How::Run | How::Processor | How::Peer => {
                    let (cuda, _ready) = stream.ready()?;
                    call!(cuda.cuMemcpyAsync(to_start, from_start, width, stream.raw()))
                }
            }
        }
    }

    /// Copies a run from the other device, directly or through the host, as the driver can.
    ///
    /// # Safety
    ///
    /// As [`all`](Self::all).
    unsafe fn copy_between_devices(
        &self,
        source: Place,
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
    ) -> Result<()> {
        let (stream, context) = (self.stream, self.stream.context());
        stream.order_work_after(self.source_stream)?;
        let from_memory = match (source, &self.source) {
            (Place::SourceTemporary, Some(temporary)) => Some(temporary as &dyn Viewed),
            _ => self.from.buffer(),
        };
        let route = route(context, self.to.buffer(), from_memory);
        let (to_context, from_context) = (context.raw(), self.source_stream.context().raw());
        let begin = || {
            let _held = route.hold(context);
            let (cuda, _ready) = stream.ready()?;
            // SAFETY: this function's contract.
            unsafe { call!(cuda.cuMemcpyPeerAsync(to, to_context, from, from_context, size, stream.raw())) }
        };
        let begun = begin();
        // The temporary buffer's free, on its own stream, must come after the copy.
        let ordered = self.source.as_ref().map_or(Ok(()), |source| source.stream().order_work_after_or_wait(stream));
        ordered.and(begun)
    }

    /// # Safety
    ///
    /// As [`all`](Self::all).
    unsafe fn process(&mut self, step: &Step) -> Result<()> {
        let pattern = &step.pattern;
        let (first, end) = pattern.written();
        if step.from == Place::HostTemporary {
            self.stream.wait_beside_captures()?;
        } else {
            let (first, end) = pattern.read();
            self.from.fetch(first, end - first)?;
        }
        let is_destination = step.to == Place::Destination;
        let remembered = is_destination && self.to.begin_write(first, end - first)?;
        let (to, from) = (self.host_pointer(step.to), self.host_pointer(step.from));
        // SAFETY: this function's contract. `new` made the temporary memory large enough, and the calls above have
        // waited for device work on the memories that the CPU uses.
        unsafe { processor::copy(pattern, to, from, users(self.to, self.from)) };
        if is_destination { self.to.end_write(first, end - first, remembered) } else { Ok(()) }
    }

    /// The first byte of a place, for the driver.
    fn address(&self, place: Place) -> CUdeviceptr {
        let of = |buffer: &Option<Temporary>| buffer.as_ref().map_or(0, Buffer::device_pointer);
        match place {
            Place::Source => self.from.address(),
            Place::Destination => self.to.address(),
            Place::SourceTemporary => of(&self.source),
            Place::DestinationTemporary => of(&self.destination),
            Place::HostTemporary => match &self.host {
                Some(HostTemporary::Heap(bytes)) => bytes.as_ptr().expose_provenance() as CUdeviceptr,
                Some(HostTemporary::Buffer(buffer)) => buffer.first_byte(),
                None => 0,
            },
        }
    }

    /// The first byte of a place, for the CPU.
    fn host_pointer(&mut self, place: Place) -> *mut u8 {
        match (place, &mut self.host) {
            (Place::Source, _) => self.from.host_pointer(),
            (Place::HostTemporary, Some(HostTemporary::Heap(bytes))) => bytes.as_mut_ptr(),
            (Place::HostTemporary, Some(HostTemporary::Buffer(buffer))) => Viewed::host_pointer(buffer),
            _ => self.to.host_pointer(),
        }
    }
}

impl Temporary {
    fn uninit_any(resource: &SharedResource, size: usize, stream: &Stream) -> Result<Self> {
        Buffer::<u8, Any>::uninit(resource, size, stream)
    }
}

/// Whether a resource's memory lies on a context's device.
fn is_of(resource: &SharedResource, context: &Context) -> bool {
    resource.is_on_device() && resource.context().device() == context.device()
}

/// The device's current pool; plain device memory if the device has no pools.
fn default_resource(context: &Context) -> SharedResource {
    DevicePool::current(context).map_or_else(|_| DeviceMemory::new(context).share(), |pool| pool.share())
}

/// # Safety
///
/// As [`StepRunner::all`].
unsafe fn copy_rows(pattern: &Pattern, to: CUdeviceptr, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    let (to_pitch, from_pitch) = pattern.rows().unwrap_or_default();
    // Unified: the driver finds the memory of each address itself.
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcDevice: from,
        srcPitch: from_pitch as usize,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstDevice: to,
        dstPitch: to_pitch as usize,
        WidthInBytes: pattern.width as usize,
        Height: pattern.runs() as usize,
        ..Default::default()
    };
    let (cuda, _ready) = stream.ready()?;
    // SAFETY: this function's contract.
    unsafe { call!(cuda.cuMemcpy2DAsync_v2(&copy, stream.raw())) }
}

/// # Safety
///
/// As [`StepRunner::all`].
unsafe fn copy_planes(pattern: &Pattern, to: CUdeviceptr, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    let ([outer, inner], Some([to_planes, from_planes])) = (&pattern.axes[..], pattern.planes()) else { return Ok(()) };
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcDevice: from,
        srcPitch: from_planes.pitch as usize,
        srcHeight: from_planes.height as usize,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstDevice: to,
        dstPitch: to_planes.pitch as usize,
        dstHeight: to_planes.height as usize,
        WidthInBytes: pattern.width as usize,
        Height: inner.extent as usize,
        Depth: outer.extent as usize,
        ..Default::default()
    };
    let (cuda, _ready) = stream.ready()?;
    // SAFETY: this function's contract.
    unsafe { call!(cuda.cuMemcpy3DAsync_v2(&copy, stream.raw())) }
}

/// # Safety
///
/// As [`StepRunner::all`].
unsafe fn copy_runs(pattern: &Pattern, to: CUdeviceptr, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    let starts = pattern.starts();
    let (mut to, mut from): (Vec<_>, Vec<_>) =
        starts.map(|(a, b)| (to.wrapping_add_signed(a), from.wrapping_add_signed(b))).unzip();
    let mut sizes = vec![pattern.width as usize; to.len()];
    // SAFETY: this function's contract.
    unsafe { copy_all(&mut to, &mut from, &mut sizes, BatchOptions::default(), stream) }
}
