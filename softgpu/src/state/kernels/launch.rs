//! Launches: the code, the shape, the arguments.

use super::code::{self, Code, Wrong};
use crate::call::{Result, tell};
use crate::misuse::{Misuse, report};
use crate::state::Global;
use crate::state::checks::races::{self, Noted};
use crate::state::contexts::Context;
use crate::state::graphs::{Params, Work, capture};
use crate::state::memory::{Range, Use};
use crate::state::modules::{Arguments, Function, Shape};
use crate::state::streams::Stream;
use cuda_sys::CUresult;
use std::fmt;
use std::sync::Arc;

/// A launch of a kernel.
pub(crate) struct Launch {
    code: Arc<dyn Code>,
    pub(super) shape: Shape,
    pub(super) arguments: Arc<Arguments>,
    /// The arguments as words.
    pub(super) values: Vec<u64>,
    pub(super) context: Arc<Context>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("name", &self.code.name()).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Launch {
    /// A launch of a function. Fails if its shape is wrong, and if there is no code for it.
    pub(crate) fn new(global: &Global, function: &Function, shape: Shape, arguments: Arc<Arguments>) -> Result<Self> {
        let signature = function.signature();
        shape.check(signature, &function.attributes)?;
        let code = code::find(global, &signature.name).ok_or_else(|| {
            tell(&format!(
                "softgpu: there is no code for the kernel `{}`: register a function of that name, in Rust by \
                 softgpu::register_kernel, in C in a library that SOFTGPU_KERNELS names",
                signature.name
            ));
            CUresult::CUDA_ERROR_NOT_SUPPORTED
        })?;
        function.load();
        let values = arguments.words();
        Ok(Self { code, shape, arguments, values, context: function.context.clone() })
    }

    /// Queues the kernel, or records it with its parameters if the stream captures.
    pub(crate) fn begin(self, stream: &Stream, params: impl FnOnce() -> Params) -> Result {
        if capture::enter(stream)? {
            stream.note_recorded(self.code.name(), || self.code.touched(&self).unwrap_or_default());
            return capture::add(stream, params(), self.recorded());
        }
        let held = self.code.hold(&self);
        let mut noted = self.note(stream);
        let run = move || {
            noted.begin();
            self.run(&held);
            drop(noted);
        };
        stream.push(Vec::new(), run).map(drop)
    }

    /// The kernel as a node of a graph.
    pub(crate) fn recorded(self) -> Work {
        let launch = Arc::new(self);
        Work::Again(Box::new(move |stream| {
            let (launch, held, mut noted) = (launch.clone(), launch.code.hold(&launch), launch.note(stream));
            Ok(Box::new(move || {
                noted.begin();
                launch.run(&held);
                drop(noted);
            }))
        }))
    }

    /// Records the bytes that the kernel touches as the stream's next work.
    fn note(&self, stream: &Stream) -> Noted {
        if !races::is_on() {
            return Noted::default();
        }
        match self.code.touched(self) {
            Some(touched) => stream.touch(self.code.name(), || touched),
            None => {
                stream.blur();
                Noted::default()
            }
        }
    }

    /// Runs the kernel to its end. A wrong address becomes the context's lasting error, as on a device.
    fn run(&self, held: &[Range]) {
        if self.context.failure().is_some() {
            return;
        }
        if let Err((address, code)) = self.code.run(self, held) {
            if code != CUresult::CUDA_ERROR_LAUNCH_FAILED {
                report(Misuse::WrongAddress, self.code.name(), address, None);
            }
            self.context.fail(code);
        }
    }

    pub(super) fn value(&self, n: usize) -> u64 {
        self.values.get(n).copied().unwrap_or(0)
    }

    /// Memory that the kernel touches: `count` elements of `size` bytes.
    pub(super) fn memory(
        &self,
        address: u64,
        count: u64,
        size: usize,
        purpose: Use,
    ) -> core::result::Result<Range, Wrong> {
        let illegal = (address, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        if !address.is_multiple_of(size as u64) {
            return Err((address, CUresult::CUDA_ERROR_MISALIGNED_ADDRESS));
        }
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or(illegal)?;
        let global = Global::get().map_err(|code| (address, code))?;
        let range = global.memory.range(address, length, self.context.device, purpose).map_err(|_| illegal)?;
        let reached = range.block.as_deref().is_none_or(|block| block.is_reached_by(&self.context));
        if reached && range.is_present() { Ok(range) } else { Err(illegal) }
    }

    /// The memory to which words of the arguments point, as far as the words are addresses.
    pub(super) fn pointed_to(&self) -> Vec<Range> {
        let Ok(global) = Global::get() else { return Vec::new() };
        let mut blocks: Vec<_> = self.values.iter().filter_map(|word| global.memory.known_at(*word)).collect();
        blocks.sort_unstable_by_key(|block| block.base);
        blocks.dedup_by_key(|block| block.base);
        blocks.iter().map(Range::of_block).collect()
    }
}
