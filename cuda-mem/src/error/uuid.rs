//! Identities of devices.

use core::fmt;

/// A GPU's identity: the same in every process and every API. Shown as `GPU-xxxxxxxx-xxxx-...`, as nvidia-smi does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if matches!(index, 0 | 4 | 6 | 8 | 10) { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
