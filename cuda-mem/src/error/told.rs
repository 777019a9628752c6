//! Events for subscribers of the crate `tracing`.

/// Tells subscribers of an event; without the feature `tracing`, nothing. A subscriber is the program's, so the caller
/// holds no lock that the program could need.
macro_rules! told {
    ($target:literal, $level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        drop($crate::error::callback::call_back(|| {
            tracing::event!(target: $target, tracing::Level::$level, $($event)*)
        }));
    };
}

pub(crate) use told;
