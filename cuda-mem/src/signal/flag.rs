//! Words that the CPU, streams and kernels write and wait for.

use super::armed;
use super::base::{Kind, Signal};
use super::compare::{Comparison, SignalWord};
use super::memory::SignalLines;
use super::uses::UseKind;
use super::wait::{Waited, wait};
use super::{Placement, SignalError, Signals, WaitPolicy};
use crate::{Error, Result, Stream};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// A word of 32 or 64 bits that the CPU, streams and kernels write and wait for. It has its cache lines to itself, and
/// is 0 at first. Cheap to clone; clones are the same word.
///
/// If CPU and device write at the same time, one of the writes is lost.
///
/// ```
/// use cuda_mem::signal::{Comparison, Signals, WaitPolicy, Waiter};
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// let signals = Signals::new(&context)?;
/// let (go, done) = (signals.flag::<u32>(Waiter::Device)?, signals.flag::<u32>(Waiter::Cpu)?);
/// go.wait_on(&stream, Comparison::Equal, 1)?; // later work of the stream waits
/// done.store_on(&stream, 2)?; // and then reports to the CPU
/// assert_eq!(done.load(), 0);
/// go.store(1);
/// assert_eq!(done.wait(Comparison::Equal, 2, &WaitPolicy::default())?, 2);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Flag<W> {
    inner: Arc<FlagOwner>,
    word: PhantomData<fn(W) -> W>,
}

struct FlagOwner {
    lines: SignalLines,
    state: Arc<Signal>,
    signals: Signals,
}

impl Drop for FlagOwner {
    fn drop(&mut self) {
        self.state.close();
    }
}

impl<W: SignalWord> Flag<W> {
    pub(super) fn new(signals: &Signals, kind: Kind, lines: SignalLines) -> Self {
        let state = Signal::new(kind, size_of::<W>() == 8, vec![lines.clone()], signals.retired());
        Self { inner: Arc::new(FlagOwner { lines, state, signals: signals.clone() }), word: PhantomData }
    }

    pub(super) fn state(&self) -> &Arc<Signal> {
        &self.inner.state
    }

    /// Names the flag in errors and in reports of long waits: `flag "ready"` in place of `flag #3`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.set_name(name);
        self
    }

    /// Names a flag that is in use, in errors and in reports of long waits.
    pub fn set_name(&self, name: &str) {
        self.inner.state.set_name(name);
    }

    /// Names a [`frame_word`](Signals::frame_word) by the frame that this thread has taken.
    pub(crate) fn set_frame(&self, number: u64) {
        self.inner.state.set_frame(number);
    }

    /// Ends the flag for all its clones, as the drop of the last clone does. Waits of the CPU fail at once, and streams
    /// with waits that nobody will satisfy are released ([ends](super#ends)). The word has no meaning any more.
    pub fn close(&self) {
        self.inner.state.close();
    }

    /// The current word. The caller sees what the word's writer did before the write.
    #[inline]
    pub fn load(&self) -> W {
        // SAFETY: the flag's lines begin with its word, and hold nothing else.
        unsafe { self.inner.lines.load(0) }
    }

    /// Writes the word, after all earlier writes of this thread to any memory. The write is posted: a kernel sees it
    /// after one trip over PCIe at most.
    #[inline]
    pub fn store(&self, value: W) {
        // SAFETY: as in `load`.
        unsafe { self.inner.lines.store(0, value) };
    }

    /// Waits until the word compares with `value`, and returns that word. The word may have changed again since. The
    /// wait may miss a word that changes back.
    ///
    /// # Errors
    ///
    /// No word can satisfy the comparison: [`Error::InvalidArgument`]. Time is up, or the flag is
    /// [closed](Self::close): [`Error::Signal`]. The context has ended, or the device has failed: the driver's error.
    pub fn wait(&self, comparison: Comparison, value: W, policy: &WaitPolicy) -> Result<W> {
        self.wait_for(&"Flag::wait", comparison, value, policy)
    }

    #[inline]
    pub(super) fn wait_for(
        &self,
        call: &'static &'static str,
        comparison: Comparison,
        value: W,
        policy: &WaitPolicy,
    ) -> Result<W> {
        check(call, comparison, value)?;
        let poll = || {
            let word = self.load();
            // Checked after the read: the end of the flag may have written the word.
            self.inner.state.check_open(call)?;
            Ok(comparison.holds(word, value).then_some(word))
        };
        let target = || armed::of_cpu(&self.inner.state, comparison, value.into());
        match wait(policy, (call, target), poll, || self.inner.signals.health())? {
            Waited::For(word) => Ok(word),
            Waited::InVain(waited) => Err(SignalError::TimedOut {
                call,
                what: self.placement().word(),
                comparison: comparison.text(),
                wanted: value.into(),
                seen: self.load().into(),
                waited,
            }
            .into()),
        }
    }

    /// Records that work queued on `stream` so far uses the flag: kernels that were launched with its address. The
    /// flag's memory is not reused until that work is done.
    pub fn record_use(&self, stream: &Stream) {
        self.inner.state.note(stream, UseKind::Kernel);
    }

    /// Device address of the word, for kernels: a pointer to `uint32_t` or `uint64_t`. Valid while the flag or a clone
    /// lives.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.inner.lines.device(0)
    }

    /// The memory that the word lies in.
    pub fn placement(&self) -> Placement {
        self.inner.lines.placement()
    }

    /// The [`Signals`] that made the flag.
    pub fn signals(&self) -> &Signals {
        &self.inner.signals
    }
}

/// Refuses a wait that could never end.
pub(super) fn check<W: SignalWord>(call: &'static str, comparison: Comparison, value: W) -> Result<()> {
    if comparison.can_hold(value) {
        return Ok(());
    }
    let rule = "no word can satisfy that, so the wait would never end";
    Err(Error::invalid(call, "the value to wait for", format_args!("{:?} {:#x}", comparison, value.into()), rule))
}

impl<W> Clone for Flag<W> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), word: PhantomData }
    }
}

impl<W: SignalWord> fmt::Debug for Flag<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flag")
            .field("value", &self.load())
            .field("placement", &self.placement())
            .field("device_pointer", &format_args!("{:#x}", self.device_pointer()))
            .finish()
    }
}
