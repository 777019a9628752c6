//! Memory exported through DLPack and the array interfaces and imported again, over the driver that the environment
//! names. The import must be the same memory, ordered, and alive as long as a consumer holds it.

use core::mem::MaybeUninit;
use cuda_mem::interchange::array_interface::ArrayInterface;
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{
    Consumer, Copying, ExportOptions, Release, SharedTensor, StreamName, Tensor, TensorDevice, TensorParts,
};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::view::Index;
use cuda_mem::{Buffer, CaptureMode, Context, DataType, Error, SharedBuffer, Stream};
use std::sync::Arc;
use testkit::sources::available;
use testkit::{Setup, alone, delay, pattern};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Passes a tensor to a consumer that knows only pointers, and imports it from there.
fn through(exported: ManagedTensor, stream: &Stream, producer: Option<&Stream>) -> Result<SharedTensor, Error> {
    let raw = exported.into_versioned();
    // SAFETY: this library made the tensor just now, and the export ordered the memory with `stream`.
    unsafe { ManagedTensor::from_versioned(raw)?.check()?.into_shared(stream, producer) }
}

/// Imports a tensor into the C library, exports it from there, and imports it again.
fn through_c(exported: ManagedTensor, stream: &Stream, producer: Option<&Stream>) -> Result<SharedTensor, Error> {
    use cudamem::context::{cudamem_context_destroy, cudamem_context_open_primary};
    use cudamem::dlpack::{cudamem_dlpack_options, cudamem_view_export_dlpack, cudamem_view_import_dlpack};
    use cudamem::handles::{cudamem_resource, cudamem_stream};
    use cudamem::stream::{cudamem_stream_borrow, cudamem_stream_destroy};
    use cudamem::view::cudamem_view_destroy;
    use testkit::c_calls::{last_message, load};

    fn made<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> i32) -> T {
        let mut place = MaybeUninit::uninit();
        assert_eq!(call(Some(&mut place)), 0, "{}", last_message());
        // SAFETY: the call writes the place on success.
        unsafe { place.assume_init() }
    }
    load();
    let context = made(|place| cudamem_context_open_primary(stream.context().device().ordinal(), place));
    // SAFETY: the streams outlive the handles.
    let borrowed =
        |stream: &Stream| made(|place| unsafe { cudamem_stream_borrow(context, stream.raw().cast(), place) });
    let (home, other) = (borrowed(stream), producer.map_or(cudamem_stream { id: 0 }, borrowed));
    let tensor = exported.into_versioned();
    // SAFETY: this library made the tensor just now, and the export ordered the memory with `stream`.
    let view = made(|place| unsafe { cudamem_view_import_dlpack(tensor, core::ptr::null_mut(), home, other, place) });
    let options = cudamem_dlpack_options {
        size: size_of::<cudamem_dlpack_options>(),
        flags: 0,
        release: 0,
        stream: StreamName::of(stream).number().unwrap_or(0),
        resource: cudamem_resource { id: 0 },
        device_type: 0,
        device_id: 0,
    };
    // SAFETY: the options are as large as they say, and the stream belongs to the context.
    let tensor = made(|place| unsafe { cudamem_view_export_dlpack(view, &options, place, None) });
    assert_eq!(cudamem_view_destroy(view), 0);
    for handle in [home, other] {
        assert_eq!(cudamem_stream_destroy(handle), 0);
    }
    assert_eq!(cudamem_context_destroy(context), 0);
    // SAFETY: as above, because of the export.
    unsafe { ManagedTensor::from_versioned(tensor)?.check()?.into_shared(stream, Some(stream)) }
}

type Through = fn(ManagedTensor, &Stream, Option<&Stream>) -> Result<SharedTensor, Error>;

/// From Rust to Rust, and with the C library in between.
const WAYS: [Through; 2] = [through, through_c];

