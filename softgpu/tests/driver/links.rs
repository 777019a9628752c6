//! Links: several images become one, which loads as any other.

use crate::common::{Machine, cubin, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Kind, Settings};
use std::ffi::{CStr, CString};
use std::ptr;

const PTX: CUjitInputType = CUjitInputType::CU_JIT_INPUT_PTX;
const CUBIN: CUjitInputType = CUjitInputType::CU_JIT_INPUT_CUBIN;
const UNKNOWN: u32 = CUresult::CUDA_ERROR_UNKNOWN.0;

/// A link whose texts of errors go into a buffer.
fn link(m: &Machine, text: &mut [u8]) -> CUlinkState {
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The link writes the length of its texts into the second place until it ends.
    let values = Box::leak(Box::new([text.as_mut_ptr().cast(), ptr::without_provenance_mut(text.len())]));
    let mut state = ptr::null_mut();
    assert_eq!(cu!(m, cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state)), 0);
    state
}

fn add(m: &Machine, state: CUlinkState, kind: CUjitInputType, input: &[u8]) -> u32 {
    let (data, none) = (input.as_ptr().cast_mut().cast(), ptr::null_mut());
    cu!(m, cuLinkAddData_v2(state, kind, data, input.len(), c"input".as_ptr(), 0, ptr::null_mut(), none))
}

/// The linked image, as bytes that outlive the link.
fn complete(m: &Machine, state: CUlinkState) -> Result<Vec<u8>, u32> {
    let (mut image, mut size) = (ptr::null_mut(), 0);
    match cu!(m, cuLinkComplete(state, &mut image, &mut size)) {
        // SAFETY: the call gave the address of as many bytes.
        0 => Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec()),
        code => Err(code),
    }
}

fn said(text: &[u8]) -> &str {
    CStr::from_bytes_until_nul(text).unwrap().to_str().unwrap()
}

#[test]
fn inputs_become_one_module() {
    let m = machine(Settings::default());
    let (mut text, file) = ([0; 200], std::env::temp_dir().join(format!("softgpu-link-{}.ptx", std::process::id())));
    let state = link(&m, &mut text);
    assert_eq!(add(&m, state, PTX, b".version 8.0\n.global .u32 own = 1;\n.entry first(.param .u64 a) {}"), 0);
    assert_eq!(add(&m, state, CUBIN, &cubin(190, b"second")), 0);
    std::fs::write(&file, ".version 8.0\n.global .u32 own = 2;\n.visible .global .u64 place = own;").unwrap();
    let (path, none) = (CString::new(file.to_str().unwrap()).unwrap(), ptr::null_mut());
    assert_eq!(cu!(m, cuLinkAddFile_v2(state, PTX, path.as_ptr(), 0, ptr::null_mut(), none)), 0);
    std::fs::remove_file(file).unwrap();
    let image = complete(&m, state).unwrap();
    assert_eq!(complete(&m, state), Err(400));
    assert!(said(&text).contains("the link is complete already"), "{}", said(&text));
    assert_eq!(add(&m, state, PTX, b".version 8.0"), 1);
    assert_eq!(softgpu::ledger().count(Kind::Link), 1);
    assert_eq!(cu!(m, cuLinkDestroy(state)), 0);
    assert_eq!(cu!(m, cuLinkDestroy(state)), 400);
    let again = link(&m, &mut text);
    assert_eq!(add(&m, again, CUBIN, &image), 200);
    assert!(said(&text).contains("link all inputs at once"), "{}", said(&text));
    assert_eq!(cu!(m, cuLinkDestroy(again)), 0);
    let mut module = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, image.as_ptr().cast())), 0);
    for name in [c"first", c"second"] {
        let mut function = ptr::null_mut();
        assert_eq!(cu!(m, cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
    }
    let (mut place, mut size) = (0, 0);
    assert_eq!(cu!(m, cuModuleGetGlobal_v2(&mut place, &mut size, module, c"place".as_ptr())), 0);
    let address = u64::from_le_bytes(m.read(place, 8).try_into().unwrap());
    assert_eq!(m.read(address, 4), 2_u32.to_le_bytes());
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    m.finish();
}

#[test]
fn a_single_cubin_is_linked_as_it_is() {
    let m = machine(Settings::default());
    let (mut text, image) = ([0; 200], cubin(190, b"only"));
    let state = link(&m, &mut text);
    assert_eq!(add(&m, state, CUBIN, &image), 0);
    assert_eq!(complete(&m, state).unwrap(), image);
    assert_eq!(cu!(m, cuLinkDestroy(state)), 0);
    m.finish();
}

#[test]
fn a_failed_link_says_why_in_its_log() {
    let m = machine(Settings::default());
    let mut text = [0; 200];
    let state = link(&m, &mut text);
    assert_eq!(add(&m, state, PTX, b".version 8.0\n.entry k(.param .u63 a) {}"), 218);
    assert_eq!(said(&text), "softgpu: PTX, line 2: expected a type, but found `.u63`");
    assert_eq!(add(&m, state, CUjitInputType::CU_JIT_INPUT_LIBRARY, b"!<arch>"), 209);
    assert!(said(&text).contains("only PTX and cubins can be linked"), "{}", said(&text));
    let (options, none) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuLinkAddFile_v2(state, PTX, c"/there/is/none.ptx".as_ptr(), 0, options, none)), 301);
    assert_eq!(add(&m, state, CUjitInputType(77), b"?"), 1);
    for code in [0, UNKNOWN] {
        assert_eq!(add(&m, state, PTX, b".version 8.0\n.visible .entry k() {}"), code);
    }
    assert_eq!(said(&text), "softgpu: `k` is defined twice");
    assert_eq!(complete(&m, state), Err(UNKNOWN));
    assert_eq!(said(&text), "softgpu: `k` is defined twice");
    assert_eq!(cu!(m, cuLinkDestroy(state)), 0);
    let mut wrong = ptr::null_mut();
    assert_eq!(cu!(m, cuLinkCreate_v2(0, options, none, ptr::null_mut())), 1);
    assert_eq!(cu!(m, cuLinkComplete(ptr::null_mut(), &mut wrong, ptr::null_mut())), 400);
    m.finish();
}
