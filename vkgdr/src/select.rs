//! Stateless choices and arithmetic: memory type, queue family, rounding to atoms.

use std::ops::Range;

use ash::vk::{MemoryPropertyFlags as Property, QueueFlags};

/// `value` rounded up to a multiple of `unit`; `None` when that overflows.
pub(crate) fn round_up(value: u64, unit: u64) -> Option<u64> {
    match value % unit {
        0 => Some(value),
        rest => value.checked_add(unit - rest),
    }
}

/// The whole atoms that hold `offset .. offset + size` of an allocation.
///
/// The range must lie within `used`, the number of requested bytes; otherwise this returns `None`. The result may reach
/// past them, up to `allocated`, a multiple of `atom`.
pub(crate) fn atoms(offset: u64, size: u64, used: u64, allocated: u64, atom: u64) -> Option<Range<u64>> {
    let end = offset.checked_add(size).filter(|end| *end <= used)?;
    let start = offset - offset % atom;
    if size == 0 {
        return Some(start..start);
    }
    Some(start..round_up(end, atom)?.min(allocated))
}

/// The index of the memory type to allocate from: device-local and host-visible, and coherent if such a type exists.
pub(crate) fn memory_type(types: &[Property]) -> Option<usize> {
    let wanted = Property::DEVICE_LOCAL | Property::HOST_VISIBLE;
    let usable = |flags: &Property| {
        flags.contains(wanted) && !flags.intersects(Property::PROTECTED | Property::LAZILY_ALLOCATED)
    };
    types
        .iter()
        .position(|flags| usable(flags) && flags.contains(Property::HOST_COHERENT))
        .or_else(|| types.iter().position(usable))
}

/// The index of the queue family for the device. vkgdr never uses a queue, but Vulkan requires one, and the driver sets
/// up less for a family with fewer capabilities. A transfer-only family comes first, then the family with the fewest
/// capabilities.
pub(crate) fn queue_family(families: &[(QueueFlags, u32)]) -> Option<usize> {
    let copy_only = QueueFlags::TRANSFER | QueueFlags::SPARSE_BINDING | QueueFlags::PROTECTED;
    families
        .iter()
        .enumerate()
        .filter(|(_, (_, count))| *count > 0)
        .min_by_key(|(_, (flags, _))| {
            let transfer_only = flags.contains(QueueFlags::TRANSFER) && copy_only.contains(*flags);
            (!transfer_only, flags.as_raw().count_ones())
        })
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_overflows_to_none() {
        assert_eq!(round_up(0, 64), Some(0));
        assert_eq!(round_up(65, 64), Some(128));
        assert_eq!(round_up(u64::MAX - 63, 64), Some(u64::MAX - 63));
        assert_eq!(round_up(u64::MAX - 62, 64), None);
        assert_eq!(round_up(7, 1), Some(7));
    }

    /// Tries every range of every small allocation. The result must consist of whole atoms, cover the range, stay
    /// inside the allocation, and be the smallest such range.
    #[test]
    fn atom_ranges_cover_exactly_the_touched_atoms() {
        for atom in [1u64, 2, 4, 8] {
            for used in 1..=24u64 {
                let allocated = round_up(used, atom).expect("small");
                for offset in 0..=used + 2 {
                    for size in 0..=used + 2 {
                        let range = atoms(offset, size, used, allocated, atom);
                        if offset + size > used {
                            assert_eq!(range, None);
                            continue;
                        }
                        let range = range.expect("inside");
                        assert_eq!(range.start % atom, 0);
                        assert_eq!(range.end % atom, 0);
                        assert!(range.end <= allocated);
                        if size == 0 {
                            assert!(range.is_empty());
                            continue;
                        }
                        assert!(range.start <= offset && offset - range.start < atom);
                        let end = offset + size;
                        assert!(range.end >= end && range.end - end < atom);
                    }
                }
            }
        }
    }

    #[test]
    fn atom_ranges_that_overflow_are_refused() {
        assert_eq!(atoms(u64::MAX, 2, 100, 128, 64), None);
        assert_eq!(atoms(1, u64::MAX, 100, 128, 64), None);
        assert_eq!(atoms(101, 0, 100, 128, 64), None);
    }

    fn flags(bits: &[u32]) -> Vec<Property> {
        bits.iter().map(|bits| Property::from_raw(*bits)).collect()
    }

    #[test]
    fn memory_type_prefers_coherent_device_memory() {
        // An NVIDIA data-centre device, a device without coherent mappings, two devices that map no device memory.
        assert_eq!(memory_type(&flags(&[0, 1, 6, 14, 7])), Some(4));
        assert_eq!(memory_type(&flags(&[1, 3, 2])), Some(1));
        assert_eq!(memory_type(&flags(&[3, 15])), Some(1));
        assert_eq!(memory_type(&flags(&[0, 1, 6, 14])), None);
        assert_eq!(memory_type(&[]), None);
        assert_eq!(memory_type(&flags(&[0x27, 7])), Some(1), "never protected");
    }

    #[test]
    fn queue_family_prefers_transfer_only_then_fewest_flags() {
        let families = |bits: &[(u32, u32)]| {
            bits.iter().map(|(flags, count)| (QueueFlags::from_raw(*flags), *count)).collect::<Vec<_>>()
        };
        // graphics+compute+transfer+sparse, transfer+sparse, compute+transfer+sparse, video decode+transfer+sparse
        let nvidia = families(&[(15, 16), (12, 2), (14, 8), (0x2c, 1)]);
        assert_eq!(queue_family(&nvidia), Some(1));
        assert_eq!(queue_family(&families(&[(7, 1)])), Some(0));
        assert_eq!(queue_family(&families(&[(7, 1), (6, 1)])), Some(1));
        assert_eq!(queue_family(&families(&[(4, 0), (7, 1)])), Some(1));
        assert_eq!(queue_family(&[]), None);
    }
}
