//! A recorded trace of allocations.

use super::{Adapted, handle};
use crate::adaptor::trace::{Ring, Trace};
use crate::memory::resource::{Kind, ResourceHandle};

handle! {
    /// Records the newest allocations and frees of a resource as a [`Trace`], with times, threads, streams and
    /// [names](super::named). A program can write the trace to a file, inspect it, or [replay](crate::adaptor::trace::replay())
    /// it. A [`Pool`](crate::pool::Pool) can record such a trace itself. Cheap to clone; the clones share one trace.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::{Recording, named}, memory::DeviceMemory, trace::Action};
    /// let recording = Recording::new(&DeviceMemory::new(&context), 1000);
    /// drop(named("weights", || Buffer::<u8, _>::zeroed(&recording, 4096, &stream))?);
    /// let trace = recording.trace();
    /// assert_eq!((trace.events[0].action, trace.events[0].name.as_deref()), (Action::Allocate, Some("weights")));
    /// assert_eq!((trace.events[1].action, trace.events[1].size), (Action::Free, 4096));
    /// let mut file = Vec::new(); // or a File
    /// trace.write(&mut file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Recording holds Adapted<Option<Ring>>
}

impl<K: Kind> Recording<K> {
    /// Records allocations from `upstream` through the new handle: the `capacity` newest events, of about 100 bytes
    /// each. A capacity of 0 records none.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, capacity: usize) -> Self {
        Self::from_inner(Adapted { adaptor: Ring::new(capacity), upstream: upstream.share() })
    }

    /// The recorded events, oldest first.
    pub fn trace(&self) -> Trace {
        self.inner.adaptor.as_ref().map(Ring::trace).unwrap_or_default()
    }
}
