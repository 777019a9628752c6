//! Replays the table of layouts that numpy computed (`make.py`).

use serde_json::Value;
use strided_layout::{Index, LayoutError, Order, StridedLayout};

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().expect("a list").iter().map(|number| number.as_i64().expect("a number")).collect()
}

fn places(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|number| number as usize).collect()
}

fn index(value: &Value) -> Index {
    match value.as_i64() {
        Some(at) => Index::At(at),
        None => Index::Slice { start: value[0].as_i64(), end: value[1].as_i64(), step: value[2].as_i64().unwrap_or(1) },
    }
}

fn apply(layout: StridedLayout, operation: &Value) -> Result<StridedLayout, LayoutError> {
    let argument = &operation[1];
    match operation[0].as_str().expect("a name") {
        "permute" => layout.permuted(&numbers(argument)),
        "slice" => layout.sliced(&argument.as_array().expect("a list").iter().map(index).collect::<Vec<_>>()),
        "reshape" => layout.reshaped(&numbers(argument)),
        "broadcast" => layout.broadcast_to(&numbers(argument)),
        "squeeze" => Ok(layout.squeezed()),
        "unsqueeze" => layout.unsqueezed(&places(argument)),
        "repack" => layout.repacked(argument.as_u64().expect("a number") as usize, 0, -1),
        "dense" => layout.to_dense_in(if argument == "F" { Order::F } else { Order::C }),
        other => panic!("{other}"),
    }
}

/// Compares a layout with numpy's answer, in the format of `make.py`.
fn compare(layout: &StridedLayout, answer: &Value, broadcast: bool) {
    let item_size = layout.item_size() as i64;
    let end = |n: usize| answer[n].as_i64().expect("a number");
    assert_eq!(layout.shape(), numbers(&answer[0]));
    let matters = |values: &[i64]| -> Vec<i64> {
        // Skips strides that no element uses: numpy's choice may differ.
        let taken = |axis: &usize| !layout.is_empty() && layout.shape()[*axis] != 1;
        (0..layout.ndim()).filter(taken).map(|axis| values[axis]).collect()
    };
    assert_eq!(matters(&layout.byte_strides()), matters(&numbers(&answer[1])));
    assert_eq!(layout.is_contiguous_c(), answer[3] == 1, "as C");
    assert_eq!(layout.is_contiguous_f(), answer[4] == 1, "as Fortran");
    if let Some(bounds) = layout.offset_bounds() {
        assert_eq!(layout.byte_offset(), answer[2]);
        assert_eq!((bounds.start() * item_size, (bounds.end() + 1) * item_size), (end(5), end(6)));
    } else {
        assert!(layout.is_empty());
    }
    let unique = answer[7] == 1;
    assert!(unique || !layout.is_unique(), "a layout with shared memory must not be called unique");
    assert!(broadcast || layout.is_unique() == unique, "uniqueness is exact for slices and new shapes");
}

#[test]
fn layouts_are_as_numpy_says() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).expect("the table is JSON");
    assert!(cases.len() > 4000);
    for case in &cases {
        let replay = || {
            let (order, item_size) = (places(&case[1]), case[2].as_u64().expect("a number") as usize);
            let mut layout = StridedLayout::dense(&numbers(&case[0]), item_size, Order::Axes(&order));
            let mut broadcast = false;
            for operation in case[3].as_array().expect("a list") {
                broadcast |= operation[0] == "broadcast";
                layout = layout.and_then(|layout| apply(layout, operation));
            }
            match (&layout, &case[4]) {
                (Err(_), Value::Null) => {}
                (Ok(layout), answer) if !answer.is_null() => compare(layout, answer, broadcast),
                _ => panic!("numpy: {}, this crate: {layout:?}", case[4]),
            }
        };
        if let Err(panic) = std::panic::catch_unwind(replay) {
            eprintln!("the case is {case}");
            std::panic::resume_unwind(panic);
        }
    }
}
