//! Waits and writes of streams.

use super::Flag;
use super::compare::{Comparison, SignalWord};
use super::flag::check;
use super::uses::UseKind;
use crate::error::call;
use crate::stream::Running;
use crate::{Context, Error, Feature, Result, Stream};

impl<W: SignalWord> Flag<W> {
    /// Makes work queued on `stream` from now on wait until the word compares with `value`. The device reads the word
    /// when the stream gets there, and then polls it. It may miss a word that changes back.
    ///
    /// The wait takes none of the device's processors. It stops the stream until somebody writes the word. That write
    /// must not be queued behind the wait, and must not depend on a thread that waits for the stream. Streams may share
    /// a hardware queue (CUDA_DEVICE_MAX_CONNECTIONS), so if more streams wait than there are queues, they may block
    /// each other.
    ///
    /// The end of the flag releases the stream, which then gets an error ([ends](super#ends)).
    ///
    /// # Errors
    ///
    /// No word can satisfy the comparison, the stream is of another context, or it captures a graph, which could use
    /// the word after its end: [`Error::InvalidArgument`]. The driver or the device has no such waits, not for 64 bits,
    /// or not for [`Comparison::NotAllBits`]: [`Error::Unsupported`].
    #[doc(alias("cuStreamWaitValue32", "cuStreamWaitValue64"))]
    pub fn wait_on(&self, stream: &Stream, comparison: Comparison, value: W) -> Result<()> {
        const CALL: &str = "Flag::wait_on";
        check(CALL, comparison, value)?;
        let _running = self.prepare(CALL, stream)?;
        if comparison == Comparison::NotAllBits {
            stream.context().device().require(Feature::StreamWaitNotAllBits)?;
        }
        let state = self.state();
        // From here until the wait is logged, no call that waits for the whole device runs.
        let _pending = stream.context().begin_cpu_wait(stream.raw());
        state.wait_on(stream, comparison, value, || {
            let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
            let (raw, address, flags) = (stream.raw(), self.device_pointer(), comparison.flag().0);
            // SAFETY: the wait is logged in the flag's state, which keeps the word until the wait is over.
            unsafe {
                match size_of::<W>() {
                    4 => call!(cuda.cuStreamWaitValue32_v2(raw, address, value.into() as u32, flags)),
                    _ => call!(cuda.cuStreamWaitValue64_v2(raw, address, value.into(), flags)),
                }
            }
        })
    }

    /// Writes the word when all earlier work of `stream` is done. A reader of the value sees that work.
    ///
    /// # Errors
    ///
    /// The stream is of another context, or captures a graph: [`Error::InvalidArgument`]. The driver or the device has
    /// no such writes, or not of 64 bits: [`Error::Unsupported`].
    #[doc(alias("cuStreamWriteValue32", "cuStreamWriteValue64"))]
    pub fn store_on(&self, stream: &Stream, value: W) -> Result<()> {
        let _running = self.prepare("Flag::store_on", stream)?;
        {
            let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
            let (raw, address) = (stream.raw(), self.device_pointer());
            // SAFETY: the flag keeps the word, and the write is logged in its state below.
            unsafe {
                match size_of::<W>() {
                    4 => call!(cuda.cuStreamWriteValue32_v2(raw, address, value.into() as u32, 0)),
                    _ => call!(cuda.cuStreamWriteValue64_v2(raw, address, value.into(), 0)),
                }
            }?;
        }
        self.state().note(stream, UseKind::Write { value: value.into() });
        Ok(())
    }

    /// Checks that waits and writes have in common.
    fn prepare<'stream>(&self, call: &'static str, stream: &'stream Stream) -> Result<Running<'stream>> {
        let running = running(call, self.signals().context(), stream)?;
        self.state().check_open(call)?;
        stream.check_released()?;
        let feature = match size_of::<W>() {
            4 => Feature::StreamMemoryOperations,
            _ => Feature::StreamMemoryOperations64,
        };
        stream.context().device().require(feature)?;
        Ok(running)
    }
}

/// Submits to a stream of the memory's context that does not capture: a graph could use the signal after its end.
pub(super) fn running<'stream>(
    call: &'static str,
    context: &Context,
    stream: &'stream Stream,
) -> Result<Running<'stream>> {
    if stream.context() != context {
        let rule = "it must be of the same context as the signal: make the stream and the signals in one context";
        return Err(Error::invalid(call, "stream", "another context's", rule));
    }
    stream.running(call)
}
