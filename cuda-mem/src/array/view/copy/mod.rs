//! Copies between views of the same shape.

mod kernel;
mod processor;
mod run;
#[cfg(test)]
mod tests;

use super::memory::ViewMemory;
use super::{Order, StridedLayout, StridedView, ViewError};
use crate::buffer::{Access, not_open, route};
use crate::lifetime::waiting::{self, Target};
use crate::memory::resource::SharedResource;
use crate::{Element, Error, PeerError, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use run::StepRunner;
use strided_layout::{How, Reach, Reached, Side, Strides, in_bytes, plan};

/// Options of a copy between views.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ViewCopyOptions<'a> {
    /// The stream that orders the copy. By default it is the home stream of the side that lies on a device, or the
    /// destination's if both or neither do.
    pub stream: Option<&'a Stream>,
    /// Whether the call waits until the copy is done. By default it waits if the CPU can address one of the sides. It
    /// always waits if queued work uses memory that the driver does not know.
    pub blocking: Option<bool>,
    /// The resource for temporary memory, if the copy needs some. It serves the host if the CPU can address its memory,
    /// and the device if its memory lies there. The defaults are the heap and the device's current pool.
    pub temporary: Option<&'a SharedResource>,
    /// Refuse a copy between devices that would go through the host ([`PeerError::ThroughHost`]).
    pub require_direct: bool,
}

impl<A: Access> StridedView<'_, A> {
    /// Copies the elements of another view of the same shape and type. The layouts may differ. The copy runs in stream
    /// order: after earlier work on both memories, and before later work on them.
    ///
    /// If the CPU can address one of the sides, the call waits until the copy is done. Otherwise it only queues the
    /// copy. [`copy_from_with`](Self::copy_from_with) has an option for this. The first such copy of a context also waits
    /// for the context's work, to load the kernel, unless
    /// [`Context::load_kernels`](crate::Context::load_kernels) has done so.
    ///
    /// # Errors
    ///
    /// The types or the shapes differ; this view is read-only, or its elements share memory; the views overlap without
    /// being the same elements; earlier work failed.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::view::{Index, Order, StridedLayout, StridedView};
    /// let host = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// let rows = StridedView::of_slice(&host, StridedLayout::dense(&[2, 3], 4, Order::C)?)?;
    /// let mut buffer = Buffer::<f32, _>::zeroed(&memory, 12, &stream)?;
    /// let mut every_other = buffer.view_mut(&[3, 4])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
    /// every_other.copy_from(&rows.permuted(&[1, 0])?)?;
    /// assert_eq!(buffer.to_vec()?, [1.0, 0.0, 4.0, 0.0, 2.0, 0.0, 5.0, 0.0, 3.0, 0.0, 6.0, 0.0]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn copy_from<B: Access>(&mut self, source: &StridedView<'_, B>) -> Result<()> {
        self.copy_from_with(source, &ViewCopyOptions::default())
    }

    /// Copies the elements of another view of the same shape and type, on the stream and with the wait that the options
    /// choose. Everything else is as in [`copy_from`](Self::copy_from).
    ///
    /// # Errors
    ///
    /// As [`copy_from`](Self::copy_from). The stream belongs to another device than the memory.
    pub fn copy_from_with<B: Access>(
        &mut self,
        source: &StridedView<'_, B>,
        options: &ViewCopyOptions<'_>,
    ) -> Result<()> {
        const CALL: &str = "StridedView::copy_from";
        let (to, from) = (self.data_type(), source.data_type());
        if to != from || self.is_packed() != source.is_packed() {
            return Err(ViewError::DataType { call: CALL, from, to }.into());
        }
        if self.shape() != source.shape() {
            let (from, to) = (source.shape().into(), self.shape().into());
            return Err(ViewError::Shape { call: CALL, from, to }.into());
        }
        self.check_writable(CALL)?;
        if self.layout.is_empty() {
            return Ok(());
        }
        if !self.is_packed() {
            return copy(CALL, (&self.memory, &self.layout), (&source.memory, &source.layout), options);
        }
        let ends = [(&self.layout, self.memory.size()), (&source.layout, source.memory.size())];
        match in_bytes(to.element_bits(), ends) {
            Some([to, from]) => copy(CALL, (&self.memory, &to), (&source.memory, &from), options),
            None => Err(ViewError::SharedBytes { call: CALL, data_type: to }.into()),
        }
    }

    /// Copies the elements to another view, by its [`copy_from`](Self::copy_from).
    ///
    /// # Errors
    ///
    /// As [`copy_from`](Self::copy_from).
    pub fn copy_to<B: Access>(&self, destination: &mut StridedView<'_, B>) -> Result<()> {
        destination.copy_from(self)
    }

    /// The elements, in C order.
    ///
    /// # Errors
    ///
    /// The elements have another type. As [`copy_from`](Self::copy_from).
    pub fn to_vec<T: Element + NoUninit + AnyBitPattern>(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.layout.volume() as usize];
        let layout = StridedLayout::dense(self.shape(), size_of::<T>(), Order::C)?;
        StridedView::of_mut_slice(&mut elements, layout)?.copy_from(self)?;
        Ok(elements)
    }
}

