// Made from wrapper.h by build.rs (scripts/bindings); do not edit.

use cuda_sys::{CUdevice, CUdeviceptr};
pub const VKGDR_OPEN_CURRENT_CONTEXT_BIT: u32 = 1;
pub const VKGDR_OPEN_FORCE_NON_COHERENT_BIT: u32 = 2;
pub const VKGDR_OPEN_REQUIRE_COHERENT_BIT: u32 = 4;
#[repr(C)]
#[derive(Debug)]
pub struct vkgdr {
    _unused: [u8; 0],
}
/// An open device.
pub type vkgdr_t = *mut vkgdr;
#[repr(C)]
#[derive(Debug)]
pub struct vkgdr_memory {
    _unused: [u8; 0],
}
/// A piece of device memory that the CPU addresses too.
pub type vkgdr_memory_t = *mut vkgdr_memory;
/// Gives the address of a CUDA driver function by name, or null.
pub type vkgdr_symbol_fn = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        name: *const ::core::ffi::c_char,
    ) -> *mut ::core::ffi::c_void,
>;

function_table! {
    /// Opens a device; null on error. The calling thread's last error says why. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_open(device: CUdevice, flags: u32) -> vkgdr_t;
    /// Closes a device. Its memory must be freed before. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_close(g: vkgdr_t) -> ();
    /// Allocates `size` bytes on the current context's device; null on error. `flags` is 0. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_alloc(g: vkgdr_t, size: usize, flags: u32) -> vkgdr_memory_t;
    /// Frees memory. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_free(mem: vkgdr_memory_t) -> ();
    /// Gives the CPU's address of the memory. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_get_host_ptr(mem: vkgdr_memory_t) -> *mut ::core::ffi::c_void;
    /// Gives the device's address of the memory. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_get_device_ptr(mem: vkgdr_memory_t) -> CUdeviceptr;
    /// Gives the size of the memory in bytes. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_get_size(mem: vkgdr_memory_t) -> usize;
    /// Tells whether the memory is coherent. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_is_coherent(mem: vkgdr_memory_t) -> bool;
    /// Gives the unit of flush and invalidate in bytes; 1 for coherent memory. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_non_coherent_atom_size(mem: vkgdr_memory_t) -> usize;
    /// Makes CPU writes of a range, in bytes, visible to the device. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_flush(mem: vkgdr_memory_t, offset: usize, size: usize) -> ();
    /// Makes device writes of a range, in bytes, visible to the CPU. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_memory_invalidate(mem: vkgdr_memory_t, offset: usize, size: usize) -> ();
    /// Gives the last error of the thread as text to be freed with free(), or null. Since vkgdr 0.1.
    #[since(10)]
    fn vkgdr_last_error() -> *mut ::core::ffi::c_char;
    /// Gives the library's version as text that is not to be freed. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_version() -> *const ::core::ffi::c_char;
    /// As vkgdr_memory_flush, but tells: 0 is success. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_memory_flush_checked(
        mem: vkgdr_memory_t,
        offset: usize,
        size: usize,
    ) -> ::core::ffi::c_int;
    /// As vkgdr_memory_invalidate, but tells: 0 is success. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_memory_invalidate_checked(
        mem: vkgdr_memory_t,
        offset: usize,
        size: usize,
    ) -> ::core::ffi::c_int;
    /// Gives a new file descriptor by which another process imports the memory: 0 is success. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_memory_export_fd(
        mem: vkgdr_memory_t,
        fd: *mut ::core::ffi::c_int,
    ) -> ::core::ffi::c_int;
    /// Imports exported memory of `size` bytes; takes the descriptor on success; null on error. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_memory_import_fd(
        g: vkgdr_t,
        fd: ::core::ffi::c_int,
        size: usize,
        flags: u32,
    ) -> vkgdr_memory_t;
    /// As vkgdr_open, with the CUDA driver's functions taken from `symbol` during the call. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_open_with_cuda(
        device: CUdevice,
        flags: u32,
        symbol: vkgdr_symbol_fn,
        user: *mut ::core::ffi::c_void,
    ) -> vkgdr_t;
    /// Describes what the library finds on the machine, as JSON text to be freed with free(). Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_describe() -> *mut ::core::ffi::c_char;
    /// Ends what is kept for later opens and that nobody uses now. Since vkgdr 0.2.
    #[since(20)]
    fn vkgdr_trim() -> ();
}
