//! Names and texts of error codes. Programs match the texts in output, so they are those that the driver answers.

use super::init::version;
use crate::call::{Result, ensure, put};
use crate::settings::USUAL;
use cuda_sys::CUresult;
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// What cuGetErrorString of driver 580.159.04 answers. The texts of newer codes are not known here.
const KNOWN: &[(CUresult, &CStr)] = &[
    (CUresult::CUDA_SUCCESS, c"no error"),
    (CUresult::CUDA_ERROR_INVALID_VALUE, c"invalid argument"),
    (CUresult::CUDA_ERROR_OUT_OF_MEMORY, c"out of memory"),
    (CUresult::CUDA_ERROR_NOT_INITIALIZED, c"initialization error"),
    (CUresult::CUDA_ERROR_DEINITIALIZED, c"driver shutting down"),
    (CUresult::CUDA_ERROR_PROFILER_DISABLED, c"profiler disabled while using external profiling tool"),
    (CUresult::CUDA_ERROR_PROFILER_NOT_INITIALIZED, c"profiler not initialized: call cudaProfilerInitialize()"),
    (CUresult::CUDA_ERROR_PROFILER_ALREADY_STARTED, c"profiler already started"),
    (CUresult::CUDA_ERROR_PROFILER_ALREADY_STOPPED, c"profiler already stopped"),
    (CUresult::CUDA_ERROR_STUB_LIBRARY, c"CUDA driver is a stub library"),
    (CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, c"API call is not supported in the installed CUDA driver"),
    (CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE, c"CUDA-capable device(s) is/are busy or unavailable"),
    (CUresult::CUDA_ERROR_NO_DEVICE, c"no CUDA-capable device is detected"),
    (CUresult::CUDA_ERROR_INVALID_DEVICE, c"invalid device ordinal"),
    (CUresult::CUDA_ERROR_DEVICE_NOT_LICENSED, c"device doesn't have valid Grid license"),
    (CUresult::CUDA_ERROR_INVALID_IMAGE, c"device kernel image is invalid"),
    (CUresult::CUDA_ERROR_INVALID_CONTEXT, c"invalid device context"),
    (CUresult::CUDA_ERROR_CONTEXT_ALREADY_CURRENT, c"context already current"),
    (CUresult::CUDA_ERROR_MAP_FAILED, c"mapping of buffer object failed"),
    (CUresult::CUDA_ERROR_UNMAP_FAILED, c"unmapping of buffer object failed"),
    (CUresult::CUDA_ERROR_ARRAY_IS_MAPPED, c"array is mapped"),
    (CUresult::CUDA_ERROR_ALREADY_MAPPED, c"resource already mapped"),
    (CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, c"no kernel image is available for execution on the device"),
    (CUresult::CUDA_ERROR_ALREADY_ACQUIRED, c"resource already acquired"),
    (CUresult::CUDA_ERROR_NOT_MAPPED, c"resource not mapped"),
    (CUresult::CUDA_ERROR_NOT_MAPPED_AS_ARRAY, c"resource not mapped as array"),
    (CUresult::CUDA_ERROR_NOT_MAPPED_AS_POINTER, c"resource not mapped as pointer"),
    (CUresult::CUDA_ERROR_ECC_UNCORRECTABLE, c"uncorrectable ECC error encountered"),
    (CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT, c"limit is not supported on this architecture"),
    (CUresult::CUDA_ERROR_CONTEXT_ALREADY_IN_USE, c"exclusive-thread device already in use by a different thread"),
    (CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, c"peer access is not supported between these two devices"),
    (CUresult::CUDA_ERROR_INVALID_PTX, c"a PTX JIT compilation failed"),
    (CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, c"invalid OpenGL or DirectX context"),
    (CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE, c"uncorrectable NVLink error detected during the execution"),
    (CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND, c"PTX JIT compiler library not found"),
    (CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, c"the provided PTX was compiled with an unsupported toolchain."),
    (CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED, c"PTX JIT compilation was disabled"),
    (CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, c"the provided execution affinity is not supported"),
    (CUresult::CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, c"the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    (CUresult::CUDA_ERROR_CONTAINED, c"Invalid access of peer GPU memory over nvlink or a hardware error"),
    (CUresult::CUDA_ERROR_INVALID_SOURCE, c"device kernel image is invalid"),
    (CUresult::CUDA_ERROR_FILE_NOT_FOUND, c"file not found"),
    (CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, c"shared object symbol not found"),
    (CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, c"shared object initialization failed"),
    (CUresult::CUDA_ERROR_OPERATING_SYSTEM, c"OS call failed or operation not supported on this OS"),
    (CUresult::CUDA_ERROR_INVALID_HANDLE, c"invalid resource handle"),
    (CUresult::CUDA_ERROR_ILLEGAL_STATE, c"the operation cannot be performed in the present state"),
    (CUresult::CUDA_ERROR_LOSSY_QUERY, c"attempted introspection would be semantically lossy"),
    (CUresult::CUDA_ERROR_NOT_FOUND, c"named symbol not found"),
    (CUresult::CUDA_ERROR_NOT_READY, c"device not ready"),
    (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, c"an illegal memory access was encountered"),
    (CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, c"too many resources requested for launch"),
    (CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, c"the launch timed out and was terminated"),
    (CUresult::CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, c"launch uses incompatible texturing mode"),
    (CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, c"peer access is already enabled"),
    (CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, c"peer access has not been enabled"),
    (CUresult::CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, c"cannot set while device is active in this process"),
    (CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, c"context is destroyed"),
    (CUresult::CUDA_ERROR_ASSERT, c"device-side assert triggered"),
    (CUresult::CUDA_ERROR_TOO_MANY_PEERS, c"peer mapping resources exhausted"),
    (CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, c"part or all of the requested memory range is already mapped"),
    (CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, c"pointer does not correspond to a registered memory region"),
    (CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR, c"hardware stack error"),
    (CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION, c"an illegal instruction was encountered"),
    (CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, c"misaligned address"),
    (CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE, c"operation not supported on global/shared address space"),
    (CUresult::CUDA_ERROR_INVALID_PC, c"invalid program counter"),
    (CUresult::CUDA_ERROR_LAUNCH_FAILED, c"unspecified launch failure"),
    (CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, c"too many blocks in cooperative launch"),
    (CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK, c"tensor memory not completely freed"),
    (CUresult::CUDA_ERROR_NOT_PERMITTED, c"operation not permitted"),
    (CUresult::CUDA_ERROR_NOT_SUPPORTED, c"operation not supported"),
    (CUresult::CUDA_ERROR_SYSTEM_NOT_READY, c"system not yet initialized"),
    (CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, c"system has unsupported display driver / cuda driver combination"),
    (CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, c"forward compatibility was attempted on non supported HW"),
    (CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED, c"MPS client failed to connect to the MPS control daemon or the MPS server"),
    (CUresult::CUDA_ERROR_MPS_RPC_FAILURE, c"the remote procedural call between the MPS server and the MPS client failed"),
    (CUresult::CUDA_ERROR_MPS_SERVER_NOT_READY, c"MPS server is not ready to accept new MPS client requests"),
    (CUresult::CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, c"the hardware resources required to create MPS client have been exhausted"),
    (CUresult::CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, c"the hardware resources required to support device connections have been exhausted"),
    (CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED, c"the MPS client has been terminated by the server"),
    (CUresult::CUDA_ERROR_CDP_NOT_SUPPORTED, c"is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it"),
    (CUresult::CUDA_ERROR_CDP_VERSION_MISMATCH, c"unsupported interaction between different versions of CUDA Dynamic Parallelism"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, c"operation not permitted when stream is capturing"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, c"operation failed due to a previous error during capture"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE, c"operation would result in a merge of separate capture sequences"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, c"capture was not ended in the same stream as it began"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED, c"capturing stream has unjoined work"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, c"dependency created on uncaptured work in another stream"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, c"operation would make the legacy stream depend on a capturing blocking stream"),
    (CUresult::CUDA_ERROR_CAPTURED_EVENT, c"operation not permitted on an event last recorded in a capturing stream"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, c"attempt to terminate a thread-local capture sequence from another thread"),
    (CUresult::CUDA_ERROR_TIMEOUT, c"wait operation timed out"),
    (CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"),
    (CUresult::CUDA_ERROR_EXTERNAL_DEVICE, c"an async error has occured in external entity outside of CUDA"),
    (CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE, c"a kernel launch error has occurred due to cluster misconfiguration"),
    (CUresult::CUDA_ERROR_FUNCTION_NOT_LOADED, c"the function handle is not loaded when calling an API that requires a loaded function"),
    (CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE, c"one or more resources passed in are not valid resource types for the operation"),
    (CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, c"one or more resources are insufficient or non-applicable for the operation"),
    (CUresult::CUDA_ERROR_KEY_ROTATION, c"an error happened during the key rotation sequence"),
    (CUresult::CUDA_ERROR_UNKNOWN, c"unknown error"),
];

/// The codes that CUDA 13.0 does not know.
const LATER: [CUresult; 5] = [
    CUresult::CUDA_ERROR_MULTICAST_RESOURCE_FULL,
    CUresult::CUDA_ERROR_INSUFFICIENT_LOADER_VERSION,
    CUresult::CUDA_ERROR_STREAM_DETACHED,
    CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE,
    CUresult::CUDA_ERROR_FABRIC_NOT_READY,
];

pub(super) struct Texts {
    pub(super) name: &'static CStr,
    pub(super) words: &'static CStr,
}

static TEXTS: Lazy<HashMap<u32, Texts>> = Lazy::new(|| {
    let kept = |text: String| Some(&*Box::leak(CString::new(text).ok()?.into_boxed_c_str()));
    let text = |code| {
        let name = CUresult(code).name()?;
        let words = match KNOWN.iter().find(|(known, _)| known.0 == code) {
            Some((_, words)) => words,
            None => kept(name.strip_prefix("CUDA_ERROR_").unwrap_or(name).to_lowercase().replace('_', " "))?,
        };
        Some((code, Texts { name: kept(name.to_owned())?, words }))
    };
    (0..1000).filter_map(text).collect()
});

/// Returns a text for a code. Null and CUDA_ERROR_INVALID_VALUE for an unknown code.
///
/// # Safety
///
/// `out` is null or writable.
pub(super) unsafe fn text(
    error: CUresult,
    out: *mut *const c_char,
    which: impl Fn(&'static Texts) -> &'static CStr,
) -> Result {
    let known = version() > USUAL || !LATER.contains(&error);
    let text = TEXTS.get(&error.0).filter(|_| known).map(which);
    // SAFETY: by this function's contract.
    unsafe { put(out, text.map_or(ptr::null(), CStr::as_ptr)) }?;
    ensure(text.is_some())
}
