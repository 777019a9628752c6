//! The function table: one macro turns the generated list of signatures into a struct of function pointers, and into
//! methods that return an error for a missing symbol.

use crate::Release;
use core::ffi::{CStr, c_void};
use std::sync::Arc;

/// A function of a library: its name, and the release that introduced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// The exported name, with its version suffix.
    pub name: &'static CStr,
    /// The release that introduced the function under this name.
    pub since: Release,
}

/// The error for a function that the library does not have.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{library} has no function {name}: it came with {interface} {since}, and the library {}. \
     {}, or check `has(\"{name}\")` before the call",
    serves(.interface, .version),
    remedy(.library, .since, *.is_softgpu)
)]
pub struct MissingSymbol {
    /// The function's name.
    pub name: &'static str,
    /// The interface that it belongs to: `CUDA`, `vkgdr` or `UCX`.
    pub interface: &'static str,
    /// The release that introduced it.
    pub since: Release,
    /// The library that lacks it.
    pub library: Arc<str>,
    /// The release that the library implements, if it reports a release.
    pub version: Option<Release>,
    /// Whether the library is the software GPU, whose release a variable sets.
    pub is_softgpu: bool,
}

fn serves(interface: &str, version: &Option<Release>) -> String {
    match version {
        Some(version) => format!("serves {interface} {version}"),
        None => "does not say its release".to_owned(),
    }
}

fn remedy(library: &str, since: &Release, is_softgpu: bool) -> String {
    match is_softgpu {
        true => format!("It is softgpu: set SOFTGPU_VERSION={}", since.number()),
        false => format!("Update {library}"),
    }
}

/// The source of a table, which errors name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// `CUDA`, `vkgdr` or `UCX`.
    pub interface: &'static str,
    /// The library's file name, or the name of the linked-in provider.
    pub library: Arc<str>,
    /// The release that it implements.
    pub version: Option<Release>,
    /// Whether it is the software GPU as a CUDA driver, linked in or loaded as a library of any name.
    pub is_softgpu: bool,
}

impl Provider {
    /// The error for a function that this provider lacks.
    #[cold]
    pub fn missing(&self, name: &'static str, since: Release) -> MissingSymbol {
        let Self { interface, library, version, is_softgpu } = self.clone();
        MissingSymbol { name, interface, since, library, version, is_softgpu }
    }
}

/// Turns an address from a loader into a function pointer of the table's type.
///
/// # Safety
///
/// `address` is null or the address of a function with the signature `F`, and stays valid for the life of the process.
/// `F` is a function pointer.
#[doc(hidden)]
pub unsafe fn function<F: Copy>(address: *const c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: by this function's contract, a non-null `address` is a function of type `F`, which has the size of a
    // pointer.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy::<*const c_void, F>(&address) })
}

/// Lets `Debug` of errors print the text of `Display`, because a `main` that returns an error prints it with `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),* $(,)?) => { $(
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )* };
}

crate::debug_as_display!(MissingSymbol, crate::load::LoadError);

/// Defines a crate's `Functions`, and the calling methods of its library type `$library`. That type has the fields
/// `functions: Functions` and `provider: Provider`.
#[doc(hidden)]
#[macro_export]
macro_rules! define_functions {
    ($library:ident {
        $(
            #[doc = $doc:literal]
            #[since($since:literal)]
            fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;
        )*
    }) => {
        /// One pointer for each function of the interface, or `None` if the library lacks it.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Functions {
            $(
                #[doc = $doc]
                pub $name: Option<unsafe extern "C" fn($($argument: $type),*) -> $result>,
            )*
        }

        impl Functions {
            /// A table without functions.
            pub const EMPTY: Self = Self { $($name: None,)* };

            /// Every function of the table, in the order of `wrapper.h`.
            pub const SYMBOLS: &'static [$crate::Symbol] = &[
                $($crate::Symbol {
                    name: match ::core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name without zeros"),
                    },
                    since: $crate::Release::from_number($since),
                },)*
            ];

            /// Fills a table: `resolve` returns a function's address, or null.
            ///
            /// # Safety
            ///
            /// Each address that `resolve` returns belongs to a function with the signature that `wrapper.h` declares
            /// for that name, and stays valid for the life of the process.
            pub unsafe fn fill(
                resolve: &mut dyn FnMut(&$crate::Symbol) -> *const ::core::ffi::c_void,
            ) -> Self {
                let mut symbols = Self::SYMBOLS.iter();
                let mut next = || symbols.next().map_or(::core::ptr::null(), &mut *resolve);
                // SAFETY: fields are filled in the order of SYMBOLS. The caller guarantees each address.
                unsafe { Self { $($name: $crate::table::function(next()),)* } }
            }

            /// Returns the address of a function by name, or null if the table lacks it.
            pub fn address(&self, name: &::core::ffi::CStr) -> *const ::core::ffi::c_void {
                match name.to_bytes() {
                    $(bytes if bytes == stringify!($name).as_bytes() => {
                        self.$name.map_or(::core::ptr::null(), |function| function as *const ::core::ffi::c_void)
                    })*
                    _ => ::core::ptr::null(),
                }
            }
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl $library {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                ///
                /// The library lacks this function.
                ///
                /// # Safety
                ///
                /// The caller meets the interface's requirements for this function's arguments.
                #[inline]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<$result, $crate::MissingSymbol> {
                    match self.functions.$name {
                        // SAFETY: the table holds functions of this signature. The caller guarantees the arguments.
                        Some(function) => Ok(unsafe { function($($argument),*) }),
                        None => Err(self
                            .provider
                            .missing(stringify!($name), $crate::Release::from_number($since))),
                    }
                }
            )*
        }
    };
}
