//! Buffers of virtual memory that grow and shrink. Runs on any driver.

use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{
    DevicePool, DriverPoolOptions, Growth, PhysicalMemory, PhysicalOptions, VirtualMemory, VirtualOptions,
};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::Fault;
use std::error::Error as StdError;
use testkit::suite::Outcome;
use testkit::{Setup, alone, delay, pattern, same};

fn memory(setup: &Setup) -> Result<VirtualMemory, Error> {
    VirtualMemory::new(&setup.context, &VirtualOptions::default())
}

fn invalid(error: &Error, wanted: &str) -> bool {
    matches!(error, Error::InvalidArgument { argument, .. } if *argument == wanted)
}

#[test]
fn growth_in_place_keeps_address_and_values() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 8 * unit, &stream)?;
        let address = buffer.device_pointer();
        assert_eq!(buffer.capacity(), 8 * unit);
        let mut model = Vec::new();
        for (step, size) in [100, unit, unit + 1, 3 * unit - 5, 8 * unit].into_iter().enumerate() {
            assert_eq!(buffer.grow_to(size)?, Growth::InPlace);
            let start = model.len();
            model.resize(size, 0);
            same("the new elements are zeros", &buffer.to_vec()?, &model)?;
            let bytes = pattern(size - start, step as u8);
            buffer.copy_from_slice(start, &bytes)?;
            model[start..].copy_from_slice(&bytes);
            assert_eq!((buffer.device_pointer(), buffer.len()), (address, size));
            assert_eq!(buffer.physical_size(), size.next_multiple_of(unit));
        }
        // The buffer is one range, whatever its chunks are, so work may cross chunk boundaries.
        assert_eq!(memory.physical_memory(&buffer).len(), 4);
        buffer.fill(unit - 3..3 * unit + 3, 0xa5)?;
        model[unit - 3..3 * unit + 3].fill(0xa5);
        buffer.copy_within(0..2 * unit, 5 * unit)?;
        model.copy_within(0..2 * unit, 5 * unit);
        same("across the borders", &buffer.to_vec()?, &model)?;
        // Growing to less than the current size changes nothing.
        assert_eq!(buffer.grow_to(5)?, Growth::InPlace);
        assert_eq!(buffer.len(), 8 * unit);
        Ok(())
    })
}

/// An element with an alignment that no chunk of memory has by chance.
#[derive(Clone, Copy)]
#[repr(C, align(8388608))]
struct Large([u8; 8 << 20]);
// SAFETY: the struct consists of bytes without padding.
unsafe impl bytemuck::Zeroable for Large {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Large {}

#[test]
fn elements_stay_aligned_where_the_memory_moves() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let memory = VirtualMemory::host(&setup.context, &VirtualOptions::default())?;
        // Reserve other addresses in between, so that no growth finds room directly behind the buffer.
        let mut others = Vec::new();
        let mut buffer = GrowableBuffer::<Large, _>::with_capacity(&memory, 1, &stream)?;
        for length in 1..=4 {
            let _ = buffer.grow_to(length)?;
            others.push(GrowableBuffer::<u8, _>::with_capacity(&memory, memory.granularity(), &stream)?);
            assert!(buffer.host_pointer().is_aligned(), "{:p}", buffer.host_pointer());
            assert!(buffer.read(..)?.iter().all(|element| element.0[7] == 0));
        }
        Ok(())
    })
}

#[test]
fn a_growth_that_is_undone_waits_for_what_it_began() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: a failing fill: it needs the software GPU's faults");
            return Ok(());
        }
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        for capacity in [4, 1] {
            let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, capacity * unit, &stream)?;
            let _ = buffer.grow_to(10)?;
            delay(&stream)?;
            // The second zeroing fails, after the rest of the first chunk was zeroed.
            softgpu::faults([Fault::call("cuMemsetD8Async", 2, CUresult::CUDA_ERROR_UNKNOWN)]);
            let grown = buffer.grow_to(2 * unit);
            softgpu::faults([]);
            assert!(grown.is_err() && stream.is_done()?, "the growth was undone under work on its memory");
            assert_eq!(buffer.to_vec()?, [0; 10]);
        }
        Ok(())
    })
}

