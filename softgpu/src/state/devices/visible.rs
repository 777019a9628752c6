//! CUDA_VISIBLE_DEVICES: which of the machine's devices the program sees, and in which order.

/// The devices that a list names: numbers, or `GPU-` with the beginning of a UUID, separated by commas.
///
/// As PyTorch found by comparing lists with driver 525: a bad entry ends the list, an entry of the other form too, and a
/// repeated entry hides all devices. A number is what strtoul reads, with a sign and with any text after it.
pub(crate) fn visible(list: &str, count: usize, identity: impl Fn(usize) -> [u8; 16]) -> Vec<usize> {
    if list.starts_with("GPU-") {
        let entries = list.split(',').map(str::trim).take_while(|entry| entry.starts_with("GPU-"));
        return distinct(entries.map_while(|entry| by_uuid(&entry.to_ascii_lowercase(), count, &identity)));
    }
    let numbers = distinct(list.split(',').map_while(|entry| number(entry.trim())));
    numbers.into_iter().take_while(|number| *number < count).collect()
}

/// The entries, or none if one is repeated.
fn distinct(entries: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = Vec::new();
    for entry in entries {
        if seen.contains(&entry) {
            return Vec::new();
        }
        seen.push(entry);
    }
    seen
}

/// The number with which an entry begins; `None` if it is negative or missing.
fn number(entry: &str) -> Option<usize> {
    let unsigned = entry.strip_prefix(['+', '-']).unwrap_or(entry);
    let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    let number = unsigned[..end].parse().ok()?;
    (number == 0 || !entry.starts_with('-')).then_some(number)
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
    fn a_list_names_devices_by_the_drivers_rules() {
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
            ("1,0,1,2", vec![]),
            ("1,9,9", vec![]),
            ("+1,-0", vec![1, 0]),
            ("1,-2,0", vec![1]),
            ("1gpu2,2ampere", vec![1, 2]),
            ("0x1,1", vec![0, 1]),
            ("GPU-a002,GPU-A001", vec![2, 1]),
            ("GPU-a002,GPU-a001,GPU-a0020", vec![]),
            ("GPU-a001,GPU-b,GPU-a002", vec![1]),
            ("GPU-a0", vec![]),
            ("3,GPU-a003", vec![3]),
            ("GPU-a0010000-1200-0000-0000-0000000000fe,0", vec![1]),
            ("GPU-a0010000-1200-0000-0000-0000000000fe0", vec![]),
            ("GPU-", vec![]),
        ] {
            assert_eq!(visible(list, 4, identity), want, "{list:?}");
        }
        assert_eq!(visible("GPU-", 1, identity), [0]);
    }
}
