//! Codes after which a context stays broken.

use crate::Error;
use cuda_sys::CUresult;

/// The codes of a broken context. Until it is destroyed, it does none of its work any more, and the driver answers every
/// call for that work by such a code.
const BROKEN: [CUresult; 16] = [
    // cuda.h describes these as the end of the context or of the process's work. A conformance test compares them.
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
    // Of these it only says what happened.
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    // The answer of a device that the system has lost.
    CUresult::CUDA_ERROR_UNKNOWN,
];

impl Error {
    /// Whether a broken context gives such an answer. One answer proves nothing:
    /// [`Context::is_broken_by`](crate::Context) asks for another.
    pub(crate) fn may_break_the_context(&self) -> bool {
        self.driver_code().is_some_and(|code| BROKEN.contains(&code))
    }
}
