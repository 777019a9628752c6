//! The identity of this process.

use super::ProcessId;
use crate::{Error, Result};
use once_cell::sync::OnceCell;

/// This process. A forked child has another number, so it counts as another process.
pub(crate) fn this() -> Result<ProcessId> {
    static NONCE: OnceCell<u64> = OnceCell::new();
    let nonce = *NONCE.get_or_try_init(|| random().map(u64::from_ne_bytes))?;
    Ok(ProcessId { number: std::process::id(), nonce })
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let system = |error: rustix::io::Errno| Error::System { call: "getrandom", code: error.raw_os_error() };
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(system)? {
        length if length == N => Ok(bytes),
        _ => Err(system(rustix::io::Errno::INTR)),
    }
}
