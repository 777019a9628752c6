//! Valid and invalid tensors of another library. All tests run under Miri.

use super::*;
use crate::array::interchange::{Tensor, TensorDevice, TensorError, TensorParts};
use crate::{DataType, DataTypeError};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use proptest::prelude::*;
use std::sync::Arc;

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    (Counted(count.clone()), count)
}

fn ends(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

fn array(shape: &[i64], strides: Option<&[i64]>, read_only: bool) -> Tensor {
    let data_type = DataType::INT16;
    let parts = TensorParts {
        address: 4096,
        device: TensorDevice::Cuda(1),
        data_type,
        shape,
        strides,
        read_only,
        padded: false,
    };
    Tensor::new(&parts).unwrap()
}

/// Another library's tensor. A test sets each field, and counts the drop of the owner.
struct Stranger {
    version: DLPackVersion,
    flags: u64,
    said: DLTensor,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
}

impl Stranger {
    fn new(shape: &[i64]) -> Self {
        let said = DLTensor {
            data: ptr::without_provenance_mut(4096),
            device: DLDevice { device_type: 2, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        Self { version: VERSION, flags: 0, said, shape: shape.to_vec(), strides: None }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The result of the import, and how often the deleter was called.
    fn import(self) -> (Result<Tensor, DlpackError>, usize) {
        let (owner, count) = counted();
        let raw = self.into_raw(owner);
        // SAFETY: made for this call alone.
        let imported = unsafe { ManagedTensor::from_versioned(raw) }.and_then(ManagedTensor::check);
        if imported.is_ok() {
            assert_eq!(ends(&count), 0, "the deleter of a tensor in use was called");
        }
        (imported.map(|imported| imported.tensor().clone()), ends(&count))
    }

    fn into_raw(self, owner: Counted) -> *mut DLManagedTensorVersioned {
        struct ManagerContext {
            shape: Vec<i64>,
            strides: Option<Vec<i64>>,
            _owner: Counted,
        }
        unsafe extern "C" fn delete(raw: *mut DLManagedTensorVersioned) {
            // SAFETY: both were boxed below, and this is the only call.
            unsafe {
                drop(Box::from_raw((*raw).manager_ctx.cast::<ManagerContext>()));
                drop(Box::from_raw(raw));
            }
        }
        let mut held = Box::new(ManagerContext { shape: self.shape, strides: self.strides, _owner: owner });
        let mut said = self.said;
        if said.shape.is_null() && !held.shape.is_empty() {
            said.shape = held.shape.as_mut_ptr();
        }
        said.strides = held.strides.as_mut().map_or(ptr::null_mut(), Vec::as_mut_ptr);
        Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: self.version,
            manager_ctx: Box::into_raw(held).cast::<c_void>(),
            deleter: Some(delete),
            flags: self.flags,
            dl_tensor: said,
        }))
    }
}

#[test]
fn what_goes_out_comes_in_again() {
    for tensor in [array(&[2, 3], None, false), array(&[3, 2], Some(&[-7, 1]), true), array(&[], None, false)] {
        let (owner, count) = counted();
        let raw = export(&tensor, FLAG_IS_COPIED, owner).into_versioned();
        // SAFETY: made just now, for this one import.
        let imported = unsafe { ManagedTensor::from_versioned(raw) }.unwrap().check().unwrap();
        assert_eq!(imported.tensor(), &tensor);
        assert!(imported.is_copied());
        assert_eq!(ends(&count), 0);
        drop(imported);
        assert_eq!(ends(&count), 1);
    }
}

#[test]
fn strides_go_out_wherever_there_are_dimensions() {
    let managed = array(&[2, 3], None, false).export(());
    assert!(!managed.dl_tensor().strides.is_null());
    assert_eq!(managed.dl_tensor().byte_offset, 0);
    let many = array(&[1; 64], None, false).export(()).check().unwrap(); // more than fit without a heap allocation
    assert_eq!(many.tensor().strides(), [1; 64]);
    let scalar = array(&[], None, false).export(());
    assert!(scalar.dl_tensor().shape.is_null() && scalar.dl_tensor().strides.is_null());
}

#[test]
fn a_description_leaves_the_tensor_as_it_is() {
    for (strides, said) in [(None, false), (Some(vec![3, 1]), true)] {
        let (owner, count) = counted();
        let raw = Stranger::new(&[2, 3]).with(|it| it.strides = strides).into_raw(owner);
        // SAFETY: made just now, for this one import.
        let managed = unsafe { ManagedTensor::from_versioned(raw) }.unwrap();
        assert_eq!(managed.describe().unwrap().strides(), [3, 1]);
        assert_eq!((managed.dl_tensor().strides.is_null(), ends(&count)), (!said, 0));
        assert_eq!(managed.check().unwrap().tensor().shape(), [2, 3]);
        assert_eq!(ends(&count), 1);
    }
    let raw = Stranger::new(&[-2]).into_raw(counted().0);
    // SAFETY: as above.
    let managed = unsafe { ManagedTensor::from_versioned(raw) }.unwrap();
    assert!(managed.describe().is_err());
}

#[test]
fn an_array_without_elements_goes_out_without_data() {
    let managed = array(&[3, 0], Some(&[5, 1]), false).export(());
    assert!(managed.dl_tensor().data.is_null());
    assert_eq!(managed.check().unwrap().tensor().shape(), [3, 0]);
}

#[test]
fn the_old_layout_goes_out_and_comes_in() {
    let (owner, count) = counted();
    let raw = array(&[4], Some(&[2]), false).export(owner).into_legacy().unwrap();
    // SAFETY: made just now, for this one import.
    let managed = unsafe { ManagedTensor::from_legacy(raw) }.unwrap();
    // And the new layout again, around the old one.
    // SAFETY: as above.
    let again = unsafe { ManagedTensor::from_versioned(managed.into_versioned()) }.unwrap().check().unwrap();
    assert_eq!(again.tensor(), &array(&[4], Some(&[2]), false));
    assert_eq!(ends(&count), 0);
    drop(again);
    assert_eq!(ends(&count), 1);
}

#[test]
fn the_old_layout_refuses_what_it_cannot_say() {
    let (owner, count) = counted();
    assert_eq!(array(&[4], None, true).export(owner).into_legacy(), Err(DlpackError::LegacyReadOnly));
    assert_eq!(ends(&count), 1);
}

#[test]
fn null_is_no_tensor() {
    // SAFETY: null is allowed.
    unsafe {
        assert!(matches!(ManagedTensor::from_versioned(ptr::null_mut()), Err(DlpackError::Null)));
        assert!(matches!(ManagedTensor::from_legacy(ptr::null_mut()), Err(DlpackError::Null)));
    }
}

#[test]
fn a_tensor_without_a_deleter_needs_none() {
    let mut shape = [2];
    let said = DLTensor { shape: shape.as_mut_ptr(), ..Stranger::new(&[2]).said };
    let mut managed = DLManagedTensor { dl_tensor: said, manager_ctx: ptr::null_mut(), deleter: None };
    // SAFETY: the tensor outlives the import.
    let imported = unsafe { ManagedTensor::from_legacy(&raw mut managed) }.unwrap().check().unwrap();
    assert_eq!((imported.tensor().shape(), imported.tensor().strides()), (&[2][..], &[1][..]));
}

#[test]
fn of_another_major_release_nothing_but_the_deleter_is_touched() {
    for major in [0, 2, u32::MAX] {
        let (seen, ends) = Stranger::new(&[-1]).with(|it| it.version.major = major).import();
        assert_eq!((seen, ends), (Err(DlpackError::Version { major, minor: 3 }), 1));
    }
    // A newer minor release has the same layout.
    let (seen, ends) = Stranger::new(&[1]).with(|it| it.version.minor = 99).import();
    assert!(seen.is_ok() && ends == 1);
}

#[test]
fn odd_tensors_are_refused_by_name_and_end_once() {
    type Change = fn(&mut Stranger);
    let cases: [(Change, DlpackError); 17] = [
        (|it| it.said.data = ptr::null_mut(), TensorError::NullData { elements: 6 }.into()),
        (|it| it.shape[1] = -3, TensorError::NegativeExtent { dimension: 1, extent: -3 }.into()),
        (|it| it.shape = vec![1 << 40, 1 << 40], TensorError::TooLarge.into()),
        (|it| it.strides = Some(vec![i64::MAX, 1]), TensorError::TooLarge.into()),
        (|it| it.said.ndim = -1, TensorError::TooManyDimensions { dimensions: -1 }.into()),
        (|it| it.said.ndim = 65, TensorError::TooManyDimensions { dimensions: 65 }.into()),
        (|it| it.said.ndim = i32::MAX, TensorError::TooManyDimensions { dimensions: i32::MAX.into() }.into()),
        (|it| it.shape.clear(), TensorError::NullShape { dimensions: 2 }.into()),
        (|it| it.said.dtype.code = 99, TensorError::from(DataTypeError::UnknownCode { code: 99 }).into()),
        (
            |it| it.said.dtype.bits = 31,
            TensorError::from(DataTypeError::Bits { code: crate::TypeCode::Float, bits: 31 }).into(),
        ),
        (
            |it| it.said.dtype.lanes = 0,
            TensorError::from(DataTypeError::NoLanes { code: crate::TypeCode::Float }).into(),
        ),
        (|it| it.said.device.device_type = 5, DlpackError::UnknownDevice { device_type: 5 }),
        (|it| it.said.device.device_type = i32::MIN, DlpackError::UnknownDevice { device_type: i32::MIN }),
        (|it| it.said.device.device_type = 10, DlpackError::OtherDevice { name: "ROCM", device_id: 0 }),
        (|it| it.said.device.device_id = -1, DlpackError::DeviceNumber { name: "CUDA", device_id: -1 }),
        (|it| it.said.byte_offset = u64::MAX, DlpackError::ByteOffset { data: 4096, byte_offset: u64::MAX }),
        (|it| it.flags = 1 << 9, DlpackError::Flags { flags: 1 << 9 }),
    ];
    for (change, expected) in cases {
        let (seen, ends) = Stranger::new(&[2, 3]).with(change).import();
        assert_eq!((seen, ends), (Err(expected), 1));
    }
}

#[test]
fn the_byte_offset_counts() {
    let (seen, _) = Stranger::new(&[2]).with(|it| it.said.byte_offset = 8).import();
    assert_eq!(seen.unwrap().byte_range(), 4104..4112);
}

#[test]
fn memory_of_the_host_may_have_any_number() {
    for (device_type, device) in [(1, TensorDevice::Cpu), (3, TensorDevice::CudaHost), (13, TensorDevice::CudaManaged)]
    {
        let (seen, _) = Stranger::new(&[2]).with(|it| it.said.device = DLDevice { device_type, device_id: 2 }).import();
        assert_eq!(seen.unwrap().device(), device);
        assert_eq!(DLDevice::from(device), DLDevice { device_type, device_id: 0 });
    }
}

#[test]
fn the_deleter_may_be_called_on_another_thread() {
    let (owner, count) = counted();
    let managed = array(&[4], None, false).export(owner);
    std::thread::spawn(move || drop(managed)).join().unwrap();
    assert_eq!(ends(&count), 1);
}

#[test]
fn a_panic_beside_a_tensor_ends_it_once() {
    let (owner, count) = counted();
    let managed = array(&[4], None, false).export(owner);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _tensor = managed.check();
        std::panic::resume_unwind(Box::new("no matter"));
    }));
    assert!(outcome.is_err());
    assert_eq!(ends(&count), 1);
}

