//! The list of all functions that softgpu serves.

use crate::call::PerThread;
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

        /// The per-thread forms of functions.
        const PER_THREAD: &[&[PerThread]] = &[$(api::$module::PER_THREAD),*];
    };
}

served! {
    init: cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString cuGetExportTable cuGetProcAddress cuGetProcAddress_v2;
    device: cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceTotalMem_v2
        cuDeviceGetAttribute cuDeviceGetPCIBusId cuDeviceGetByPCIBusId cuDeviceCanAccessPeer cuDeviceGetP2PAttribute;
    context: cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxGetState
        cuDevicePrimaryCtxSetFlags_v2 cuDevicePrimaryCtxReset_v2 cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxPushCurrent_v2
        cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice cuCtxGetDevice_v2 cuCtxGetFlags cuCtxSetFlags cuCtxGetId cuCtxGetApiVersion
        cuCtxSynchronize cuCtxSynchronize_v2 cuCtxGetStreamPriorityRange cuCtxGetLimit cuCtxSetLimit cuCtxEnablePeerAccess cuCtxDisablePeerAccess;
    profiler: ;
    user_object: cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
        cuGraphReleaseUserObject;
    stream: cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamQuery cuStreamSynchronize
        cuStreamWaitEvent cuStreamGetPriority cuStreamGetFlags cuStreamGetId cuStreamGetCtx cuStreamGetCtx_v2 cuStreamGetDevice
        cuLaunchHostFunc cuLaunchHostFunc_v2 cuStreamAddCallback cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 cuStreamWriteValue32_v2 cuStreamWriteValue64_v2;
    capture: cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v3
        cuThreadExchangeStreamCaptureMode cuStreamBeginCaptureToGraph cuStreamUpdateCaptureDependencies
        cuStreamUpdateCaptureDependencies_v2;
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
    graph_edges: cuGraphGetRootNodes cuGraphGetEdges cuGraphGetEdges_v2 cuGraphNodeGetDependencies
        cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2
        cuGraphAddDependencies cuGraphAddDependencies_v2 cuGraphRemoveDependencies cuGraphRemoveDependencies_v2;
    graph_nodes: cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddHostNode cuGraphAddChildGraphNode
        cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode cuGraphAddMemAllocNode
        cuGraphAddMemFreeNode cuGraphDestroyNode;
    graph_params: cuGraphNodeGetType cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams
        cuGraphExecMemcpyNodeSetParams cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams
        cuGraphExecMemsetNodeSetParams cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphExecHostNodeSetParams
        cuGraphChildGraphNodeGetGraph cuGraphExecChildGraphNodeSetParams cuGraphEventRecordNodeGetEvent
        cuGraphEventRecordNodeSetEvent cuGraphExecEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent
        cuGraphEventWaitNodeSetEvent cuGraphExecEventWaitNodeSetEvent cuGraphMemAllocNodeGetParams
        cuGraphMemFreeNodeGetParams cuGraphExecUpdate cuGraphExecUpdate_v2 cuGraphExecGetFlags cuGraphNodeSetEnabled
        cuGraphNodeGetEnabled;
    graph: cuGraphCreate cuGraphClone cuGraphNodeFindInClone cuGraphGetNodes cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphUpload cuGraphLaunch cuGraphExecDestroy cuGraphDestroy
        cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute cuDeviceGraphMemTrim;
    module: cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetLoadingMode
        cuModuleGetFunction cuModuleGetFunctionCount cuModuleEnumerateFunctions cuModuleGetGlobal_v2;
    library: cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel cuLibraryGetKernelCount
        cuLibraryEnumerateKernels cuLibraryGetModule cuLibraryGetGlobal cuLibraryGetManaged cuKernelGetFunction
        cuKernelGetLibrary cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig cuKernelGetName
        cuKernelGetParamInfo cuKernelGetParamCount;
    link: cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy;
    function: cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig cuFuncGetModule cuFuncGetName
        cuFuncGetParamInfo cuFuncGetParamCount cuFuncIsLoaded cuFuncLoad cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
        cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyAvailableDynamicSMemPerBlock
        cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters;
    launch: cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel;
    graph_kernels: cuGraphAddKernelNode_v2 cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2
        cuGraphExecKernelNodeSetParams_v2 cuGraphConditionalHandleCreate cuGraphAddNode
        cuGraphAddNode_v2;
    graph_any: cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute cuGraphKernelNodeCopyAttributes
        cuGraphNodeGetParams cuGraphNodeSetParams cuGraphExecNodeSetParams cuGraphDebugDotPrint;
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
/// assert!(softgpu::cuda_symbol(c"cuArrayCreate_v2").is_null());
/// ```
pub fn cuda_symbol(name: &CStr) -> *const c_void {
    if name.to_bytes().ends_with(b"_ptsz") || name.to_bytes().ends_with(b"_ptds") {
        return per_thread(|form| form.name.as_bytes() == name.to_bytes());
    }
    if let Some(beside) = BESIDE.iter().find(|beside| beside.name.as_bytes() == name.to_bytes()) {
        let left_out = settings::chosen().is_ok_and(|settings| is_left_out(&settings, name));
        return if left_out { std::ptr::null() } else { (beside.address)() };
    }
    let Some(symbol) = Functions::SYMBOLS.iter().find(|symbol| symbol.name == name) else { return std::ptr::null() };
    let served = settings::chosen()
        .map_or(true, |settings| settings.version >= symbol.since.number() && !is_left_out(&settings, name));
    if served { FUNCTIONS.address(name) } else { std::ptr::null() }
}

/// A function that cuda.h does not declare, so that cuda-sys does not either. All of these are older than CUDA 11.
struct Beside {
    name: &'static str,
    address: fn() -> *const c_void,
}

const BESIDE: [Beside; 3] = [
    Beside { name: "cuProfilerStart", address: || api::profiler::cuProfilerStart as *const c_void },
    Beside { name: "cuProfilerStop", address: || api::profiler::cuProfilerStop as *const c_void },
    Beside { name: "cuStreamGetCaptureInfo", address: || api::capture::cuStreamGetCaptureInfo as *const c_void },
];

/// The address of the first per-thread form that `select` accepts; null if there is none, or if softgpu leaves out the
/// function.
fn per_thread(select: impl Fn(&PerThread) -> bool) -> *const c_void {
    let form = PER_THREAD.iter().copied().flatten().find(|form| select(form));
    form.filter(|form| is_served(form.of)).map_or(std::ptr::null(), |form| (form.address)())
}

/// One form of a function: `cuCtxCreate_v4` is the form that cuCtxCreate has since CUDA 12.5.
pub(crate) struct Form {
    /// The release that introduced it. It is the function's form until the next one.
    pub(crate) since: u32,
    /// Null if softgpu does not serve it.
    pub(crate) address: *const c_void,
    /// The name with suffix.
    name: &'static str,
}

impl Form {
    /// The address of the form whose null stream is the thread's own default stream. Most functions have only one form.
    pub(crate) fn per_thread(&self) -> *const c_void {
        let own = per_thread(|form| form.of == self.name);
        if own.is_null() { self.address } else { own }
    }
}

/// Forms that softgpu does not serve although it serves older ones: the name without suffix, and the release that
/// introduced the form. All other forms, with their releases, are in [`Functions::SYMBOLS`]. ffi-tests compares both
/// with cudaTypedefs.h.
const NOT_SERVED: &[(&str, u32)] = &[];

/// The forms of a function by its name without suffix.
pub(crate) fn forms(base: &[u8]) -> Vec<Form> {
    let is_form = |name: &[u8]| match name {
        [stem @ .., b'_', b'v', b'0'..=b'9'] => stem == base,
        name => name == base,
    };
    let declared = Functions::SYMBOLS.iter().filter(|symbol| is_form(symbol.name.to_bytes()));
    let declared = declared.map(|symbol| Form {
        since: symbol.since.number(),
        address: cuda_symbol(symbol.name),
        name: symbol.name.to_str().unwrap_or_default(),
    });
    let beside = BESIDE.iter().filter(|beside| beside.name.as_bytes() == base);
    let beside = beside.map(|beside| Form { since: 0, address: (beside.address)(), name: beside.name });
    let lacking = NOT_SERVED.iter().filter(|(name, _)| name.as_bytes() == base);
    declared
        .chain(beside)
        .chain(lacking.map(|(name, since)| Form { since: *since, address: std::ptr::null(), name }))
        .collect()
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
    symbols.filter_map(|symbol| symbol.name.to_str().ok()).chain(BESIDE.iter().map(|beside| beside.name))
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
