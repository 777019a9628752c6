//! Addresses whose memory is away, because the pool of the memory sleeps.
//!
//! Work on a buffer asks here first. While no pool of the process sleeps, that is one load.

use crate::error::{SleepError, forked, unless_forked};
use crate::locks::RwLock;
use crate::{Driver, Result};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the list has entries. Changes only under the list's lock.
static ANY: AtomicBool = AtomicBool::new(false);
static LIST: RwLock<Vec<Entry>> = RwLock::new(Vec::new());

#[derive(Debug)]
struct Entry {
    number: u64,
    /// The driver's library: two values for it share the addresses.
    library: usize,
    addresses: Range<u64>,
}

/// The number of the next pool that falls asleep. No two have the same, also if one has no memory to list.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Addresses that are listed until this is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    number: u64,
}

/// Lists addresses of a driver: buffers refuse work there from now on.
pub(crate) fn list(driver: &Driver, addresses: impl IntoIterator<Item = Range<u64>>) -> Listed {
    let mut list = LIST.write();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let library = driver.library();
    list.extend(addresses.into_iter().map(|addresses| Entry { number, library, addresses }));
    ANY.store(!list.is_empty(), Ordering::Release);
    Listed { number }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        let mut list = LIST.write();
        list.retain(|entry| entry.number != self.number);
        ANY.store(!list.is_empty(), Ordering::Release);
    }
}

/// Whether any pool sleeps.
#[inline]
fn is_any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Whether the memory at an address is away.
#[inline]
pub(crate) fn is_away(driver: &Driver, address: u64) -> bool {
    is_any() && is_listed(driver, address)
}

#[cold]
fn is_listed(driver: &Driver, address: u64) -> bool {
    let is_here = |entry: &Entry| entry.addresses.contains(&address) && entry.library == driver.library();
    unless_forked(|| LIST.read().iter().any(is_here))
}

/// Refuses memory that is away.
///
/// # Errors
///
/// [`SleepError::Asleep`].
#[inline]
pub(crate) fn check(call: &'static str, driver: &Driver, address: u64) -> Result<()> {
    if is_any() { refuse_listed(call, driver, address) } else { Ok(()) }
}

#[cold]
fn refuse_listed(call: &'static str, driver: &Driver, address: u64) -> Result<()> {
    match is_listed(driver, address) {
        false => Ok(()),
        true => Err(SleepError::Asleep { call, address: Some(address) }.into()),
    }
}
