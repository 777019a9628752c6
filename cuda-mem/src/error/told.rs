//! Events and spans for subscribers of the crate `tracing`.

#[cfg(feature = "tracing")]
use super::callback::call_back;

/// Tells subscribers of an event; without the feature `tracing`, nothing. A subscriber is code of the program, so the event
/// [waits](crate::locks::later) until its thread holds nothing. It owns its values.
macro_rules! told {
    ($target:literal, $level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        $crate::locks::later::run(move || {
            tracing::event!(target: $target, tracing::Level::$level, $($event)*)
        });
    };
}

pub(crate) use told;

/// A span of subscribers of the crate `tracing`, from its begin to its drop. The thread holds nothing at both.
#[cfg(feature = "tracing")]
#[must_use = "the span lasts only while this lives"]
#[derive(Debug)]
pub(crate) struct ToldSpan(Option<tracing::span::EnteredSpan>);

#[cfg(feature = "tracing")]
impl ToldSpan {
    /// Begins the span that `span` makes.
    pub fn begin(span: impl FnOnce() -> tracing::Span) -> Self {
        Self(call_back(|| span().entered()).ok())
    }
}

#[cfg(feature = "tracing")]
impl Drop for ToldSpan {
    fn drop(&mut self) {
        let span = self.0.take();
        drop(call_back(move || drop(span)));
    }
}
