//! Strided views, and copies between them.

use crate::soak::{Done, Hands};
use cuda_mem::buffer::Exclusive;
use cuda_mem::memory::kind::Any;
use cuda_mem::view::{Index, Order, StridedLayout, StridedView, ViewCopyOptions};
use cuda_mem::{Buffer, DataType, Error};

/// Copies a matrix from the host into a layout of one memory, from there into another memory's layout, and back.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (rows, columns) = (1 + hands.below(40), 1 + hands.below(60));
    let bytes = hands.bytes(rows * columns);
    let dense = StridedLayout::dense(&[rows as i64, columns as i64], 1, Order::C)?;
    let (first, second) = (layout(hands, rows, columns)?, layout(hands, rows, columns)?);
    let host = StridedView::of_slice(&bytes, dense)?;
    let (temporary, with_temporary) = (hands.source(), hands.chance(3));
    let mut options = ViewCopyOptions::default();
    if with_temporary {
        options.temporary = Some(&temporary.resource);
    }
    let (mut one, mut two) = (room(hands, &first)?, room(hands, &second)?);
    hands.doing("a strided copy from the host");
    view(&mut one, &first)?.copy_from_with(&host, &options)?;
    hands.doing("a strided copy");
    view(&mut two, &second)?.copy_from_with(&view(&mut one, &first)?, &options)?;
    hands.doing("a strided copy to the host");
    hands.same("a strided copy", &view(&mut two, &second)?.into_shared().to_vec::<u8>()?, &bytes)?;
    let mut whole = two.to_vec()?;
    // The bytes between the elements are unchanged.
    for row in 0..rows {
        for column in 0..columns {
            let place = second.offset() + row as i64 * second.strides()[0] + column as i64 * second.strides()[1];
            whole[place as usize] = BETWEEN;
        }
    }
    let expected = vec![BETWEEN; whole.len()];
    hands.same("what lies between the elements", &whole, &expected)
}

/// The byte that fills the memory between the elements.
const BETWEEN: u8 = 0xb7;

/// One of a matrix's possible layouts.
fn layout(hands: &mut Hands<'_>, rows: usize, columns: usize) -> Done<StridedLayout> {
    let (rows, columns) = (rows as i64, columns as i64);
    Ok(match hands.below(4) {
        0 => StridedLayout::dense(&[rows, columns], 1, Order::C)?,
        1 => StridedLayout::dense(&[columns, rows], 1, Order::C)?.permuted(&[1, 0])?,
        2 => StridedLayout::dense(&[rows, 2 * columns], 1, Order::C)?.sliced(&[Index::ALL, Index::ALL.step(2)])?,
        _ => StridedLayout::dense(&[3 * rows, columns], 1, Order::F)?.sliced(&[Index::ALL.step(3), Index::ALL])?,
    })
}

fn room(hands: &mut Hands<'_>, layout: &StridedLayout) -> Done<Buffer<u8, Any>> {
    let (mut source, size) = (hands.source(), layout.required_size()?);
    while source.most < size {
        source = hands.source();
    }
    hands.doing(source.name);
    Ok(Buffer::filled(&source.resource, size, BETWEEN, &hands.stream()?)?)
}

fn view<'a>(buffer: &'a mut Buffer<u8, Any>, layout: &StridedLayout) -> Result<StridedView<'a, Exclusive>, Error> {
    StridedView::exclusive(buffer, DataType::UINT8, layout.clone())
}
