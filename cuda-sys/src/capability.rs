//! Groups of related functions, so that a program can check for all of them with one question, before it calls any.

use crate::Driver;

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
    /// Returns whether the driver has the functions that a capability needs.
    ///
    /// ```
    /// use cuda_sys::{Capability, Driver};
    /// # // SAFETY: the resolver knows no function.
    /// let driver = unsafe { Driver::from_resolver("nothing", &mut |_| std::ptr::null()) };
    /// assert!(!driver.supports(Capability::MemoryPools));
    /// ```
    pub fn supports(&self, capability: Capability) -> bool {
        let f = &self.functions;
        match capability {
            Capability::MemoryPools => {
                f.cuMemPoolCreate.is_some() && f.cuMemAllocFromPoolAsync.is_some() && f.cuMemFreeAsync.is_some()
            }
            Capability::LocatedPools => f.cuMemGetMemPool.is_some() && f.cuMemSetMemPool.is_some(),
            Capability::VirtualMemory => {
                f.cuMemAddressReserve.is_some()
                    && f.cuMemCreate.is_some()
                    && f.cuMemMap.is_some()
                    && f.cuMemSetAccess.is_some()
            }
            Capability::ExternalMemory => {
                f.cuImportExternalMemory.is_some()
                    && f.cuExternalMemoryGetMappedBuffer.is_some()
                    && f.cuDestroyExternalMemory.is_some()
            }
            Capability::AddressRangeHandles => f.cuMemGetHandleForAddressRange.is_some(),
            Capability::StreamMemoryOperations => {
                f.cuStreamWaitValue32_v2.is_some() && f.cuStreamWriteValue32_v2.is_some()
            }
            Capability::BatchedCopies => f.cuMemcpyBatchAsync.is_some() || f.cuMemcpyBatchAsync_v2.is_some(),
            Capability::Ipc => {
                f.cuIpcGetMemHandle.is_some() && f.cuIpcOpenMemHandle_v2.is_some() && f.cuIpcCloseMemHandle.is_some()
            }
        }
    }
}
