//! Comparison of buffers.

use crate::buffer::{Access, Buffer, route};
use crate::driver::kernels::Kernel;
use crate::memory::DevicePool;
use crate::memory::resource::Kind;
use crate::{Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;

/// Bytes copied to the host at a time.
const PIECE: usize = 1 << 20;

/// Threads per block.
const THREADS: u32 = 256;
/// Enough blocks to fill any device; each thread compares several elements.
const MOST_BLOCKS: u64 = 2048;

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Whether two buffers hold the same bytes, after all work queued on both home streams so far. If both lie on the
    /// device of this buffer's stream, or in host memory that it addresses, the device compares them. Otherwise the CPU
    /// compares copies, one piece at a time.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let one = Buffer::from_slice(&memory, &[1u8, 2, 3], &stream)?;
    /// let mut other = one.try_clone()?;
    /// assert!(one.equals(&other)?);
    /// other.fill(1.., 0)?;
    /// assert!(!one.equals(&other)?);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn equals<L: Kind, B: Access>(&self, other: &Buffer<T, L, B>) -> Result<bool>
    where
        T: NoUninit + AnyBitPattern,
    {
        if self.size() != other.size() {
            return Ok(false);
        }
        if self.first_byte() == other.first_byte() || self.is_empty() {
            return Ok(true);
        }
        if self.one_device_addresses(other)
            && let Some(equal) = self.compare_on_device(other)?
        {
            return Ok(equal);
        }
        self.compare_on_host(other)
    }

    /// Whether the device of this buffer's stream can address both buffers.
    fn one_device_addresses<L: Kind, B: Access>(&self, other: &Buffer<T, L, B>) -> bool {
        let here = self.stream().context().device().ordinal();
        let local = |device: Option<i32>| device.is_none_or(|ordinal| ordinal == here);
        self.accessibility().device
            && other.accessibility().device
            && local(self.device_ordinal())
            && local(other.device_ordinal())
    }

    /// Compares with a kernel. `None` if the device does not access both buffers, or if the driver loads no kernels, or has no pools for the result word.
    fn compare_on_device<L: Kind, B: Access>(&self, other: &Buffer<T, L, B>) -> Result<Option<bool>> {
        let context = self.stream().context();
        let route = route(context, Some(self), Some(other));
        if !route.ensure_access(context) {
            return Ok(None);
        }
        let Ok(differ) = context.differ_kernel() else { return Ok(None) };
        let Ok(pool) = DevicePool::current(context) else { return Ok(None) };
        // Dropped after the submission: a free may run code of the program.
        let flag: Buffer<u32, _> = Buffer::zeroed(&pool, 1, self.stream())?;
        // One submission, so that no capture begins between the kernel and the read.
        let _submission = self.stream().running("Buffer::equals")?;
        let (left, right) = (self.first_byte(), other.first_byte());
        let mut are_reached = true;
        let all = other.bytes_of_allocation(0..other.len());
        self.ordered_after(other, (0..0, all), |home| {
            let held = route.hold(context);
            are_reached = held.is_reached;
            if !are_reached {
                return Ok(());
            }
            // SAFETY: both ranges are borrowed, and the flag is freed after the kernel in stream order. The device
            // addresses all of them.
            unsafe { launch(differ, left, right, self.size() as u64, flag.device_pointer(), home) }
        })?;
        if !are_reached {
            // Another thread has denied access meanwhile.
            return Ok(None);
        }
        let mut differs = [0];
        flag.copy_to_slice(0, &mut differs)?;
        Ok(Some(differs == [0]))
    }

    fn compare_on_host<L: Kind, B: Access>(&self, other: &Buffer<T, L, B>) -> Result<bool>
    where
        T: NoUninit + AnyBitPattern,
    {
        let step = (PIECE / size_of::<T>()).max(1);
        let mut pieces = [vec![], vec![]];
        for start in (0..self.len()).step_by(step) {
            let length = step.min(self.len() - start);
            pieces.iter_mut().for_each(|piece| piece.resize_with(length, T::zeroed));
            self.copy_to_slice(start, &mut pieces[0])?;
            other.copy_to_slice(start, &mut pieces[1])?;
            if bytemuck::cast_slice::<T, u8>(&pieces[0]) != bytemuck::cast_slice::<T, u8>(&pieces[1]) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Queues a kernel that sets the word at `flag` to 1 if two ranges of `length` bytes differ.
///
/// # Safety
///
/// The kernel is from the context of `stream`, whose device may read both ranges and write the word until it is done.
unsafe fn launch(
    differ: Kernel,
    mut left: CUdeviceptr,
    mut right: CUdeviceptr,
    mut length: u64,
    mut flag: CUdeviceptr,
    stream: &Stream,
) -> Result<()> {
    let aligned = (left | right).is_multiple_of(8);
    let mut words = if aligned { length / 8 } else { 0 };
    let threads = if aligned { length.div_ceil(8) } else { length };
    let blocks = threads.div_ceil(THREADS.into()).clamp(1, MOST_BLOCKS) as u32;
    let mut arguments =
        [&raw mut left, &raw mut right, &raw mut words, &raw mut length, &raw mut flag].map(|value| value.cast());
    let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
    // SAFETY: the kernel takes five arguments of 8 bytes each; the caller guarantees the rest.
    unsafe { differ.launch(cuda, blocks, THREADS, &mut arguments, stream.raw()) }
}
