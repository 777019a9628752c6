//! Replays the table of layouts that numpy computed, through the C library: views of host memory, which no function
//! here accesses.

use core::mem::MaybeUninit;
use core::ptr;
use cudamem::data_type::{CUDAMEM_TYPE_OPAQUE, cudamem_data_type};
use cudamem::handles::cudamem_view;
use cudamem::status::CUDAMEM_SUCCESS;
use cudamem::view::*;
use cudamem::view_parts::*;
use serde_json::Value;
use testkit::c_calls::last_message;

const TABLE: &str = include_str!("../../../rust/tests/arrays/layouts/cases.json");

fn numbers(value: &Value) -> Vec<i64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|number| number.as_i64().expect("a number")).collect()
}

fn made(call: impl FnOnce(Option<&mut MaybeUninit<cudamem_view>>) -> i32) -> Option<cudamem_view> {
    let mut place = MaybeUninit::uninit();
    // SAFETY: the call writes the place on success.
    (call(Some(&mut place)) == CUDAMEM_SUCCESS).then(|| unsafe { place.assume_init() })
}

fn layout_of(item_size: u64, shape: &[i64], strides: Option<&[i64]>) -> cudamem_view_layout {
    let lanes = u16::try_from(item_size).expect("small elements");
    cudamem_view_layout {
        size: size_of::<cudamem_view_layout>(),
        data_type: cudamem_data_type { code: CUDAMEM_TYPE_OPAQUE, bits: 8, lanes },
        flags: 0,
        ndim: shape.len(),
        shape: shape.as_ptr(),
        strides: strides.map_or(ptr::null(), <[i64]>::as_ptr),
        offset: 0,
    }
}

/// The strides of a layout without gaps. `order` lists the axes from the slowest on.
fn dense_strides(shape: &[i64], order: &[i64]) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    if !shape.contains(&0) {
        order.iter().rev().fold(1, |next, axis| {
            strides[*axis as usize] = next;
            next * shape[*axis as usize]
        });
    }
    strides
}

fn index(value: &Value) -> cudamem_index {
    let end = |value: &Value| value.as_i64().unwrap_or(CUDAMEM_INDEX_OPEN);
    match value.as_i64() {
        Some(only) => cudamem_index { start: only, end: 0, step: 0 },
        None => cudamem_index { start: end(&value[0]), end: end(&value[1]), step: value[2].as_i64().unwrap_or(1) },
    }
}

fn apply(view: cudamem_view, operation: &Value, info: &cudamem_view_info) -> Option<cudamem_view> {
    let argument = &operation[1];
    let list = || numbers(argument);
    // SAFETY: all lists have the given number of entries.
    unsafe {
        match operation[0].as_str().expect("a name") {
            "permute" => made(|place| cudamem_view_permute(view, list().as_ptr(), list().len(), place)),
            "reshape" => made(|place| cudamem_view_reshape(view, list().as_ptr(), list().len(), place)),
            "broadcast" => made(|place| cudamem_view_broadcast(view, list().as_ptr(), list().len(), place)),
            "squeeze" | "unsqueeze" => {
                let mut shape = core::slice::from_raw_parts(info.shape, info.ndim).to_vec();
                if argument.is_array() {
                    let mut places = list();
                    places.sort_unstable();
                    for (index, place) in places.iter().enumerate() {
                        if places[..index].contains(place) || !(0..=shape.len() as i64).contains(place) {
                            return None;
                        }
                        shape.insert(*place as usize, 1);
                    }
                } else if info.elements == 0 {
                    shape = vec![0];
                } else {
                    shape.retain(|extent| *extent != 1);
                }
                made(|place| cudamem_view_reshape(view, shape.as_ptr(), shape.len(), place))
            }
            "slice" => {
                let indices: Vec<_> = argument.as_array().expect("a list").iter().map(index).collect();
                made(|place| cudamem_view_slice(view, indices.as_ptr(), indices.len(), place))
            }
            "repack" => {
                let layout = layout_of(argument.as_u64().expect("a size"), &[], None);
                made(|place| cudamem_view_repack(view, layout.data_type, -1, place))
            }
            "dense" => {
                let shape = core::slice::from_raw_parts(info.shape, info.ndim);
                let mut layout = layout_of(u64::from(info.data_type.lanes), shape, None);
                layout.flags = if argument == "F" { CUDAMEM_VIEW_F_ORDER } else { 0 };
                made(|place| cudamem_view_with_layout(view, &layout, place))
            }
            other => panic!("{other}"),
        }
    }
}