/// Combines each item with each way.
fn each_way<T: Clone>(each: impl IntoIterator<Item = T>) -> impl Iterator<Item = (T, Through)> {
    each.into_iter().flat_map(|one| WAYS.map(|way| (one.clone(), way)))
}

/// Every source, and DLPack's name of the place of its memory.
fn sources(context: &Context) -> Result<Vec<(SharedResource, TensorDevice)>, Error> {
    let place = |memory: SharedResource| {
        let accessibility = memory.accessibility();
        let device = match (accessibility.managed, accessibility.host && !memory.is_on_device()) {
            (true, _) => TensorDevice::CudaManaged,
            (false, true) => TensorDevice::CudaHost,
            (false, false) => TensorDevice::Cuda(context.device().ordinal()),
        };
        (memory, device)
    };
    Ok(available(context)?.into_iter().map(|(_, memory)| place(memory.share())).collect())
}

#[test]
fn every_kind_of_memory_goes_out_and_comes_in_as_itself() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs) = (Stream::new(context)?, Stream::new(context)?);
        for ((resource, device), through) in each_way(sources(context)?) {
            let buffer = Buffer::<u8, Any>::from_slice(&resource, &pattern(600, 3), &ours)?.into_shared();
            let strided = buffer.tensor().with_layout(7, &[5, 3], Some(&[100, -2]))?;
            let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
            let seen = through(strided.to_dlpack(&options)?, &theirs, Some(&ours))?;
            assert_eq!(seen.tensor(), strided.tensor());
            assert_eq!(seen.tensor().device(), device);
            let whole = through(buffer.tensor().to_dlpack(&options)?, &theirs, Some(&ours))?;
            let mut again = whole.into_buffer::<u8, Any>().map_err(|refused| refused.error)?;
            assert_eq!(again.to_vec()?, pattern(600, 3));
            again.fill(.., 9)?;
            drop((again, seen, strided));
            assert_eq!(buffer.to_vec()?, [9; 600], "the consumer wrote the same memory");
        }
        Ok(())
    })
}

#[test]
fn dlpack_export_orders_producer_and_consumer_streams_both_ways() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs) = (Stream::new(context)?, Stream::new(context)?);
        for (round, through) in each_way(0..20u8) {
            let memory = DeviceMemory::new(context);
            let mut buffer = Buffer::<u8, _>::zeroed(&memory, 1 << 16, &ours)?;
            delay(&ours)?;
            buffer.fill(.., round)?;
            let buffer = buffer.into_shared();
            let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
            let seen = through(buffer.tensor().to_dlpack(&options)?, &theirs, Some(&ours))?;
            let mut seen = seen.into_buffer::<u8, Any>().map_err(|refused| refused.error)?;
            let mut copy = Buffer::<u8, _>::zeroed(&memory, 1 << 16, &theirs)?;
            copy.copy_from_buffer(0, &seen, ..)?; // on their stream, after our work
            delay(&theirs)?;
            seen.fill(.., 200 + round)?;
            drop(seen); // their work is not done yet
            assert!(!theirs.is_done()?, "an end waited for the stream, where an event was to do it");
            assert_eq!(buffer.to_vec()?, vec![200 + round; 1 << 16]);
            assert_eq!(copy.to_vec()?, vec![round; 1 << 16]);
        }
        Ok(())
    })
}

#[test]
fn dlpack_export_without_consumer_orders_legacy_stream_or_cpu() -> Outcome {
    alone(|Setup { context, .. }| {
        let ours = Stream::new(context)?;
        let device = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 64, &ours)?.into_shared();
        delay(&ours)?;
        let exported = device.tensor().to_dlpack(&ExportOptions::default())?;
        let legacy = Stream::legacy_default(context);
        assert!(!legacy.is_done()?, "the legacy stream is to wait for ours");
        drop(exported);
        let pinned = Buffer::<u8, _>::zeroed(&PinnedMemory::new(context), 64, &ours)?.into_shared();
        delay(&ours)?;
        let _exported = pinned.tensor().to_dlpack(&ExportOptions::default())?;
        assert!(ours.is_done()?, "nothing else orders the CPU");
        delay(&ours)?;
        let options = ExportOptions { consumer: Consumer::Unordered, ..Default::default() };
        let _exported = pinned.tensor().to_dlpack(&options)?;
        assert!(!ours.is_done()?, "-1 wants no order");
        Ok(())
    })
}

