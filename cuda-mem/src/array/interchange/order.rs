//! Streams of other libraries: their numbers in the protocols.

use super::TensorError;
use crate::{Context, Result, Stream};
use core::num::NonZeroUsize;
use core::ptr;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};

/// A stream as DLPack and the CUDA array interface name it.
///
/// ```
/// use cuda_mem::interchange::StreamName;
/// assert_eq!(StreamName::from_dlpack(None)?, StreamName::Legacy);
/// assert_eq!(StreamName::from_dlpack(Some(-1))?, StreamName::Unordered);
/// assert_eq!(StreamName::from_array_interface(None)?, StreamName::Unordered);
/// assert!(StreamName::from_dlpack(Some(0)).is_err()); // which default stream?
/// # Ok::<(), cuda_mem::interchange::TensorError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamName {
    /// No order is needed: the other side takes care of it.
    Unordered,
    /// The legacy default stream.
    Legacy,
    /// The calling thread's default stream.
    PerThread,
    /// A stream, as the driver's handle.
    Handle(NonZeroUsize),
}

impl StreamName {
    /// The consumer's stream in DLPack's `__dlpack__(stream=...)`: `None` is the legacy default stream, -1 needs no
    /// order.
    ///
    /// # Errors
    ///
    /// 0, which could be either default stream, and negative numbers other than -1.
    pub fn from_dlpack(stream: Option<i64>) -> Result<Self, TensorError> {
        match stream {
            None => Ok(Self::Legacy),
            Some(-1) => Ok(Self::Unordered),
            Some(number) => Self::from_number(number, "DLPack allows 1, 2, a stream's handle, or -1 for no order"),
        }
    }

    /// The producer's stream in the CUDA array interface: `None` needs no order.
    ///
    /// # Errors
    ///
    /// 0, which could be either default stream, and negative numbers.
    pub fn from_array_interface(stream: Option<i64>) -> Result<Self, TensorError> {
        match stream {
            None => Ok(Self::Unordered),
            Some(number) => Self::from_number(
                number,
                "the CUDA array interface allows 1, 2, a stream's handle, or none for no order",
            ),
        }
    }

    fn from_number(number: i64, rule: &'static str) -> Result<Self, TensorError> {
        let refused = TensorError::Stream { stream: number, rule };
        let handle = usize::try_from(number).ok().and_then(NonZeroUsize::new).ok_or(refused)?;
        Ok(match handle.get() {
            1 => Self::Legacy,
            2 => Self::PerThread,
            _ => Self::Handle(handle),
        })
    }

    /// The name of one of our streams.
    pub fn of(stream: &Stream) -> Self {
        let raw = stream.raw();
        match NonZeroUsize::new(raw.expose_provenance()) {
            None => Self::Legacy,
            Some(_) if raw == CU_STREAM_LEGACY => Self::Legacy,
            Some(_) if raw == CU_STREAM_PER_THREAD => Self::PerThread,
            Some(handle) => Self::Handle(handle),
        }
    }

    /// The stream's number in both protocols; `None` where no order is needed.
    pub fn number(self) -> Option<i64> {
        match self {
            Self::Unordered => None,
            Self::Legacy => Some(1),
            Self::PerThread => Some(2),
            Self::Handle(handle) => Some(handle.get() as i64),
        }
    }

    /// The stream in a context; `None` where no order is needed.
    ///
    /// # Safety
    ///
    /// A handle belongs to a stream of the context, which lives while the returned value and its clones do.
    pub unsafe fn stream(self, context: &Context) -> Option<Stream> {
        match self {
            Self::Unordered => None,
            Self::Legacy => Some(Stream::legacy_default(context)),
            Self::PerThread => Some(Stream::per_thread_default(context)),
            Self::Handle(handle) => {
                let raw: CUstream = ptr::with_exposed_provenance_mut(handle.get());
                // SAFETY: this function's contract.
                Some(unsafe { Stream::borrow_raw(context, raw) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_streams_are_the_protocols() {
        for number in [0, -2, i64::MIN] {
            assert!(
                matches!(StreamName::from_dlpack(Some(number)), Err(TensorError::Stream { stream, .. }) if stream == number)
            );
            assert!(StreamName::from_array_interface(Some(number)).is_err());
        }
        assert!(StreamName::from_array_interface(Some(-1)).is_err());
        for (number, name) in [(1, StreamName::Legacy), (2, StreamName::PerThread)] {
            assert_eq!(StreamName::from_dlpack(Some(number)), Ok(name));
            assert_eq!(StreamName::from_array_interface(Some(number)), Ok(name));
            assert_eq!(name.number(), Some(number));
        }
        let handle = StreamName::from_dlpack(Some(0x7f00)).unwrap();
        assert_eq!((handle.number(), StreamName::Unordered.number()), (Some(0x7f00), None));
    }
}
