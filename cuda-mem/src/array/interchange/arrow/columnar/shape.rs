//! The sizes of a type's buffers, and its children.

use crate::array::interchange::arrow::ArrowError;
use arrow_data::BufferSpec;
use arrow_schema::DataType;

/// The size of a buffer.
pub(super) enum Sizes {
    /// The size in bytes.
    Known(usize),
    /// The last offset in the previous buffer is the size in bytes.
    LastOffset {
        /// The size of an offset in bytes.
        width: usize,
    },
}

/// The buffers of an array. A validity, if the type can have one, comes first.
pub(super) struct Buffers {
    pub buffers: Vec<Sizes>,
    /// Whether any number of further buffers follow, and then one with their lengths.
    pub variadic: bool,
}

/// The buffers of `count` values of a type.
pub(super) fn sizes(kind: &DataType, count: usize) -> Result<Buffers, ArrowError> {
    let layout = arrow_data::layout(kind);
    let too_many = || ArrowError::Number {
        what: "the length of an array",
        value: i64::try_from(count).unwrap_or(i64::MAX),
        rule: "its buffers must fit into memory",
    };
    let mut buffers = Vec::new();
    if layout.can_contain_null_mask {
        buffers.push(Sizes::Known(count.div_ceil(8)));
    }
    // Text, lists and maps have one offset more than values.
    let has_offsets = matches!(
        kind,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::List(_)
            | DataType::LargeList(_)
            | DataType::Map(..)
    );
    let mut width = 0;
    for (index, spec) in layout.buffers.iter().enumerate() {
        buffers.push(match spec {
            BufferSpec::FixedWidth { byte_width, .. } => {
                width = *byte_width;
                let values = count + usize::from(has_offsets && index == 0);
                Sizes::Known(values.checked_mul(width).ok_or_else(too_many)?)
            }
            BufferSpec::VariableWidth => Sizes::LastOffset { width },
            BufferSpec::BitMap => Sizes::Known(count.div_ceil(8)),
            BufferSpec::AlwaysNull => Sizes::Known(0),
        });
    }
    Ok(Buffers { buffers, variadic: layout.variadic })
}

/// The types of the children, including that of a dictionary's values.
pub(super) fn children_of(kind: &DataType) -> Vec<DataType> {
    match kind {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type().clone()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type().clone()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type().clone()).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type().clone(), values.data_type().clone()],
        DataType::Dictionary(_, values) => vec![values.as_ref().clone()],
        _ => Vec::new(),
    }
}