#[test]
fn memory_is_not_closed_under_its_consumer() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(context), 64, 5, &stream)?.into_shared();
        let exported = buffer.tensor().to_dlpack(&ExportOptions::default())?;
        let refused = buffer.close().unwrap_err();
        assert!(matches!(refused.error, Error::StillShared { with_processes: false, .. }), "{}", refused.error);
        drop(refused.value); // deferred
        let seen = through(exported, &stream, None)?.into_buffer::<u8, Any>().map_err(|refused| refused.error)?;
        assert_eq!(seen.to_vec()?, [5; 64]);
        assert!(seen.try_into_exclusive().is_err(), "its producer reaches it as well");
        Ok(())
    })
}

#[test]
fn copies_are_the_consumers_alone() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        for (resource, device) in sources(context)? {
            let mut buffer = Buffer::<u8, Any>::from_slice(&resource, &pattern(64, 1), &stream)?.into_shared();
            let columns = buffer.tensor().with_layout(60, &[2, 16], Some(&[1, -4]))?;
            for (target, wanted) in sources(context)? {
                let options = ExportOptions {
                    copying: Copying::Always,
                    device: Some(wanted),
                    resource: Some(&target),
                    ..Default::default()
                };
                let imported = {
                    let raw = columns.to_dlpack(&options)?.into_versioned();
                    // SAFETY: this library made the tensor just now.
                    unsafe { ManagedTensor::from_versioned(raw) }?.check()?
                };
                assert!(imported.is_copied());
                assert_eq!(imported.tensor().device(), wanted, "from {device:?}");
                assert_eq!(imported.tensor().strides(), [1, -4]);
                let legacy = Stream::legacy_default(context);
                // SAFETY: the export ordered the memory before the legacy stream, or waited.
                let copy = unsafe { imported.into_shared(&legacy, None) }?;
                buffer.fill(.., 0)?;
                assert_eq!(copy.memory()?.to_vec()?, pattern(64, 1)[..62]);
                buffer.copy_from_slice(0, &pattern(64, 1))?;
            }
        }
        Ok(())
    })
}

#[test]
fn the_cpu_gets_what_it_addresses_and_a_copy_of_the_rest() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let options = ExportOptions { device: Some(TensorDevice::Cpu), ..Default::default() };
        let pinned = Buffer::<u8, _>::filled(&PinnedMemory::new(context), 8, 3, &stream)?.into_shared();
        let exported = pinned.tensor().to_dlpack(&options)?;
        assert_eq!((exported.dl_tensor().device.device_type, exported.flags()), (1, 0));
        let device = Buffer::<u8, _>::filled(&DeviceMemory::new(context), 8, 4, &stream)?.into_shared();
        let error = device.tensor().to_dlpack(&options).unwrap_err();
        assert!(error.to_string().contains("a copy must be allocated from one"), "{error}");
        let never = ExportOptions { copying: Copying::Never, ..options };
        assert!(device.tensor().to_dlpack(&never).is_err());
        let own = DeviceMemory::new(context).share();
        let wrong = ExportOptions { resource: Some(&own), ..options };
        assert!(device.tensor().to_dlpack(&wrong).unwrap_err().to_string().contains("must lie on the wanted device"));
        let target = PinnedMemory::new(context).share();
        let exported = device.tensor().to_dlpack(&ExportOptions { resource: Some(&target), ..options })?;
        assert_eq!(exported.dl_tensor().device.device_type, 1);
        let data = exported.dl_tensor().data.cast::<u8>();
        // SAFETY: the export has 8 bytes that the CPU can address, and it waited for the copy.
        assert_eq!(unsafe { std::slice::from_raw_parts(data, 8) }, [4; 8]);
        Ok(())
    })
}

