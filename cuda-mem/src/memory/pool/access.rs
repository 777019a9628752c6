//! Which devices may address a pool's memory.

use super::{DriverPool, Inner};
use crate::error::call;
use crate::resource::Kind;
use crate::{Device, Error, Result};
use core::slice;
use cuda_sys::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType};

/// What a device may do with a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolAccess {
    /// Nothing.
    None,
    /// Read. No driver is known that grants this alone.
    Read,
    /// Read and write.
    ReadWrite,
}

impl<K: Kind> DriverPool<K> {
    /// Lets a device read and write the pool's memory: what is allocated already, too. The pool's own device always may.
    ///
    /// # Errors
    ///
    /// The device cannot reach the memory; the driver refuses.
    #[doc(alias = "cuMemPoolSetAccess")]
    pub fn allow_access(&self, device: &Device) -> Result<()> {
        if self.is_home(device) || self.is_open() {
            return Ok(());
        }
        if self.inner.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            device.require_peer_access(self.inner.context.device())?;
        }
        self.inner.set_access(device.raw(), PoolAccess::ReadWrite)
    }

    /// Takes access back, at once: work of that device that still uses the memory would break its context. Of the pool's
    /// own device it cannot be taken.
    ///
    /// # Errors
    ///
    /// The device is the pool's own; all devices have access to such memory ([`Error::Unsupported`]); the driver refuses.
    #[doc(alias = "cuMemPoolSetAccess")]
    pub fn deny_access(&self, device: &Device) -> Result<()> {
        if self.is_home(device) {
            return Err(Error::InvalidArgument {
                call: "DriverPool::deny_access",
                argument: "device",
                value: device.ordinal().to_string().into(),
                rule: "a pool's own device always has access",
            });
        }
        if self.is_open() {
            return Err(Error::Unsupported {
                feature: "taking access to a pool's memory back",
                needs:
                    "a pool of the driver, of device or host memory: to managed and plain pinned memory all have access"
                        .into(),
            });
        }
        self.inner.set_access(device.raw(), PoolAccess::None)
    }

    /// What a device may do with the pool's memory.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemPoolGetAccess")]
    pub fn access(&self, device: &Device) -> Result<PoolAccess> {
        if self.is_open() {
            return Ok(PoolAccess::ReadWrite);
        }
        let cuda = self.inner.context.driver().raw();
        let mut location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device.raw() };
        let mut flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        // SAFETY: `flags` is writable, the location readable, and the pool lives.
        unsafe { call!(cuda.cuMemPoolGetAccess(&mut flags, self.inner.raw, &mut location)) }?;
        Ok(match flags {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => PoolAccess::ReadWrite,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => PoolAccess::Read,
            _ => PoolAccess::None,
        })
    }

    /// The devices, besides the pool's own, that may read and write its memory, as the driver has it now.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn accessible_from(&self) -> Result<Vec<Device>> {
        let mut devices = self.inner.context.driver().devices()?;
        let mut failed = Ok(());
        devices.retain(|device| {
            !self.is_home(device)
                && match self.access(device) {
                    Ok(access) => access == PoolAccess::ReadWrite,
                    Err(error) => {
                        failed = Err(error);
                        false
                    }
                }
        });
        failed.map(|()| devices)
    }

    /// Takes back what devices may do with a pool that was just made. Drivers have been known to give a new pool the
    /// handle of one that was destroyed, with its access. (Not when the old one ends: work on its memory may be under
    /// way, and would find itself without access.)
    pub(super) fn withdraw_inherited_access(&self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        for device in self.inner.context.driver().devices()? {
            if !self.is_home(&device) && self.access(&device)? != PoolAccess::None {
                self.inner.set_access(device.raw(), PoolAccess::None)?;
            }
        }
        Ok(())
    }

    /// Whether all devices have access, whatever was set.
    fn is_open(&self) -> bool {
        self.inner.slab.is_some() || self.inner.accessibility.managed
    }

    /// Whether the memory lies on this device.
    fn is_home(&self, device: &Device) -> bool {
        self.inner.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            && device == self.inner.context.device()
    }
}

impl Inner {
    fn set_access(&self, device: i32, access: PoolAccess) -> Result<()> {
        let cuda = self.context.driver().raw();
        let description = CUmemAccessDesc {
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            flags: match access {
                PoolAccess::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
                PoolAccess::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
                PoolAccess::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            },
        };
        let descriptions = slice::from_ref(&description);
        // SAFETY: one description is readable, and the pool lives.
        unsafe { call!(cuda.cuMemPoolSetAccess(self.raw, descriptions.as_ptr(), descriptions.len())) }
    }
}
