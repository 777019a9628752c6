//! Record batches of the `arrow` crates, over the driver that the environment names: to every kind of memory and back,
//! as arrays of the C interface on other streams, and as messages.

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch, StringArray};
use cuda_mem::interchange::TensorDevice;
use cuda_mem::interchange::arrow::{ArrayNode, DeviceArray, DeviceBatch, read_record_batch, serialize_record_batch};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource,
};
use cuda_mem::{Buffer, Context, Error, Stream};
use std::sync::Arc;
use testkit::{Setup, alone, delay};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn batch(rows: i32) -> Result<RecordBatch, Error> {
    let columns: [(&str, ArrayRef); 4] = [
        ("number", Arc::new((0..rows).map(|row| (row % 7 != 0).then_some(row)).collect::<Int32Array>())),
        ("double", Arc::new((0..rows).map(|row| Some(f64::from(row) / 3.0)).collect::<Float64Array>())),
        ("flag", Arc::new((0..rows).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>())),
        (
            "text",
            Arc::new(
                (0..rows).map(|row| (row % 5 != 0).then(|| "x".repeat(row as usize % 11))).collect::<StringArray>(),
            ),
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))?)
}

fn resources(context: &Context) -> Result<Vec<SharedResource>, Error> {
    Ok(vec![
        DeviceMemory::new(context).share(),
        DevicePool::new(context, &DriverPoolOptions::default())?.share(),
        PinnedMemory::new(context).share(),
        ManagedMemory::new(context)?.share(),
    ])
}

#[test]
fn batches_of_every_size_go_to_every_kind_of_memory_and_back() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs) = (Stream::new(context)?, Stream::new(context)?);
        for rows in [0, 1, 8, 1000, 100_000] {
            let batch = batch(rows)?;
            for part in [batch.clone(), batch.slice(rows as usize / 3, rows as usize / 2)] {
                for resource in resources(context)? {
                    let there = DeviceBatch::upload(&part, &resource, &ours)?;
                    assert_eq!(there.download()?, part);
                    delay(&ours)?;
                    let (array, mut schema) = there.export(&ours)?;
                    drop(there);
                    let mut raw = array.into_raw();
                    // SAFETY: the array was exported just now.
                    let imported = unsafe { DeviceArray::from_raw(&mut raw) }?.check()?;
                    // SAFETY: as above; the array's event orders the import.
                    let seen = unsafe { DeviceBatch::import(&imported, &mut schema, &theirs) }?;
                    assert_eq!(seen.download()?, part);
                }
            }
        }
        Ok(())
    })
}

#[test]
fn messages_are_read_where_they_are() -> Outcome {
    alone(|Setup { context, .. }| {
        let stream = Stream::new(context)?;
        for rows in [0, 1, 1000, 100_000] {
            let batch = batch(rows)?;
            for resource in resources(context)? {
                let message = serialize_record_batch(&batch, &resource, &stream)?.into_shared();
                let there = read_record_batch(&message, &batch.schema())?;
                drop(message);
                assert_eq!(there.download()?, batch);
            }
        }
        Ok(())
    })
}

#[test]
fn arrow_import_waits_for_its_event_and_releases_after_consumer() -> Outcome {
    alone(|Setup { context, .. }| {
        let (ours, theirs, mover) = (Stream::new(context)?, Stream::new(context)?, Stream::new(context)?);
        for resource in resources(context)? {
            let mut buffer = Buffer::<u8, Any>::zeroed(&resource, 4096, &ours)?;
            delay(&ours)?;
            buffer.fill(.., 3)?;
            let buffer = buffer.into_shared();
            let device = buffer.tensor().tensor().device();
            let node = ArrayNode { length: 4096, buffers: vec![None, Some(buffer.clone())], ..Default::default() };
            let array = node.export(&mover)?;
            drop(node);
            let (kind, event) = (array.raw().device_type, array.raw().sync_event);
            assert_eq!((kind == 2, event.is_null()), (matches!(device, TensorDevice::Cuda(_)), false));
            let imported = array.check()?;
            assert_eq!((imported.device(), imported.node().buffers[0]), (device, 0));
            // SAFETY: the array was exported just now.
            unsafe { imported.wait(&theirs)? };
            // SAFETY: as above, and the buffer has 4096 bytes.
            let seen = unsafe { imported.buffer(imported.node().buffers[1], 4096, &theirs) }?;
            assert_eq!(seen.to_vec()?, [3; 4096], "their stream did not wait");
            assert!(imported.clone().release_after(&theirs).is_err(), "a buffer of it is left");
            drop(seen);
            delay(&theirs)?;
            imported.release_after(&theirs)?;
            assert!(!theirs.is_done()?, "a release waited, where an event was to do it");
            buffer.synchronize()?;
            assert!(theirs.is_done()?, "the memory is not ordered after its consumer");
        }
        Ok(())
    })
}
