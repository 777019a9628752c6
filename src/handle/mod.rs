//! Handles: 64-bit numbers that name values of the library and that the library checks.
//!
//! Each kind of value has a [table](table) of slots, which are never unmapped. A handle holds a slot's index, the kind,
//! and the generation of the slot's value. A slot never has the same generation twice. So a lookup detects handles that
//! are stale, of another kind or made up, and touches nothing else. Any number of threads may look handles up, even
//! during a destroy.

mod id;
mod lasting;
#[cfg(all(test, not(miri)))]
mod loom;
mod slot;
mod sync;
mod table;
#[cfg(test)]
mod tests;

pub use id::{Kind, kind_of};
pub use table::{Full, Object, Refusal, SpareSlots, Table, Use, find, insert_with, refuse, remove};

/// Implements `Object` for a type: `object!(Stream: Kind::Stream)`.
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
            fn kept() -> &'static std::thread::LocalKey<std::cell::RefCell<$crate::handle::SpareSlots<Self>>> {
                thread_local! {
                    static KEPT: std::cell::RefCell<$crate::handle::SpareSlots<$object>> =
                        std::cell::RefCell::new($crate::handle::SpareSlots::new());
                }
                &KEPT
            }
        }
    };
}
pub(crate) use object;
