//! Valid and invalid arrays of another library. All tests run under Miri.

use super::*;
use crate::array::interchange::TensorDevice;
use crate::array::interchange::dlpack::DlpackError;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use proptest::prelude::*;
use std::sync::Arc;

/// The data behind an array of another library.
struct PrivateData {
    count: Arc<AtomicUsize>,
    _buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release(raw: *mut ArrowArray) {
    // SAFETY: made by `stranger` for this one call.
    unsafe {
        let held = Box::from_raw((*raw).private_data.cast::<PrivateData>());
        held.count.fetch_add(1, Ordering::Relaxed);
        for child in held.children.iter().copied().filter(|child| !child.is_null()) {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*raw).release = None;
    }
}

fn stranger(count: &Arc<AtomicUsize>, buffers: &[usize], children: Vec<ArrowArray>) -> ArrowArray {
    let mut held = Box::new(PrivateData {
        count: count.clone(),
        _buffers: buffers.iter().map(|address| ptr::without_provenance(*address)).collect(),
        children: children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect(),
    });
    ArrowArray {
        length: 3,
        null_count: -1,
        offset: 1,
        n_buffers: buffers.len() as i64,
        n_children: held.children.len() as i64,
        buffers: held._buffers.as_mut_ptr(),
        children: held.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release),
        private_data: Box::into_raw(held).cast(),
    }
}

fn on_device(array: ArrowArray) -> ArrowDeviceArray {
    ArrowDeviceArray { array, device_id: 0, device_type: 2, ..ArrowDeviceArray::RELEASED }
}

/// The result of importing a changed table of two columns, and how many of its three arrays were released.
fn import(change: impl FnOnce(&mut ArrowDeviceArray)) -> (Result<ImportedNode, ArrowError>, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let columns = vec![stranger(&count, &[0, 4096], vec![]), stranger(&count, &[8192, 4096], vec![])];
    let mut raw = on_device(stranger(&count, &[0], columns));
    change(&mut raw);
    // SAFETY: made for this call alone.
    let array = unsafe { DeviceArray::from_raw(&mut raw) }.and_then(DeviceArray::check);
    assert!(raw.array.release.is_none());
    if array.is_ok() {
        assert_eq!(count.load(Ordering::Relaxed), 0, "an array in use was released");
    }
    (array.map(|array| array.node().clone()), count.load(Ordering::Relaxed))
}

#[test]
fn an_array_is_read_and_released_once() {
    let (node, ends) = import(|_| {});
    let node = node.unwrap();
    assert_eq!((node.length, node.null_count, node.offset, node.buffers.clone()), (3, None, 1, vec![0]));
    assert_eq!(node.children[1].buffers, [8192, 4096]);
    assert_eq!(ends, 3);
}

#[test]
fn odd_arrays_are_refused_by_name_and_released_once() {
    let number = |what, value, rule| ArrowError::Number { what, value, rule };
    let not_negative = "it must not be negative";
    type Change = fn(&mut ArrowDeviceArray);
    let cases: [(Change, ArrowError); 12] = [
        (|it| it.array.length = -1, number("length", -1, not_negative)),
        (|it| it.array.offset = i64::MIN, number("offset", i64::MIN, not_negative)),
        (
            |it| it.array.offset = i64::MAX,
            number("offset", i64::MAX, "it must fit into 64 bits together with the length"),
        ),
        (|it| it.array.null_count = -2, number("null_count", -2, "it must be -1, or 0 to the length")),
        (|it| it.array.null_count = 4, number("null_count", 4, "it must be -1, or 0 to the length")),
        (|it| it.array.n_buffers = -1, number("n_buffers", -1, "it must be a count from 0 to 2147483647")),
        (|it| it.array.buffers = ptr::null_mut(), ArrowError::Null { what: "buffers" }),
        (|it| it.array.children = ptr::null_mut(), ArrowError::Null { what: "children" }),
        (|it| it.reserved[1] = 7, number("a reserved field", 7, "it must be 0 in this release of the specification")),
        (|it| it.device_id = 1 << 40, number("device_id", 1 << 40, "it must be an ordinal")),
        (|it| it.device_type = 5, DlpackError::UnknownDevice { device_type: 5 }.into()),
        (|it| it.device_type = 8, DlpackError::OtherDevice { name: "Metal", device_id: 0 }.into()),
    ];
    for (change, expected) in cases {
        let (node, ends) = import(change);
        assert_eq!((node, ends), (Err(expected), 3));
    }
}