#[test]
fn a_panic_of_the_owner_does_not_reach_the_consumer() {
    struct Panics(#[expect(dead_code, reason = "held for its drop")] Counted);
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("of the owner"));
        }
    }
    let (owner, count) = counted();
    drop(array(&[4], None, false).export(Panics(owner)));
    assert_eq!(ends(&count), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 1000 }))]

    /// No numbers make a panic, the deleter is called once, and accepted tensors have a valid range.
    #[test]
    fn any_numbers_end_once(
        address: u64, byte_offset: u64, flags in 0_u64..9, device_type in -1_i32..20, device_id in -1_i32..3,
        code in 0_u8..20, bits in prop::sample::select(vec![0_u8, 1, 4, 6, 7, 8, 16, 32, 64, 128]), lanes in 0_u16..5,
        dimensions in prop::collection::vec((-1_i64..9, any::<i8>()), 0..5), huge in any::<Option<i64>>(),
    ) {
        let (mut shape, strides): (Vec<i64>, Vec<i64>) =
            dimensions.into_iter().map(|(extent, stride)| (extent, i64::from(stride))).unzip();
        if let (Some(huge), Some(first)) = (huge, shape.first_mut()) {
            *first = huge;
        }
        let stranger = Stranger::new(&shape).with(|it| {
            it.flags = flags;
            it.strides = Some(strides);
            it.said.data = ptr::without_provenance_mut(address as usize);
            it.said.byte_offset = byte_offset;
            it.said.device = DLDevice { device_type, device_id };
            it.said.dtype = DLDataType { code, bits, lanes };
        });
        let (seen, ends) = stranger.import();
        prop_assert_eq!(ends, 1);
        if let Ok(tensor) = seen {
            let range = tensor.byte_range();
            prop_assert!(tensor.is_empty() || (range.start != 0 && range.start < range.end));
        }
    }
}
