//! Reads and writes numbers of bytes.

use std::num::NonZeroUsize;

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

/// Reads a size: `65536`, `64K`, `64KiB`, `16M`. Units are powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<NonZeroUsize, String> {
    const FORM: &str =
        "a size is a whole number of bytes such as 4097, or has a unit that is a power of 1024: 64K, 16M, 1G";
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let shift = match unit.as_str() {
        "" | "B" => 0,
        unit => {
            let letter = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
            UNITS
                .iter()
                .find(|(name, _)| letter.chars().eq([*name]))
                .map(|(_, shift)| *shift)
                .ok_or_else(|| FORM.to_owned())?
        }
    };
    let overflow = || "the size is more bytes than this machine can address".to_owned();
    if number.is_empty() {
        return Err(FORM.to_owned());
    }
    let number: usize = number.parse().map_err(|_| overflow())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(overflow)?;
    NonZeroUsize::new(bytes).ok_or_else(|| "the size must be at least one byte".to_owned())
}

/// Formats a size for people: `16 MiB`, `79.6 GiB`, `4097 B`.
pub(crate) fn size(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    let Some((letter, shift)) = unit else { return format!("{bytes} B") };
    let one = 1u64 << shift;
    if bytes.is_multiple_of(one) {
        return format!("{} {letter}iB", bytes / one);
    }
    // Small sizes that are no multiple of a unit are shown to the byte.
    if bytes < 1 << 16 {
        return format!("{bytes} B");
    }
    format!("{:.1} {letter}iB", bytes as f64 / one as f64)
}

/// Formats a number with separated thousands: `12,345,678`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time for people.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10e-6 => format!("{:.3} us", s * 1e6),
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("1", 1),
            ("4097", 4097),
            ("64K", 65536),
            ("64k", 65536),
            ("64KiB", 65536),
            ("64 kb", 65536),
            (" 16M ", 16 << 20),
            ("3G", 3 << 30),
            ("512B", 512),
        ] {
            assert_eq!(parse_size(text).map(NonZeroUsize::get), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_reason() {
        for text in ["", "M", "1X", "1.5M", "-1", "16MM", "0x10", "1 2", "iB"] {
            assert!(parse_size(text).unwrap_err().contains("64K, 16M, 1G"), "{text}");
        }
        assert!(parse_size("0").unwrap_err().contains("at least one byte"));
        assert!(parse_size("0K").unwrap_err().contains("at least one byte"));
        for text in ["99999999999999999999", "16384P", "9223372036854775808"] {
            assert!(parse_size(text).unwrap_err().contains("more bytes than"), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_exactly_where_that_is_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (4, "4 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (4097, "4097 B"),
            (16 << 20, "16 MiB"),
            (1_500_000, "1.4 MiB"),
            (80 << 30, "80 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn durations_keep_three_figures_or_so() {
        for (seconds, text) in [(39e-9, "0.039 us"), (5.4e-6, "5.400 us"), (88.6e-6, "88.6 us"), (1.0, "1.00 s")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