#[test]
fn growth_beyond_the_capacity_moves_the_same_memory() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 2 * unit, &stream)?;
        assert_eq!(buffer.grow_to(unit)?, Growth::InPlace);
        assert_eq!(buffer.grow_to(2 * unit)?, Growth::InPlace);
        let mut model = pattern(2 * unit, 1);
        buffer.copy_from_slice(0, &model)?;
        let (address, before) = (buffer.device_pointer(), memory.physical_memory(&buffer));

        delay(&stream)?;
        buffer.fill(..10, 0xee)?;
        model[..10].fill(0xee);
        assert_eq!(buffer.grow_to(2 * unit + 1)?, Growth::Moved);
        model.push(0);
        assert_ne!(buffer.device_pointer(), address);
        assert_eq!(buffer.capacity(), 4 * unit, "twice the addresses, so that few growths move");
        // The data is not copied: the physical memory is the same, with one more chunk.
        assert_eq!(memory.physical_memory(&buffer)[..2], before);
        assert_eq!(memory.physical_memory(&buffer).len(), 3);
        same("after the move", &buffer.to_vec()?, &model)?;
        // Nothing is mapped at the old addresses.
        let stale = PhysicalOfAddress(setup, address).is_mapped()?;
        assert!(!stale, "the old addresses are still mapped");

        assert_eq!(buffer.grow_to(9 * unit)?, Growth::Moved);
        model.resize(9 * unit, 0);
        same("after another move", &buffer.to_vec()?, &model)?;
        let plain = buffer.into_buffer();
        same("as a plain buffer", &plain.to_vec()?, &model)?;
        plain.close()?;
        Ok(())
    })
}

/// Tells what is mapped at an address.
struct PhysicalOfAddress<'setup>(&'setup Setup, u64);

impl PhysicalOfAddress<'_> {
    fn is_mapped(&self) -> Result<bool, Box<dyn StdError>> {
        let (cuda, mut handle) = (self.0.driver.raw(), 0);
        let address = std::ptr::with_exposed_provenance_mut(self.1 as usize);
        // SAFETY: `handle` is writable, and the driver looks the address up.
        if unsafe { cuda.cuMemRetainAllocationHandle(&mut handle, address) }? != CUresult::CUDA_SUCCESS {
            return Ok(false);
        }
        // SAFETY: the driver has just given us the handle.
        assert_eq!(unsafe { cuda.cuMemRelease(handle) }?, CUresult::CUDA_SUCCESS);
        Ok(true)
    }
}

#[test]
fn shrinking_gives_memory_back_and_growing_again_finds_zeros() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut buffer = GrowableBuffer::<u64>::with_capacity(&memory, unit, &stream)?;
        let address = buffer.device_pointer();
        assert_eq!(buffer.grow_to(unit / 8)?, Growth::InPlace);
        let small = setup.context.memory_info()?.free;
        for length in [2 * unit / 8, unit] {
            assert_eq!(buffer.grow_to(length)?, Growth::InPlace);
        }
        assert!(setup.context.memory_info()?.free <= small - 7 * unit);
        buffer.fill(.., u64::MAX)?;
        // Within the last chunk nothing can be released.
        buffer.shrink_to(unit - 10)?;
        assert_eq!((buffer.len(), buffer.physical_size()), (unit - 10, 8 * unit));
        buffer.shrink_to(unit / 8 - 10)?;
        assert_eq!((buffer.len(), buffer.physical_size()), (unit / 8 - 10, unit));
        assert_eq!(setup.context.memory_info()?.free, small);
        buffer.shrink_to(unit)?; // more than there are
        assert_eq!(buffer.len(), unit / 8 - 10);

        assert_eq!(buffer.grow_to(unit / 4)?, Growth::InPlace);
        assert_eq!(buffer.device_pointer(), address);
        let mut model = vec![u64::MAX; unit / 8 - 10];
        model.resize(unit / 4, 0);
        assert!(buffer.to_vec()? == model, "truncated values came back");
        let before = setup.context.memory_info()?.free;
        buffer.shrink_to(0)?;
        assert_eq!((buffer.capacity(), buffer.physical_size()), (unit, 0));
        assert_eq!(setup.context.memory_info()?.free, before + 2 * unit);
        Ok(())
    })
}

