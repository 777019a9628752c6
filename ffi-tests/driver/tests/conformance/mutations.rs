//! Errors planted in a copy of wrapper.h. Each must be found by name, and the table lists the methods that must find
//! it. It is an error if a method no longer finds an error.

use crate::gate::gate;
use crate::releases::{Headers, releases, wrapper};
use crate::toolchain::{compilers, say, scratch};
use crate::{layout, read, redeclare, since};
use std::path::Path;

/// The methods, in the order of the table's columns.
const METHODS: [&str; 4] = ["gate", "layout", "redeclaration", "releases"];

/// A planted error.
struct Mutation {
    /// The kind of fact that is wrong.
    kind: &'static str,
    /// A text that occurs once in wrapper.h, and its replacement.
    text: (&'static str, &'static str),
    /// The name that a message must contain.
    item: &'static str,
    /// The methods that must find it.
    found_by: [bool; 4],
}

const fn mutation(
    kind: &'static str,
    item: &'static str,
    from: &'static str,
    to: &'static str,
    found_by: [u8; 4],
) -> Mutation {
    let found_by = [found_by[0] == 1, found_by[1] == 1, found_by[2] == 1, found_by[3] == 1];
    Mutation { kind, text: (from, to), item, found_by }
}

static MUTATIONS: [Mutation; 27] = [
    mutation(
        "constant",
        "CU_MEMHOSTALLOC_WRITECOMBINED",
        "CU_MEMHOSTALLOC_WRITECOMBINED 0x04",
        "CU_MEMHOSTALLOC_WRITECOMBINED 0x08",
        [1, 1, 0, 0],
    ),
    mutation(
        "constant's name",
        "CU_MEMHOSTREGISTER_READONLY",
        "CU_MEMHOSTREGISTER_READ_ONLY 0x08",
        "CU_MEMHOSTREGISTER_READONLY 0x08",
        [1, 1, 0, 0],
    ),
    mutation(
        "enumeration value",
        "CU_POINTER_ATTRIBUTE_MAPPED",
        "CU_POINTER_ATTRIBUTE_MAPPED = 13",
        "CU_POINTER_ATTRIBUTE_MAPPED = 12",
        [1, 1, 0, 0],
    ),
    mutation(
        "enumeration value's name",
        "CU_MEM_ATTACH_EVERYWHERE",
        "CU_MEM_ATTACH_GLOBAL = 0x1",
        "CU_MEM_ATTACH_EVERYWHERE = 0x1",
        [1, 1, 0, 0],
    ),
    mutation(
        "enumeration's tag",
        "CUmem_advice_enum",
        "enum CUmem_advise_enum {",
        "enum CUmem_advice_enum {",
        [1, 1, 0, 1],
    ),
    mutation("field dropped", "CUmemPoolProps_st", "    size_t maxSize;\n", "", [1, 1, 0, 0]),
    mutation(
        "fields in another order",
        "CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st",
        "    unsigned long long offset;\n    unsigned long long size;\n",
        "    unsigned long long size;\n    unsigned long long offset;\n",
        [1, 1, 0, 0],
    ),
    mutation(
        "field's type",
        "CUmemLocation_st.id",
        "    CUmemLocationType type;\n    int id;\n",
        "    CUmemLocationType type;\n    unsigned int id;\n",
        [1, 1, 0, 0],
    ),
    mutation(
        "field's enumeration",
        "CUmemAccessDesc_st.flags",
        "    CUmemAccess_flags flags;\n",
        "    CUmemAllocationGranularity_flags flags;\n",
        [1, 0, 0, 0],
    ),
    mutation(
        "field's name",
        "CUmemPoolPtrExportData_st",
        "    unsigned char reserved[64];\n",
        "    unsigned char bytes[64];\n",
        [1, 1, 0, 0],
    ),
    mutation(
        "array's length",
        "CUmemPoolProps_st",
        "    unsigned char reserved[54];\n",
        "    unsigned char reserved[52];\n",
        [1, 1, 0, 0],
    ),
    mutation(
        "typedef's width",
        "CUmemGenericAllocationHandle",
        "typedef unsigned long long CUmemGenericAllocationHandle;",
        "typedef unsigned int CUmemGenericAllocationHandle;",
        [1, 1, 0, 1],
    ),
    mutation("typedef's sign", "CUdevice", "typedef int CUdevice;", "typedef unsigned int CUdevice;", [1, 1, 0, 1]),
    mutation(
        "structure's tag",
        "CUipcMemoryHandle_st",
        "typedef struct CUipcMemHandle_st {",
        "typedef struct CUipcMemoryHandle_st {",
        [1, 1, 0, 1],
    ),
    mutation(
        "callback's argument",
        "CUhostFn",
        "typedef void (*CUhostFn)(void *userData);",
        "typedef void (*CUhostFn)(int userData);",
        [1, 0, 0, 1],
    ),
    mutation(
        "handle's tag",
        "CUmemoryPool",
        "typedef struct CUmemPoolHandle_st *CUmemoryPool;",
        "typedef struct CUmemoryPool_st *CUmemoryPool;",
        [1, 0, 0, 1],
    ),
    mutation(
        "argument dropped",
        "cuMemFreeHost",
        "CUresult cuMemFreeHost(void *p);",
        "CUresult cuMemFreeHost(void);",
        [1, 0, 1, 1],
    ),
    mutation(
        "argument's type",
        "cuMemAlloc_v2",
        "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);",
        "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, unsigned int bytesize);",
        [1, 0, 1, 1],
    ),
    mutation(
        "arguments in another order",
        "cuDeviceSetMemPool",
        "CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool);",
        "CUresult cuDeviceSetMemPool(CUmemoryPool pool, CUdevice dev);",
        [1, 0, 1, 1],
    ),
    mutation(
        "argument's const",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost",
        "cuMemcpyHtoD_v2(CUdeviceptr dstDevice, void *srcHost",
        [1, 0, 1, 1],
    ),
    mutation(
        "argument's pointer",
        "cuMemPoolSetAttribute",
        "CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);",
        "CUresult cuMemPoolSetAttribute(CUmemoryPool *pool, CUmemPool_attribute attr, void *value);",
        [1, 0, 1, 1],
    ),
    mutation(
        "result",
        "cuCtxSynchronize",
        "CUresult cuCtxSynchronize(void);",
        "void cuCtxSynchronize(void);",
        [1, 0, 1, 1],
    ),
    mutation(
        "function's name",
        "cuMemGetInfo_v3",
        "CUresult cuMemGetInfo_v2(",
        "CUresult cuMemGetInfo_v3(",
        [1, 0, 0, 1],
    ),
    mutation(
        "release, too old for a header",
        "cuMemcpyBatchAsync_v2",
        "/** Does many copies in one call. Since CUDA 13.0. */",
        "/** Does many copies in one call. Since CUDA 12.8. */",
        [1, 0, 0, 1],
    ),
    mutation(
        "release, too new for a header",
        "cuStreamGetDevice",
        "/** Gives a stream's device. Since CUDA 12.8. */",
        "/** Gives a stream's device. Since CUDA 13.0. */",
        [1, 0, 0, 1],
    ),
    mutation(
        "release, not stated",
        "cuInit",
        "Every other call needs it. Since CUDA 2.0. */",
        "Every other call needs it. */",
        [1, 0, 0, 1],
    ),
    mutation(
        "release, long ago",
        "cuMemAllocAsync",
        "/** Allocates from the device's present pool in stream order. Since CUDA 11.2. */",
        "/** Allocates from the device's present pool in stream order. Since CUDA 11.3. */",
        [0, 0, 0, 1],
    ),
];

