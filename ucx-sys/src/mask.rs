//! Bits of masks, each with the release that introduced it.

use cuda_sys::Release;
use std::sync::Arc;

/// A bit of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bit {
    /// Its name in C.
    pub name: &'static str,
    /// Its value.
    pub value: u32,
    /// The release that introduced it.
    pub since: Release,
}

impl Bit {
    pub(crate) const fn new(name: &'static str, value: u32, since: u32) -> Self {
        Self { name, value, since: Release::from_number(since) }
    }
}

/// A type of bits: which fields of a structure are set, or how a function behaves.
///
/// ```
/// use ucx_sys::{Mask, ucp_mem_map_flags};
/// let lock = ucp_mem_map_flags::BITS.iter().find(|bit| bit.name == "UCP_MEM_MAP_LOCK").unwrap();
/// assert_eq!(lock.since.to_string(), "1.18");
/// ```
pub trait Mask: Copy {
    /// All its bits that this crate declares.
    const BITS: &'static [Bit];

    /// The bits that are set.
    fn value(self) -> u32;
}

/// The first bit of a mask that a release does not have.
pub(crate) fn newer<M: Mask>(mask: M, than: Option<Release>) -> Option<&'static Bit> {
    M::BITS.iter().find(|bit| mask.value() & bit.value != 0 && than.is_none_or(|release| bit.since > release))
}

/// The error for a bit that the library would ignore.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{library} does not know {name} and would ignore it: it came with UCX {since}, and the library {}. Update \
     {library}, or leave the bit out",
    .version.map_or("does not say its release".to_owned(), |version| format!("serves UCX {version}"))
)]
pub struct MissingBit {
    /// The bit's name.
    pub name: &'static str,
    /// The release that introduced it.
    pub since: Release,
    /// The library that lacks it.
    pub library: Arc<str>,
    /// The release that the library implements, if it reports a release.
    pub version: Option<Release>,
}

cuda_sys::debug_as_display!(MissingBit);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ucp_ep_attr_field, ucp_mem_map_flags, ucp_op_attr_t, ucp_params_field};

    #[test]
    fn a_bit_is_newer_than_the_releases_before_its_own() {
        let mask = ucp_mem_map_flags::UCP_MEM_MAP_NONBLOCK | ucp_mem_map_flags::UCP_MEM_MAP_LOCK;
        let missing = |minor| newer(mask, Some(Release::new(1, minor))).map(|bit| bit.name);
        assert_eq!([14, 17, 18, 22].map(missing), [Some("UCP_MEM_MAP_LOCK"), Some("UCP_MEM_MAP_LOCK"), None, None]);
        assert_eq!(newer(ucp_op_attr_t(0), None), None);
        assert!(newer(ucp_op_attr_t::UCP_OP_ATTR_FIELD_FLAGS, None).is_some());
    }

    fn check<M: Mask>() -> u32 {
        let mut all = 0;
        for bit in M::BITS {
            assert!(bit.value.is_power_of_two() && all & bit.value == 0, "{} is one bit, its own", bit.name);
            all |= bit.value;
        }
        all
    }

    #[test]
    fn the_bits_of_a_mask_are_single_and_different() {
        assert_eq!(check::<ucp_params_field>(), 0x3ff);
        assert_eq!(check::<ucp_ep_attr_field>(), 0x1f);
        assert_eq!(check::<ucp_op_attr_t>(), 0xf_0fff);
    }
}
