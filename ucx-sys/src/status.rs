//! The status that an address stands for, which UCX computes by a macro.

use crate::bindings::{ucs_status_ptr_t, ucs_status_t};

/// The state of an operation by what the call that started it returned: `UCS_OK` if the operation is done, an error if
/// it failed, `UCS_INPROGRESS` if the result is a request, which the caller must free.
///
/// ```
/// use ucx_sys::{UCS_PTR_STATUS, ucs_status_t};
/// assert_eq!(UCS_PTR_STATUS(std::ptr::null_mut()), ucs_status_t::UCS_OK);
/// ```
#[allow(non_snake_case)]
pub fn UCS_PTR_STATUS(result: ucs_status_ptr_t) -> ucs_status_t {
    match i8::try_from(result.addr().cast_signed()) {
        Ok(code) if (ucs_status_t::UCS_ERR_LAST.0..=0).contains(&code) => ucs_status_t(code),
        _ => ucs_status_t::UCS_INPROGRESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::without_provenance_mut;

    #[test]
    fn an_address_is_a_request_unless_it_is_a_code() {
        let of = |address: isize| UCS_PTR_STATUS(without_provenance_mut(address.cast_unsigned()));
        assert_eq!((of(0), of(-3)), (ucs_status_t::UCS_OK, ucs_status_t::UCS_ERR_IO_ERROR));
        assert_eq!((of(-100), of(-80)), (ucs_status_t::UCS_ERR_LAST, ucs_status_t::UCS_ERR_ENDPOINT_TIMEOUT));
        for request in [1, 100, -101, -128, 0x7f00_1234_5678, isize::MIN] {
            assert_eq!(of(request), ucs_status_t::UCS_INPROGRESS, "{request}");
        }
    }

    #[test]
    fn an_unknown_status_survives() {
        assert_eq!((ucs_status_t(-70).0, ucs_status_t(-70).name()), (-70, None));
        assert_eq!(ucs_status_t::UCS_ERR_BUSY.name(), Some("UCS_ERR_BUSY"));
    }
}
