//! CUDA_VISIBLE_DEVICES: which of the machine's devices the program sees, and in which order.

/// The devices that a list names: ordinals, or `GPU-` with the beginning of a UUID, separated by commas. A wrong or
/// repeated entry ends the list.
pub(crate) fn visible(list: &str, count: usize, identity: impl Fn(usize) -> [u8; 16]) -> Vec<usize> {
    let mut seen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let found = match entry.strip_prefix("GPU-") {
            Some(_) => by_uuid(&entry.to_ascii_lowercase(), count, &identity),
            None => entry.parse().ok().filter(|index| *index < count),
        };
        match found {
            Some(index) if !seen.contains(&index) => seen.push(index),
            _ => break,
        }
    }
    seen
}

/// The one device whose UUID begins as stated.
fn by_uuid(beginning: &str, count: usize, identity: impl Fn(usize) -> [u8; 16]) -> Option<usize> {
    let mut matching =
        (0..count).filter(|index| uuid_text(&identity(*index)).to_ascii_lowercase().starts_with(beginning));
    let first = matching.next()?;
    matching.next().is_none().then_some(first)
}

/// A UUID as tools print it: `GPU-` and groups of hexadecimal digits.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_devices_in_its_order_until_a_bad_entry() {
        let identity = |index: usize| [0xa0, index as u8, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe];
        assert_eq!(uuid_text(&identity(3)), "GPU-a0030000-1200-0000-0000-0000000000fe");
        for (list, want) in [
            ("0,1,2,3", vec![0, 1, 2, 3]),
            (" 2 , 0", vec![2, 0]),
            ("", vec![]),
            ("-1", vec![]),
            ("NoDevFiles", vec![]),
            ("1,9,0", vec![1]),
            ("1,,0", vec![1]),
            ("1,0,1,2", vec![1, 0]),
            ("GPU-a002,GPU-A001", vec![2, 1]),
            ("GPU-a0", vec![]),
            ("3,GPU-a003", vec![3]),
            ("GPU-a0010000-1200-0000-0000-0000000000fe,0", vec![1, 0]),
            ("GPU-a0010000-1200-0000-0000-0000000000fe0", vec![]),
            ("GPU-", vec![]),
        ] {
            assert_eq!(visible(list, 4, identity), want, "{list:?}");
        }
        assert_eq!(visible("GPU-", 1, identity), [0]);
    }
}
