//! Pinned and registered memory, and host buffers.

use super::{alone, check, check_drop_orders, supported};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{BorrowedHostMemory, PinnedMemory, PinnedOptions, RegisterOptions, RegisteredMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Error, HostBuffer, Stream};
use std::ptr::NonNull;

#[test]
fn pinned_memory_is_the_cpus_and_the_devices() {
    alone(|setup, stream| {
        check(setup, stream, &PinnedMemory::new(&setup.context))?;
        check_drop_orders(PinnedMemory::new(&setup.context), stream)?;
        let mut options = PinnedOptions::default();
        (options.portable, options.mapped, options.write_combined) = (false, false, true);
        check(setup, stream, &PinnedMemory::with_options(&setup.context, options))
    });
}

#[test]
fn another_device_fills_pinned_memory() {
    alone(|setup, stream| {
        let Some(device) = setup.driver.devices()?.into_iter().nth(1) else {
            println!("skipped: this machine has one device; run it on one with two");
            return Ok(());
        };
        let context = device.primary_context()?;
        let there = Stream::new(&context)?;
        let memory = PinnedMemory::new(&setup.context);
        let pool = Pool::new(&memory, &PoolOptions::default())?;
        let mut pooled = Buffer::filled(&pool, 1000, 1u8, stream)?;
        let mut plain = Buffer::filled(&memory, 1000, 1u8, stream)?;
        pooled.set_stream(&there)?;
        plain.set_stream(&there)?;
        pooled.fill(500.., 2)?;
        plain.fill(500.., 2)?;
        assert_eq!(pooled.to_vec()?, plain.to_vec()?);
        assert_eq!((pooled.read(..)?[499], pooled.read(..)?[500]), (1, 2));
        Ok(())
    });
}

#[test]
fn registered_memory_is_the_programs_own() {
    alone(|setup, stream| {
        let options = RegisterOptions::default();
        let owned = vec![1u16; 5000];
        let address = owned.as_ptr();
        let registered = RegisteredMemory::new(&setup.context, owned, options)?;
        let mut buffer = registered.buffer(stream)?;
        assert_eq!(buffer.host_pointer().cast_const(), address);
        buffer.fill(2500.., 9)?;
        buffer.write(..10)?.fill(5);

        // The memory can be allocated once at a time, and not while it is in use.
        assert!(matches!(registered.buffer(stream), Err(Error::OutOfMemory { .. })));
        assert!(matches!(buffer.try_clone(), Err(Error::OutOfMemory { .. })));
        let registered = registered.into_owner().unwrap_err().value;
        buffer.close()?;
        let again = registered.buffer(stream)?;
        assert_eq!(again.to_vec()?[4999], 9);
        drop(again);
        let owned = registered.into_owner()?;
        assert_eq!((owned.as_ptr(), owned[0], owned[10], owned[2500]), (address, 5, 1, 9));

        // The buffer keeps its dropped resource alive.
        let boxed = RegisteredMemory::new(&setup.context, vec![7u64; 100].into_boxed_slice(), options)?;
        let buffer = boxed.buffer(stream)?;
        drop(boxed);
        assert_eq!(buffer.to_vec()?, [7; 100]);
        drop(buffer);

        let nothing = RegisteredMemory::new(&setup.context, Vec::<u8>::new(), options)?;
        assert!(nothing.buffer(stream)?.is_empty());
        assert!(nothing.into_owner()?.is_empty());
        Ok(())
    });
}

#[test]
fn refused_registration_returns_the_memory_and_the_driver_error() {
    alone(|setup, stream| {
        let mut memory = vec![3u8; 20_000];
        let start = NonNull::new(memory.as_mut_ptr().wrapping_add(1)).unwrap();
        // SAFETY: the vector outlives the registrations, and nothing else uses it.
        let borrow = || unsafe { BorrowedHostMemory::new(start, 9_999) };
        // The address is odd, which the driver allows.
        let registered = RegisteredMemory::new(&setup.context, borrow(), RegisterOptions::default())?;
        let refused = RegisteredMemory::new(&setup.context, borrow(), RegisterOptions::default()).unwrap_err();
        assert_eq!(refused.error.driver_code(), Some(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        let mut buffer = registered.buffer(stream)?;
        buffer.fill(.., 4)?;
        buffer.close()?;
        registered.into_owner()?;

        let mut options = RegisterOptions::default();
        options.read_only = true;
        if let Some(registered) =
            supported(RegisteredMemory::new(&setup.context, refused.value, options).map_err(Error::from))
        {
            assert_eq!(registered.buffer(stream)?.to_vec()?, [4; 9_999]);
        }
        // SAFETY: there is no memory at this address. The driver checks that before it locks pages, and refuses.
        let nowhere = unsafe { BorrowedHostMemory::<u8>::new(NonNull::new(4096 as *mut u8).unwrap(), 4096) };
        let refused = RegisteredMemory::new(&setup.context, nowhere, RegisterOptions::default()).unwrap_err();
        assert_eq!(refused.error.driver_code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!((memory[0], memory[1], memory[9_999], memory[10_000]), (3, 4, 4, 3));
        Ok(())
    });
}

#[test]
fn host_buffers_are_slices() {
    alone(|setup, stream| {
        let memory = PinnedMemory::new(&setup.context);
        for length in [0usize, 1, 1000] {
            let bytes: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let mut buffer = HostBuffer::from_slice(&memory, &bytes)?;
            assert_eq!((buffer.len(), buffer.size()), (length, length));
            assert_eq!(buffer.device_pointer() != 0, length != 0);
            assert_eq!(*buffer, *bytes);
            assert_eq!(buffer[length / 4..length / 2], bytes[length / 4..length / 2]);
            let clone = buffer.try_clone()?;
            buffer.fill(255);
            assert_eq!(*clone, *bytes);
            let (address, moved) = (buffer.as_ptr(), Box::new(buffer));
            assert_eq!(moved.as_ptr(), address);
            assert!(moved.iter().all(|byte| *byte == 255));
            moved.close()?;
            assert!(HostBuffer::<u32>::zeroed(&memory, length)?.iter().all(|word| *word == 0));
            let mut fresh = HostBuffer::<u64>::uninit(&memory, length)?;
            fresh.iter_mut().for_each(|element| {
                element.write(6);
            });
            // SAFETY: each element was written.
            assert!(unsafe { fresh.assume_init() }.iter().all(|word| *word == 6));
        }
        // From a buffer and back, with the values.
        let buffer = Buffer::filled(&Pool::new(&memory, &PoolOptions::default())?, 10, 1u32, stream)?;
        let mut host = HostBuffer::from_buffer(buffer)?;
        host[3] = 2;
        let buffer = host.into_buffer(stream)?;
        assert_eq!(buffer.to_vec()?, [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]);
        let error = HostBuffer::<u8>::uninit(&memory, usize::MAX).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "length", .. }), "{error}");
        Ok(())
    });
}
