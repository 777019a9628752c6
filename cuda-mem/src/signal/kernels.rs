//! Kernels that answer signals: `driver/kernels/signal.cu`, compiled with the header that programs use.

use super::streams::running;
use super::{Comparison, Consumer, Flag, Producer, RingDescriptor};
use crate::driver::kernels::Kernel;
use crate::{Context, Result, Stream};
use core::ffi::c_void;
use core::ptr;
use core::time::Duration;

/// Single-thread kernels that answer the CPU: to try and measure signals, and as models for other kernels. Their source
/// is `cuda-mem/src/driver/kernels/signal.cu`. They need a device of compute capability 7.0 or later.
///
/// Each gives up after waiting for `patience` (zero: never), and closes its rings when it ends. The flags and rings
/// record its launch, so their memory stays until it has ended.
///
/// ```
/// use cuda_mem::signal::{SignalKernels, Signals, WaitPolicy};
/// use std::time::Duration;
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// let signals = Signals::new(&context)?;
/// let mut to = signals.ring_to_device::<u64>(16)?;
/// let mut from = signals.ring_from_device::<u64>(16)?;
/// SignalKernels::of(&context)?.echo_ring(&to, &from, Duration::from_secs(10), &stream)?;
/// to.push_slice(&[7, 8])?;
/// let mut items = [0; 2];
/// while from.available()? < 2 {}
/// assert_eq!((from.pop_slice(&mut items)?, items), (2, [7, 8]));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SignalKernels {
    context: Context,
}

impl SignalKernels {
    /// The kernels of a context, which the driver compiles at the first use.
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 10.0, or the device has less than compute capability 7.0.
    pub fn of(context: &Context) -> Result<Self> {
        context.signal_kernels()?;
        Ok(Self { context: context.clone() })
    }

    /// Sets `answer` to 1, 2 and so on up to `rounds`, each when `question` is at least that number. An answer orders
    /// no other writes (`cudamem::post`), which is fastest.
    ///
    /// # Errors
    ///
    /// The stream or a flag is of another context; the stream captures.
    pub fn echo_flag(
        &self,
        question: &Flag<u32>,
        answer: &Flag<u32>,
        rounds: u64,
        patience: Duration,
        stream: &Stream,
    ) -> Result<()> {
        self.echo(question, answer, rounds, patience, false, stream)
    }

    /// Answers a flag as [`echo_flag`](Self::echo_flag) does, but each answer comes after all earlier writes of the
    /// kernel (`cudamem::set`), as an answer about data must.
    ///
    /// # Errors
    ///
    /// As [`echo_flag`](Self::echo_flag).
    pub fn echo_flag_in_order(
        &self,
        question: &Flag<u32>,
        answer: &Flag<u32>,
        rounds: u64,
        patience: Duration,
        stream: &Stream,
    ) -> Result<()> {
        self.echo(question, answer, rounds, patience, true, stream)
    }

    fn echo(
        &self,
        question: &Flag<u32>,
        answer: &Flag<u32>,
        mut rounds: u64,
        patience: Duration,
        ordered: bool,
        stream: &Stream,
    ) -> Result<()> {
        const CALL: &str = "SignalKernels::echo_flag";
        let _running = running(CALL, question.signals().context(), stream)?;
        drop(running(CALL, answer.signals().context(), stream)?);
        let (mut question_at, mut answer_at) = (question.device_pointer(), answer.device_pointer());
        let (mut patience, mut ordered) = (nanoseconds(patience), u64::from(ordered));
        let mut arguments = [&mut question_at, &mut answer_at, &mut rounds, &mut patience, &mut ordered].map(argument);
        // SAFETY: these five are the kernel's parameters. The flags' memory stays until the recorded kernel has ended.
        let launch = || unsafe { self.launch(self.context.signal_kernels()?.echo_flag, &mut arguments, stream) };
        // Recorded as a wait for the last round: the kernel waits for nothing more.
        question.state().wait_on(stream, Comparison::AtLeast, rounds as u32, launch)?;
        answer.record_use(stream);
        Ok(())
    }

