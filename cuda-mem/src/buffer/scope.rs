//! Copies that borrow host memory.

use super::{Access, Buffer, bytes_of_mut};
use crate::cpu::borrowed::Borrowed;
use crate::error::call;
use crate::locks::Mutex;
use crate::memory::resource::Kind;
use crate::{Event, Result, Stream, lifetime::waiting};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;

/// Background copies from and to borrowed host memory. All of them are done when [`transfer_scope`] returns.
pub struct TransferScope<'scope, 'env: 'scope> {
    copies: Mutex<Copies>,
    // As in `std::thread::Scope`, both lifetimes are invariant.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The copies that a scope began.
#[derive(Default)]
struct Copies {
    /// The streams of the copies, each with an event after its last copy. The scope waits for the events: a stream may
    /// capture by then, and the driver refuses to wait for it.
    marks: Vec<(Stream, Event)>,
    /// The host memory that the copies use.
    lent: Vec<Borrowed>,
}

/// Runs `work`, which may begin copies that borrow host memory from outside, and waits for the copies.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
/// let mut buffer = Buffer::<u8, _>::zeroed(&memory, 8, &stream)?;
/// let (head, mut whole) = ([1, 2], [0; 8]);
/// cuda_mem::buffer::transfer_scope(|scope| {
///     scope.upload(&mut buffer, 3, &head)?; // returns at once if the memory is pinned
///     scope.download(&buffer, 0, &mut whole)
/// })?;
/// assert_eq!(whole, [0, 0, 0, 1, 2, 0, 0, 0]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # Errors
///
/// The error of `work`; or a copy failed.
pub fn transfer_scope<'env, R>(
    work: impl for<'scope> FnOnce(&'scope TransferScope<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let scope = TransferScope { copies: Mutex::default(), scope: PhantomData, env: PhantomData };
    // The guard also waits if `work` panics.
    let guard = CopiesGuard(&scope.copies);
    let result = work(&scope);
    core::mem::forget(guard);
    let waited = wait(&scope.copies);
    result.and_then(|value| waited.map(|()| value))
}

struct CopiesGuard<'a>(&'a Mutex<Copies>);

impl Drop for CopiesGuard<'_> {
    fn drop(&mut self) {
        // The panic continues, and nobody can receive the error.
        let _ = wait(self.0);
    }
}

fn wait(copies: &Mutex<Copies>) -> Result<()> {
    // `_lent` ends after all copies are complete.
    let Copies { marks, lent: _lent } = core::mem::take(&mut *copies.lock());
    // Wait for all events, also after an error.
    let complete = || marks.iter().map(|(_, event)| event.wait_certainly()).collect::<Vec<_>>();
    waiting::while_doing(&"at the end of a transfer_scope", complete).into_iter().collect()
}

impl<'scope, 'env> TransferScope<'scope, 'env> {
    /// Begins to copy a slice to the elements from `offset` on, in order of the buffer's stream.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`.
    pub fn upload<T: NoUninit, K: Kind, A: Access>(
        &'scope self,
        buffer: &mut Buffer<T, K, A>,
        offset: usize,
        source: &'env [T],
    ) -> Result<()> {
        let range = buffer.span("TransferScope::upload", offset, source.len())?;
        buffer.check_writable("TransferScope::upload")?;
        let from = source.as_ptr().expose_provenance() as CUdeviceptr;
        let lent = Borrowed::lent(source.as_ptr(), size_of_val(source));
        // SAFETY: the range lies within the buffer, and the source is borrowed until the scope has waited.
        unsafe { self.begin(buffer, lent, true, (buffer.address(range.start), from), size_of_val(source)) }
    }

    /// Begins to copy the elements from `offset` on to a slice, in order of the buffer's stream.
    ///
    /// # Errors
    ///
    /// The range exceeds the buffer.
    pub fn download<T: AnyBitPattern, K: Kind, A: Access>(
        &'scope self,
        buffer: &Buffer<T, K, A>,
        offset: usize,
        destination: &'env mut [T],
    ) -> Result<()> {
        let range = buffer.span("TransferScope::download", offset, destination.len())?;
        let (to, size) = bytes_of_mut(destination);
        let lent = Borrowed::lent_to_write(to, size);
        let to = to.expose_provenance() as CUdeviceptr;
        // SAFETY: as in `upload`.
        unsafe { self.begin(buffer, lent, false, (to, buffer.address(range.start)), size) }
    }

    /// Queues a copy on the buffer's home stream; `lent` is its host memory.
    ///
    /// # Safety
    ///
    /// Both ranges are valid for `size` bytes until the scope has waited.
    unsafe fn begin<T, K: Kind, A: Access>(
        &self,
        buffer: &Buffer<T, K, A>,
        lent: Borrowed,
        is_upload: bool,
        (to, from): (CUdeviceptr, CUdeviceptr),
        size: usize,
    ) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        buffer.drain_before_transfer(&"TransferScope", is_upload, if is_upload { from } else { to }, size)?;
        let home = buffer.stream();
        let running = home.running("TransferScope")?;
        // Event first: once the copy is queued, the scope must be able to wait for it. A thread takes the stream's event, so
        // that of two threads on one stream the later copy does not come before the earlier event.
        let known = {
            let mut copies = self.copies.lock();
            copies.lent.push(lent);
            let place = copies.marks.iter().position(|(stream, _)| stream == home);
            place.map(|place| copies.marks.swap_remove(place))
        };
        let (stream, event) = match known {
            Some(known) => known,
            None => (home.clone(), Event::new(home.context())?),
        };
        let begun = buffer.in_order(|home| {
            let (cuda, _current) = (home.context().driver().raw(), home.context().bind()?);
            // SAFETY: this function's contract.
            unsafe { call!(cuda.cuMemcpyAsync(to, from, size, home.raw())) }
        });
        // Also after an error, because the copy may have begun.
        let marked = event.mark(&running).or_else(|_| home.wait_certainly());
        self.copies.lock().marks.push((stream, event));
        begun.and(marked)
    }
}

impl fmt::Debug for TransferScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferScope").finish_non_exhaustive()
    }
}
