//! Names for the allocations of a piece of code.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static NAME: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Runs `work`. Allocations of this thread through a [`Tracking`](crate::adaptor::Tracking) get the name meanwhile.
/// Nested names are joined: `model/weights`.
///
/// ```
/// use cuda_mem::adaptor::{current_name, named};
/// let inner = named("model", || named("weights", current_name));
/// assert_eq!(inner.as_deref(), Some("model/weights"));
/// assert_eq!(current_name(), None);
/// ```
pub fn named<R>(name: &str, work: impl FnOnce() -> R) -> R {
    let joined: Arc<str> = match current_name() {
        Some(outer) => format!("{outer}/{name}").into(),
        None => name.into(),
    };
    // The guard restores the outer name, also when `work` panics.
    let _outer = Outer(replace(Some(joined)));
    work()
}

/// The name that allocations of this thread get now.
pub fn current_name() -> Option<Arc<str>> {
    // A thread that is ending has lost its thread-local name.
    NAME.try_with(|name| name.borrow().clone()).ok().flatten()
}

fn replace(name: Option<Arc<str>>) -> Option<Arc<str>> {
    NAME.try_with(|place| place.replace(name)).ok().flatten()
}

/// The name to restore.
struct Outer(Option<Arc<str>>);

impl Drop for Outer {
    fn drop(&mut self) {
        replace(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_join_and_end_with_their_scope_and_with_a_panic() {
        named("a", || {
            assert_eq!(named("b", current_name).as_deref(), Some("a/b"));
            let caught = std::panic::catch_unwind(|| named("c", || panic!("{:?}", current_name())));
            assert_eq!(caught.unwrap_err().downcast_ref::<String>().unwrap(), "Some(\"a/c\")");
            assert_eq!(current_name().as_deref(), Some("a"));
            assert_eq!(std::thread::spawn(current_name).join().unwrap(), None);
        });
        assert_eq!(current_name(), None);
    }
}