#[test]
fn what_ends_or_moves_memory_waits_for_its_work() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let busy = |buffer: &mut GrowableBuffer<u8>| {
            delay(&stream)?;
            buffer.fill(.., 1)?;
            assert!(!stream.is_done()?);
            Ok::<_, Error>(())
        };
        let make = || {
            let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 2 * unit, &stream)?;
            let _ = buffer.grow_to(unit)?;
            let _ = buffer.grow_to(2 * unit)?;
            Ok::<_, Error>(buffer)
        };
        let mut dropped = make()?;
        busy(&mut dropped)?;
        drop(dropped);
        assert!(stream.is_done()?);

        let mut closed = make()?;
        busy(&mut closed)?;
        closed.into_buffer().close()?;
        assert!(stream.is_done()?);

        let mut shrunk = make()?;
        busy(&mut shrunk)?;
        shrunk.shrink_to(unit)?;
        assert!(stream.is_done()?);
        busy(&mut shrunk)?;
        let _ = shrunk.grow_to(3 * unit)?;
        assert_eq!(shrunk.to_vec()?[unit - 1..=unit], [1, 0]);

        // Work on another stream that the buffer was told about.
        let (other, told) = (Stream::new(&setup.context)?, make()?);
        other.join(&stream)?;
        delay(&other)?;
        {
            let (cuda, _current) = (setup.driver.raw(), setup.context.bind()?);
            // SAFETY: the range lies within the buffer, which is told about the work.
            let code = unsafe { cuda.cuMemsetD8Async(told.device_pointer(), 2, 2 * unit, other.raw()) }?;
            assert_eq!(code, CUresult::CUDA_SUCCESS);
        }
        told.record_use(&other)?;
        drop(told);
        assert!(other.is_done()?);
        Ok(())
    })
}

#[test]
fn only_memory_of_its_resource_grows() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let make = |length, value: u8| {
            let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 1, &stream)?;
            let _ = buffer.grow_to(length)?;
            buffer.fill(.., value)?;
            Ok::<_, Error>(buffer)
        };
        let (mut one, mut two) = (make(10, 1)?, make(20, 2)?);
        // Each buffer keeps its memory, wherever the value is moved.
        std::mem::swap(&mut *one, &mut *two);
        let _ = one.grow_to(one.capacity() + 1)?;
        assert_eq!((one.to_vec()?[..21].to_vec(), two.to_vec()?), ([vec![2; 20], vec![0]].concat(), vec![1; 10]));
        let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
        for foreign in [
            Buffer::filled(&pool, 5, 3, &stream)?,
            Buffer::filled(&memory, 9, 3, &stream)?.split_at(5)?.0,
            Buffer::filled(&VirtualMemory::new(&setup.context, &VirtualOptions::default())?, 5, 3, &stream)?,
        ] {
            let own = std::mem::replace(&mut *two, foreign);
            let error = two.grow_to(100).unwrap_err();
            assert!(invalid(&error, "the buffer"), "{error}");
            let error = two.shrink_to(1).unwrap_err();
            assert!(invalid(&error, "the buffer"), "{error}");
            assert_eq!(two.to_vec()?, [3; 5]);
            *two = own;
        }
        assert_eq!(two.grow_to(11)?, Growth::InPlace);
        // A copy has its own memory.
        let copy = two.try_clone()?;
        two.fill(.., 9)?;
        assert_eq!(copy.to_vec()?, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        Ok(())
    })
}

#[test]
fn impossible_sizes_are_refused_and_change_nothing() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let mut buffer = GrowableBuffer::<u64>::with_capacity(&memory, 10, &stream)?;
        let _ = buffer.grow_to(4)?;
        buffer.copy_from_slice(0, &[1, 2, 3, 4])?;
        let address = buffer.device_pointer();
        for length in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize / 8 + 1] {
            let error = buffer.grow_to(length).unwrap_err();
            assert!(invalid(&error, "length"), "{error}");
            let error = GrowableBuffer::<u64>::with_capacity(&memory, length, &stream).unwrap_err();
            assert!(invalid(&error, "capacity"), "{error}");
        }
        for error in [
            buffer.grow_to(1 << 43).unwrap_err(),
            Buffer::<u8, _>::zeroed(&memory, 1 << 46, &stream).unwrap_err(),
            PhysicalMemory::new(&setup.context, 1 << 46, &PhysicalOptions::default()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested > 1 << 45), "{error:?}");
        }
        assert_eq!((buffer.len(), buffer.device_pointer()), (4, address));
        assert_eq!(buffer.to_vec()?, [1, 2, 3, 4]);
        Ok(())
    })
}