#[test]
fn children_that_are_not_there_are_refused() {
    let count = Arc::new(AtomicUsize::new(0));
    let array = stranger(&count, &[], vec![ArrowArray::RELEASED]);
    // SAFETY: made for this call alone.
    let refused = unsafe { DeviceArray::from_raw(&mut on_device(array)) }.and_then(DeviceArray::check);
    assert_eq!(refused.unwrap_err(), ArrowError::Released { what: "a child of the array" });
    let array = stranger(&count, &[], vec![ArrowArray::RELEASED]);
    // SAFETY: the array has one child; the null pointer replaces it after its drop.
    unsafe {
        drop(Box::from_raw(*array.children));
        *array.children = ptr::null_mut();
    }
    // SAFETY: made for this call alone.
    let refused = unsafe { DeviceArray::from_raw(&mut on_device(array)) }.and_then(DeviceArray::check);
    assert_eq!(refused.unwrap_err(), ArrowError::Null { what: "a child of the array" });
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn an_array_is_taken_over_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let mut raw = on_device(stranger(&count, &[], vec![]));
    // SAFETY: made for these calls alone; null is allowed.
    unsafe {
        let first = DeviceArray::from_raw(&mut raw).unwrap();
        assert_eq!(DeviceArray::from_raw(&mut raw).unwrap_err(), ArrowError::Released { what: "the device array" });
        assert_eq!(DeviceArray::from_raw(ptr::null_mut()).unwrap_err(), ArrowError::Null { what: "the device array" });
        // Handed on, and taken over again.
        let mut handed_on = first.into_raw();
        drop(DeviceArray::from_raw(&mut handed_on).unwrap());
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn what_nests_too_deep_is_refused() {
    let count = Arc::new(AtomicUsize::new(0));
    let array = (0..70).fold(stranger(&count, &[], vec![]), |inner, _| stranger(&count, &[], vec![inner]));
    // SAFETY: made for this call alone.
    let refused = unsafe { DeviceArray::from_raw(&mut on_device(array)) }.and_then(DeviceArray::check);
    assert_eq!(refused.unwrap_err(), ArrowError::TooDeep { limit: 64 });
    assert_eq!(count.load(Ordering::Relaxed), 71);
}

#[test]
fn an_array_without_memory_goes_out_and_comes_in() {
    let node = ArrayNode { length: 5, null_count: Some(5), buffers: vec![None], ..ArrayNode::default() };
    assert_eq!(node.device(), Ok(None));
    assert!(node.all_buffers().is_empty());
}

fn schema() -> Schema {
    let leaf = Schema { name: "x".into(), flags: FLAG_NULLABLE, ..Schema::new("i") };
    let dictionary = Some(Box::new(Schema::new("u")));
    let coded = Schema { name: "é".into(), dictionary, ..Schema::new("c") };
    let metadata = vec![(b"key".to_vec(), vec![0, 255]), (vec![], vec![])];
    Schema { metadata, children: vec![leaf, coded], ..Schema::new("+s") }
}

#[test]
fn a_schema_goes_out_and_comes_in() {
    let mut raw = schema().export().unwrap();
    // SAFETY: made just now.
    unsafe {
        assert_eq!(Schema::import(&mut raw), Ok(schema()));
        assert_eq!(Schema::import(&mut raw), Err(ArrowError::Released { what: "the schema" }));
    }
    let odd = Schema { children: vec![schema(), Schema::new("\0")], ..schema() };
    assert_eq!(odd.export().unwrap_err(), ArrowError::Text { what: "the format" });
}

#[test]
fn odd_schemas_are_refused_and_released() {
    type Change = fn(&mut ArrowSchema);
    let cases: [(Change, ArrowError); 4] = [
        (|it| it.format = ptr::null(), ArrowError::Null { what: "a schema's format" }),
        (|it| it.format = c"\xff".as_ptr(), ArrowError::Text { what: "a schema's format" }),
        (|it| it.children = ptr::null_mut(), ArrowError::Null { what: "a schema's children" }),
        (
            |it| it.n_children = -1,
            ArrowError::Number {
                what: "a schema's n_children",
                value: -1,
                rule: "it must be a count from 0 to 2147483647",
            },
        ),
    ];
    for (change, expected) in cases {
        let mut raw = schema().export().unwrap();
        change(&mut raw);
        // SAFETY: made just now; the import refuses the changed field.
        assert_eq!(unsafe { Schema::import(&mut raw) }, Err(expected));
        assert!(raw.release.is_none());
    }
}

#[test]
fn a_stream_gives_arrays_errors_and_its_end() {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let arrays = (0..4).map(move |number| match number {
        1 => Err(ArrowError::Text { what: "the test" }.into()),
        2 => std::panic::resume_unwind(Box::new("of the producer")),
        // SAFETY: made for this call alone.
        _ => Ok(unsafe { DeviceArray::from_raw(&mut on_device(stranger(&counts, &[], vec![]))) }?),
    });
    let mut raw = DeviceArrayStream::new(schema(), TensorDevice::Cuda(0), arrays).into_raw();
    // SAFETY: made just now.
    let mut stream = unsafe { DeviceArrayStream::from_raw(&mut raw) }.unwrap();
    assert_eq!(stream.schema(), Ok(schema()));
    assert_eq!(stream.device_type(), 2);
    assert!(stream.next().unwrap().is_ok());
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let error = stream.next().unwrap().unwrap_err();
    assert_eq!(
        error,
        ArrowError::Stream { code: libc::EIO, message: "the test is not UTF-8 text without zero bytes".into() }
    );
    assert!(stream.next().unwrap().unwrap_err().to_string().contains("panicked"));
    assert!(stream.next().unwrap().is_ok());
    assert!(stream.next().is_none());
    drop(stream);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    // SAFETY: released already; null is allowed.
    unsafe {
        assert!(matches!(DeviceArrayStream::from_raw(&mut raw), Err(ArrowError::Released { .. })));
        assert!(matches!(DeviceArrayStream::from_raw(ptr::null_mut()), Err(ArrowError::Null { .. })));
    }
}

#[test]
fn an_array_of_another_device_than_the_streams_is_refused() {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    // SAFETY: made for this call alone.
    let arrays = std::iter::once_with(move || {
        // SAFETY: as above.
        Ok(unsafe { DeviceArray::from_raw(&mut on_device(stranger(&counts, &[], vec![]))) }?)
    });
    let mut stream = DeviceArrayStream::new(schema(), TensorDevice::CudaManaged, arrays);
    assert!(stream.next().unwrap().is_err());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 1000 }))]

    /// No numbers make a panic, and every array is released once.
    #[test]
    fn any_numbers_are_released_once(
        length: i64, null_count: i64, offset: i64, fewer_buffers in -3_i64..1, fewer_children in -4_i64..1,
        device_type in 0_i32..20, device_id in -2_i64..3, reserved in 0_i64..2,
    ) {
        let (_, ends) = import(|it| {
            (it.array.length, it.array.null_count, it.array.offset) = (length, null_count, offset);
            it.array.n_buffers += fewer_buffers;
            it.array.n_children += fewer_children;
            (it.device_type, it.device_id, it.reserved[2]) = (device_type, device_id, reserved);
        });
        prop_assert_eq!(ends, 3);
    }
}
