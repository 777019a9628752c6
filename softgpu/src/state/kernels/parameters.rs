//! Parameters of kernels: what an image states, or else what the program has registered or its library of kernels exports.

use crate::call::tell;
use crate::state::Global;
use crate::state::modules::{MOST_OF_PARAMETERS, Parameter, Signature};
use crate::sync::{read, write};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::RwLock;

/// The parameters that programs have registered.
static REGISTERED: RwLock<Option<HashMap<String, Vec<Parameter>>>> = RwLock::new(None);

/// States the sizes of a kernel's parameters in bytes: cubins state them in a form that is not documented, and without them
/// a kernel of a cubin with parameters cannot be launched. PTX states them itself.
///
/// A second registration replaces the first. Registrations stay over a [`reset`](crate::reset).
///
/// # Panics
///
/// If the parameters have more than 32764 bytes, which is more than any kernel has.
///
/// ```
/// // __global__ void scale(float *values, float factor, unsigned count)
/// softgpu::register_parameters("_Z5scalePffj", &[8, 4, 4]);
/// ```
pub fn register_parameters(name: &str, sizes: &[usize]) {
    let places = laid_out(sizes);
    assert!(places.is_some(), "the parameters of `{name}`, {sizes:?}, have more than {MOST_OF_PARAMETERS} bytes");
    write(&REGISTERED).get_or_insert_default().insert(name.to_owned(), places.unwrap_or_default());
}

/// The parameters of a kernel, if they are known.
pub(crate) fn parameters<'a>(global: &Global, signature: &'a Signature) -> Option<Cow<'a, [Parameter]>> {
    if let Some(stated) = &signature.parameters {
        return Some(stated.into());
    }
    let name = signature.name.as_str();
    let registered = || read(&REGISTERED).as_ref()?.get(name).cloned();
    let exported = || {
        let places = laid_out(&global.kernel_library.as_ref()?.parameters(name)?);
        if places.is_none() {
            tell(&format!(
                "softgpu: `{name}_parameters` of the library that SOFTGPU_KERNELS names must be an array of size_t that ends \
                 with a zero, but states more than {MOST_OF_PARAMETERS} bytes"
            ));
        }
        places
    };
    registered().or_else(exported).map(Cow::Owned)
}

/// Parameters of some sizes, each at a multiple of the largest power of two that divides its size, up to 8 bytes. That is
/// the alignment of all types but those with a larger one. `None` if no kernel has so many bytes.
pub(super) fn laid_out(sizes: &[usize]) -> Option<Vec<Parameter>> {
    let mut end = 0_usize;
    let place = |size: &usize| {
        let offset = end.next_multiple_of(1 << size.trailing_zeros().min(3));
        end = offset.checked_add(*size).filter(|end| *end <= MOST_OF_PARAMETERS)?;
        Some(Parameter { offset, size: *size })
    };
    sizes.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_aligned_by_their_sizes() {
        let offsets = |sizes: &[usize]| laid_out(sizes).unwrap().iter().map(|place| place.offset).collect::<Vec<_>>();
        assert_eq!(offsets(&[1, 8, 4, 12, 2, 32]), [0, 8, 16, 20, 32, 40]);
        assert_eq!(offsets(&[MOST_OF_PARAMETERS]), [0]);
        assert!(laid_out(&[MOST_OF_PARAMETERS, 1]).is_none() && laid_out(&[8, usize::MAX]).is_none());
    }
}
