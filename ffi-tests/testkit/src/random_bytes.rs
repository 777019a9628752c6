//! Pseudo-random bytes.

/// An endless sequence of pseudo-random bytes, determined by its seed.
#[derive(Clone, Debug)]
pub struct RandomBytes(pub u64);

impl Iterator for RandomBytes {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Some((self.0 >> 56) as u8)
    }
}