#[test]
fn read_only_arrays_stay_so() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let buffer = Buffer::<f32, _>::filled(&DeviceMemory::new(context), 8, 1.5, &stream)?.into_shared();
        let options = ExportOptions { read_only: true, ..Default::default() };
        assert!(buffer.tensor().to_dlpack(&options)?.into_legacy().is_err());
        let seen = through(buffer.tensor().to_dlpack(&options)?, &stream, None)?;
        assert!(seen.tensor().is_read_only());
        let refused = seen.into_buffer::<f32, Any>().unwrap_err();
        assert!(refused.error.to_string().contains("read-only"), "{}", refused.error);
        let (seen, read_only) = (refused.value, |error: Error| error.to_string().contains("read-only"));
        assert!(seen.memory().is_err_and(read_only));
        assert!(seen.with_layout(4, &[2], None)?.memory().is_err_and(read_only));
        let view = seen.clone().into_view()?;
        assert!(view.buffer().is_none() && view.is_read_only());
        assert!(view.to_tensor()?.memory().is_err_and(read_only));
        assert_eq!(view.to_vec::<f32>()?, [1.5; 8]);
        let copy = seen.copied(&DeviceMemory::new(context).share())?;
        assert_eq!(copy.memory()?.len(), 32);
        assert_eq!(copy.into_buffer::<f32, Any>().map_err(|refused| refused.error)?.to_vec()?, [1.5; 8]);
        Ok(())
    })
}

#[test]
fn layouts_lie_within_their_memory() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let tensor = Buffer::<f32, _>::zeroed(&DeviceMemory::new(context), 6, &stream)?.into_shared().tensor();
        assert!(tensor.with_layout(0, &[2, 3], None).is_ok());
        assert!(tensor.with_layout(20, &[6], Some(&[-1])).is_ok());
        assert!(tensor.with_layout(24, &[0], None).is_ok());
        for (offset, shape, strides) in [(0, 7, 1), (4, 6, 1), (usize::MAX, 1, 1), (0, 2, 6), (24, 1, 1)] {
            let error = tensor.with_layout(offset, &[shape], Some(&[strides])).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { size: 24, .. } | Error::Tensor(_)), "{error}");
        }
        for (offset, shape) in [(16, 6), (0, 2)] {
            let error = tensor.with_layout(offset, &[shape], Some(&[-1])).unwrap_err().to_string();
            assert!(error.contains("begins 4 bytes before the memory"), "{error}");
        }
        Ok(())
    })
}

#[test]
fn a_producer_that_names_the_wrong_device_is_refused() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 64, &stream)?.into_shared();
        for device in [TensorDevice::Cpu, TensorDevice::CudaHost, TensorDevice::Cuda(7)] {
            let lie = buffer.tensor().tensor().moved_to(buffer.device_pointer(), device)?;
            let error = through(lie.export(buffer.clone()), &stream, None).unwrap_err();
            assert!(error.to_string().contains("the tensor's device"), "{error}");
        }
        buffer.close()?; // nothing holds it any more
        Ok(())
    })
}

#[test]
fn arrays_without_elements_go_both_ways() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        for ((resource, _), through) in each_way(sources(context)?) {
            let buffer = Buffer::<f64, Any>::zeroed(&resource, 0, &stream)?.into_shared();
            let empty = buffer.tensor().with_layout(0, &[0, 5], None)?;
            let seen = through(empty.to_dlpack(&ExportOptions::default())?, &stream, None)?;
            assert_eq!((seen.tensor().shape(), seen.tensor().len()), (&[0, 5][..], 0));
            assert_eq!(seen.cuda_array_interface()?.data.0, 0);
            assert!(seen.into_buffer::<f64, Any>().map_err(|refused| refused.error)?.is_empty());
        }
        Ok(())
    })
}

