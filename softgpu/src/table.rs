//! The list of all that is served.

use crate::{api, vkgdr};
use cuda_sys::Functions;
use std::ffi::{CStr, c_void};

macro_rules! served {
    ($($module:ident: $($name:ident)*;)*) => {
        /// The functions that softgpu serves, with the signatures that cuda-sys states: the compiler compares them.
        pub static FUNCTIONS: Functions =
            Functions { $($($name: Some(api::$module::$name),)*)* ..Functions::EMPTY };
    };
}

served! {
    init: cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString cuGetProcAddress_v2;
    device: cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceTotalMem_v2
        cuDeviceGetAttribute cuDeviceGetPCIBusId cuDeviceGetByPCIBusId cuDeviceCanAccessPeer cuDeviceGetP2PAttribute;
    context: cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxGetState
        cuDevicePrimaryCtxSetFlags_v2 cuDevicePrimaryCtxReset_v2 cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxPushCurrent_v2
        cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags cuCtxGetId cuCtxGetApiVersion
        cuCtxSynchronize cuCtxGetStreamPriorityRange cuCtxEnablePeerAccess cuCtxDisablePeerAccess;
    stream: cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamQuery cuStreamSynchronize
        cuStreamWaitEvent cuStreamGetPriority cuStreamGetFlags cuStreamGetId cuStreamGetCtx cuStreamGetDevice
        cuStreamIsCapturing cuStreamGetCaptureInfo_v2 cuThreadExchangeStreamCaptureMode cuLaunchHostFunc
        cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 cuStreamWriteValue32_v2 cuStreamWriteValue64_v2;
    event: cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize
        cuEventElapsedTime cuEventElapsedTime_v2;
    memory: cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemGetAddressRange_v2 cuMemAllocManaged;
    host: cuMemAllocHost_v2 cuMemHostAlloc cuMemFreeHost cuMemHostGetDevicePointer_v2 cuMemHostGetFlags
        cuMemHostRegister_v2 cuMemHostUnregister;
    copy: cuMemcpy cuMemcpyAsync cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2
        cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2
        cuMemcpy2DAsync_v2;
    fill: cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2 cuMemsetD2D32_v2
        cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async;
    pointer: cuPointerGetAttribute cuPointerGetAttributes;
    pool: cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo
        cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolGetAccess cuDeviceGetDefaultMemPool
        cuDeviceGetMemPool cuDeviceSetMemPool cuMemGetDefaultMemPool cuMemGetMemPool cuMemSetMemPool;
    external: cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuDestroyExternalMemory;
}

/// The address of a CUDA driver function by its full name; null for one that is not served.
///
/// ```
/// assert!(!softgpu::cuda_symbol(c"cuMemAlloc_v2").is_null());
/// assert!(softgpu::cuda_symbol(c"cuLaunchKernel").is_null());
/// ```
pub fn cuda_symbol(name: &CStr) -> *const c_void {
    FUNCTIONS.address(name)
}

/// The address of a vkgdr function by its name; null for one that is not served.
///
/// ```
/// assert!(!softgpu::vkgdr_symbol(c"vkgdr_open").is_null());
/// ```
pub fn vkgdr_symbol(name: &CStr) -> *const c_void {
    vkgdr::FUNCTIONS.address(name)
}
