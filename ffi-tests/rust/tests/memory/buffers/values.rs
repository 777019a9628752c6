//! The contents of buffers.

use super::outside;
use cuda_mem::memory::kind::{self, Any, Pinned};
use cuda_mem::memory::{Accessibility, DeviceMemory, ResourceHandle, SharedResource};
use cuda_mem::{Buffer, Error, Result, Stream};
use std::mem::MaybeUninit;
use testkit::{Bench, pattern, same};

#[test]
fn values_come_back_for_every_resource_and_size() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let resources: [SharedResource; 2] = [pool.share(), DeviceMemory::new(&context).share()];
    for resource in &resources {
        for length in [0, 1, 2, 255, 1000, 4097, 1 << 20] {
            let bytes = pattern(length, 7);
            let buffer = Buffer::from_slice(resource, &bytes, &stream)?;
            assert_eq!((buffer.len(), buffer.size(), buffer.is_empty()), (length, length, length == 0));
            assert_eq!(buffer.device_pointer() == 0, length == 0);
            same("the copy", &buffer.to_vec()?, &bytes).map_err(|_| ()).expect("the same bytes");
            assert_eq!(buffer.accessibility(), Accessibility::DEVICE);
            assert_eq!(buffer.device_ordinal(), Some(0));
            buffer.close()?;
        }
    }
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn elements_are_typed_and_sizes_are_in_elements() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let mut words = Buffer::<u32, _>::zeroed(&pool, 10, &stream)?;
    assert_eq!((words.len(), words.size()), (10, 40));
    words.copy_from_slice(7, &[1, 2, 3])?;
    assert_eq!(words.to_vec()?, [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    let mut three = [0u32; 3];
    words.copy_to_slice(6, &mut three)?;
    assert_eq!(three, [0, 1, 2]);
    assert!(outside(words.copy_from_slice(8, &[1, 2, 3]).unwrap_err(), (32, 12, 40)));
    assert!(outside(words.copy_to_slice(11, &mut [0; 0]).unwrap_err(), (44, 0, 40)));
    assert!(outside(words.copy_to_slice(usize::MAX, &mut [0; 2]).unwrap_err(), (usize::MAX, 8, 40)));
    words.copy_from_slice(10, &[])?; // nothing, at the end
    Ok(())
}

#[test]
fn fills_of_every_width() -> Result<()> {
    fn check<T>(bench: &Bench, value: T) -> Result<()>
    where
        T: bytemuck::Pod + PartialEq + std::fmt::Debug,
    {
        let zero = T::zeroed();
        let mut buffer = Buffer::filled(&bench.pool, 65, value, &bench.stream)?;
        assert_eq!(buffer.to_vec()?, vec![value; 65]);
        buffer.fill(3..62, zero)?;
        buffer.fill(10..=10, value)?;
        buffer.fill(65.., value)?;
        let expected: Vec<T> = (0..65).map(|n| if (3..62).contains(&n) && n != 10 { zero } else { value }).collect();
        assert_eq!(buffer.to_vec()?, expected);
        assert!(buffer.fill(60..66, value).is_err());
        Ok(())
    }
    let bench = Bench::new()?;
    check(&bench, 0x42u8)?;
    check(&bench, -2i8)?;
    check(&bench, 0x1234u16)?;
    check(&bench, 0x1234_5678u32)?;
    check(&bench, -1.5f32)?;
    check(&bench, 0x0123_4567_89ab_cdefu64)?;
    check(&bench, [1u64, 2])?; // 16 bytes: a complex number of doubles
    check(&bench, [1.0f32, 2.0, 3.0])?;
    check(&bench, [7u8; 3])?; // one byte repeated has any width
    let refused = Buffer::filled(&bench.pool, 4, [1u8, 2, 3], &bench.stream).unwrap_err();
    assert!(refused.to_string().contains("3 bytes"), "{refused}");
    Ok(())
}

#[test]
fn uninitialised_memory_is_given_values_before_it_is_read() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let buffer: Buffer<MaybeUninit<u16>, kind::Device> = Buffer::<u16, _>::uninit(&pool, 3, &stream)?;
    let error = buffer.init_from_slice(&[1, 2]).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let buffer = Buffer::<u16, _>::uninit(&pool, 3, &stream)?.init_from_slice(&[1, 2, 3])?;
    assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    Ok(())
}

#[test]
fn sizes_that_cannot_be_are_refused() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    for length in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize / 8 + 1] {
        let error = Buffer::<u64, _>::uninit(&pool, length, &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "length", .. }), "{error}");
    }
    let error = Buffer::<u8, _>::uninit(&pool, 1 << 60, &stream).unwrap_err();
    match &error {
        Error::OutOfMemory { requested, free, .. } => assert!(*requested == 1 << 60 && free.is_some(), "{error}"),
        other => panic!("{other}"),
    }
    Ok(())
}

#[test]
fn hex_and_equality() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let other_stream = Stream::new(&context)?;
    let one = Buffer::from_slice(&pool, &[0x01u8, 0xab, 0xff], &stream)?;
    assert_eq!(one.hex()?, "01abff");
    for length in [1, 7, 8, 9, 1000, 4096, 100_003, 5 << 20] {
        let bytes = pattern(length, 1);
        let left = Buffer::from_slice(&pool, &bytes, &stream)?;
        let mut right = Buffer::from_slice(&DeviceMemory::new(&context), &bytes, &other_stream)?;
        assert!(left.equals(&right)?, "{length}");
        for place in [0, length / 2, length - 1] {
            right.copy_from_slice(place, &[!bytes[place]])?;
            assert!(!left.equals(&right)?, "{length} bytes that differ at {place}");
            right.copy_from_slice(place, &bytes[place..=place])?;
        }
        assert!(left.equals(&right)?);
        let shared = left.into_shared();
        if length > 8 {
            // At an odd address, the bytes are compared one by one.
            let (left, right) = (shared.slice(1..)?, right.into_shared().slice(1..)?);
            assert!(left.equals(&right)?);
            let mut last = right.slice(length - 2..)?;
            last.fill(.., !bytes[length - 1])?;
            assert!(!left.equals(&right)?);
        }
    }
    assert!(!one.equals(&Buffer::from_slice(&pool, &[1u8, 0xab], &stream)?)?);
    let heap = [0x01u8, 0xab, 0xff];
    // SAFETY: the array outlives the buffer.
    let foreign = unsafe { Buffer::<u8, Any>::from_raw(heap.as_ptr() as u64, 3, &stream) }?;
    assert!(one.equals(&foreign)? && foreign.equals(&one)?);
    Ok(())
}

#[test]
fn the_kind_is_forgotten_and_known_again() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let buffer = Buffer::from_slice(&pool, &[1u8, 2], &stream)?.into_any();
    let refused = buffer.try_into_kind::<Pinned>().unwrap_err();
    assert!(refused.to_string().contains("accessible"), "{refused}");
    let buffer: Buffer<u8, kind::Device> = refused.value.try_into_kind()?;
    assert_eq!(buffer.to_vec()?, [1, 2]);
    Ok(())
}
