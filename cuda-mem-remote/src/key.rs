//! The key that peers share.

use core::fmt;
use ring::rand::{SecureRandom, SystemRandom};

/// A secret that all peers share: whoever has it may connect. 32 random bytes, not a password.
///
/// ```
/// use cuda_mem_remote::Key;
/// let key = Key::generate()?; // once, for all hosts
/// let same = Key::from_hex(&key.to_hex())?; // from a file that only this user may read
/// assert_eq!(same.to_hex(), key.to_hex());
/// assert_eq!(format!("{key:?}"), "Key(..)");
/// # Ok::<(), cuda_mem_remote::Error>(())
/// ```
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A new random key.
    ///
    /// # Errors
    ///
    /// [`Error::Random`](crate::Error::Random): the system has no random numbers.
    pub fn generate() -> crate::Result<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| crate::Error::Random)?;
        Ok(Self(bytes))
    }

    /// The key of these random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key of 64 hexadecimal digits. White space around them is ignored, as the end of a file's line.
    ///
    /// # Errors
    ///
    /// [`Error::Key`](crate::Error::Key): these are not 64 hexadecimal digits.
    pub fn from_hex(digits: &str) -> crate::Result<Self> {
        let digits = digits.trim().as_bytes();
        let value = |digit: u8| char::from(digit).to_digit(16);
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return Err(crate::Error::Key { digits: digits.len() });
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else {
                return Err(crate::Error::Key { digits: digits.len() });
            };
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(bytes))
    }

    /// The key as 64 hexadecimal digits, to store it.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
