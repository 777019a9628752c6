//! Streams that wait for words and write them.

use super::Flag;
use super::compare::{Comparison, SignalWord};
use super::flag::check;
use super::uses::What;
use crate::error::call;
use crate::submission::Submission;
use crate::{Context, Error, Feature, Result, Stream};

impl<W: SignalWord> Flag<W> {
    /// Lets work given to `stream` from now on wait until the word compares with `value`. The word is looked at when the
    /// stream gets there, and again until it does; one that changes back meanwhile may be missed.
    ///
    /// The wait takes no processor of the device. It holds the stream until somebody writes: such a write must not be work
    /// that waits for the same stream, nor depend on a thread that waits for it. Streams may share a queue of the device
    /// (CUDA_DEVICE_MAX_CONNECTIONS), so that more waits than queues at a time may hold each other.
    ///
    /// A flag that ends releases the stream, which then gets an error ([ends](super#ends)).
    ///
    /// # Errors
    ///
    /// No word can ever compare so, the stream is another context's, or it captures a graph (a graph would use the word
    /// also after its end): [`Error::InvalidArgument`]. The driver or the device has no such waits, not of 64 bits, or not
    /// for [`Comparison::NotAllBits`]: [`Error::Unsupported`]. The driver refuses.
    #[doc(alias("cuStreamWaitValue32", "cuStreamWaitValue64"))]
    pub fn wait_on(&self, stream: &Stream, comparison: Comparison, value: W) -> Result<()> {
        const CALL: &str = "Flag::wait_on";
        check(CALL, comparison, value)?;
        let _submission = self.prepare(CALL, stream)?;
        if comparison == Comparison::NotAllBits {
            stream.context().device().require(Feature::StreamWaitNotAllBits)?;
        }
        let state = self.state();
        // No call that waits for the whole device is under way from here until the wait is in the register.
        let _pending = stream.context().begin_cpu_released();
        state.wait_on(stream, comparison, value, || {
            let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
            let (raw, address, flags) = (stream.raw(), self.device_pointer(), comparison.flag().0);
            // SAFETY: the word lives until the wait is over, of which the flag's state knows.
            unsafe {
                match size_of::<W>() {
                    4 => call!(cuda.cuStreamWaitValue32_v2(raw, address, value.into() as u32, flags)),
                    _ => call!(cuda.cuStreamWaitValue64_v2(raw, address, value.into(), flags)),
                }
            }
        })
    }

    /// Writes the word when all earlier work of `stream` is done, which is seen by who sees the value.
    ///
    /// # Errors
    ///
    /// The stream is another context's, or captures a graph: [`Error::InvalidArgument`]. The driver or the device has no
    /// such writes, or not of 64 bits: [`Error::Unsupported`]. The driver refuses.
    #[doc(alias("cuStreamWriteValue32", "cuStreamWriteValue64"))]
    pub fn store_on(&self, stream: &Stream, value: W) -> Result<()> {
        let _submission = self.prepare("Flag::store_on", stream)?;
        {
            let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
            let (raw, address) = (stream.raw(), self.device_pointer());
            // SAFETY: the word lives while the flag does, whose state is told below.
            unsafe {
                match size_of::<W>() {
                    4 => call!(cuda.cuStreamWriteValue32_v2(raw, address, value.into() as u32, 0)),
                    _ => call!(cuda.cuStreamWriteValue64_v2(raw, address, value.into(), 0)),
                }
            }?;
        }
        self.state().note(stream, What::Write { value: value.into() });
        Ok(())
    }

    /// What a wait and a write need alike.
    fn prepare<'stream>(&self, call: &'static str, stream: &'stream Stream) -> Result<Submission<'stream>> {
        let submission = submission(call, self.signals().context(), stream)?;
        self.state().check_open(call)?;
        stream.check_released()?;
        let feature = match size_of::<W>() {
            4 => Feature::StreamMemoryOperations,
            _ => Feature::StreamMemoryOperations64,
        };
        stream.context().device().require(feature)?;
        Ok(submission)
    }
}

/// A stream has to be of the memory's context, and must not capture: the graph would use the signal whenever it is launched,
/// also after its end.
pub(super) fn submission<'stream>(
    call: &'static str,
    context: &Context,
    stream: &'stream Stream,
) -> Result<Submission<'stream>> {
    if stream.context() != context {
        let (argument, value) = ("stream", "another context's".into());
        let rule = "it must be of the context that the signal's memory belongs to";
        return Err(Error::InvalidArgument { call, argument, value, rule });
    }
    stream.submission(call)
}
