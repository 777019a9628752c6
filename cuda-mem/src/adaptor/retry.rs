//! Retries of allocations that ran out of memory.

use super::{Adapt, Adapted, handle};
use crate::error::callback::call_through;
use crate::memory::resource::{Block, Kind, ResourceHandle, SharedResource};
use crate::{Error, Result, Stream};
use core::fmt;

handle! {
    /// When a resource is out of memory, calls a hook that may free some (empty a cache, move data to the host, wait
    /// for a stream), and tries again. Cheap to clone.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::{AfterFailure, Limit, Retry}, memory::DeviceMemory};
    /// use std::sync::Mutex;
    /// let limit = Limit::new(&DeviceMemory::new(&context), 1000);
    /// let cache = Mutex::new(vec![Buffer::<u8, _>::zeroed(&limit, 800, &stream)?]);
    /// let retry = Retry::new(&limit, 3, move |error, attempt| {
    ///     println!("attempt {attempt}: {error}");
    ///     match cache.lock().map(|mut cache| cache.pop()) {
    ///         Ok(Some(_buffer)) => AfterFailure::Again,
    ///         _ => AfterFailure::GiveUp,
    ///     }
    /// });
    /// let buffer = Buffer::<u8, _>::zeroed(&retry, 900, &stream)?;
    /// assert!(Buffer::<u8, _>::zeroed(&retry, 900, &stream).is_err());
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "failure_callback_resource_adaptor")]
    Retry holds Adapted<Hook>
}

/// The hook's decision after a failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Try the allocation again.
    Again,
    /// Return the error to the caller.
    GiveUp,
}

impl<K: Kind> Retry<K> {
    /// When `upstream` fails with an error that [is out of memory](Error::is_out_of_memory), calls `hook` with the
    /// error and the number of the failed attempt, counted from 1. After `attempts` attempts of one allocation, this
    /// returns the error without calling the hook.
    ///
    /// The hook runs on the allocating thread. It may free, and may allocate from other resources.
    pub fn new<R, H>(upstream: &R, attempts: u32, hook: H) -> Self
    where
        R: ResourceHandle<Kind = K> + ?Sized,
        H: Fn(&Error, u32) -> AfterFailure + Send + Sync + 'static,
    {
        let adaptor = Hook { attempts, decide: Box::new(hook) };
        Self::from_inner(Adapted { adaptor, upstream: upstream.share() })
    }
}

type Decide = dyn Fn(&Error, u32) -> AfterFailure + Send + Sync;

struct Hook {
    attempts: u32,
    decide: Box<Decide>,
}

impl Hook {
    /// Repeats `work` until it succeeds, fails for another reason, or the attempts or the hook end it.
    fn attempt<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            match work() {
                Err(error) if error.is_out_of_memory() => {
                    let decide = || (self.decide)(&error, attempt);
                    if attempt >= self.attempts || call_through(decide) == AfterFailure::GiveUp {
                        return Err(error);
                    }
                }
                other => return other,
            }
            attempt += 1;
        }
    }
}

// SAFETY: the blocks are the upstream's, unchanged.
unsafe impl Adapt for Hook {
    fn allocate(&self, upstream: &SharedResource, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        self.attempt(|| upstream.allocate(size, alignment, stream))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn full() -> Error {
        Error::LimitReached { call: "test", requested: 1, used: 1, limit: 1 }
    }

    /// Returns the number of attempts, the attempts that the hook received, and the result of work that succeeds at
    /// attempt `successful`.
    fn run(attempts: u32, give_up_at: u32, successful: u32, error: Error) -> (u32, Vec<u32>, Result<u32>) {
        let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
        let hook = {
            let seen = seen.clone();
            Hook {
                attempts,
                decide: Box::new(move |_, attempt| {
                    seen.lock().unwrap().push(attempt);
                    if attempt == give_up_at { AfterFailure::GiveUp } else { AfterFailure::Again }
                }),
            }
        };
        let mut done = 0;
        let result = hook.attempt(|| {
            done += 1;
            if done == successful { Ok(done) } else { Err(error.clone()) }
        });
        let seen = seen.lock().unwrap().clone();
        (done, seen, result)
    }

    #[test]
    fn retries_stop_on_success_bound_hook_or_other_errors() {
        assert_eq!(run(5, 0, 1, full()), (1, vec![], Ok(1)));
        assert_eq!(run(5, 0, 3, full()), (3, vec![1, 2], Ok(3)));
        assert_eq!(run(3, 0, 9, full()), (3, vec![1, 2], Err(full())));
        assert_eq!(run(9, 2, 9, full()), (2, vec![1, 2], Err(full())));
        assert_eq!(run(0, 0, 9, full()), (1, vec![], Err(full())));
        let other = Error::OutOfRange { call: "test", offset: 0, length: 0, size: 0 };
        assert_eq!(run(5, 0, 9, other.clone()), (1, vec![], Err(other)));
    }
}
