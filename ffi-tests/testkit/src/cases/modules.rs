//! Modules, libraries, their kernels and variables.

use super::lab::codes::*;
use super::lab::{Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

cases! {
    Shared loading,
    Shared wrong_code,
    Shared variables,
    Shared functions,
    Shared parameters,
    Shared attributes,
    Shared occupancy,
    Shared clusters,
    Shared launches,
    Shared libraries,
    Alone libraries_of_wrong_code,
    Shared kernels_of_libraries,
    Shared links,
    Shared wrong_links,
}

/// Code with variables and two kernels, which need no device of a certain kind.
const CODE: &CStr = c"
.version 6.4
.target sm_50
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .const .align 8 .b8 table[16] = {1, 2, 255};
.visible .global .attribute(.managed) .align 4 .u32 of_all = 5;
.visible .entry plain(.param .u64 place, .param .u32 value, .param .align 8 .b8 wide[24], .param .u8 last)
{
    .reg .u32 %value;
    .reg .u64 %place;
    ld.param.u64 %place, [place];
    ld.param.u32 %value, [value];
    cvta.to.global.u64 %place, %place;
    st.global.u32 [%place], %value;
    ret;
}
.visible .entry bounded() .maxntid 64, 1, 1 { ret; }
.visible .entry exact() .reqntid 32, 1, 1 { ret; }
";

fn module(l: &mut Lab) -> Result<CUmodule, Stop> {
    let mut module = ptr::null_mut();
    need!(l, cuModuleLoadData(&mut module, CODE.as_ptr().cast()))?;
    l.finally(move |l| drop(call!(l, cuModuleUnload(module))));
    Ok(module)
}

fn function(l: &mut Lab, name: &CStr) -> Result<CUfunction, Stop> {
    let (module, mut function) = (module(l)?, ptr::null_mut());
    need!(l, cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
    Ok(function)
}

fn library(l: &mut Lab) -> Result<CUlibrary, Stop> {
    let (mut library, code, none) = (ptr::null_mut(), CODE.as_ptr().cast(), ptr::null_mut());
    need!(l, cuLibraryLoadData(&mut library, code, ptr::null_mut(), none, 0, ptr::null_mut(), none, 0))?;
    l.finally(move |l| drop(call!(l, cuLibraryUnload(library))));
    Ok(library)
}

fn kernel(l: &mut Lab, name: &CStr) -> Result<CUkernel, Stop> {
    let (library, mut kernel) = (library(l)?, ptr::null_mut());
    need!(l, cuLibraryGetKernel(&mut kernel, library, name.as_ptr()))?;
    Ok(kernel)
}

fn loading(l: &mut Lab) -> Run {
    let (mut module, none) = (ptr::null_mut(), ptr::null_mut());
    let path = std::env::temp_dir().join(format!("cuda-mem-cases-{}.ptx", std::process::id()));
    std::fs::write(&path, CODE.to_bytes()).map_err(|error| Stop(error.to_string()))?;
    let name = CString::new(path.to_string_lossy().into_owned()).map_err(|error| Stop(error.to_string()))?;
    if ask!(l, "file" => OK, cuModuleLoad(&mut module, name.as_ptr())) {
        ask!(l, "file: unload" => OK, cuModuleUnload(module));
    }
    drop(std::fs::remove_file(path));
    ask!(l, "no file", cuModuleLoad(&mut module, name.as_ptr()));
    ask!(l, "no name", cuModuleLoad(&mut module, ptr::null()));
    let code = CODE.as_ptr().cast();
    if ask!(l, "no options" => OK, cuModuleLoadDataEx(&mut module, code, 0, ptr::null_mut(), none)) {
        ask!(l, "no options: unload" => OK, cuModuleUnload(module));
    }
    ask!(l, "options without a list", cuModuleLoadDataEx(&mut module, code, 1, ptr::null_mut(), none));
    if ask!(l, "text as a collection", cuModuleLoadFatBinary(&mut module, code)) {
        ask!(l, "text as a collection: unload", cuModuleUnload(module));
    }
    let mut mode = CUmoduleLoadingMode(99);
    if ask!(l, "mode" => OK, cuModuleGetLoadingMode(&mut mode)) {
        l.say("mode", mode.0);
    }
    // Without a place for the mode, driver 580.159.04 crashes.
    Ok(())
}

fn wrong_code(l: &mut Lab) -> Run {
    let mut module = ptr::null_mut();
    for (label, code) in [
        ("a wrong type", c".version 6.4\n.target sm_50\n.address_size 64\n.entry k(.param .u63 a) { ret; }"),
        ("no end", c".version 6.4\n.target sm_50\n.address_size 64\n.entry k() { ret;"),
        ("a name twice", c".version 6.4\n.target sm_50\n.address_size 64\n.entry k() { ret; }\n.entry k() { ret; }"),
        ("too many values", c".version 6.4\n.target sm_50\n.address_size 64\n.global .u8 a[1] = {1, 2};"),
        ("no kernel", c".version 6.4\n.target sm_50\n.address_size 64"),
    ] {
        if ask!(l, label, cuModuleLoadData(&mut module, code.as_ptr().cast())) {
            ask!(l, format!("{label}: unload"), cuModuleUnload(module));
        }
    }
    let mut text = [0_u8; 256];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [text.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(text.len())];
    let code = c".version 6.4\n.target sm_50\n.address_size 64\n.entry k() { ret;".as_ptr().cast();
    let (options, values_at) = (options.as_mut_ptr(), values.as_mut_ptr());
    ask!(l, "with a log", cuModuleLoadDataEx(&mut module, code, 2, options, values_at));
    l.say("the log has text", text[0] != 0);
    Ok(())
}

fn variables(l: &mut Lab) -> Run {
    let module = module(l)?;
    for name in [c"counter", c"table", c"of_all"] {
        let (mut address, mut size) = (0, 0);
        let label = name.to_string_lossy().into_owned();
        if ask!(l, &label => OK, cuModuleGetGlobal_v2(&mut address, &mut size, module, name.as_ptr())) {
            l.say(format!("{label}: size"), size);
            l.bytes::<4>(&label, address);
            let (mut base, mut whole) = (0, 0);
            ask!(l, format!("{label}: range"), cuMemGetAddressRange_v2(&mut base, &mut whole, address));
            l.say(format!("{label}: it begins the range"), base == address);
            ask!(l, format!("{label}: free"), cuMemFree_v2(address));
        }
    }
    let (mut address, mut size) = (0, 0);
    ask!(l, "unknown", cuModuleGetGlobal_v2(&mut address, &mut size, module, c"nobody".as_ptr()));
    ask!(l, "no name", cuModuleGetGlobal_v2(&mut address, &mut size, module, ptr::null()));
    ask!(l, "only the size" => OK, cuModuleGetGlobal_v2(ptr::null_mut(), &mut size, module, c"counter".as_ptr()));
    ask!(l, "only the address" => OK, cuModuleGetGlobal_v2(&mut address, ptr::null_mut(), module, c"counter".as_ptr()));
    Ok(())
}

fn functions(l: &mut Lab) -> Run {
    let (plain, mut count) = (function(l, c"plain")?, 0);
    let mut module = ptr::null_mut();
    ask!(l, "module" => OK, cuFuncGetModule(&mut module, plain));
    if ask!(l, "count" => OK, cuModuleGetFunctionCount(&mut count, module)) {
        l.say("count", count);
    }
    let mut all = [ptr::null_mut(); 4];
    ask!(l, "list" => OK, cuModuleEnumerateFunctions(all.as_mut_ptr(), 3, module));
    l.say("the list has the function", all.contains(&plain));
    ask!(l, "no list", cuModuleEnumerateFunctions(ptr::null_mut(), 3, module));
    let mut name = ptr::null();
    if ask!(l, "name" => OK, cuFuncGetName(&mut name, plain)) {
        // SAFETY: the name is a C string while the module is loaded.
        l.say("name", unsafe { CStr::from_ptr(name) }.to_string_lossy());
    }
    let mut state = CUfunctionLoadingState(9);
    ask!(l, "load" => OK, cuFuncLoad(plain));
    if ask!(l, "loaded" => OK, cuFuncIsLoaded(&mut state, plain)) {
        l.say("loaded", state.0);
    }
    ask!(l, "cache" => OK, cuFuncSetCacheConfig(plain, CUfunc_cache::CU_FUNC_CACHE_PREFER_L1));
    ask!(l, "a wrong cache", cuFuncSetCacheConfig(plain, CUfunc_cache(9)));
    Ok(())
}

fn parameters(l: &mut Lab) -> Run {
    let plain = function(l, c"plain")?;
    for index in 0..5 {
        let (mut offset, mut size) = (0, 0);
        if ask!(l, format!("parameter {index}"), cuFuncGetParamInfo(plain, index, &mut offset, &mut size)) {
            l.say(format!("parameter {index}: place"), format!("{offset} {size}"));
        }
    }
    let mut offset = 0;
    ask!(l, "without the size", cuFuncGetParamInfo(plain, 0, &mut offset, ptr::null_mut()));
    ask!(l, "without the place", cuFuncGetParamInfo(plain, 0, ptr::null_mut(), &mut offset));
    // Drivers before 13.2 have no such function.
    if ask!(l, "count", cuFuncGetParamCount(plain, &mut offset)) {
        l.say("count", offset);
    }
    Ok(())
}

fn attributes(l: &mut Lab) -> Run {
    use CUfunction_attribute as A;
    let (plain, bounded) = (function(l, c"plain")?, function(l, c"bounded")?);
    let mut value = 0;
    for (label, which) in [
        ("most threads", A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        ("shared", A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
        ("local", A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
        ("release", A::CU_FUNC_ATTRIBUTE_PTX_VERSION),
        ("dynamic", A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
        ("carveout", A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
        ("cluster", A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET),
        ("unknown", CUfunction_attribute(99)),
    ] {
        if ask!(l, label, cuFuncGetAttribute(&mut value, which, plain)) {
            l.say(label, value);
        }
    }
    need!(l, cuFuncGetAttribute(&mut value, A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded))?;
    l.say("most threads of the bounded one", value);
    for (label, which, value) in [
        ("set dynamic", A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10),
        ("set too much", A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
        ("set a negative size", A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1),
        ("set carveout", A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50),
        ("set a wrong carveout", A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
        ("set registers", A::CU_FUNC_ATTRIBUTE_NUM_REGS, 8),
    ] {
        ask!(l, label, cuFuncSetAttribute(plain, which, value));
    }
    Ok(())
}

fn occupancy(l: &mut Lab) -> Run {
    let (plain, bounded) = (function(l, c"plain")?, function(l, c"bounded")?);
    let (mut blocks, mut size, mut shared) = (0, 0, 0);
    for (label, function, threads) in
        [("256 threads", plain, 256), ("no threads", plain, 0), ("beyond the bound", bounded, 128)]
    {
        if ask!(l, label, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads, 0)) {
            l.say(label, blocks);
        }
    }
    ask!(l, "flags", cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut blocks, plain, 256, 0, 1));
    ask!(l, "wrong flags", cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut blocks, plain, 256, 0, 8));
    unsafe extern "C" fn by_size(threads: c_int) -> usize {
        threads as usize * 16
    }
    for (label, of_block) in [("fixed", None), ("by size", Some(by_size as unsafe extern "C" fn(c_int) -> usize))] {
        if ask!(l, label, cuOccupancyMaxPotentialBlockSize(&mut blocks, &mut size, bounded, of_block, 0, 0)) {
            l.say(label, size);
        }
    }
    let flags = 0;
    ask!(l, "potential", cuOccupancyMaxPotentialBlockSizeWithFlags(&mut blocks, &mut size, plain, None, 0, 96, flags));
    l.say("potential: at most 96", size);
    if ask!(l, "available", cuOccupancyAvailableDynamicSMemPerBlock(&mut shared, plain, 1, 256)) {
        l.say("available", shared);
    }
    ask!(l, "available for no block", cuOccupancyAvailableDynamicSMemPerBlock(&mut shared, plain, 0, 256));
    Ok(())
}

fn config(stream: CUstream) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: 8,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        hStream: stream,
        ..Default::default()
    }
}

fn clusters(l: &mut Lab) -> Run {
    let (plain, mut count) = (function(l, c"plain")?, 0);
    let config = config(ptr::null_mut());
    if ask!(l, "largest", cuOccupancyMaxPotentialClusterSize(&mut count, plain, &config)) {
        l.say("largest", count);
    }
    ask!(l, "no configuration", cuOccupancyMaxPotentialClusterSize(&mut count, plain, ptr::null()));
    ask!(l, "active", cuOccupancyMaxActiveClusters(&mut count, plain, &config));
    Ok(())
}

fn launches(l: &mut Lab) -> Run {
    let (bounded, exact, null) = (function(l, c"bounded")?, function(l, c"exact")?, ptr::null_mut());
    let none = ptr::null_mut();
    for (label, function, threads) in [
        ("beyond the bound", bounded, 65),
        ("fewer than required", exact, 31),
        ("more than required", exact, 33),
    ] {
        ask!(l, label, cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, null, none, ptr::null_mut()));
    }
    let plain = function(l, c"plain")?;
    let mut buffer = [0_u64; 16];
    let key = ptr::without_provenance_mut::<c_void>;
    // The driver launches with 8 bytes too. The kernel then writes to an address that nobody gave, and ends the context.
    for wrong in [0, 64] {
        let mut size: usize = wrong;
        let mut extra = [key(1), buffer.as_mut_ptr().cast(), key(2), (&raw mut size).cast(), key(0)];
        let extra = extra.as_mut_ptr();
        ask!(l, format!("a buffer of {wrong} bytes"), cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, null, none, extra));
    }
    let mut both = [key(0)];
    let list = both.as_mut_ptr();
    ask!(l, "a list and a buffer", cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, null, list, list));
    let config = config(null);
    ask!(l, "no arguments", cuLaunchKernelEx(&config, plain, none, ptr::null_mut()));
    ask!(l, "no configuration", cuLaunchKernelEx(ptr::null(), plain, none, ptr::null_mut()));
    ask!(l, "cooperative, no arguments", cuLaunchCooperativeKernel(plain, 1, 1, 1, 1, 1, 1, 0, null, none));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn libraries(l: &mut Lab) -> Run {
    let (library, mut count, none) = (library(l)?, 0, ptr::null_mut());
    if ask!(l, "count" => OK, cuLibraryGetKernelCount(&mut count, library)) {
        l.say("count", count);
    }
    let (mut kernel, mut all) = (ptr::null_mut(), [ptr::null_mut(); 4]);
    ask!(l, "kernel" => OK, cuLibraryGetKernel(&mut kernel, library, c"plain".as_ptr()));
    ask!(l, "unknown kernel", cuLibraryGetKernel(&mut kernel, library, c"nobody".as_ptr()));
    ask!(l, "list" => OK, cuLibraryEnumerateKernels(all.as_mut_ptr(), 3, library));
    let mut module = ptr::null_mut();
    if ask!(l, "module" => OK, cuLibraryGetModule(&mut module, library)) {
        ask!(l, "module: unload", cuModuleUnload(module));
    }
    let (mut address, mut size) = (0, 0);
    for name in [c"counter", c"of_all", c"nobody"] {
        let label = name.to_string_lossy().into_owned();
        ask!(l, format!("{label}: variable"), cuLibraryGetGlobal(&mut address, &mut size, library, name.as_ptr()));
        ask!(l, format!("{label}: managed"), cuLibraryGetManaged(&mut address, &mut size, library, name.as_ptr()));
    }
    let (mut loaded, mut no) = (ptr::null_mut(), ptr::null_mut());
    let name = c"/there/is/none.ptx".as_ptr();
    ask!(l, "no file", cuLibraryLoadFromFile(&mut loaded, name, &mut CUjit_option(0), none, 0, &mut CUlibraryOption(0), none, 0));
    let code = c"nonsense".as_ptr().cast();
    ask!(l, "no code", cuLibraryLoadData(&mut no, code, ptr::null_mut(), none, 0, ptr::null_mut(), none, 0));
    Ok(())
}

/// The driver loads the code of a library at its first use.
fn libraries_of_wrong_code(l: &mut Lab) -> Run {
    for (label, code) in [("nonsense", c"nonsense"), ("no end", c".version 6.4\n.target sm_50\n.entry k() { ret;")] {
        let (mut library, code, none) = (ptr::null_mut(), code.as_ptr().cast(), ptr::null_mut());
        let options = ptr::null_mut();
        if !ask!(l, label => OK, cuLibraryLoadData(&mut library, code, options, none, 0, ptr::null_mut(), none, 0)) {
            continue;
        }
        let (mut kernel, mut module, mut count) = (ptr::null_mut(), ptr::null_mut(), 0);
        ask!(l, format!("{label}: kernel"), cuLibraryGetKernel(&mut kernel, library, c"k".as_ptr()));
        ask!(l, format!("{label}: count"), cuLibraryGetKernelCount(&mut count, library));
        ask!(l, format!("{label}: module"), cuLibraryGetModule(&mut module, library));
        ask!(l, format!("{label}: unload"), cuLibraryUnload(library));
    }
    Ok(())
}

fn kernels_of_libraries(l: &mut Lab) -> Run {
    let (plain, mut library, mut function) = (kernel(l, c"plain")?, ptr::null_mut(), ptr::null_mut());
    ask!(l, "library" => OK, cuKernelGetLibrary(&mut library, plain));
    ask!(l, "function" => OK, cuKernelGetFunction(&mut function, plain));
    let mut name = ptr::null();
    if ask!(l, "name" => OK, cuKernelGetName(&mut name, plain)) {
        // SAFETY: the name is a C string while the library is loaded.
        l.say("name", unsafe { CStr::from_ptr(name) }.to_string_lossy());
    }
    let (mut offset, mut size, mut value) = (0, 0, 0);
    ask!(l, "parameter" => OK, cuKernelGetParamInfo(plain, 2, &mut offset, &mut size));
    l.say("parameter", format!("{offset} {size}"));
    if ask!(l, "count of parameters", cuKernelGetParamCount(plain, &mut size)) {
        l.say("count of parameters", size);
    }
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ask!(l, "set" => OK, cuKernelSetAttribute(dynamic, 64 << 10, plain, 0));
    if ask!(l, "get" => OK, cuKernelGetAttribute(&mut value, dynamic, plain, 0)) {
        l.say("get", value);
    }
    ask!(l, "no device", cuKernelGetAttribute(&mut value, dynamic, plain, 99));
    if ask!(l, "get of the function", cuFuncGetAttribute(&mut value, dynamic, function)) {
        l.say("get of the function", value);
    }
    ask!(l, "cache" => OK, cuKernelSetCacheConfig(plain, CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED, 0));
    Ok(())
}

/// A link that ends with the case.
fn link(l: &mut Lab) -> Result<CUlinkState, Stop> {
    let (mut state, none) = (ptr::null_mut(), ptr::null_mut());
    need!(l, cuLinkCreate_v2(0, ptr::null_mut(), none, &mut state))?;
    l.finally(move |l| drop(call!(l, cuLinkDestroy(state))));
    Ok(state)
}

/// Two texts with a variable of the same name each, which the first has for itself.
const PARTS: [&CStr; 2] = [
    c".version 6.4\n.target sm_50\n.address_size 64\n.global .u32 own = 1;\n.visible .global .u64 place = own;",
    c".version 6.4\n.target sm_50\n.address_size 64\n.visible .global .u32 own = 2;\n.visible .entry k() { ret; }",
];

fn links(l: &mut Lab) -> Run {
    let (state, kind, none) = (link(l)?, CUjitInputType::CU_JIT_INPUT_PTX, ptr::null_mut());
    for part in PARTS {
        let (data, size, options) = (part.as_ptr().cast_mut().cast(), part.count_bytes() + 1, ptr::null_mut());
        ask!(l, "add" => OK, cuLinkAddData_v2(state, kind, data, size, c"part".as_ptr(), 0, options, none));
    }
    let (mut image, mut size, mut module) = (ptr::null_mut(), 0, ptr::null_mut());
    ask!(l, "complete" => OK, cuLinkComplete(state, &mut image, &mut size));
    l.say("it has bytes", size > 0);
    need!(l, cuModuleLoadData(&mut module, image))?;
    l.finally(move |l| drop(call!(l, cuModuleUnload(module))));
    let (mut function, mut address, mut length) = (ptr::null_mut(), 0, 0);
    ask!(l, "a kernel" => OK, cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    for name in [c"own", c"place"] {
        let label = name.to_string_lossy();
        ask!(l, &*label => OK, cuModuleGetGlobal_v2(&mut address, &mut length, module, name.as_ptr()));
        l.say(format!("{label}: size"), length);
    }
    ask!(l, "complete again", cuLinkComplete(state, &mut image, &mut size));
    ask!(l, "add to a complete link", cuLinkAddData_v2(state, kind, CODE.as_ptr().cast_mut().cast(),
        CODE.count_bytes() + 1, ptr::null(), 0, ptr::null_mut(), none));
    Ok(())
}

fn wrong_links(l: &mut Lab) -> Run {
    let (options, none) = (ptr::null_mut(), ptr::null_mut());
    ask!(l, "no result", cuLinkCreate_v2(0, options, none, ptr::null_mut()));
    let (state, kind) = (link(l)?, CUjitInputType::CU_JIT_INPUT_PTX);
    let wrong = c".version 6.4\n.target sm_50\n.address_size 64\n.visible .entry k(.param .u63 a) { ret; }";
    let add = |l: &mut Lab, label: &str, kind, part: &CStr| {
        let (data, size) = (part.as_ptr().cast_mut().cast(), part.count_bytes() + 1);
        ask!(l, label, cuLinkAddData_v2(state, kind, data, size, c"part".as_ptr(), 0, ptr::null_mut(), none));
    };
    add(l, "wrong text", kind, wrong);
    add(l, "an unknown kind", CUjitInputType(77), CODE);
    ask!(l, "no data", cuLinkAddData_v2(state, kind, none.cast(), 8, ptr::null(), 0, ptr::null_mut(), none));
    ask!(l, "no file", cuLinkAddFile_v2(state, kind, c"/there/is/none.ptx".as_ptr(), 0, options, none));
    add(l, "first", kind, CODE);
    add(l, "the same names again", kind, CODE);
    let (mut image, mut size) = (ptr::null_mut(), 0);
    ask!(l, "complete with the same names", cuLinkComplete(state, &mut image, &mut size));
    Ok(())
}
