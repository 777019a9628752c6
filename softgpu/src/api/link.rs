//! Links: several images of device code become one.

use super::module::{bytes_of_file, finish};
use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::handle::next_sequence;
use crate::state::modules::{Link, Log, Refused};
use cuda_sys::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr;

driver_calls! {
    |global: &'static Global|

    /// Begins a link. Of the options, those for texts have an effect: on all calls of the link.
    fn cuLinkCreate_v2[Started](
        numOptions: c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
        stateOut: *mut CUlinkState,
    ) {
        ensure(!stateOut.is_null())?;
        let log = Log::of(options, optionValues, numOptions)?;
        let sequence = next_sequence();
        let (handle, _) = global.links.insert(sequence, Link::new(sequence, current(global)?, log));
        put(stateOut, ptr::without_provenance_mut(handle as usize))
    }

    /// Adds PTX or a cubin to a link. Its own options have no effect.
    fn cuLinkAddData_v2[Started](
        state: CUlinkState,
        type_: CUjitInputType,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        numOptions: c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
    ) {
        ensure(!data.is_null() && size > 0)?;
        let input = std::slice::from_raw_parts(data.cast_const().cast::<u8>(), size);
        add(global, state, type_, || Ok(input.into()))
    }

    /// As cuLinkAddData_v2, from a file.
    fn cuLinkAddFile_v2[Started](
        state: CUlinkState,
        type_: CUjitInputType,
        path: *const c_char,
        numOptions: c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
    ) {
        ensure(!path.is_null())?;
        let path = CStr::from_ptr(path);
        add(global, state, type_, || bytes_of_file(path))
    }

    /// Links what was added. The linked image lives as long as the link.
    fn cuLinkComplete[Started](state: CUlinkState, cubinOut: *mut *mut c_void, sizeOut: *mut usize) {
        ensure(!cubinOut.is_null())?;
        let link = Link::find(global, state.addr() as u64)?;
        let (image, size) = finish(link.complete(), &link.log)?;
        offer(sizeOut, size);
        put(cubinOut, image.cast_mut().cast())
    }

    /// Ends a link, and the image that it made.
    fn cuLinkDestroy[Started](state: CUlinkState) {
        global.links.remove(state.addr() as u64).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}

/// Adds an input to a link.
///
/// # Safety
///
/// The places of the link's log are writable.
unsafe fn add(
    global: &Global,
    state: CUlinkState,
    kind: CUjitInputType,
    input: impl FnOnce() -> core::result::Result<Vec<u8>, Refused>,
) -> Result {
    let link = Link::find(global, state.addr() as u64)?;
    link.check_open()?;
    let added = match kind {
        CUjitInputType::CU_JIT_INPUT_CUBIN | CUjitInputType::CU_JIT_INPUT_PTX => {
            input().and_then(|input| link.add(&input))
        }
        CUjitInputType::CU_JIT_INPUT_FATBINARY
        | CUjitInputType::CU_JIT_INPUT_OBJECT
        | CUjitInputType::CU_JIT_INPUT_LIBRARY => {
            let text = "softgpu: only PTX and cubins can be linked: the form of other inputs is not documented";
            Err(Refused::new(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, text))
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: by this function's contract.
    unsafe { finish(added, &link.log) }
}
