//! Groups of related functions, so that a program can check for all of them with one question, before it calls any.

use crate::{Driver, Functions};
use core::ffi::CStr;

/// A capability of a driver, given by the functions that it exports. Whether a device has the capability is a separate
/// question, which the device's attributes answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Stream-ordered allocation from pools: CUDA 11.2.
    MemoryPools,
    /// Pools of host and managed memory by location: CUDA 13.0.
    LocatedPools,
    /// Virtual memory: CUDA 10.2.
    VirtualMemory,
    /// Import of memory from other APIs: CUDA 10.0. Mapped memory needs it.
    ExternalMemory,
    /// dma-buf handles of address ranges: CUDA 11.7.
    AddressRangeHandles,
    /// Streams that wait for and write words in memory: CUDA 11.7.
    StreamMemoryOperations,
    /// Many copies in one call: CUDA 12.8.
    BatchedCopies,
    /// Sharing of allocations and events between processes: CUDA 11.0.
    Ipc,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Capability; 8] = [
        Capability::MemoryPools,
        Capability::LocatedPools,
        Capability::VirtualMemory,
        Capability::ExternalMemory,
        Capability::AddressRangeHandles,
        Capability::StreamMemoryOperations,
        Capability::BatchedCopies,
        Capability::Ipc,
    ];
}

impl Driver {
    /// Returns whether the driver has the functions that a capability needs. A function of a later release than the
    /// driver's does not count: drivers export such names and refuse the calls.
    ///
    /// ```
    /// use cuda_sys::{Capability, Driver};
    /// # // SAFETY: the resolver knows no function.
    /// let driver = unsafe { Driver::from_resolver("nothing", &mut |_| std::ptr::null()) };
    /// assert!(!driver.supports(Capability::MemoryPools));
    /// ```
    pub fn supports(&self, capability: Capability) -> bool {
        let needs: &[&CStr] = match capability {
            Capability::MemoryPools => &[c"cuMemPoolCreate", c"cuMemAllocFromPoolAsync", c"cuMemFreeAsync"],
            Capability::LocatedPools => &[c"cuMemGetMemPool", c"cuMemSetMemPool"],
            Capability::VirtualMemory => &[c"cuMemAddressReserve", c"cuMemCreate", c"cuMemMap", c"cuMemSetAccess"],
            Capability::ExternalMemory => {
                &[c"cuImportExternalMemory", c"cuExternalMemoryGetMappedBuffer", c"cuDestroyExternalMemory"]
            }
            Capability::AddressRangeHandles => &[c"cuMemGetHandleForAddressRange"],
            Capability::StreamMemoryOperations => &[c"cuStreamWaitValue32_v2", c"cuStreamWriteValue32_v2"],
            Capability::BatchedCopies if self.serves(c"cuMemcpyBatchAsync_v2") => &[],
            Capability::BatchedCopies => &[c"cuMemcpyBatchAsync"],
            Capability::Ipc => &[c"cuIpcGetMemHandle", c"cuIpcOpenMemHandle_v2", c"cuIpcCloseMemHandle"],
        };
        needs.iter().all(|name| self.serves(name))
    }

    /// Whether the driver has a function, and is of its release or a later one.
    fn serves(&self, name: &CStr) -> bool {
        let Some(symbol) = Functions::SYMBOLS.iter().find(|symbol| symbol.name == name) else { return false };
        let is_newer = self.provider.version.is_some_and(|version| symbol.since > version);
        !is_newer && !self.functions.address(name).is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CUresult;
    use core::ffi::{c_int, c_void};
    use core::ptr;

    unsafe extern "C" fn version(out: *mut c_int) -> CUresult {
        // SAFETY: the caller passes a writable int.
        unsafe { *out = 12070 };
        CUresult::CUDA_SUCCESS
    }

    #[test]
    fn a_name_of_a_later_release_gives_no_capability() {
        let mut resolve = |name: &CStr| match name {
            name if name == c"cuDriverGetVersion" => version as *const c_void,
            name if name == c"cuGetProcAddress_v2" => ptr::null(),
            _ => ptr::dangling(),
        };
        // SAFETY: no function but the version is called.
        let driver = unsafe { Driver::from_resolver("libeager.so", &mut resolve) };
        let lacks: Vec<_> = Capability::ALL.into_iter().filter(|capability| !driver.supports(*capability)).collect();
        assert_eq!(lacks, [Capability::LocatedPools, Capability::BatchedCopies]);
    }
}
