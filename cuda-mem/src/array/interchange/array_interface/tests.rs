//! Valid and invalid dictionaries, including those of cuda.core's tests.

use super::*;
use crate::DataTypeError;
use proptest::prelude::*;

fn interface() -> ArrayInterface {
    ArrayInterface {
        shape: vec![2, 3],
        typestr: "|i1".into(),
        data: (4096, false),
        strides: None,
        version: 3,
        stream: None,
        has_mask: false,
    }
}

fn check(change: impl FnOnce(&mut ArrayInterface)) -> Result<Tensor, ArrayInterfaceError> {
    let mut changed = interface();
    change(&mut changed);
    changed.check(TensorDevice::Cuda(0))
}

#[test]
fn arrays_of_all_versions_are_read() {
    for version in [4, 99] {
        assert_eq!(check(|it| it.version = version), Err(ArrayInterfaceError::Version { version }));
    }
    for version in 0..4 {
        let said = ArrayInterface { version, ..interface() };
        assert_eq!(said.check(TensorDevice::Cuda(0)).unwrap().shape(), [2, 3]);
        let unordered = if version < 3 { StreamName::Legacy } else { StreamName::Unordered };
        assert_eq!(said.stream_name(), Ok(unordered));
    }
    // As PyTorch exports a tensor.
    let torch = r#"{"typestr": "<f4", "shape": [2, 3], "strides": null, "data": [140000, false], "version": 2}"#;
    assert!(ArrayInterface::from_json(torch).unwrap().check(TensorDevice::Cuda(0)).is_ok());
}

#[test]
fn masks_and_odd_streams_are_refused() {
    assert_eq!(check(|it| it.has_mask = true), Err(ArrayInterfaceError::Mask));
    for stream in [0, -1] {
        assert!(matches!(
            check(|it| it.stream = Some(stream)),
            Err(ArrayInterfaceError::Tensor(TensorError::Stream { .. }))
        ));
    }
    assert!(check(|it| it.stream = Some(1)).is_ok());
}

#[test]
fn strides_are_bytes_and_whole_elements() {
    let of = |typestr: &str, strides: &[i64]| {
        check(|it| (it.typestr, it.strides) = (typestr.into(), Some(strides.to_vec())))
            .map(|tensor| tensor.strides().to_vec())
    };
    assert_eq!(of("|V4", &[12, 4]), Ok(vec![3, 1]));
    assert_eq!(of("|V4", &[0, 0]), Ok(vec![0, 0]));
    assert_eq!(of("|V4", &[-12, 4]), Ok(vec![-3, 1]));
    let odd = TensorError::StrideNotMultiple { dimension: 1, stride: 3, size: 4 };
    assert_eq!(of("|V4", &[12, 3]), Err(odd.into()));
    // The strides of an array without elements stay unchanged.
    let empty =
        check(|it| (it.shape, it.typestr, it.strides, it.data.0) = (vec![0, 3], "|V8".into(), Some(vec![24, 8]), 0));
    assert_eq!(empty.map(|tensor| tensor.strides().to_vec()), Ok(vec![3, 1]));
}

#[test]
fn types_are_numpys() {
    assert_eq!(check(|it| it.typestr = "|V16".into()).unwrap().data_type().size(), Some(16)); // a structure
    let error = check(|it| it.typestr = "<M8".into()).unwrap_err();
    assert!(matches!(error, ArrayInterfaceError::Tensor(TensorError::DataType(DataTypeError::Typestr { .. }))));
    let bfloat = TensorParts {
        address: 4096,
        device: TensorDevice::Cpu,
        data_type: DataType::BFLOAT16,
        shape: &[1],
        strides: None,
        read_only: false,
        padded: false,
    };
    assert!(ArrayInterface::of(&Tensor::new(&bfloat).unwrap(), None).is_err());
}

#[test]
fn json_is_pythons_dictionary() {
    let mut said = interface();
    said.strides = Some(vec![1, 2]);
    said.stream = Some(2);
    assert_eq!(ArrayInterface::from_json(&said.to_json()), Ok(said));
    let python = r#"{"shape": [], "typestr": "|u1", "data": [1, true], "strides": null, "descr": [["", "|u1"]], "version": 3, "mask": null}"#;
    let tensor = ArrayInterface::from_json(python).unwrap().check(TensorDevice::Cpu).unwrap();
    assert!(tensor.is_read_only() && tensor.len() == 1);
    let masked = ArrayInterface::from_json(&python.replace("null}", r#"{"shape": [1]}}"#)).unwrap();
    assert_eq!(masked.check(TensorDevice::Cpu), Err(ArrayInterfaceError::Mask));
    for odd in ["", "{}", "[]", r#"{"shape": [1.5], "typestr": "|u1", "data": [1, true], "version": 3}"#] {
        assert!(matches!(ArrayInterface::from_json(odd), Err(ArrayInterfaceError::Json { .. })), "{odd}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

    #[test]
    fn what_is_said_of_an_array_is_read_again(
        dimensions in prop::collection::vec((0_i64..4, -9_i64..9), 0..4), dense: bool, read_only: bool,
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = dimensions.into_iter().unzip();
        let strides = (!dense).then_some(&strides[..]);
        let (device, data_type) = (TensorDevice::CudaManaged, DataType::COMPLEX64);
        let parts = TensorParts { address: 1 << 20, device, data_type, shape: &shape, strides, read_only, padded: false };
        let tensor = Tensor::new(&parts).unwrap();
        let said = ArrayInterface::of(&tensor, None).unwrap();
        let seen = ArrayInterface::from_json(&said.to_json()).unwrap().check(device).unwrap();
        prop_assert_eq!(seen.shape(), tensor.shape());
        prop_assert_eq!(seen.is_read_only(), read_only);
        if !tensor.is_empty() {
            prop_assert_eq!(seen.byte_range(), tensor.byte_range());
        }
    }

    #[test]
    fn no_dictionary_makes_a_panic(
        shape: Vec<i64>, typestr in "[<>|=][biufcV][0-9]{0,6}", address: u64, strides: Option<Vec<i64>>, stream: Option<i64>,
    ) {
        let said = ArrayInterface { shape, typestr, data: (address, false), strides, stream, ..interface() };
        let _ = said.check(TensorDevice::Cuda(0));
    }
}