#[test]
fn a_release_after_the_context_waits_for_streams_that_are_gone() -> Outcome {
    alone(|Setup { context, .. }| {
        let ours = Stream::new(context)?;
        let buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 64, &ours)?.into_shared();
        let theirs = Stream::new(context)?;
        let options =
            ExportOptions { consumer: Consumer::Stream(&theirs), release: Release::AfterContext, ..Default::default() };
        let exported = buffer.tensor().to_dlpack(&options)?;
        delay(&theirs)?;
        drop(exported);
        assert!(theirs.is_done()?);
        Ok(())
    })
}

#[test]
fn export_dropped_in_a_capture_frees_after_consumer_work() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs) = (Stream::new(context)?, Stream::new(context)?);
        let options = ExportOptions { release: Release::AfterContext, ..Default::default() };
        let export = || {
            let buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 64, &ours)?.into_shared();
            buffer.tensor().to_dlpack(&options)
        };
        let during = export()?;
        delay(&theirs)?;
        let graph = ours.capture(CaptureMode::ThreadLocal, |_| {
            drop(during);
            Ok(())
        })?;
        // The capture was not lost. The export ended after it, when the consumer's work was done.
        assert_eq!((graph.node_count()?, theirs.is_done()?), (0, true));
        Ok(())
    })
}

#[test]
fn the_default_stream_of_a_thread_that_is_gone_is_waited_for() -> Outcome {
    alone(|Setup { context, .. }| {
        let ours = Stream::new(context)?;
        let buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 64, &ours)?.into_shared();
        let exported = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    buffer.tensor().to_dlpack(&ExportOptions {
                        consumer: Consumer::Stream(&Stream::per_thread_default(context)),
                        ..Default::default()
                    })
                })
                .join()
        });
        drop(exported.map_err(|_| "the thread panicked")??);
        Ok(())
    })
}

#[test]
fn the_cuda_array_interface_goes_both_ways_in_order() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs) = (Stream::new(context)?, Stream::new(context)?);
        for (resource, _) in sources(context)? {
            let mut buffer = Buffer::<f32, Any>::zeroed(&resource, 100, &ours)?;
            delay(&ours)?;
            buffer.fill(.., 2.5)?;
            let buffer = buffer.into_shared();
            let said = buffer.tensor().with_layout(4, &[9, 3], Some(&[10, 1]))?.cuda_array_interface()?;
            assert_eq!(said.stream, StreamName::of(&ours).number());
            assert_eq!(said.strides.as_deref(), Some(&[40, 4][..]));
            let said = ArrayInterface::from_json(&said.to_json())?;
            // SAFETY: the buffer owns the memory, and our stream is alive.
            let seen = unsafe { said.import_cuda(Arc::new(buffer.clone()), &theirs, false) }?;
            assert_eq!((seen.tensor().shape(), seen.tensor().strides()), (&[9, 3][..], &[10, 1][..]));
            let dense: SharedTensor = seen.copied(&PinnedMemory::new(context).share())?;
            let bytes = dense.memory()?.to_vec()?;
            assert!(bytes.chunks(4).all(|chunk| chunk == 2.5f32.to_ne_bytes()), "their stream did not wait");
        }
        Ok(())
    })
}

