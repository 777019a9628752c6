//! Structs that begin with their size: options that programs pass, and results that they get. Releases add fields.

use super::{Outcome, invalid};
use core::mem::MaybeUninit;
use core::{ptr, slice};

/// Reads a struct of options. A smaller struct, from an older release, lacks fields; they become zero, which is each
/// field's default. A larger struct, from a newer release, must hold zeros in the fields that this release does not
/// know.
///
/// # Safety
///
/// `T` is a C struct that begins with its size as a `usize`, and any bytes are a valid `T`. `options` is NULL, or
/// points to such a size and to as many bytes.
pub unsafe fn options<T: Options>(argument: &'static str, options: *const T) -> Outcome<T> {
    // SAFETY: any bytes are a valid struct of options, zeros too (`Options`).
    let mut ours: T = unsafe { MaybeUninit::zeroed().assume_init() };
    if options.is_null() {
        return Ok(ours);
    }
    // SAFETY: this function's contract guarantees at least the size. The size is checked before anything else is read.
    let size = unsafe { struct_size(argument, options.cast(), T::FIRST_SIZE, align_of::<T>()) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: both structs have at least `known` bytes.
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), ptr::from_mut(&mut ours).cast(), known) };
    // SAFETY: the program's struct has `size` bytes.
    let rest = unsafe { slice::from_raw_parts(options.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|byte| *byte != 0) {
        let rule = format!("this release knows {known} bytes of it, and all further bytes must be zero");
        return Err(invalid(argument, format!("a struct of {size} bytes"), rule));
    }
    Ok(ours)
}

/// Refuses a place for a struct of results that [`fill`] would refuse. For calls that must not fail once they have acted.
///
/// # Safety
///
/// As [`fill`].
pub unsafe fn check_fill<T: Options>(argument: &'static str, info: *const T) -> Outcome<usize> {
    if info.is_null() {
        return Err(invalid(argument, "NULL", "it must point to where the result goes"));
    }
    // SAFETY: this function's contract.
    unsafe { struct_size(argument, info.cast(), T::FIRST_SIZE, align_of::<T>()) }
}

/// Fills in the part of a struct of results that the program's struct has room for. Its size field stays.
///
/// # Safety
///
/// As [`options`]; `info` is NULL or writable for as many bytes as it says.
pub unsafe fn fill<T: Options>(argument: &'static str, info: *mut T, value: T) -> Outcome {
    // SAFETY: this function's contract.
    let size = unsafe { check_fill(argument, info) }?;
    let head = size_of::<usize>();
    let known = size.min(size_of::<T>());
    // SAFETY: both structs have at least `known` bytes, and begin with `head` bytes for the size.
    unsafe {
        ptr::copy_nonoverlapping(
            ptr::from_ref(&value).cast::<u8>().add(head),
            info.cast::<u8>().add(head),
            known - head,
        )
    };
    Ok(())
}

/// A C struct of options or of results that begins with its size.
///
/// # Safety
///
/// The struct is `repr(C)`, its first field is a `usize`, it has no padding, and any bytes are a valid value of it,
/// zeros too.
pub unsafe trait Options: Copy {
    /// The size of the struct in the first release that had it.
    const FIRST_SIZE: usize;
}

/// Reads and checks the size field that a struct begins with.
///
/// # Safety
///
/// `place` is readable for a `usize`, if it is aligned to `alignment`.
unsafe fn struct_size(argument: &'static str, place: *const usize, first: usize, alignment: usize) -> Outcome<usize> {
    if !place.addr().is_multiple_of(alignment) {
        return Err(invalid(argument, format!("{place:p}"), format!("its address must be a multiple of {alignment}")));
    }
    // SAFETY: this function's contract.
    let size = unsafe { place.read() };
    // No release will have a struct of a page's size: such a number was never set.
    if size < first || size > 4096 {
        let rule = format!("its size field must hold the struct's size, {first} or more");
        return Err(invalid(argument, format!("a struct of size {size}"), rule));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Sample {
        size: usize,
        first: u64,
        second: u64,
    }
    // SAFETY: three words, and any bytes are valid for them.
    unsafe impl Options for Sample {
        const FIRST_SIZE: usize = 16;
    }

    fn read(words: &[u64]) -> Outcome<Sample> {
        // SAFETY: the slice is as long as its first word says, or `options` refuses that word.
        unsafe { options("options", words.as_ptr().cast()) }
    }

    #[test]
    fn options_of_other_struct_sizes_are_read_or_refused() {
        // SAFETY: NULL is allowed.
        let none: Outcome<Sample> = unsafe { options("options", ptr::null()) };
        assert_eq!(none.ok(), Some(Sample { size: 0, first: 0, second: 0 }));
        assert_eq!(read(&[24, 1, 2]).ok(), Some(Sample { size: 24, first: 1, second: 2 }));
        assert_eq!(read(&[16, 1, 99]).ok(), Some(Sample { size: 16, first: 1, second: 0 }));
        assert_eq!(read(&[32, 1, 2, 0]).ok(), Some(Sample { size: 32, first: 1, second: 2 }));
        for wrong in [[32, 1, 2, 3], [0, 0, 0, 0], [15, 0, 0, 0], [u64::MAX, 0, 0, 0]] {
            assert!(read(&wrong).is_err(), "{wrong:?}");
        }
        let odd = ptr::without_provenance::<Sample>(3);
        // SAFETY: `options` refuses the address before it reads anything.
        assert!(unsafe { options("options", odd) }.is_err());
    }

    #[test]
    fn results_are_written_as_far_as_the_program_has_room() {
        let mut place = [16u64, 0, 77];
        let value = Sample { size: 24, first: 5, second: 6 };
        // SAFETY: the place has the 16 bytes that its size field states.
        assert!(unsafe { fill("info", place.as_mut_ptr().cast(), value) }.is_ok());
        assert_eq!(place, [16, 5, 77]);
        // SAFETY: `fill` refuses NULL.
        assert!(unsafe { fill("info", ptr::null_mut(), value) }.is_err());
    }
}
