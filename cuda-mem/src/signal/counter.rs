//! Words that only grow.

use super::compare::{Comparison, SignalWord};
use super::{Flag, WaitPolicy};
use crate::{Result, Stream};
use cuda_sys::CUdeviceptr;

/// A count that the CPU keeps and the device waits for, such as the number of pieces that are ready. Only this value
/// counts, so it has no clones; [`reader`](Self::reader) gives other threads the end at which streams wait. Counts may
/// wrap around: a waiter must be less than half of the word's range behind.
///
/// ```
/// use cuda_mem::signal::{Signals, WaitPolicy};
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// let signals = Signals::new(&context)?;
/// let (mut ready, done) = (signals.counter::<u32>()?, signals.device_counter::<u32>()?);
/// for piece in 1..=3 {
///     ready.wait_on(&stream, piece)?; // the work on a piece waits until it is ready
///     done.store_on(&stream, piece)?;
/// }
/// ready.add(2);
/// done.wait(2, &WaitPolicy::default())?;
/// assert_eq!((done.value(), ready.add(1)), (2, 3));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct Counter<W: SignalWord> {
    flag: Flag<W>,
    /// The count, kept here because reading mapped memory takes 1 us.
    count: W,
}

impl<W: SignalWord> Counter<W> {
    pub(super) fn new(flag: Flag<W>) -> Self {
        Self { flag, count: W::zeroed() }
    }

    /// Names the counter in errors and in reports of long waits: `counter "ready"` in place of `counter #3`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.flag.set_name(name);
        self
    }

    /// Names a counter that is in use, in errors and in reports of long waits.
    pub fn set_name(&self, name: &str) {
        self.flag.set_name(name);
    }

    /// The counter's other end: another thread queues work there that waits, while this thread counts.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::signal::Signals;
    /// let mut ready = Signals::new(&context)?.counter::<u32>()?;
    /// let reader = ready.reader();
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| ready.add(1));
    ///     reader.wait_on(&stream, 1)
    /// })?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn reader(&self) -> CounterReader<W> {
        CounterReader { flag: self.flag.clone() }
    }

    /// Adds to the count, after all earlier writes of this thread to any memory. Returns the new count.
    #[inline]
    pub fn add(&mut self, more: W) -> W {
        self.count = self.count.plus(more);
        self.flag.store(self.count);
        self.count
    }

    /// The count.
    pub fn value(&self) -> W {
        self.count
    }

    /// Makes work queued on `stream` from now on wait until the count is at least `count`.
    ///
    /// # Errors
    ///
    /// As [`Flag::wait_on`].
    #[doc(alias("cuStreamWaitValue32", "cuStreamWaitValue64"))]
    pub fn wait_on(&self, stream: &Stream, count: W) -> Result<()> {
        self.flag.wait_on(stream, Comparison::AtLeast, count)
    }

    /// Records that work queued on `stream` so far uses the counter. Its memory is not reused until that work is done.
    pub fn record_use(&self, stream: &Stream) {
        self.flag.record_use(stream);
    }

    /// Device address of the word, which kernels read. Valid while the counter lives.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.flag.device_pointer()
    }
}

impl<W: SignalWord> Drop for Counter<W> {
    fn drop(&mut self) {
        // Nobody counts any more, although readers may hold the word.
        self.flag.close();
    }
}

/// The end of a [`Counter`] at which streams wait. Cheap to clone. When the counter ends, waits that it has not
/// satisfied end too, as for a [closed flag](Flag::close).
#[derive(Clone, Debug)]
pub struct CounterReader<W: SignalWord> {
    flag: Flag<W>,
}

impl<W: SignalWord> CounterReader<W> {
    /// Makes work queued on `stream` from now on wait until the count is at least `count`.
    ///
    /// # Errors
    ///
    /// As [`Flag::wait_on`]. The counter has ended.
    #[doc(alias("cuStreamWaitValue32", "cuStreamWaitValue64"))]
    pub fn wait_on(&self, stream: &Stream, count: W) -> Result<()> {
        self.flag.wait_on(stream, Comparison::AtLeast, count)
    }

    /// Records that work queued on `stream` so far uses the counter. Its memory is not reused until that work is done.
    pub fn record_use(&self, stream: &Stream) {
        self.flag.record_use(stream);
    }

    /// Device address of the word, which kernels read. Valid while the counter or a reader lives.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.flag.device_pointer()
    }
}

/// A count that the device keeps and the CPU waits for, such as the number of pieces that are done. Only one kernel or
/// stream at a time counts; the CPU only reads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DeviceCounter<W: SignalWord> {
    flag: Flag<W>,
}

impl<W: SignalWord> DeviceCounter<W> {
    pub(super) fn new(flag: Flag<W>) -> Self {
        Self { flag }
    }

    /// Names the counter, as [`Counter::named`] does.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { flag: self.flag.named(name) }
    }

    /// Names a counter that is in use, in errors and in reports of long waits.
    pub fn set_name(&self, name: &str) {
        self.flag.set_name(name);
    }

    /// Ends the counter for all its clones, as [`Flag::close`] does.
    pub fn close(&self) {
        self.flag.close();
    }

    /// The current count. The caller sees what was done before this count was written.
    pub fn value(&self) -> W {
        self.flag.load()
    }

    /// Waits until the count is at least `count`, and returns the count.
    ///
    /// # Errors
    ///
    /// As [`Flag::wait`].
    pub fn wait(&self, count: W, policy: &WaitPolicy) -> Result<W> {
        self.flag.wait_for(&"DeviceCounter::wait", Comparison::AtLeast, count, policy)
    }

    /// Sets the count when all earlier work of `stream` is done.
    ///
    /// # Errors
    ///
    /// As [`Flag::store_on`].
    #[doc(alias("cuStreamWriteValue32", "cuStreamWriteValue64"))]
    pub fn store_on(&self, stream: &Stream, count: W) -> Result<()> {
        self.flag.store_on(stream, count)
    }

    /// Makes work queued on `stream` from now on wait until the count is at least `count`.
    ///
    /// # Errors
    ///
    /// As [`Flag::wait_on`].
    pub fn wait_on(&self, stream: &Stream, count: W) -> Result<()> {
        self.flag.wait_on(stream, Comparison::AtLeast, count)
    }

    /// Records that work queued on `stream` so far uses the counter. Its memory is not reused until that work is done.
    pub fn record_use(&self, stream: &Stream) {
        self.flag.record_use(stream);
    }

    /// Device address of the word, for the kernel that counts. Valid while the counter or a clone lives.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.flag.device_pointer()
    }
}
