//! How large the buffers of a type are, and what its children are.

use crate::interchange::arrow::ArrowError;
use arrow_data::BufferSpec;
use arrow_schema::DataType;

/// How large a buffer is.
pub(super) enum Sizes {
    /// In bytes.
    Known(usize),
    /// As many bytes as the last offset says, in the buffer before, of numbers of so many bytes.
    LastOffset {
        /// The size of an offset.
        width: usize,
    },
}

/// The buffers of an array, the validity first where there may be one.
pub(super) struct Buffers {
    pub buffers: Vec<Sizes>,
    /// Whether buffers of any number follow, and one that holds their lengths.
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

/// The types of the children, a dictionary's values among them.
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
