//! Sizes as people read them.

use core::fmt;

const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// A number of bytes: `777 bytes`, `4 KiB`, `79.6 GiB`.
pub(crate) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let text = match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
            Some((unit, shift)) if bytes.is_multiple_of(1 << shift) => format!("{} {unit}", bytes >> shift),
            // Small sizes are exact.
            Some((unit, shift)) if bytes >= 1 << 16 => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
            _ => format!("{bytes} bytes"),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_have_units_and_small_ones_are_exact() {
        let texts = [0, 777, 4096, 4097, 100_000, 3 << 30].map(|bytes| Size(bytes).to_string());
        assert_eq!(texts, ["0 bytes", "777 bytes", "4 KiB", "4097 bytes", "97.7 KiB", "3 GiB"]);
        assert_eq!(format!("{:>8}", Size(4096)), "   4 KiB");
    }
}
