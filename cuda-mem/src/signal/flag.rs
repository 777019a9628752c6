//! Words that anybody may write and wait for.

use super::compare::{Comparison, SignalWord};
use super::memory::Lines;
use super::state::{Kind, Signal};
use super::uses::What;
use super::wait::{Waited, wait};
use super::{Placement, SignalError, Signals, WaitPolicy};
use crate::{Error, Result, Stream};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// A word of 32 or 64 bits, alone in its cache lines, that the CPU, streams and kernels write and wait for. Cheap to
/// clone; clones are the same word. It is 0 at first.
///
/// One write at a time: what CPU and device write at once, one of them loses.
///
/// ```
/// use cuda_mem::signal::{Comparison, Signals, WaitPolicy, Waiter};
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let stream = cuda_mem::Stream::new(&context)?;
/// let signals = Signals::new(&context)?;
/// let (go, done) = (signals.flag::<u32>(Waiter::Device)?, signals.flag::<u32>(Waiter::Cpu)?);
/// go.wait_on(&stream, Comparison::Equal, 1)?; // later work of the stream waits
/// done.store_on(&stream, 2)?; // and then the CPU is told
/// assert_eq!(done.load(), 0);
/// go.store(1);
/// assert_eq!(done.wait(Comparison::Equal, 2, &WaitPolicy::default())?, 2);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Flag<W> {
    inner: Arc<Inner>,
    word: PhantomData<fn(W) -> W>,
}

struct Inner {
    lines: Lines,
    state: Arc<Signal>,
    signals: Signals,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state.close();
    }
}

impl<W: SignalWord> Flag<W> {
    pub(super) fn new(signals: &Signals, kind: Kind, lines: Lines) -> Self {
        let state = Signal::new(kind, size_of::<W>() == 8, vec![lines.clone()], signals.retired());
        Self { inner: Arc::new(Inner { lines, state, signals: signals.clone() }), word: PhantomData }
    }

    pub(super) fn state(&self) -> &Arc<Signal> {
        &self.inner.state
    }

    /// Gives the flag a name, for errors and for reports of waits that take long: `flag "ready"` in place of `flag #3`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.set_name(name);
        self
    }

    /// As [`named`](Self::named), of a flag that is in use.
    pub fn set_name(&self, name: &str) {
        self.inner.state.set_name(name);
    }

    /// Ends the flag for all its clones, as the drop of the last one does: waits of the CPU fail at once, and streams that
    /// wait for what nobody will write are released ([ends](super#ends)). The word means nothing any more.
    pub fn close(&self) {
        self.inner.state.close();
    }

    /// The word as it is now. What its writer did before the write is seen after this.
    #[inline]
    pub fn load(&self) -> W {
        // SAFETY: the flag's lines begin with its word, which is all they hold.
        unsafe { self.inner.lines.load(0) }
    }

    /// Writes the word, after all earlier writes of this thread to any memory. The write is posted: a kernel that looks
    /// sees it after a trip over PCIe at most.
    #[inline]
    pub fn store(&self, value: W) {
        // SAFETY: as in `load`.
        unsafe { self.inner.lines.store(0, value) };
    }

    /// Waits until the word compares with `value`, and gives what it was then. A word may have changed again since; one
    /// that changes back is missed.
    ///
    /// # Errors
    ///
    /// No word can ever compare so: [`Error::InvalidArgument`]. Time is up, or the flag is [closed](Self::close):
    /// [`Error::Signal`]. The context has ended, or the device has failed: the driver's error.
    pub fn wait(&self, comparison: Comparison, value: W, policy: &WaitPolicy) -> Result<W> {
        self.wait_for("Flag::wait", comparison, value, policy)
    }

    #[inline]
    pub(super) fn wait_for(
        &self,
        call: &'static str,
        comparison: Comparison,
        value: W,
        policy: &WaitPolicy,
    ) -> Result<W> {
        check(call, comparison, value)?;
        let poll = || {
            let word = self.load();
            // After the word, which the end of the flag may have written.
            self.inner.state.check_open(call)?;
            Ok(comparison.holds(word, value).then_some(word))
        };
        match wait(policy, poll, || self.inner.signals.health())? {
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

    /// Tells the flag that work given to `stream` so far uses it: kernels that were launched with its address. The flag's
    /// memory serves nothing else until that work is done.
    pub fn record_use(&self, stream: &Stream) {
        self.inner.state.note(stream, What::Kernel);
    }

    /// The device's address of the word, for kernels: a pointer to `uint32_t` or `uint64_t`. It is valid while the flag or
    /// a clone lives.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.inner.lines.device(0)
    }

    /// Where the word lies.
    pub fn placement(&self) -> Placement {
        self.inner.lines.placement()
    }

    /// The memory that the flag is of.
    pub fn signals(&self) -> &Signals {
        &self.inner.signals
    }
}

/// Refuses to wait for what can never come.
pub(super) fn check<W: SignalWord>(call: &'static str, comparison: Comparison, value: W) -> Result<()> {
    if comparison.can_hold(value) {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        call,
        argument: "the value to wait for",
        value: format!("{:?} {:#x}", comparison, value.into()).into(),
        rule: "no word ever compares so, and the wait would never end",
    })
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