/// The message of each method about a changed wrapper.h, if it finds an error.
fn messages(text: &str, compiler: &str, releases: &[Headers], folder: &Path) -> Result<[Option<String>; 4], String> {
    let header = folder.join("wrapper.h");
    std::fs::write(&header, text).map_err(|error| error.to_string())?;
    let ours = read::header(&header, &[], read::CUDA)?;
    let bindings = folder.join("bindings.rs");
    std::fs::write(&bindings, read::bindings(&header, &[], read::CUDA)?).map_err(|error| error.to_string())?;
    // The methods that use compilers need only one release. 13.0 has everything that we declare.
    let headers = releases.iter().find(|headers| headers.release.major() == 13).ok_or("no CUDA 13")?;

    let found = |differences: Vec<_>| (!differences.is_empty()).then(|| crate::gate::list(&differences));
    let all = layout::assertions(&ours, &bindings, folder)?;
    Ok([
        found(gate(&ours, releases).1),
        layout::check(compiler, headers, &all, folder).err(),
        redeclare::check(compiler, headers, &ours, text, folder).err(),
        found(since::check(&ours, releases).1),
    ])
}

fn plant(mutation: &Mutation, wrapper: &str, compiler: &str, releases: &[Headers]) -> Result<[bool; 4], String> {
    let (from, to) = mutation.text;
    if wrapper.matches(from).count() != 1 {
        return Err(format!("wrapper.h has `{}` {} times", from.trim(), wrapper.matches(from).count()));
    }
    let folder = scratch(&format!("mutations/{}", mutation.kind.replace([' ', '\'', ','], "-")));
    let messages = messages(&wrapper.replacen(from, to, 1), compiler, releases, &folder)?;
    let names = |message: &Option<String>| message.as_ref().is_some_and(|message| message.contains(mutation.item));
    for (method, message) in METHODS.iter().zip(&messages) {
        // cudaTypedefs.h shows a wrong type only through the functions that use it, so another method must name the
        // type.
        let enough = names(message) || (*method == "releases" && messages.iter().any(names));
        if let Some(message) = message.as_ref().filter(|_| !enough) {
            return Err(format!("{method} does not name {}:\n{message}", mutation.item));
        }
    }
    Ok(messages.map(|message| message.is_some()))
}

