//! Valid and invalid descriptions of arrays.

use super::*;
use proptest::prelude::*;

fn parts<'a>(address: u64, shape: &'a [i64], strides: Option<&'a [i64]>) -> TensorParts<'a> {
    let data_type = DataType::FLOAT32;
    TensorParts { address, device: TensorDevice::Cpu, data_type, shape, strides, read_only: false, padded: false }
}

fn tensor(address: u64, shape: &[i64], strides: Option<&[i64]>) -> Result<Tensor, TensorError> {
    Tensor::new(&parts(address, shape, strides))
}

#[test]
fn without_strides_an_array_is_dense() {
    let dense = tensor(16, &[2, 3, 4], None).unwrap();
    assert_eq!(dense.strides(), [12, 4, 1]);
    assert_eq!((dense.len(), dense.byte_range()), (24, 16..112));
    assert!(dense.is_contiguous());
    let scalar = tensor(16, &[], None).unwrap();
    assert_eq!((scalar.len(), scalar.byte_range(), scalar.is_contiguous()), (1, 16..20, true));
}

#[test]
fn negative_strides_reach_below_the_address() {
    let reversed = tensor(100, &[3], Some(&[-2])).unwrap();
    assert_eq!(reversed.byte_range(), 84..104);
    assert!(!reversed.is_contiguous());
    assert!(matches!(tensor(16, &[5], Some(&[-1])), Err(TensorError::OutsideOfAddressSpace { .. })));
}

#[test]
fn an_array_without_elements_may_be_anywhere() {
    let empty = tensor(0, &[i64::MAX, 0, i64::MAX], None).unwrap();
    assert_eq!((empty.len(), empty.byte_range(), empty.is_empty()), (0, 0..0, true));
    // The strides of an array without elements mean nothing.
    assert!(tensor(0, &[0, 3], Some(&[i64::MAX, i64::MIN])).is_ok());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    assert_eq!(tensor(0, &[1], None), Err(TensorError::NullData { elements: 1 }));
    assert_eq!(tensor(8, &[2, -1], None), Err(TensorError::NegativeExtent { dimension: 1, extent: -1 }));
    assert_eq!(tensor(8, &[i64::MAX, 2], None), Err(TensorError::TooLarge));
    assert_eq!(tensor(8, &[3], Some(&[i64::MAX])), Err(TensorError::TooLarge));
    assert_eq!(tensor(8, &[2, 2], Some(&[i64::MAX, 1])), Err(TensorError::TooLarge));
    assert_eq!(tensor(8, &[2], Some(&[1, 1])), Err(TensorError::StrideCount { strides: 2, dimensions: 1 }));
    assert_eq!(tensor(8, &[1; 65], None), Err(TensorError::TooManyDimensions { dimensions: 65 }));
    assert!(tensor(8, &[1; 64], None).is_ok());
    assert!(matches!(tensor(u64::MAX - 2, &[1], None), Err(TensorError::OutsideOfAddressSpace { .. })));
    assert!(matches!(tensor(8, &[1 << 62], None), Err(TensorError::OutsideOfAddressSpace { .. })));
}

#[test]
fn sub_byte_elements_share_bytes_unless_padded() {
    let parts = TensorParts { data_type: DataType::FLOAT4_E2M1FN, ..parts(64, &[3], None) };
    assert_eq!(Tensor::new(&parts).unwrap().byte_range(), 64..66);
    assert_eq!(Tensor::new(&TensorParts { padded: true, ..parts }).unwrap().byte_range(), 64..67);
    let reversed = TensorParts { strides: Some(&[-1]), ..parts };
    assert_eq!(Tensor::new(&reversed).unwrap().byte_range(), 63..65);
    // Whole bytes are never padded.
    assert!(!Tensor::new(&TensorParts { padded: true, data_type: DataType::INT8, ..parts }).unwrap().is_padded());
}

#[test]
fn a_moved_array_is_checked_again() {
    let reversed = tensor(100, &[3], Some(&[-2])).unwrap();
    let moved = reversed.moved_to(1000, TensorDevice::Cuda(1)).unwrap();
    assert_eq!((moved.byte_range(), moved.device()), (984..1004, TensorDevice::Cuda(1)));
    assert!(reversed.moved_to(4, TensorDevice::Cpu).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

    /// All elements of an accepted array lie within its byte range, and they reach its ends.
    #[test]
    fn the_bytes_are_those_of_a_walk(
        dimensions in prop::collection::vec((0_i64..4, -9_i64..9), 0..4),
        bits in prop::sample::select(vec![DataType::UINT1, DataType::FLOAT4_E2M1FN, DataType::FLOAT6_E2M3FN, DataType::INT32]),
        padded: bool,
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = dimensions.into_iter().unzip();
        let parts = TensorParts { data_type: bits, padded, ..parts(1 << 20, &shape, Some(&strides)) };
        let tensor = Tensor::new(&parts).unwrap();
        let bits = if padded { bits.padded_size() * 8 } else { bits.element_bits() } as i64;
        let mut seen: Option<(i64, i64)> = None;
        for number in 0..shape.iter().product() {
            let (mut rest, mut offset) = (number, 0);
            for (extent, stride) in shape.iter().zip(&strides).rev() {
                offset += rest % extent * stride;
                rest /= extent;
            }
            let bytes = ((offset * bits).div_euclid(8), (offset * bits + bits + 7).div_euclid(8));
            seen = Some(seen.map_or(bytes, |(low, high)| (low.min(bytes.0), high.max(bytes.1))));
        }
        let expected = seen.map_or((1 << 20)..(1 << 20), |(low, high)| ((1 << 20) + low) as u64..((1 << 20) + high) as u64);
        prop_assert_eq!(tensor.byte_range(), expected);
    }

    #[test]
    fn no_numbers_make_a_panic(address: u64, shape: Vec<i64>, strides: Option<Vec<i64>>) {
        let _ = tensor(address, &shape, strides.as_deref());
    }
}
