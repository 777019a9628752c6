//! Calls of the driver that need no policy.

use crate::error::Outcome;
use cuda_mem::cuda_sys::{CUresult, MissingSymbol};
use cuda_mem::{Driver, DriverError, Error};

/// The result of a call of the driver as an exception.
pub fn checked(call: &'static str, result: Result<CUresult, MissingSymbol>) -> Outcome {
    Ok(answer(call, result)?)
}

/// The result of a call of the driver.
pub fn answer(call: &'static str, result: Result<CUresult, MissingSymbol>) -> cuda_mem::Result<()> {
    match result {
        Ok(CUresult::CUDA_SUCCESS) => Ok(()),
        Ok(code) => Err(Error::Driver(DriverError { call, code })),
        Err(missing) => Err(missing.into()),
    }
}

/// The driver of this process, unless the process was forked from one that had loaded it.
pub fn driver(call: &'static str) -> cuda_mem::Result<Driver> {
    cuda_mem::check_not_forked(call)?;
    Driver::load()
}