#[test]
fn numpys_array_interface_is_of_memory_at_rest() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let mut buffer = Buffer::<i32, _>::zeroed(&PinnedMemory::new(context), 16, &stream)?;
        delay(&stream)?;
        buffer.fill(.., -3)?;
        let buffer: SharedBuffer<i32, _> = buffer.into_shared();
        let said = buffer.tensor().array_interface()?;
        assert!(stream.is_done()?);
        assert_eq!((said.shape.as_slice(), said.stream, said.strides.clone()), (&[16][..], None, None));
        // SAFETY: the buffer owns the memory.
        let seen = unsafe { said.import_host(Arc::new(buffer.clone()), &stream) }?;
        assert_eq!(seen.into_buffer::<i32, Any>().map_err(|refused| refused.error)?.to_vec()?, [-3; 16]);
        let device = Buffer::<i32, _>::zeroed(&DeviceMemory::new(context), 16, &stream)?.into_shared();
        assert!(device.tensor().array_interface().is_err());
        // Memory that devices cannot address is not a CUDA array.
        let heap = vec![0u8; 64];
        let lie = ArrayInterface { data: (heap.as_ptr().expose_provenance() as u64, false), ..said };
        // SAFETY: the call refuses the memory before it uses it.
        let error = unsafe { lie.import_cuda(Arc::new(heap), &stream, true) }.unwrap_err();
        assert!(error.to_string().contains("devices must address it"), "{error}");
        Ok(())
    })
}

#[test]
fn views_go_out_and_come_in_as_views() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs) = (Stream::new(context)?, Stream::new(context)?);
        for ((resource, _), through) in each_way(sources(context)?) {
            let numbers: Vec<i32> = (0..60).collect();
            let buffer = Buffer::<i32, Any>::from_slice(&resource, &numbers, &ours)?.into_shared();
            let whole = buffer.into_view(&[3, 4, 5])?;
            let views = [
                whole.clone(),
                whole.clone().permuted(&[2, 0, 1])?,
                whole.clone().sliced(&[Index::reversed(), (1..3).into(), Index::reversed().step(-2)])?,
                whole.clone().sliced(&[(..).into(), (2..2).into()])?,
            ];
            for view in views {
                let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
                let seen = through(view.to_tensor()?.to_dlpack(&options)?, &theirs, Some(&ours))?.into_view()?;
                assert_eq!((seen.shape(), seen.data_type()), (view.shape(), view.data_type()));
                assert_eq!(seen.to_vec::<i32>()?, view.to_vec::<i32>()?);
                if !view.layout().is_empty() {
                    assert_eq!((seen.strides(), seen.device_pointer()), (view.strides(), view.device_pointer()));
                }
                let read_only = view.clone().into_read_only().to_tensor()?.to_dlpack(&options)?;
                assert!(through(read_only, &theirs, Some(&ours))?.into_view()?.is_read_only());
            }
        }
        Ok(())
    })
}

#[test]
fn elements_of_less_than_a_byte_go_out_packed_and_padded() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        let memory = DeviceMemory::new(context);
        let buffer = Buffer::<u8, _>::from_slice(&memory, &pattern(12, 5), &stream)?.into_shared();
        let packed = buffer.tensor().with_type_and_layout(DataType::FLOAT4_E2M1FN, 0, &[3, 8], None)?;
        let view = packed.clone().into_view()?;
        assert!(view.is_packed());
        let seen = through(view.to_tensor()?.to_dlpack(&ExportOptions::default())?, &stream, None)?;
        assert_eq!(
            (seen.tensor().byte_range().end - seen.tensor().byte_range().start, seen.tensor().is_padded()),
            (12, false)
        );
        // A later row begins at a byte boundary; a later element does not.
        assert!(view.clone().sliced(&[(1..).into()])?.to_tensor().is_ok());
        assert!(view.sliced(&[(..).into(), (1..).into()])?.to_tensor().is_err());
        let parts = TensorParts {
            address: buffer.device_pointer(),
            device: packed.tensor().device(),
            data_type: DataType::FLOAT4_E2M1FN,
            shape: &[12],
            strides: None,
            read_only: false,
            padded: true,
        };
        let seen = through(Tensor::new(&parts)?.export(buffer.clone()), &stream, None)?;
        assert!(seen.tensor().is_padded());
        assert!(!seen.into_view()?.is_packed());
        Ok(())
    })
}
