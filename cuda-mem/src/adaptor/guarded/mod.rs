//! Finding writes where none may be.

mod bytes;
mod damage;
mod guard;
mod quarantine;
mod zones;

use super::handle;
use crate::Result;
use crate::resource::{Kind, ResourceHandle};
use guard::Guard;

pub use damage::{Damage, DamagedPlace};

handle! {
    /// Finds writes beyond blocks and after their free, for debugging. Cheap to clone.
    ///
    /// - **Red zones** before and behind each block hold a pattern (`FD`), which a free checks.
    /// - **Poison**: a new block is filled with `CD`, a freed one with `DD`, so that memory which is read without being
    ///   written stands out.
    /// - **Quarantine**: freed blocks are held back, and checked for writes when they leave it.
    ///
    /// Memory that the CPU addresses is filled and checked by the CPU: its allocations and frees wait for their stream.
    /// Other memory, and managed memory, is filled by the driver in order of the stream, and copied back to be checked: its
    /// frees wait, unless [`red_zone`](GuardOptions::red_zone) and [`quarantine`](GuardOptions::quarantine) are both 0, so
    /// that there is poison alone.
    ///
    /// # What is found
    ///
    /// Damage that a free finds is its error, [`Error::Damaged`](crate::Error::Damaged): [`Buffer::close`](crate::Buffer::close)
    /// gives it, with the buffer; that of a drop is a [drop error](crate::Context::take_drop_errors). The block is not freed
    /// then, so that nobody gets damaged memory: it is freed by a second free, or at the guard's end. Damage of a block in
    /// quarantine is a drop error, since no call is to blame. [`check`](Self::check) looks at any time.
    ///
    /// A free of a block that is not live is an error, and reaches no driver. Reads are not found, nor writes that jump over
    /// the zones: for those there is NVIDIA's compute-sanitizer.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::adaptor::{DamagedPlace, GuardOptions, Guarded, named};
    /// use cuda_mem::{Buffer, Error, memory::PinnedMemory};
    /// let guarded = Guarded::new(&PinnedMemory::new(&context), &GuardOptions::default())?;
    /// let samples = named("samples", || Buffer::<u8, _>::zeroed(&guarded, 100, &stream))?;
    /// stream.synchronize()?;
    ///
    /// // SAFETY: the byte behind the buffer is the guard's. Without a guard this would be another's memory.
    /// unsafe { samples.host_pointer().add(100).write(7) };
    /// match samples.close().map_err(|refused| refused.error) {
    ///     Err(Error::Damaged(damage)) => {
    ///         assert_eq!((damage.place, damage.offset, damage.found[0]), (DamagedPlace::After, 100, 7));
    ///         assert_eq!(damage.name.as_deref(), Some("samples"));
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    Guarded holds Guard
}

/// What a [`Guarded`] does. Sizes are in bytes.
///
/// ```
/// use cuda_mem::adaptor::GuardOptions;
/// let mut options = GuardOptions::default();
/// options.red_zone = 4096; // finds writes that lie further away
/// options.quarantine = 0; // frees at once
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardOptions {
    /// The least size of the zones before and behind a block; they are rounded up to 256 bytes, and the one before to the
    /// block's alignment. 256 by default; 0 for none.
    pub red_zone: usize,
    /// How much freed memory is held back, zones included. A larger block is freed at once. 16 MiB by default; 0 for none.
    pub quarantine: usize,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self { red_zone: 256, quarantine: 16 << 20 }
    }
}

impl<K: Kind> Guarded<K> {
    /// Guards the allocations from `upstream` that are made through the new handle.
    ///
    /// # Errors
    ///
    /// The driver refuses a stream.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, options: &GuardOptions) -> Result<Self> {
        Ok(Self::from_inner(Guard::new(upstream.share(), options.clone())?))
    }

    /// Looks for damage now, at all blocks that are live or in quarantine, when all work of the context is done. What is
    /// found is found again at the free. Other threads' allocations and frees wait meanwhile. Of live blocks in non-coherent
    /// memory it sees what devices see: what the CPU wrote beyond them and has not flushed is found at the free.
    ///
    /// # Errors
    ///
    /// Work failed, or memory cannot be read.
    pub fn check(&self) -> Result<Vec<Damage>> {
        self.inner.check()
    }

    /// Checks the blocks in quarantine, and frees them. What is found becomes drop errors.
    pub fn release_quarantine(&self) {
        self.inner.release_quarantine();
    }

    /// How many bytes are in quarantine, zones included.
    pub fn quarantined(&self) -> usize {
        self.inner.quarantined()
    }
}
