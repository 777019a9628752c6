//! The devices that may address a pool's memory.

use super::{DriverPool, PoolResource};
use crate::error::call;
#[cfg(doc)]
use crate::memory::resource::ResourceHandle;
use crate::memory::resource::{Kind, MemoryResource};
use crate::{Device, Error, Result};
use core::slice;
use cuda_sys::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType};

/// A device's access to a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolAccess {
    /// No access.
    None,
    /// Read only. No driver is known that grants this.
    Read,
    /// Read and write.
    ReadWrite,
}

impl<K: Kind> DriverPool<K> {
    /// Lets a device read and write the pool's memory, including live allocations. The pool's own device always may. See
    /// [`ResourceHandle::allow_access`].
    ///
    /// # Errors
    ///
    /// The device has no path to the memory, or its access does not work: [`Error::Peer`].
    #[doc(alias = "cuMemPoolSetAccess")]
    pub fn allow_access(&self, device: &Device) -> Result<()> {
        if self.is_home(device) || self.is_open() {
            return Ok(());
        }
        if let Some(source) = self.inner.peer_source() {
            return source.allow_device("DriverPool::allow_access", device);
        }
        self.inner.set_access(device.raw(), PoolAccess::ReadWrite)
    }

    /// Takes a device its access to the pool's memory. Of device memory, waits for the work of the device's primary context
    /// and of the pool's own first; work in other contexts must be done. Of host memory, no work of the device may use it. The pool's own device
    /// always keeps access.
    ///
    /// # Errors
    ///
    /// The device is the pool's own. All devices have access to this kind of memory ([`Error::Unsupported`]).
    #[doc(alias = "cuMemPoolSetAccess")]
    pub fn deny_access(&self, device: &Device) -> Result<()> {
        if self.is_home(device) {
            let rule = "a pool's own device always keeps its access";
            return Err(Error::invalid("DriverPool::deny_access", "device", device.ordinal(), rule));
        }
        if self.is_open() {
            return Err(Error::Unsupported {
                feature: "removing access to a pool's memory",
                needs: "a driver pool of device or host memory: all devices may access other pools".into(),
            });
        }
        match self.inner.peer_source() {
            Some(source) => source.deny_device("DriverPool::deny_access", device),
            None => self.inner.set_access(device.raw(), PoolAccess::None),
        }
    }

    /// A device's access to the pool's memory.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemPoolGetAccess")]
    pub fn access(&self, device: &Device) -> Result<PoolAccess> {
        if self.is_open() {
            return Ok(PoolAccess::ReadWrite);
        }
        self.inner.access(device.raw())
    }

    /// The devices, besides the pool's own, that may now read and write its memory, according to the driver.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
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

    /// Removes inherited access from a new pool. Drivers have been observed to give a new pool the handle of a
    /// destroyed pool, together with its access. (The destruction must not remove access, because work under way on the
    /// old memory would lose it.)
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
        self.inner.accessibility.managed
    }

    /// Whether the memory lies on this device.
    fn is_home(&self, device: &Device) -> bool {
        self.inner.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            && device == self.inner.context.device()
    }
}

impl PoolResource {
    /// A device's access.
    pub(crate) fn access(&self, device: i32) -> Result<PoolAccess> {
        let cuda = self.context.driver().raw();
        let mut location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        let mut flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        // SAFETY: `flags` is writable, the location readable, and the pool lives.
        unsafe { call!(cuda.cuMemPoolGetAccess(&mut flags, self.raw, &mut location)) }?;
        Ok(match flags {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => PoolAccess::ReadWrite,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => PoolAccess::Read,
            _ => PoolAccess::None,
        })
    }

    pub(crate) fn set_access(&self, device: i32, access: PoolAccess) -> Result<()> {
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
