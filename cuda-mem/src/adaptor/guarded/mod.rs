//! Detection of writes outside of live blocks.

mod bytes;
mod damage;
mod guard;
mod quarantine;
mod zones;

use super::handle;
use crate::Result;
use crate::memory::resource::{Kind, ResourceHandle};
use guard::Guard;

use crate::error::Damage;

handle! {
    /// Finds writes outside of blocks and after their free, for debugging. Cheap to clone.
    ///
    /// - **Red zones** before and behind each block hold a pattern (`FD`). A free checks it.
    /// - **Poison** makes reads of unwritten memory visible: a new block is filled with `CD`, a freed one with `DD`.
    /// - **Quarantine** holds freed blocks back. They are checked for writes when they leave it.
    ///
    /// The CPU fills and checks memory that it can address, so allocations and frees wait for their stream. The driver
    /// fills managed memory and all other memory in order of the stream, and copies it back for checks. Frees of such
    /// memory wait, unless [`red_zone`](GuardOptions::red_zone) and [`quarantine`](GuardOptions::quarantine) are both 0
    /// and only poison is left.
    ///
    /// # Reports
    ///
    /// A free that finds damage returns [`Error::Damaged`](crate::Error::Damaged):
    /// [`Buffer::close`](crate::Buffer::close) returns it together with the buffer, and a drop keeps it as a [drop
    /// error](crate::Context::take_drop_errors). The block is then not freed, so that no other owner gets damaged
    /// memory. A second free frees it, or the end of the guard. Damage of a block in quarantine is a drop error, since
    /// no call caused it. [`check`](Self::check) searches at any time.
    ///
    /// A free of a block that is not live is an error, and does not reach the driver. The guard finds neither reads nor
    /// writes that skip the zones. NVIDIA's compute-sanitizer finds those.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::adaptor::{DamagedPlace, GuardOptions, Guarded, named};
    /// use cuda_mem::{Buffer, Error, memory::PinnedMemory};
    /// let guarded = Guarded::new(&PinnedMemory::new(&context), &GuardOptions::default())?;
    /// let samples = named("samples", || Buffer::<u8, _>::zeroed(&guarded, 100, &stream))?;
    /// stream.synchronize()?;
    ///
    /// // SAFETY: the byte behind the buffer belongs to the guard. Without a guard, it could belong to another block.
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

/// Options of a [`Guarded`]. Sizes are in bytes.
///
/// ```
/// use cuda_mem::adaptor::GuardOptions;
/// let mut options = GuardOptions::default();
/// options.red_zone = 4096; // finds writes that are further away
/// options.quarantine = 0; // frees blocks immediately
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardOptions {
    /// The minimum size of the zones before and behind a block; 0 for none. Zones are rounded up to 256 bytes, the zone
    /// before the block also to the block's alignment. Default: 256.
    pub red_zone: usize,
    /// The maximum size of freed memory in quarantine, zones included; 0 for none. A larger block is freed immediately.
    /// Default: 16 MiB.
    pub quarantine: usize,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self { red_zone: 256, quarantine: 16 << 20 }
    }
}

impl<K: Kind> Guarded<K> {
    /// Guards the allocations from `upstream` through the new handle.
    ///
    /// # Errors
    ///
    /// There is no memory for a stream.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, options: &GuardOptions) -> Result<Self> {
        Ok(Self::from_inner(Guard::new(upstream.share(), options.clone())?))
    }

    /// Waits for all work of the context, then searches all live and quarantined blocks for damage. The later free
    /// reports the same damage again. Blocks that other threads free meanwhile stay in quarantine until it is over,
    /// whatever their size. In non-coherent memory, this sees a live block as devices see it: the free finds writes of the
    /// CPU that are not flushed yet.
    ///
    /// # Errors
    ///
    /// Earlier work failed, or memory cannot be read.
    pub fn check(&self) -> Result<Vec<Damage>> {
        self.inner.check()
    }

    /// Checks and frees all blocks in quarantine. Damage becomes drop errors.
    pub fn release_quarantine(&self) {
        self.inner.release_quarantine();
    }

    /// The size of the quarantine in bytes, zones included.
    pub fn quarantined(&self) -> usize {
        self.inner.quarantined()
    }
}
