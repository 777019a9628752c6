//! Sends batches to a device and back: directly, through the C interface, and as messages.

use super::*;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::{Context, Driver, Error};
use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int32Array, LargeStringArray,
    NullArray, StringArray, StringViewArray,
};

fn setup() -> Result<(Context, Stream)> {
    let context = Driver::software()?.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    Ok((context, stream))
}

fn plain() -> RecordBatch {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for row in 0..5 {
        (0..row).for_each(|value| lists.values().append_value(value));
        lists.append(row != 3);
    }
    let inner: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5, 3.5, 4.5]));
    let columns: [(&str, ArrayRef); 8] = [
        ("numbers", Arc::new(Int32Array::from(vec![Some(1), None, Some(3), None, Some(5)]))),
        ("flags", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(true)]))),
        ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("long enough"), Some("é")]))),
        ("large", Arc::new(LargeStringArray::from(vec!["x", "yy", "zzz", "", "w"]))),
        ("bytes", Arc::new(FixedSizeBinaryArray::try_from_iter((0..5u8).map(|byte| [byte; 3])).unwrap())),
        ("lists", Arc::new(lists.finish())),
        ("nothing", Arc::new(NullArray::new(5))),
        ("inner", Arc::new(StructArray::try_from(vec![("f", inner)]).unwrap())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// Contains also columns that would need several messages.
fn all() -> RecordBatch {
    let words: DictionaryArray<Int8Type> = ["a", "b", "a", "c", "b"].into_iter().collect();
    let views = StringViewArray::from(vec!["short", "a text that is too long to be inlined", "", "x", "y"]);
    let mut columns: Vec<(String, ArrayRef)> =
        vec![("words".into(), Arc::new(words)), ("views".into(), Arc::new(views))];
    let plain = plain();
    columns
        .extend(plain.schema().fields().iter().map(|field| field.name().clone()).zip(plain.columns().iter().cloned()));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "needs the software GPU")]
fn batches_go_to_a_device_and_back() -> Result<()> {
    let (context, stream) = setup()?;
    for batch in [all(), all().slice(1, 3), all().slice(2, 0), RecordBatch::new_empty(Schema::empty().into())] {
        let there = DeviceBatch::upload(&batch, &DeviceMemory::new(&context), &stream)?;
        assert_eq!(there.download()?, batch);
        assert_eq!(there.rows(), batch.num_rows());
        let here = DeviceBatch::upload(&batch, &PinnedMemory::new(&context), &stream)?;
        assert_eq!(here.download()?, batch);
    }
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "needs the software GPU")]
fn batches_go_through_the_c_interface() -> Result<()> {
    let (context, stream) = setup()?;
    let theirs = Stream::new(&context)?;
    for batch in [all(), all().slice(1, 3)] {
        let there = DeviceBatch::upload(&batch, &DeviceMemory::new(&context), &stream)?;
        assert_eq!(there.device()?, Some(TensorDevice::Cuda(0)));
        let (array, mut schema) = there.export(&stream)?;
        assert!(!array.raw().sync_event.is_null());
        let mut raw = array.into_raw();
        // SAFETY: exported just now.
        let imported = unsafe { DeviceArray::from_raw(&mut raw) }?.check()?;
        drop(there); // the consumer keeps the memory
        // SAFETY: exported just now, with its work in order.
        let seen = unsafe { DeviceBatch::import(&imported, &mut schema, &theirs) }?;
        assert_eq!(seen.download()?, batch);
        // SAFETY: released already.
        assert!(unsafe { DeviceBatch::import(&imported, &mut schema, &theirs) }.is_err());
    }
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "needs the software GPU")]
fn arrays_that_do_not_fit_their_schema_are_refused() -> Result<()> {
    let (context, stream) = setup()?;
    let batch = |column: ArrayRef| RecordBatch::try_from_iter([("x", column)]).unwrap();
    let numbers =
        DeviceBatch::upload(&batch(Arc::new(Int32Array::from(vec![1]))), &DeviceMemory::new(&context), &stream)?;
    let text =
        DeviceBatch::upload(&batch(Arc::new(StringArray::from(vec!["a"]))), &DeviceMemory::new(&context), &stream)?;
    let (array, _) = numbers.export(&stream)?;
    let (_, mut schema) = text.export(&stream)?;
    // SAFETY: the import fails before it uses a buffer.
    let error = unsafe { DeviceBatch::import(&array.check()?, &mut schema, &stream) }.unwrap_err();
    assert!(matches!(error, Error::Arrow(ArrowError::Shape { what: "buffers", seen: 2, expected: 3, .. })), "{error}");
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "needs the software GPU")]
fn messages_are_those_of_the_host() -> Result<()> {
    let (context, stream) = setup()?;
    for batch in [plain(), plain().slice(1, 3), plain().slice(0, 0)] {
        let message = serialize_record_batch(&batch, &DeviceMemory::new(&context), &stream)?.into_shared();
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema())?;
        let schema_size = writer.get_ref().len();
        writer.write(&batch)?;
        assert_eq!(message.to_vec()?, writer.get_ref()[schema_size..]);
        let there = read_record_batch(&message, &batch.schema())?;
        assert_eq!(there.download()?, batch);
        let (begin, end) = (message.device_pointer(), message.device_pointer() + message.len() as u64);
        let buffers = there.node().all_buffers();
        assert!(buffers.iter().all(|part| (begin..=end).contains(&part.device_pointer())), "a buffer was copied");
        let read = read_message(&message)?;
        assert_eq!((read.size(), read.body().len() % 8), (message.len(), 0));
    }
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "needs the software GPU")]
fn odd_messages_are_refused() -> Result<()> {
    let (context, stream) = setup()?;
    let memory = DeviceMemory::new(&context);
    let batch = plain();
    let good = serialize_record_batch(&batch, &memory, &stream)?.to_vec()?;
    let read = |bytes: &[u8]| -> Result<DeviceBatch> {
        read_record_batch(&Buffer::<u8, _>::from_slice(&memory, bytes, &stream)?.into_shared(), &batch.schema())
    };
    assert!(read(&[]).is_err());
    assert!(read(&[255, 255, 255, 255, 0, 0, 0, 0]).unwrap_err().to_string().contains("end of a stream"));
    for length in (0..good.len()).step_by(7) {
        assert!(read(&good[..length]).is_err(), "cut at {length}");
    }
    // A changed byte in the description gives an error or another batch, but never a panic.
    for place in 0..400.min(good.len()) {
        for change in [1, 128, 255] {
            let mut bytes = good.clone();
            bytes[place] ^= change;
            if let Ok(odd) = read(&bytes) {
                let _ = odd.download();
            }
        }
    }
    let fewer = Arc::new(Schema::new(batch.schema().fields()[..3].to_vec()));
    let message = Buffer::<u8, _>::from_slice(&memory, &good, &stream)?.into_shared();
    assert!(matches!(read_record_batch(&message, &fewer), Err(Error::Arrow(ArrowError::Shape { .. }))));
    assert!(serialize_record_batch(&all(), &memory, &stream).is_err());
    Ok(())
}
