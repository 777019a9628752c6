//! Views with random layouts on CPU memory, and copies between devices.

use crate::array::view::{Index, Order, StridedLayout, StridedView};
use crate::driver::context::BEFORE_ENTRY;
use crate::memory::DeviceMemory;
use crate::{Buffer, DataType, Driver, Stream};
use proptest::prelude::*;

#[cfg(feature = "softgpu")]
#[cfg_attr(miri, ignore = "runs kernels on threads of its own")]
#[test]
fn a_copy_looks_again_at_access_when_it_is_queued() -> crate::Result<()> {
    let driver = Driver::software()?;
    let (near, far) = (driver.device(0)?.create_context()?, driver.device(1)?.create_context()?);
    let bytes: Vec<u8> = (0..240).collect();
    let source = Buffer::from_slice(&DeviceMemory::new(&far), &bytes, &Stream::new(&far)?)?;
    let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&near), 120, &Stream::new(&near)?)?;
    let even: Vec<u8> = bytes.iter().copied().step_by(2).collect();
    for denied in [false, true] {
        copy.fill(.., 0)?;
        far.allow_access(&near)?;
        if denied {
            let (near, far) = (near.clone(), far.clone());
            BEFORE_ENTRY.set(Some(Box::new(move || far.deny_access(&near).unwrap())));
        }
        let view = source.view(&[12, 20])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
        copy.view_mut(&[12, 10])?.copy_from(&view)?;
        assert!(BEFORE_ENTRY.take().is_none(), "the copy relied on no access");
        assert_eq!(copy.to_vec()?, even);
    }
    near.synchronize()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 2000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn views_of_any_numbers_are_within_their_memory_or_refused(
        axes in prop::collection::vec((0..4_i64, prop_oneof![-9..9_i64, any::<i64>()]), 0..4),
        offset in prop_oneof![-3..30_i64, any::<i64>()],
        packed: bool,
    ) {
        let (shape, strides): (Vec<i64>, Vec<i64>) = axes.into_iter().unzip();
        let layout = StridedLayout::new(&shape, &strides, 1).and_then(|layout| layout.with_offset(offset));
        let Ok(layout) = layout else { return Ok(()) };
        let mut bytes = [7_u8; 24];
        let line = StridedLayout::dense(&[24], 1, Order::C).unwrap();
        let data_type = if packed { DataType::FLOAT4_E2M1FN } else { DataType::UINT8 };
        let view = StridedView::of_mut_slice(&mut bytes, line).unwrap().with_type_and_layout(data_type, layout.clone());
        let per_byte = if packed { 2 } else { 1 };
        let within = layout.offset_bounds().is_none_or(|ends| *ends.start() >= 0 && *ends.end() < 24 * per_byte);
        prop_assert_eq!(view.is_ok(), within);
        let Ok(mut view) = view else { return Ok(()) };
        let other = vec![1_u8; 3 * layout.volume() as usize];
        let dense = StridedLayout::dense(&[other.len() as i64], 1, Order::C).unwrap();
        let source = StridedView::of_slice(&other, dense).unwrap();
        let source = source.with_type_and_layout(data_type, StridedLayout::dense(&shape, 1, Order::F).unwrap()).unwrap();
        let copied = view.copy_from(&source);
        prop_assert!(packed || copied.is_ok() == layout.is_unique());
        if !packed {
            prop_assert_eq!(view.read::<u8>().unwrap().iter().count(), layout.volume() as usize);
            #[cfg(feature = "ndarray")]
            prop_assert_eq!(view.read::<u8>().unwrap().array().unwrap().len(), layout.volume() as usize);
        }
        let count = bytes.iter().filter(|byte| **byte == 1).count();
        prop_assert!(packed || !layout.is_unique() || count == layout.volume() as usize);
    }
}