#[test]
fn every_planted_error_is_found_by_name() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let Some(compiler) = compilers(&["gcc", "clang"]).first().copied() else { return };
    let wrapper = std::fs::read_to_string(wrapper()).expect("wrapper.h is text");
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = |part: &'static [Mutation]| {
            let wrapper = &wrapper;
            scope.spawn(move || part.iter().map(|one| plant(one, wrapper, compiler, releases)).collect::<Vec<_>>())
        };
        let threads: Vec<_> = MUTATIONS.chunks(MUTATIONS.len().div_ceil(threads)).map(run).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });

    let mut table = format!("planted errors, and the methods that find them:\n  {:30}", "");
    for method in METHODS {
        table += &format!("{method:>15}");
    }
    let mut wrong = Vec::new();
    for (mutation, result) in MUTATIONS.iter().zip(results) {
        table += &format!("\n  {:30}", mutation.kind);
        match result {
            Err(error) => wrong.push(format!("{}: {error}", mutation.kind)),
            Ok(found_by) => {
                for found in found_by {
                    table += &format!("{:>15}", if found { "yes" } else { "-" });
                }
                if found_by != mutation.found_by {
                    wrong.push(format!("{}: expected {:?}, found {found_by:?}", mutation.kind, mutation.found_by));
                }
            }
        }
    }
    let found = |method: usize| MUTATIONS.iter().filter(|mutation| mutation.found_by[method]).count();
    let counts: String = (0..METHODS.len()).map(|method| format!("{:>15}", found(method))).collect();
    table += &format!("\n  {:30}{counts}\n", format!("of {}", MUTATIONS.len()));
    say(&table);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lost: Vec<_> =
        MUTATIONS.iter().filter(|mutation| mutation.found_by == [false; 4]).map(|one| one.kind).collect();
    assert!(lost.is_empty(), "found by nothing: {lost:?}");
}
