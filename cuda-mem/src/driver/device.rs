//! Devices.

use crate::error::{Uuid, call, or_older};
use crate::{Context, Driver, Error, Result};
use core::ffi::{CStr, c_char};
use cuda_sys::{CUdevice, CUdevice_attribute, CUresult, CUuuid};

/// A GPU, or the software GPU.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// let device = driver.device(0)?;
/// println!("{} {}", device.name()?, device.uuid()?);
/// let text = driver.device(7).unwrap_err().to_string();
/// assert!(text.contains("device is 7, of 2 devices"), "{text}");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    driver: Driver,
    raw: CUdevice,
    ordinal: i32,
}

impl Device {
    pub(crate) fn new(driver: &Driver, ordinal: i32) -> Result<Self> {
        let (cuda, mut raw) = (driver.raw(), 0);
        // SAFETY: `raw` is writable.
        unsafe { call!(cuda.cuDeviceGet(&mut raw, ordinal)) }.map_err(|error| match error.driver_code() {
            Some(CUresult::CUDA_ERROR_INVALID_DEVICE) => {
                driver.device_count().map_or(error, |devices| Error::NoSuchDevice { ordinal, devices })
            }
            _ => error,
        })?;
        Ok(Self { driver: driver.clone(), raw, ordinal })
    }

    /// The driver that serves the device.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The device's ordinal in this process.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUdevice {
        self.raw
    }

    /// The device's name.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetName")]
    pub fn name(&self) -> Result<String> {
        self.text(|buffer, length| {
            let cuda = self.driver.raw();
            // SAFETY: the buffer is writable for `length` bytes.
            unsafe { call!(cuda.cuDeviceGetName(buffer, length, self.raw)) }
        })
    }

    /// The device's PCI address, as domain:bus:device.function.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetPCIBusId")]
    pub fn pci_bus_id(&self) -> Result<String> {
        self.text(|buffer, length| {
            let cuda = self.driver.raw();
            // SAFETY: the buffer is writable for `length` bytes.
            unsafe { call!(cuda.cuDeviceGetPCIBusId(buffer, length, self.raw)) }
        })
    }

    fn text(&self, write: impl FnOnce(*mut c_char, i32) -> Result<()>) -> Result<String> {
        let mut buffer = [0u8; 256];
        // The last byte stays 0, so the text ends with a zero whatever the driver writes.
        write(buffer.as_mut_ptr().cast(), 255)?;
        Ok(CStr::from_bytes_until_nul(&buffer).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// The device's identity. A MIG instance has its own, if the driver reports it (CUDA 11.4).
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetUuid")]
    pub fn uuid(&self) -> Result<Uuid> {
        let (cuda, mut uuid) = (self.driver.raw(), CUuuid::default());
        let place = &raw mut uuid;
        // SAFETY: `uuid` is writable.
        let newer = unsafe { call!(cuda.cuDeviceGetUuid_v2(place, self.raw)) };
        // SAFETY: as above.
        or_older(newer, || unsafe { call!(cuda.cuDeviceGetUuid(place, self.raw)) })?;
        Ok(Uuid(uuid.bytes.map(|byte| byte as u8)))
    }

    /// The size of the device's memory in bytes.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceTotalMem")]
    pub fn total_memory(&self) -> Result<usize> {
        let (cuda, mut bytes) = (self.driver.raw(), 0);
        // SAFETY: `bytes` is writable.
        unsafe { call!(cuda.cuDeviceTotalMem_v2(&mut bytes, self.raw)) }?;
        Ok(bytes)
    }

    /// An attribute of the device. A driver that does not know the attribute returns CUDA_ERROR_INVALID_VALUE, which
    /// means unknown, not no.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32> {
        let (cuda, mut value) = (self.driver.raw(), 0);
        // SAFETY: `value` is writable.
        unsafe { call!(cuda.cuDeviceGetAttribute(&mut value, attribute, self.raw)) }?;
        Ok(value)
    }

    /// Whether kernels of this device can be given access to `other`'s memory. A device can always access its own.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceCanAccessPeer")]
    pub fn can_access_peer(&self, other: &Device) -> Result<bool> {
        if self == other {
            return Ok(true);
        }
        let (cuda, mut can) = (self.driver.raw(), 0);
        // SAFETY: `can` is writable.
        unsafe { call!(cuda.cuDeviceCanAccessPeer(&mut can, self.raw, other.raw)) }?;
        Ok(can != 0)
    }

    /// Whether somebody in this process uses the primary context now.
    pub(crate) fn has_primary_context(&self) -> Result<bool> {
        let (cuda, mut flags, mut active) = (self.driver.raw(), 0, 0);
        // SAFETY: both are writable.
        unsafe { call!(cuda.cuDevicePrimaryCtxGetState(self.raw, &mut flags, &mut active)) }?;
        Ok(active != 0)
    }

    /// The device's primary context, which the CUDA runtime uses too.
    ///
    /// # Errors
    ///
    /// The device has no memory left, or another process uses it exclusively.
    #[doc(alias = "cuDevicePrimaryCtxRetain")]
    pub fn primary_context(&self) -> Result<Context> {
        Context::primary(self)
    }

    /// A new context that the caller owns. Most programs want [`primary_context`](Self::primary_context).
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuCtxCreate")]
    pub fn create_context(&self) -> Result<Context> {
        Context::create(self)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw && self.driver.is_same(&other.driver)
    }
}

impl Eq for Device {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_written_as_nvidia_smi_does() {
        let bytes = core::array::from_fn(|index| index as u8 * 17);
        assert_eq!(Uuid(bytes).to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