type End<'a> = (&'a ViewMemory<'a>, &'a StridedLayout);

fn copy(call: &'static str, to: End<'_>, from: End<'_>, options: &ViewCopyOptions<'_>) -> Result<()> {
    // Again if another thread denies the access between devices on which the plan relied.
    while !try_copy(call, to, from, options)? {}
    Ok(())
}

/// Copies, by the access between devices that there is now. Whether it stayed until all was queued.
fn try_copy(call: &'static str, to: End<'_>, from: End<'_>, options: &ViewCopyOptions<'_>) -> Result<bool> {
    let (shape, item_size) = (to.1.shape(), to.1.item_size());
    let (to_side, mut from_side) = (side(to), side(from));
    let reach = |memory: &ViewMemory<'_>, side: &Side| Reach::of(memory.address(), shape, item_size, &side.strides);
    let (Some(written), Some(read)) = (reach(to.0, &to_side), reach(from.0, &from_side)) else { return Ok(true) };
    if let Some((first, end)) = written.overlap(&read) {
        if is_same(to, from) {
            return Ok(true);
        }
        return Err(ViewError::Overlap { call, first, end }.into());
    }
    let (to, from) = (to.0, from.0);
    let mut is_direct = false;
    if let (Reached::Device(here), Reached::Device(there)) = (to_side.reached, from_side.reached)
        && here != there
    {
        // A device that accesses the source copies as within its own memory.
        let copier = options.stream.or(to.stream()).map(Stream::context).filter(|it| it.device().ordinal() == here);
        if copier.is_some_and(|copier| route(copier, to.buffer(), from.buffer()).ensure_access(copier)) {
            from_side.reached = to_side.reached;
            is_direct = true;
        } else if options.require_direct {
            return Err(PeerError::ThroughHost { call, device: here, owner: there }.into());
        }
    }
    let mut steps = plan(shape, item_size, &to_side, &from_side, true);
    if let [only] = &steps[..]
        && only.how == How::Processor
    {
        // SAFETY: each view lies within its memory, the two do not overlap (checked above), and no two elements of the
        // destination share memory (`check_writable`).
        return unsafe { run::by_processor(&only.pattern, to, from) }.map(|()| true);
    }
    let Some(stream) = stream_of(call, (to, &to_side), (from, &from_side), options)? else { return Ok(true) };
    let context = stream.context();
    let mut route = route(context, to.buffer(), from.buffer());
    // The plan relies on this only: host memory is open to the device, memory of another device is reached directly.
    route.needed[0].take_if(|_| to.device_ordinal().is_some());
    route.needed[1].take_if(|_| from.device_ordinal().is_some() && !is_direct);
    if !route.ensure_access(context) {
        // Memory of another device has other ways.
        return if is_direct { Ok(false) } else { Err(not_open(call, stream)) };
    }
    let source_stream = match from.stream() {
        Some(home) if home.context().device() != stream.context().device() => home,
        _ => stream,
    };
    let missing = |stream: &Stream| stream.context().strided_kernels().is_err();
    if steps.iter().any(|step| step.how == How::Kernel) && (missing(stream) || missing(source_stream)) {
        steps = plan(shape, item_size, &to_side, &from_side, false);
    }
    let host = to_side.on_host || from_side.on_host;
    let mut run = StepRunner::new(&steps, (to, from), route, (stream, source_stream), options)?;
    let waits = options.blocking.unwrap_or(host) || run.uses_plain_memory(&steps, to_side.reached, from_side.reached);
    // Before any stream waits for another, because this may wait for the home streams.
    [to, from].into_iter().try_for_each(ViewMemory::prepare)?;
    let homes = [to.stream(), from.stream()].into_iter().flatten().filter(|home| *home != stream);
    if run.waits_within(&steps, to_side.reached, from_side.reached) {
        let streams = homes.clone().chain([stream, source_stream]);
        streams.into_iter().try_for_each(|stream| stream.drain_unless_captured(&"a copy of views"))?;
    }
    let submission = if waits { Some(stream.running(call)?) } else { None };
    let _lent = waits.then(|| [to.lend(true), from.lend(false)]);
    homes.into_iter().try_for_each(|home| stream.order_work_after(home))?;
    // SAFETY: as above. `order_work_after_or_wait` below orders the memories' later work, and so their frees, after the copy.
    let mut copy = || unsafe { run.all(&steps) };
    // The driver's own call waits in copies to and from pageable memory.
    let done = if waits { waiting::during(&"a copy of views", Target::stream(stream), copy) } else { copy() };
    let noted = [to, from].map(|memory| memory.order_work_after_or_wait(stream));
    drop(submission);
    // Also after an error, because a copy that has begun must not use the caller's memory after the return.
    let waited = if waits { stream.wait_certainly() } else { Ok(()) };
    let [to_noted, from_noted] = noted;
    done.and(to_noted).and(from_noted).and(waited)?;
    Ok(run.has_access)
}

