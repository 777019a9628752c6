//! Checks of memory ranges, before any driver call.

use crate::{Error, Result};
use core::ops::{Bound, Range, RangeBounds};

/// Converts any kind of range of bytes to `start..end` within `size`. The error contains the requested range.
pub(crate) fn resolve(call: &'static str, range: impl RangeBounds<usize>, size: usize) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(size),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= size => Ok(start..end),
        (start, end) => {
            let start = start.unwrap_or(usize::MAX);
            Err(Error::OutOfRange {
                call,
                offset: start,
                length: end.unwrap_or(usize::MAX).saturating_sub(start),
                size,
            })
        }
    }
}

/// Checks that `length` bytes at `offset` lie within `size`.
#[inline]
pub(crate) fn span(call: &'static str, offset: usize, length: usize, size: usize) -> Result<Range<usize>> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(Error::OutOfRange { call, offset, length, size }),
    }
}

/// Converts any kind of range of elements of `unit` bytes to `start..end` within `length` elements. Errors count bytes.
pub(crate) fn resolve_elements(
    call: &'static str,
    range: impl RangeBounds<usize>,
    length: usize,
    unit: usize,
) -> Result<Range<usize>> {
    resolve(call, range, length).map_err(|error| in_bytes(error, unit))
}

/// Checks that `count` elements of `unit` bytes at the element `offset` lie within `length` elements. Errors count
/// bytes.
#[inline]
pub(crate) fn span_elements(
    call: &'static str,
    offset: usize,
    count: usize,
    length: usize,
    unit: usize,
) -> Result<Range<usize>> {
    span(call, offset, count, length).map_err(|error| in_bytes(error, unit))
}

#[cold]
fn in_bytes(error: Error, unit: usize) -> Error {
    match error {
        Error::OutOfRange { call, offset, length, size } => Error::OutOfRange {
            call,
            offset: offset.saturating_mul(unit),
            length: length.saturating_mul(unit),
            size: size.saturating_mul(unit),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_errors_report_the_requested_range() {
        assert_eq!(resolve("t", .., 10), Ok(0..10));
        assert_eq!(resolve("t", 10.., 10), Ok(10..10));
        assert_eq!(resolve("t", 2..=4, 10), Ok(2..5));
        let outside = |offset, length| Error::OutOfRange { call: "t", offset, length, size: 10 };
        assert_eq!(resolve("t", 2..11, 10), Err(outside(2, 9)));
        assert_eq!(resolve("t", 11.., 10), Err(outside(11, 0)));
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 5..3;
        assert_eq!(resolve("t", reversed, 10), Err(outside(5, 0)));
        assert_eq!(resolve("t", 1..=usize::MAX, 10), Err(outside(1, usize::MAX - 1)));
        assert_eq!(span("t", 4, 6, 10), Ok(4..10));
        assert_eq!(span("t", usize::MAX, 2, 10), Err(outside(usize::MAX, 2)));
    }

    #[test]
    fn errors_on_elements_speak_of_bytes() {
        let outside = |offset, length| Error::OutOfRange { call: "t", offset, length, size: 40 };
        assert_eq!(span_elements("t", 9, 2, 10, 4), Err(outside(36, 8)));
        assert_eq!(resolve_elements("t", 11.., 10, 4), Err(outside(44, 0)));
        assert_eq!(span_elements("t", 1, usize::MAX, 10, 4), Err(outside(4, usize::MAX)));
        assert_eq!(span_elements("t", 10, 0, 10, 4), Ok(10..10));
    }
}
