//! Modules and libraries: what PTX declares is there without its code.

use crate::common::{Machine, both, cubin, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Kind, Settings};
use std::ffi::{CStr, CString, c_void};
use std::ptr;

const PTX: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.visible .global .align 4 .u32 counter = 7;
.visible .const .align 8 .b8 table[16] = {1, 2, 0xff};
.global .align 8 .u64 pointer = generic(table)+4;
.visible .global .attribute(.managed) .align 4 .f32 shared_by_all = 0f3F800000;
.visible .entry scale(.param .u64 .ptr .global .align 4 values, .param .f32 factor, .param .align 8 .b8 shape[12],
    .param .u8 last)
.maxntid 128, 2
{ .reg .b32 %r<2>; .shared .align 4 .b8 tile[1024]; ld.shared.u32 %r1, [tile]; ret; }
.entry second() .reqntid 32 { ret; }
";

fn load(m: &Machine, image: &CStr) -> CUmodule {
    let mut module = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, image.as_ptr().cast())), 0);
    module
}

fn function(m: &Machine, module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
    function
}

fn attribute(m: &Machine, function: CUfunction, which: CUfunction_attribute) -> i32 {
    let mut value = -77;
    assert_eq!(cu!(m, cuFuncGetAttribute(&mut value, which, function)), 0);
    value
}

fn global(m: &Machine, module: CUmodule, name: &CStr) -> (u64, usize) {
    let (mut address, mut size) = (0, 0);
    assert_eq!(cu!(m, cuModuleGetGlobal_v2(&mut address, &mut size, module, name.as_ptr())), 0);
    (address, size)
}

fn parameters(m: &Machine, function: CUfunction) -> Vec<(usize, usize)> {
    let one = |n| {
        let (mut offset, mut size) = (0, 0);
        (cu!(m, cuFuncGetParamInfo(function, n, &mut offset, &mut size)) == 0).then_some((offset, size))
    };
    (0..).map_while(one).collect()
}

