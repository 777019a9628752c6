//! Kinds of memory: types that say who may address it.

use core::fmt::{self, Debug};

mod sealed {
    pub trait Sealed {}
}

/// A kind of memory. The kind is the second parameter of a [`Buffer`](crate::Buffer).
pub trait Kind: sealed::Sealed + Debug + Send + Sync + 'static {
    /// Who may address memory of this kind; `None` if that is known only at run time.
    const ACCESSIBILITY: Option<Accessibility>;
}

/// Kernels may address the memory.
#[diagnostic::on_unimplemented(
    message = "kernels cannot address memory of the kind `{Self}`",
    note = "allocate from `DeviceMemory`, `PinnedMemory`, `MappedMemory`, or a pool of these"
)]
pub trait DeviceAccessible: Kind {}

/// The CPU may address the memory.
#[diagnostic::on_unimplemented(
    message = "the CPU cannot address memory of the kind `{Self}`",
    note = "copy it (`to_vec`, `copy_to_slice`, `copy_from_slice`), or allocate from `PinnedMemory`, `MappedMemory`, or a \
            pool of these",
    note = "memory of the kind `Any` may be of the right kind: `try_into_kind` asks at run time"
)]
pub trait HostAccessible: Kind {}

/// Who may address a piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Accessibility {
    /// Kernels may address it.
    pub device: bool,
    /// The CPU may address it.
    pub host: bool,
    /// The driver moves it between device and host.
    pub managed: bool,
    /// Other processes may write it at any time, as in a [shareable](crate::memory::DriverPoolOptions::shareable)
    /// driver pool: every process that received the pool reaches all of it, whatever this process exports. So the CPU
    /// gets no slices of it.
    pub processes: bool,
    /// The CPU's plain writes reach other threads and devices in no order until a fence. The guards of a
    /// [`Buffer`](crate::Buffer) fence when they end. A [`HostBuffer`](crate::HostBuffer) has no guards, so it refuses
    /// such memory.
    pub write_combined: bool,
}

impl Accessibility {
    /// Kernels only.
    pub const DEVICE: Self =
        Self { device: true, host: false, managed: false, processes: false, write_combined: false };
    /// The CPU only.
    pub const HOST: Self = Self { device: false, host: true, managed: false, processes: false, write_combined: false };
    /// Kernels and the CPU.
    pub const BOTH: Self = Self { device: true, host: true, managed: false, processes: false, write_combined: false };
    /// Kernels and the CPU; the driver moves the memory.
    pub const MANAGED: Self = Self { device: true, host: true, managed: true, processes: false, write_combined: false };
    /// Nobody. Unknown pointers have this.
    pub const NONE: Self = Self { device: false, host: false, managed: false, processes: false, write_combined: false };

    /// Whether kernels and the CPU may address this wherever they may address `other`.
    pub fn covers(self, other: Self) -> bool {
        self.device >= other.device && self.host >= other.host && self.managed >= other.managed
    }
}

/// As errors name it: "addressable by the CPU and devices".
impl fmt::Display for Accessibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.host, self.device) {
            (false, false) => "addressable by nobody that the driver knows of",
            (false, true) => "addressable by devices only",
            (true, false) => "addressable by the CPU only",
            (true, true) if self.managed => "managed memory",
            (true, true) => "addressable by the CPU and devices",
        })
    }
}

macro_rules! kinds {
    ($($(#[$text:meta])* $name:ident: $accessibility:expr, [$($marker:ident)*];)*) => { $(
        $(#[$text])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl sealed::Sealed for $name {}
        impl Kind for $name {
            const ACCESSIBILITY: Option<Accessibility> = $accessibility;
        }
        $(impl $marker for $name {})*
    )* };
}

kinds! {
    /// Device memory that the CPU cannot address.
    Device: Some(Accessibility::DEVICE), [DeviceAccessible];
    /// Page-locked host memory.
    Pinned: Some(Accessibility::BOTH), [DeviceAccessible HostAccessible];
    /// Memory that the driver moves between device and host.
    Managed: Some(Accessibility::MANAGED), [DeviceAccessible HostAccessible];
    /// Device memory that the CPU can also address ([`mapped`](crate::memory::mapped)).
    Mapped: Some(Accessibility::BOTH), [DeviceAccessible HostAccessible];
    /// A kind known only at run time: memory of other libraries, and of programs that choose at run time.
    Any: None, [];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_what() {
        assert!(Accessibility::MANAGED.covers(Accessibility::BOTH));
        assert!(Accessibility::BOTH.covers(Accessibility::DEVICE));
        assert!(!Accessibility::BOTH.covers(Accessibility::MANAGED));
        assert!(!Accessibility::DEVICE.covers(Accessibility::HOST));
        assert!(Accessibility::DEVICE.covers(Accessibility::NONE));
    }
}