fn side((memory, layout): End<'_>) -> Side {
    let accessibility = memory.accessibility();
    let reached = match memory.device_ordinal() {
        _ if !accessibility.device => Reached::Host,
        Some(ordinal) if !accessibility.managed => Reached::Device(ordinal),
        _ => Reached::Everyone,
    };
    let item_size = layout.item_size() as i64;
    let strides = layout.axes().map(|(extent, stride)| if extent > 1 { stride * item_size } else { 0 }).collect();
    Side { strides: Strides { offset: layout.byte_offset(), strides }, reached, on_host: accessibility.host }
}

/// Whether both sides are the same elements at the same addresses.
fn is_same((to, to_layout): End<'_>, (from, from_layout): End<'_>) -> bool {
    let taken = |layout: &StridedLayout| layout.axes().filter(|(extent, _)| *extent > 1).collect::<Vec<_>>();
    let place =
        |memory: &ViewMemory<'_>, layout: &StridedLayout| memory.address().wrapping_add_signed(layout.byte_offset());
    place(to, to_layout) == place(from, from_layout) && taken(to_layout) == taken(from_layout)
}

/// The stream that orders the copy; `None` if no memory has a stream.
fn stream_of<'a>(
    call: &'static str,
    (to, to_side): (&'a ViewMemory<'_>, &Side),
    (from, from_side): (&'a ViewMemory<'_>, &Side),
    options: &ViewCopyOptions<'a>,
) -> Result<Option<&'a Stream>> {
    let needed = match (to_side.reached, from_side.reached) {
        (Reached::Device(ordinal), _) => Some((ordinal, to)),
        (_, Reached::Device(ordinal)) => Some((ordinal, from)),
        _ => None,
    };
    let Some(stream) = options.stream else {
        return Ok(needed.and_then(|(_, memory)| memory.stream()).or(to.stream()).or(from.stream()));
    };
    let device = stream.context().device().ordinal();
    if needed.is_some_and(|(ordinal, _)| ordinal != device) {
        return Err(Error::invalid(
            call,
            "stream",
            format_args!("of device {device}"),
            "must be a stream of the destination's device, or of the source's if the destination is on no device",
        ));
    }
    Ok(Some(stream))
}