    /// Sends every item of one ring back through the other, until the first is closed.
    ///
    /// # Errors
    ///
    /// As [`echo_flag`](Self::echo_flag).
    pub fn echo_ring(
        &self,
        requests: &Producer<u64>,
        answers: &Consumer<u64>,
        patience: Duration,
        stream: &Stream,
    ) -> Result<()> {
        const CALL: &str = "SignalKernels::echo_ring";
        let _running = running(CALL, requests.signals().context(), stream)?;
        drop(running(CALL, answers.signals().context(), stream)?);
        let (mut input, mut output) = (requests.descriptor(), answers.descriptor());
        let mut patience = nanoseconds(patience);
        let mut arguments = [descriptor(&mut input), descriptor(&mut output), argument(&mut patience)];
        // SAFETY: these three are the kernel's parameters. The rings' memory stays until the recorded kernel has ended.
        unsafe { self.launch(self.context.signal_kernels()?.echo_ring, &mut arguments, stream) }?;
        requests.record_use(stream);
        answers.record_use(stream);
        Ok(())
    }

    /// Pushes 0, 1, and so on, `count` items.
    ///
    /// # Errors
    ///
    /// As [`echo_flag`](Self::echo_flag).
    pub fn count_ring(&self, ring: &Consumer<u64>, count: u64, patience: Duration, stream: &Stream) -> Result<()> {
        let _running = running("SignalKernels::count_ring", ring.signals().context(), stream)?;
        let (mut output, mut count, mut patience) = (ring.descriptor(), count, nanoseconds(patience));
        let mut arguments = [descriptor(&mut output), argument(&mut count), argument(&mut patience)];
        // SAFETY: these three are the kernel's parameters. The ring's memory stays until the recorded kernel has ended.
        unsafe { self.launch(self.context.signal_kernels()?.count_ring, &mut arguments, stream) }?;
        ring.record_use(stream);
        Ok(())
    }

    /// Adds up all items until the ring is closed, and sets `sum` then.
    ///
    /// # Errors
    ///
    /// As [`echo_flag`](Self::echo_flag).
    pub fn sum_ring(&self, ring: &Producer<u64>, sum: &Flag<u64>, patience: Duration, stream: &Stream) -> Result<()> {
        const CALL: &str = "SignalKernels::sum_ring";
        let _running = running(CALL, ring.signals().context(), stream)?;
        drop(running(CALL, sum.signals().context(), stream)?);
        let (mut input, mut sum_at, mut patience) = (ring.descriptor(), sum.device_pointer(), nanoseconds(patience));
        let mut arguments = [descriptor(&mut input), argument(&mut sum_at), argument(&mut patience)];
        // SAFETY: these three are the kernel's parameters. The memory stays until the recorded kernel has ended.
        unsafe { self.launch(self.context.signal_kernels()?.sum_ring, &mut arguments, stream) }?;
        ring.record_use(stream);
        sum.record_use(stream);
        Ok(())
    }

    /// Does nothing, to measure the cost of a launch.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn nothing(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the kernel has no parameters, and accesses no memory.
        unsafe { self.launch(self.context.signal_kernels()?.nothing, &mut [], stream) }
    }

    /// Launches one thread.
    ///
    /// # Safety
    ///
    /// The arguments point to values of the kernel's parameters. Everything they refer to lives until the kernel has
    /// ended.
    unsafe fn launch(&self, kernel: Kernel, arguments: &mut [*mut c_void], stream: &Stream) -> Result<()> {
        let _running = running("SignalKernels", &self.context, stream)?;
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        // SAFETY: this function's contract.
        unsafe { kernel.launch(cuda, 1, 1, arguments, stream.raw()) }
    }
}

fn argument(value: &mut u64) -> *mut c_void {
    ptr::from_mut(value).cast()
}

fn descriptor(value: &mut RingDescriptor) -> *mut c_void {
    ptr::from_mut(value).cast()
}

fn nanoseconds(patience: Duration) -> u64 {
    u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)
}
