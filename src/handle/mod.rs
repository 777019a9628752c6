//! Handles: 64-bit numbers that stand for values of the library, and that may be wrong.
//!
//! Each kind of value has a [table](table) of slots, which are never unmapped. A handle is a slot's number, its kind, and
//! the generation of the value in it, which a slot never has twice. So a handle that is stale, of another kind or made
//! up is seen as such without touching anything, by any number of threads at once, also beside a destroy.

mod id;
#[cfg(all(test, not(miri)))]
mod loom;
mod slot;
mod sync;
mod table;
#[cfg(test)]
mod tests;

pub use id::Kind;
pub use table::{Full, Kept, Object, Refusal, Table, Use, find, insert_with, remove};

/// Makes a type an object of handles: `object!(Stream: Kind::Stream)`.
macro_rules! object {
    ($object:ty: $kind:expr) => {
        impl $crate::handle::Object for $object {
            const KIND: $crate::handle::Kind = $kind;

            #[inline]
            fn table() -> &'static $crate::handle::Table<Self> {
                static TABLE: $crate::handle::Table<$object> = $crate::handle::Table::new();
                &TABLE
            }

            #[inline]
            fn kept() -> &'static std::thread::LocalKey<std::cell::RefCell<$crate::handle::Kept<Self>>> {
                thread_local! {
                    static KEPT: std::cell::RefCell<$crate::handle::Kept<$object>> =
                        std::cell::RefCell::new($crate::handle::Kept::new());
                }
                &KEPT
            }
        }
    };
}
pub(crate) use object;
