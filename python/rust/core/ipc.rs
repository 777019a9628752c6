//! Errors of imports.

use crate::error::Failure;
use cuda_mem::Error;
use cuda_mem::ipc::DescriptorError;
use pyo3::exceptions::PyValueError;

/// The exception of a refused import. That of sizes has cuda.core's words.
pub fn import_refused(error: Error) -> Failure {
    match error {
        Error::Descriptor(DescriptorError::TooLarge { size, extent, .. }) => PyValueError::new_err(format!(
            "IPC buffer descriptor size ({size}) exceeds mapped allocation extent ({extent} bytes)"
        ))
        .into(),
        error => error.into(),
    }
}
