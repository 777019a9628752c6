//! The order of batches by the kernel with other work, as the software GPU checks it.

use super::{BatchWay, Buffer, DeviceMemory, Outcome, Stream, loaded, pattern, spread, submit};
use cuda_mem::cuda_sys::CUresult;
use softgpu::Misuse;
use std::ptr;
use testkit::{alone_with_misuse, in_its_own_process, run_alone, test_name};

#[test]
fn batches_come_after_the_work_of_the_buffers_homes() -> Outcome {
    loaded(|_, context, stream| {
        let (one, two) = (Stream::new(context)?, Stream::new(context)?);
        let device = DeviceMemory::new(context);
        for round in 0..4u8 {
            let mut source = Buffer::<u8, _>::filled(&device, 1000, round, &one)?;
            let mut to = Buffer::<u8, _>::zeroed(&device, 1000, &two)?;
            submit(&mut to, &source, &spread(20, 40), BatchWay::Fastest, stream)?;
            // After the batch, although on another stream.
            source.fill(.., 255)?;
            let bytes = to.to_vec()?;
            assert!(spread(20, 40).iter().all(|piece| bytes[piece.to..piece.to + 40] == [round; 40]), "{round}");
        }
        Ok(())
    })
}

/// Runs a part on a software GPU that looks for races.
fn with_races(part: &str) {
    let mut command = in_its_own_process(part);
    run_alone(command.env("CUDA_MEM_LIBCUDA", "softgpu").env("SOFTGPU_RACES", "1"));
}

#[test]
fn unordered_work_on_bytes_of_a_piece_is_reported() {
    with_races(&test_name!("part_unordered"));
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_unordered() -> Outcome {
    let test = |setup: &testkit::Setup| {
        setup.context.load_kernels()?;
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let device = DeviceMemory::new(&setup.context);
        let source = Buffer::from_slice(&device, &pattern(2000, 1), &stream)?;
        let mut to = Buffer::<u8, _>::zeroed(&device, 2000, &stream)?;
        stream.synchronize()?;
        let (read, written) = (source.device_pointer(), to.device_pointer());
        let pieces = spread(20, 40);
        submit(&mut to, &source, &pieces, BatchWay::Kernel, &stream)?;
        // A byte between two pieces, one of a piece that is read, one of a piece that is written.
        for address in [written + pieces[3].to as u64 + 41, read + pieces[3].from as u64, written + pieces[4].to as u64]
        {
            // SAFETY: the byte lies within the buffer. The missing order is what the test is about.
            let code = unsafe { setup.driver.raw().cuMemsetD8Async(address, 9, 1, other.raw()) };
            assert_eq!(code, Ok(CUresult::CUDA_SUCCESS));
        }
        other.synchronize()?;
        stream.synchronize()?;
        Ok(())
    };
    alone_with_misuse(test, |misuse| {
        let found: Vec<_> = misuse.iter().map(|report| (report.misuse, report.other)).collect();
        assert_eq!(found, [(Misuse::NoOrder, Some("cuda_mem_copy_pieces")); 2]);
    })
}

#[test]
fn a_piece_beyond_its_memory_is_reported_by_its_address() {
    with_races(&test_name!("part_beyond"));
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_beyond() -> Outcome {
    let mut beyond = 0;
    let test = |setup: &testkit::Setup| {
        let context = setup.context.device().create_context()?;
        let stream = Stream::new(&context)?;
        let device = DeviceMemory::new(&context);
        let source = Buffer::from_slice(&device, &pattern(2000, 1), &stream)?;
        let to = Buffer::<u8, _>::zeroed(&device, 2000, &stream)?;
        stream.synchronize()?;
        beyond = source.device_pointer() + 1990;
        let mut parameters = vec![0u64; 2 + 3 * 168];
        let pieces = [[to.device_pointer(), source.device_pointer(), 10], [to.device_pointer() + 20, beyond, 11]];
        parameters[..2].copy_from_slice(&[2, 32]);
        parameters[2..8].copy_from_slice(pieces.as_flattened());
        let (raw, _current) = (setup.driver.raw(), context.bind()?);
        let (mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        let mut arguments = [parameters.as_mut_ptr().cast()];
        // SAFETY: the image is text that ends with a zero, the kernel's parameter has that many words, and softgpu checks the
        // addresses.
        let codes = unsafe {
            [
                raw.cuModuleLoadData(&mut module, c"softgpu kernels cuda_mem_copy_pieces".as_ptr().cast()),
                raw.cuModuleGetFunction(&mut kernel, module, c"cuda_mem_copy_pieces".as_ptr()),
                raw.cuLaunchKernel(
                    kernel,
                    1,
                    1,
                    1,
                    256,
                    1,
                    1,
                    0,
                    stream.raw(),
                    arguments.as_mut_ptr(),
                    ptr::null_mut(),
                ),
            ]
        };
        assert_eq!(codes, [const { Ok(CUresult::CUDA_SUCCESS) }; 3]);
        let error = stream.synchronize().expect_err("a kernel at a wrong address");
        assert_eq!(error.driver_code(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), "{error}");
        Ok(())
    };
    let mut seen = Vec::new();
    let outcome = alone_with_misuse(test, |misuse| {
        seen = misuse.iter().map(|report| (report.misuse, report.call, report.address)).collect();
    });
    assert_eq!(seen, [(Misuse::WrongAddress, "cuda_mem_copy_pieces", beyond)]);
    outcome
}
