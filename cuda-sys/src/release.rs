//! Release numbers of an interface.

use core::fmt;

/// A release of an interface, with `cuDriverGetVersion`'s number: 11020 is 11.2.
///
/// ```
/// let release = cuda_sys::Release::from_number(12080);
/// assert_eq!((release.major(), release.minor()), (12, 8));
/// assert_eq!(release.to_string(), "12.8");
/// assert!(release > cuda_sys::Release::new(11, 4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(u32);

impl Release {
    /// The release `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major * 1000 + minor * 10)
    }

    /// The release with a driver's number.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The driver's number for this release.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The 12 of 12.8.
    pub const fn major(self) -> u32 {
        self.0 / 1000
    }

    /// The 8 of 12.8.
    pub const fn minor(self) -> u32 {
        self.0 % 1000 / 10
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