#[test]
fn a_module_has_the_kernels_that_its_ptx_declares() {
    let m = machine(Settings::default());
    let module = load(&m, PTX);
    let (scale, second) = (function(&m, module, c"scale"), function(&m, module, c"second"));
    let mut count = 0;
    assert_eq!(cu!(m, cuModuleGetFunctionCount(&mut count, module)), 0);
    assert_eq!(count, 2);
    let mut functions = [ptr::null_mut(); 3];
    assert_eq!(cu!(m, cuModuleEnumerateFunctions(functions.as_mut_ptr(), 3, module)), 0);
    assert_eq!(functions, [scale, second, ptr::null_mut()]);
    assert_eq!(parameters(&m, scale), [(0, 8), (8, 4), (16, 12), (28, 1)]);
    assert_eq!(parameters(&m, second), []);
    let mut name = ptr::null();
    assert_eq!(cu!(m, cuFuncGetName(&mut name, scale)), 0);
    // SAFETY: the module, which has the name, is loaded.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"scale");
    let mut back = ptr::null_mut();
    assert_eq!(cu!(m, cuFuncGetModule(&mut back, scale)), 0);
    assert_eq!(back, module);
    assert_eq!(attribute(&m, scale, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
    assert_eq!(attribute(&m, second, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 32);
    assert_eq!(attribute(&m, scale, CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024);
    assert_eq!(attribute(&m, scale, CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
    assert_eq!(attribute(&m, scale, CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    assert_eq!(cu!(m, cuFuncGetName(&mut name, scale)), 400);
    m.finish();
}

#[test]
fn the_number_of_parameters_is_known_from_release_13_2_on() {
    let m = machine(Settings { version: 13020, ..Settings::default() });
    let (module, mut count) = (load(&m, PTX), 77);
    assert_eq!(cu!(m, cuFuncGetParamCount(function(&m, module, c"scale"), &mut count)), 0);
    assert_eq!(count, 4);
    assert_eq!(cu!(m, cuFuncGetParamCount(function(&m, module, c"second"), &mut count)), 0);
    assert_eq!(count, 0);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    let (mut library, mut kernel, none) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (code, options) = (PTX.as_ptr().cast(), ptr::null_mut());
    assert_eq!(cu!(m, cuLibraryLoadData(&mut library, code, options, none, 0, ptr::null_mut(), none, 0)), 0);
    assert_eq!(cu!(m, cuLibraryGetKernel(&mut kernel, library, c"scale".as_ptr())), 0);
    assert_eq!(cu!(m, cuKernelGetParamCount(kernel, &mut count)), 0);
    assert_eq!(count, 4);
    assert_eq!(cu!(m, cuLibraryUnload(library)), 0);
    m.finish();
}

#[test]
fn variables_have_their_initial_values_and_addresses() {
    both(|m| {
        let module = load(m, PTX);
        let (counter, table) = (global(m, module, c"counter"), global(m, module, c"table"));
        assert_eq!((counter.1, table.1), (4, 16));
        assert_eq!(m.read(counter.0, 4), 7_u32.to_le_bytes());
        assert_eq!(m.read(table.0, 16), [1, 2, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(m.read(global(m, module, c"pointer").0, 8), (table.0 + 4).to_le_bytes());
        assert_eq!(m.read(global(m, module, c"shared_by_all").0, 4), 1.0_f32.to_le_bytes());
        m.write(counter.0, &[9, 0, 0, 0]);
        assert_eq!(m.read(counter.0, 4), [9, 0, 0, 0]);
        let (mut base, mut size) = (0, 0);
        assert_eq!(cu!(m, cuMemGetAddressRange_v2(&mut base, &mut size, table.0 + 3)), 0);
        assert_eq!((base, size), table);
        assert_eq!(cu!(m, cuMemFree_v2(counter.0)), 1);
        assert_eq!(softgpu::ledger().count(Kind::Variable), 4);
        assert_eq!(cu!(m, cuModuleUnload(module)), 0);
        assert_eq!(softgpu::ledger().count(Kind::Variable), 0);
        let mut none = 0;
        assert_eq!(cu!(m, cuModuleGetGlobal_v2(&mut none, ptr::null_mut(), module, c"counter".as_ptr())), 400);
    });
}

#[test]
fn variables_share_mappings_and_have_addresses_of_their_own() {
    fn mappings() -> usize {
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
    }
    both(|m| {
        let one = |n: u32| format!(".global .align {} .u8 small{n} = {};\n", 1 << (n % 13), n % 251);
        let text: String = (0..1000).map(one).collect();
        let before = mappings();
        let image = CString::new(format!(".version 8.0\n.target sm_80\n{text}")).unwrap();
        let module = load(m, &image);
        assert!(mappings() < before + 100, "{} mappings were {before}", mappings());
        for n in 0..1000 {
            let name = CString::new(format!("small{n}")).unwrap();
            let (address, size) = global(m, module, &name);
            assert_eq!((address % (1 << (n % 13)), size), (0, 1), "{n}");
            assert_eq!(m.read(address, 1), [(n % 251) as u8]);
            let (mut base, mut length) = (0, 0);
            assert_eq!(cu!(m, cuMemGetAddressRange_v2(&mut base, &mut length, address)), 0);
            assert_eq!((base, length), (address, 1));
        }
        assert_eq!(cu!(m, cuModuleUnload(module)), 0);
        assert_eq!(softgpu::ledger().count(Kind::Variable), 0);
    });
}

#[test]
fn a_wrong_image_is_refused_with_a_text_in_the_log() {
    let m = machine(Settings::default());
    let log_of = |image: &CStr| {
        let (mut text, mut module) = ([0_u8; 200], ptr::null_mut());
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [text.as_mut_ptr().cast(), ptr::without_provenance_mut(text.len())];
        let (options, places) = (options.as_mut_ptr(), values.as_mut_ptr());
        let code = cu!(m, cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 2, options, places));
        let written = &text[..values[1].addr()];
        (code, String::from_utf8_lossy(written).into_owned())
    };
    let (code, text) = log_of(c".version 8.0\n.target sm_80\n.entry broken(.param .u63 x) { ret; }");
    assert_eq!((code, &*text), (218, "softgpu: PTX, line 3: expected a type, but found `.u63`"));
    let (code, text) = log_of(c".version 8.0\n.entry broken(.param .u64 x) { ret;");
    assert_eq!((code, &*text), (218, "softgpu: PTX, line 2: expected `}`, but the text ends"));
    assert_eq!(log_of(c"nonsense").0, 200);
    let (code, text) = log_of(c"\x50\xed\x55\xba");
    assert!(code == 209 && text.ends_with("compile to PTX"), "{code}: {text}");
    let mut module = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleLoad(&mut module, c"/there/is/none.ptx".as_ptr())), 301);
    m.finish();
}

#[test]
fn attributes_are_set_within_their_limits() {
    let m = machine(Settings::default());
    let module = load(&m, PTX);
    let scale = function(&m, module, c"scale");
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(attribute(&m, scale, dynamic), (48 << 10) - 1024);
    let most = (227 << 10) - 1024;
    assert_eq!(cu!(m, cuFuncSetAttribute(scale, dynamic, most + 1)), 1);
    assert_eq!(cu!(m, cuFuncSetAttribute(scale, dynamic, most)), 0);
    assert_eq!(attribute(&m, scale, dynamic), most);
    assert_eq!(cu!(m, cuFuncSetAttribute(scale, CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, 3)), 1);
    let (mut blocks, mut size) = (0, 0);
    let most_blocks = |threads, shared, blocks: &mut i32| {
        cu!(m, cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, scale, threads, shared))
    };
    assert_eq!(most_blocks(128, 0, &mut blocks), 0);
    assert_eq!(blocks, 16);
    assert_eq!(most_blocks(128, 100 << 10, &mut blocks), 0);
    assert_eq!(blocks, 2);
    // The kernel may not be launched with so many, but the device could run them.
    assert_eq!(most_blocks(512, 0, &mut blocks), 0);
    assert_eq!(blocks, 4);
    assert_eq!(most_blocks(1025, 0, &mut blocks), 0);
    assert_eq!(blocks, 0);
    assert_eq!(most_blocks(0, 0, &mut blocks), 1);
    assert_eq!(cu!(m, cuOccupancyMaxPotentialBlockSize(&mut blocks, &mut size, scale, None, 0, 0)), 0);
    assert_eq!((blocks, size), (8, 256));
    let mut left = 0;
    assert_eq!(cu!(m, cuOccupancyAvailableDynamicSMemPerBlock(&mut left, scale, 2, 128)), 0);
    assert_eq!(left, (114 << 10) - 2048);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    m.finish();
}

#[test]
fn a_library_is_loaded_into_each_context_that_uses_it() {
    let m = machine(Settings::default());
    let (mut library, mut kernel, none) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (code, nothing) = (PTX.as_ptr().cast(), ptr::null_mut());
    assert_eq!(cu!(m, cuLibraryLoadData(&mut library, code, nothing, none, 0, ptr::null_mut(), none, 0)), 0);
    assert_eq!(cu!(m, cuLibraryGetKernel(&mut kernel, library, c"nobody".as_ptr())), 500);
    assert_eq!(cu!(m, cuLibraryGetKernel(&mut kernel, library, c"scale".as_ptr())), 0);
    let mut back = ptr::null_mut();
    assert_eq!(cu!(m, cuKernelGetLibrary(&mut back, kernel)), 0);
    assert_eq!(back, library);
    let in_context = || {
        let (mut module, mut function, mut address, mut managed) = (ptr::null_mut(), ptr::null_mut(), 0, 0);
        assert_eq!(cu!(m, cuLibraryGetModule(&mut module, library)), 0);
        assert_eq!(cu!(m, cuKernelGetFunction(&mut function, kernel)), 0);
        assert_eq!(cu!(m, cuModuleUnload(module)), CUresult::CUDA_ERROR_NOT_PERMITTED.0);
        let size = ptr::null_mut();
        assert_eq!(cu!(m, cuLibraryGetGlobal(&mut address, size, library, c"counter".as_ptr())), 0);
        assert_eq!(cu!(m, cuLibraryGetManaged(&mut managed, size, library, c"shared_by_all".as_ptr())), 0);
        assert_eq!(global(&m, module, c"shared_by_all").0, managed);
        assert_eq!(global(&m, module, c"counter").0, address);
        (module, function, address, managed)
    };
    let first = in_context();
    assert_eq!(in_context(), first);
    let other = m.context(1);
    let second = in_context();
    assert!(first.0 != second.0 && first.1 != second.1 && first.2 != second.2 && first.3 == second.3);
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(cu!(m, cuKernelSetAttribute(dynamic, 4096, kernel, 1)), 0);
    assert_eq!((attribute(&m, first.1, dynamic), attribute(&m, second.1, dynamic)), ((48 << 10) - 1024, 4096));
    assert_eq!(cu!(m, cuCtxDestroy_v2(other)), 0);
    assert_eq!(cu!(m, cuLibraryUnload(library)), 0);
    assert_eq!(cu!(m, cuLibraryUnload(library)), 400);
    assert_eq!(cu!(m, cuKernelGetLibrary(&mut back, kernel)), 400);
    m.finish();
}

#[test]
fn wrong_code_of_a_library_is_refused_at_its_first_use() {
    let m = machine(Settings::default());
    for (code, refusal) in [(c"nonsense", 200), (c".version 8.0\n.entry broken() { ret;", 218)] {
        let (mut library, none, options) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let code = code.as_ptr().cast();
        assert_eq!(cu!(m, cuLibraryLoadData(&mut library, code, options, none, 0, ptr::null_mut(), none, 0)), 0);
        let (mut kernel, mut module, mut address) = (ptr::null_mut(), ptr::null_mut(), 0);
        assert_eq!(cu!(m, cuLibraryGetKernel(&mut kernel, library, c"broken".as_ptr())), refusal);
        assert_eq!(cu!(m, cuLibraryGetModule(&mut module, library)), refusal);
        let size = ptr::null_mut();
        assert_eq!(cu!(m, cuLibraryGetManaged(&mut address, size, library, c"counter".as_ptr())), refusal);
        assert_eq!(cu!(m, cuLibraryUnload(library)), 0);
    }
    m.finish();
}

#[test]
fn arguments_are_checked_by_the_parameters() {
    let m = machine(Settings::default());
    softgpu::register_kernel("scale", |_| Ok(()));
    let module = load(&m, PTX);
    let scale = function(&m, module, c"scale");
    let launch = |block: u32, list: *mut *mut c_void, extra: *mut *mut c_void| {
        cu!(m, cuLaunchKernel(scale, 1, 1, 1, block, 1, 1, 0, ptr::null_mut(), list, extra))
    };
    let (mut buffer, none) = ([0_u8; 64], ptr::null_mut());
    let mut with_size = |mut size: usize| {
        let (pointer, place) = (buffer.as_mut_ptr().cast(), (&raw mut size).cast());
        let key = ptr::without_provenance_mut::<c_void>;
        let mut extra = [key(1), pointer, key(2), place, key(0)];
        launch(1, none, extra.as_mut_ptr())
    };
    assert_eq!([28, 29, 32, 40].map(&mut with_size), [1, 0, 0, CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES.0]);
    assert_eq!(launch(1, none, none), 1);
    let mut value = 0_u64;
    let at: *mut c_void = (&raw mut value).cast();
    let mut wide = [0_u8; 12];
    let mut list = [at, at, wide.as_mut_ptr().cast(), at];
    assert_eq!(launch(257, list.as_mut_ptr(), none), 1);
    assert_eq!(launch(256, list.as_mut_ptr(), none), 0);
    let second = function(&m, module, c"second");
    for (block, code) in [(31, 1), (33, 1)] {
        assert_eq!(cu!(m, cuLaunchKernel(second, 1, 1, 1, block, 1, 1, 0, ptr::null_mut(), none, none)), code);
    }
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    m.finish();
}

#[test]
fn a_cubin_has_names_and_variables_but_no_parameters() {
    let m = machine(Settings::default());
    let (image, mut module) = (cubin(190, b"double"), ptr::null_mut());
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, image.as_ptr().cast())), 0);
    let double = function(&m, module, c"double");
    let (address, size) = global(&m, module, c"factor");
    assert_eq!(size, 4);
    assert_eq!(m.read(address, 4), 5_u32.to_le_bytes());
    softgpu::register_kernel("double", |_| Ok(()));
    let (none, mut offset) = (ptr::null_mut(), 0);
    assert_eq!(cu!(m, cuFuncGetParamInfo(double, 0, &mut offset, ptr::null_mut())), 801);
    assert_eq!(cu!(m, cuLaunchKernel(double, 1, 1, 1, 1, 1, 1, 0, none, none.cast(), none.cast())), 0);
    let mut list = [(&raw mut offset).cast()];
    let mut launch = || cu!(m, cuLaunchKernel(double, 1, 1, 1, 1, 1, 1, 0, none, list.as_mut_ptr(), none.cast()));
    assert_eq!(launch(), 801);
    // The list has no second address.
    softgpu::register_parameters("double", &[8]);
    assert_eq!(launch(), 0);
    assert_eq!(parameters(&m, double), [(0, 8)]);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, cubin(62, b"double").as_ptr().cast())), 209);
    m.finish();
}

#[test]
fn a_file_is_loaded_as_its_bytes() {
    let m = machine(Settings::default());
    let path = std::env::temp_dir().join(format!("softgpu-module-{}.ptx", std::process::id()));
    std::fs::write(&path, PTX.to_bytes()).unwrap();
    let (name, mut module) = (CString::new(path.to_str().unwrap()).unwrap(), ptr::null_mut());
    assert_eq!(cu!(m, cuModuleLoad(&mut module, name.as_ptr())), 0);
    std::fs::remove_file(path).unwrap();
    function(&m, module, c"second");
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    m.finish();
}
