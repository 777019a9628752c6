//! Events for subscribers of the crate `tracing`.

/// Tells subscribers of an event; without the feature `tracing`, nothing. A subscriber is code of the program, so the event
/// [waits](crate::error::later) until its thread holds nothing. It owns its values.
macro_rules! told {
    ($target:literal, $level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        $crate::error::later::report(move || {
            drop($crate::error::callback::call_back(|| {
                tracing::event!(target: $target, tracing::Level::$level, $($event)*)
            }))
        });
    };
}

pub(crate) use told;
