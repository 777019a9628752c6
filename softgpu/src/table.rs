//! The list of all functions that softgpu serves.

use crate::settings::{self, Settings};
use crate::{api, vkgdr};
use cuda_sys::Functions;
use std::ffi::{CStr, c_void};

macro_rules! served {
    ($($module:ident: $($name:ident)*;)*) => {
        // Functions that are new in cuda-sys are absent here until softgpu serves them.
        #[allow(clippy::needless_update)]
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
        cuLaunchHostFunc cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 cuStreamWriteValue32_v2 cuStreamWriteValue64_v2;
    capture: cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing cuStreamGetCaptureInfo_v2
        cuThreadExchangeStreamCaptureMode;
    event: cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize
        cuEventElapsedTime cuEventElapsedTime_v2;
    memory: cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemGetAddressRange_v2 cuMemAllocManaged;
    host: cuMemAllocHost_v2 cuMemHostAlloc cuMemFreeHost cuMemHostGetDevicePointer_v2 cuMemHostGetFlags
        cuMemHostRegister_v2 cuMemHostUnregister;
    copy: cuMemcpy cuMemcpyAsync cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2
        cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2
        cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2;
    fill: cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2 cuMemsetD2D32_v2
        cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async;
    pointer: cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute;
    pool: cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo
        cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolGetAccess cuDeviceGetDefaultMemPool
        cuDeviceGetMemPool cuDeviceSetMemPool cuMemGetDefaultMemPool cuMemGetMemPool cuMemSetMemPool;
    managed: cuMemPrefetchAsync cuMemPrefetchAsync_v2 cuMemPrefetchBatchAsync cuMemDiscardBatchAsync
        cuMemDiscardAndPrefetchBatchAsync cuMemAdvise cuMemAdvise_v2 cuMemRangeGetAttribute cuMemRangeGetAttributes
        cuStreamAttachMemAsync;
    batch: cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemcpyWithAttributesAsync;
    ipc: cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle
        cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolExportPointer
        cuMemPoolImportPointer cuMemGetHandleForAddressRange;
    graph: cuGraphGetNodes cuGraphInstantiateWithFlags cuGraphLaunch cuGraphExecDestroy cuGraphDestroy
        cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute cuDeviceGraphMemTrim;
    kernel: cuModuleLoadData cuModuleUnload cuModuleGetFunction cuLaunchKernel;
    semaphore: cuImportExternalSemaphore cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync
        cuDestroyExternalSemaphore;
    virtual_memory: cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess
        cuMemGetAccess cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemGetAllocationGranularity
        cuMemGetAllocationPropertiesFromHandle cuMemRetainAllocationHandle;
    external: cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuDestroyExternalMemory;
}

/// The address of a CUDA driver function by its full name. Null if softgpu does not implement it, if the
/// [settings](crate::Settings) leave it out, or if it is newer than the release that they choose.
///
/// ```
/// assert!(!softgpu::cuda_symbol(c"cuMemAlloc_v2").is_null());
/// assert!(softgpu::cuda_symbol(c"cuGraphCreate").is_null());
/// ```
pub fn cuda_symbol(name: &CStr) -> *const c_void {
    let Some(symbol) = Functions::SYMBOLS.iter().find(|symbol| symbol.name == name) else { return std::ptr::null() };
    let served = settings::chosen()
        .map_or(true, |settings| settings.version >= symbol.since.number() && !is_left_out(&settings, name));
    if served { FUNCTIONS.address(name) } else { std::ptr::null() }
}

pub(crate) fn is_served(name: &str) -> bool {
    std::ffi::CString::new(name).is_ok_and(|name| !cuda_symbol(&name).is_null())
}

fn is_left_out(settings: &Settings, name: &CStr) -> bool {
    settings.without.iter().any(|without| without.as_bytes() == name.to_bytes())
}

/// Whether the driver's table or vkgdr's has a function of this name.
pub(crate) fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// The function that a name without its version means, such as `cuMemAlloc_v2` for `cuMemAlloc`.
pub(crate) fn meant(name: &str) -> Option<&'static str> {
    names().find(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with("_v")))
}

fn names() -> impl Iterator<Item = &'static str> {
    let symbols = Functions::SYMBOLS.iter().chain(vkgdr_sys::Functions::SYMBOLS);
    symbols.filter_map(|symbol| symbol.name.to_str().ok())
}

/// The address of a vkgdr function by its name. Null if softgpu does not serve it.
///
/// ```
/// assert!(!softgpu::vkgdr_symbol(c"vkgdr_open").is_null());
/// ```
pub fn vkgdr_symbol(name: &CStr) -> *const c_void {
    if settings::chosen().is_ok_and(|settings| is_left_out(&settings, name)) {
        return std::ptr::null();
    }
    vkgdr::FUNCTIONS.address(name)
}