fn info_of(view: cudamem_view) -> cudamem_view_info {
    let mut info = MaybeUninit::<cudamem_view_info>::zeroed();
    // SAFETY: the struct is as large as it says, and all bytes are a value of it.
    unsafe {
        (*info.as_mut_ptr()).size = size_of::<cudamem_view_info>();
        assert_eq!(cudamem_view_get_info(view, info.as_mut_ptr()), CUDAMEM_SUCCESS, "{}", last_message());
        info.assume_init()
    }
}

/// Compares with numpy's answer: shape, strides in bytes, first byte, C contiguous, Fortran contiguous, lowest and
/// highest byte, unique.
fn compare(info: &cudamem_view_info, answer: &Value, broadcast: bool) {
    // SAFETY: the lists belong to the view, which is alive.
    let (shape, strides) = unsafe {
        (core::slice::from_raw_parts(info.shape, info.ndim), core::slice::from_raw_parts(info.strides, info.ndim))
    };
    let item_size = i64::from(info.data_type.lanes);
    assert_eq!(shape, numbers(&answer[0]));
    let flag = |flag| info.flags & flag != 0;
    if info.elements != 0 {
        for (axis, wanted) in numbers(&answer[1]).into_iter().enumerate().filter(|(axis, _)| shape[*axis] != 1) {
            assert_eq!(strides[axis] * item_size, wanted);
        }
        assert_eq!(answer[2], info.offset * item_size);
    }
    assert_eq!(info.elements as i64, shape.iter().product::<i64>());
    assert_eq!(info.dense_size, info.elements * item_size as u64);
    assert_eq!(flag(CUDAMEM_VIEW_C_ORDER), answer[3] == 1);
    assert_eq!(flag(CUDAMEM_VIEW_F_ORDER), answer[4] == 1);
    let unique = answer[7] == 1;
    assert!(unique || !flag(CUDAMEM_VIEW_UNIQUE), "elements that share memory are never called unique");
    assert!(broadcast || flag(CUDAMEM_VIEW_UNIQUE) == unique, "slices and new shapes are known exactly");
}

#[test]
fn views_are_laid_out_as_numpy_says() {
    let cases: Vec<Value> = serde_json::from_str(TABLE).expect("the table is JSON");
    assert!(cases.len() > 4000);
    // Larger than any view needs. The memory is never touched, so the system does not commit it.
    let mut memory = vec![0u8; 64 << 20];
    for case in &cases {
        let (shape, order, item_size) = (numbers(&case[0]), numbers(&case[1]), case[2].as_u64().expect("a size"));
        let strides = dense_strides(&shape, &order);
        let layout = layout_of(item_size, &shape, Some(&strides));
        // SAFETY: the memory outlives the views.
        let mut view = made(|place| unsafe {
            let (start, size) = (memory.as_mut_ptr().cast(), memory.len());
            cudamem_view_borrow_host(start, size, &layout, None, ptr::null_mut(), place)
        });
        assert!(view.is_some(), "{case}: {}", last_message());
        let mut broadcast = false;
        for operation in case[3].as_array().expect("a list") {
            broadcast |= operation[0] == "broadcast";
            let Some(before) = view else { break };
            view = apply(before, operation, &info_of(before));
            assert_eq!(cudamem_view_destroy(before), CUDAMEM_SUCCESS);
        }
        assert_eq!(view.is_some(), !case[4].is_null(), "numpy and C differ on {case}: {}", last_message());
        let Some(view) = view else { continue };
        let outcome = std::panic::catch_unwind(|| compare(&info_of(view), &case[4], broadcast));
        assert!(outcome.is_ok(), "the case is {case}");
        assert_eq!(cudamem_view_destroy(view), CUDAMEM_SUCCESS);
    }
}
