//! Checks the interchange against others' code: DLPack's own header, and numpy and pyarrow as consumers and producers.

use cuda_mem::interchange::dlpack::{
    CurrentWorkStream, DEVICE_TYPES, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned,
    DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, DLTensor, FLAG_IS_COPIED, FLAG_IS_SUBBYTE_TYPE_PADDED,
    FLAG_READ_ONLY, ManagedTensorAllocator, VERSION,
};
use cuda_mem::{Driver, TypeCode};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::compilers::root;

/// A file that an environment variable names, or `None` if it is missing. A missing file is a failure where nothing may
/// be skipped.
fn needed(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if path.is_none() {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "{variable} names nothing: run scripts/test");
        println!("skipped: {variable} is not set; scripts/test downloads the file and sets it");
    }
    path
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Our values to compare, by their C expressions.
fn ours() -> BTreeMap<String, u64> {
    let mut facts = BTreeMap::new();
    macro_rules! structures {
        ($($name:ident { $($field:ident),* })*) => { $(
            facts.insert(format!("sizeof({})", stringify!($name)), size_of::<$name>() as u64);
            facts.insert(format!("_Alignof({})", stringify!($name)), align_of::<$name>() as u64);
            $(facts.insert(
                format!("offsetof({}, {})", stringify!($name), stringify!($field)),
                offset_of!($name, $field) as u64,
            );)*
        )* };
    }
    structures! {
        DLPackVersion { major, minor }
        DLDevice { device_type, device_id }
        DLDataType { code, bits, lanes }
        DLTensor { data, device, ndim, dtype, shape, strides, byte_offset }
        DLManagedTensor { dl_tensor, manager_ctx, deleter }
        DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }
        DLPackExchangeAPIHeader { version, prev_api }
        DLPackExchangeAPI {
            header, managed_tensor_allocator, managed_tensor_from_py_object_no_sync, managed_tensor_to_py_object_no_sync,
            dltensor_from_py_object_no_sync, current_work_stream
        }
    }
    facts.insert("sizeof(DLPackManagedTensorAllocator)".into(), size_of::<ManagedTensorAllocator>() as u64);
    facts.insert("sizeof(DLPackCurrentWorkStream)".into(), size_of::<CurrentWorkStream>() as u64);
    facts.insert("DLPACK_MAJOR_VERSION".into(), VERSION.major.into());
    facts.insert("DLPACK_MINOR_VERSION".into(), VERSION.minor.into());
    facts.insert("DLPACK_FLAG_BITMASK_READ_ONLY".into(), FLAG_READ_ONLY);
    facts.insert("DLPACK_FLAG_BITMASK_IS_COPIED".into(), FLAG_IS_COPIED);
    facts.insert("DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED".into(), FLAG_IS_SUBBYTE_TYPE_PADDED);
    facts.extend(DEVICE_TYPES.map(|(number, name)| (format!("kDL{name}"), number as u64)));
    for code in TypeCode::ALL {
        let name = match code {
            TypeCode::UInt => "UInt".to_owned(),
            TypeCode::Opaque => "OpaqueHandle".to_owned(),
            code => {
                let (first, rest) = code.name().split_at(1);
                first.to_uppercase() + rest
            }
        };
        facts.insert(format!("kDL{name}"), code as u64);
    }
    facts
}

#[test]
fn the_structures_and_numbers_are_those_of_dlpacks_header() {
    let Some(header) = needed("DLPACK_HEADER") else { return };
    let facts = ours();
    let mut program = format!("#include \"{}\"\n#include <stdio.h>\nint main(void) {{\n", header.display());
    for fact in facts.keys() {
        writeln!(program, "printf(\"%s=%llu\\n\", \"{fact}\", (unsigned long long)({fact}));").unwrap();
    }
    program += "return 0; }\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("dlpack.c"), folder.join("dlpack"));
    std::fs::write(&source, program).unwrap();
    run(Command::new("gcc").args(["-std=c11", "-o"]).arg(&binary).arg(&source));
    let theirs: BTreeMap<String, u64> = run(&mut Command::new(&binary))
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(fact, value)| (fact.to_owned(), value.parse().unwrap()))
        .collect();
    assert_eq!(facts, theirs);
    assert!(facts.len() > 70, "only {} facts", facts.len());
    // No code and no device kind of theirs may be missing here.
    let text = std::fs::read_to_string(&header).unwrap();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("kDL")?.split_once(" = "));
    for (name, _) in names {
        assert!(facts.contains_key(&format!("kDL{name}")), "kDL{name} is not known here");
    }
}

/// C and C++ programs that use others' structs.
const WITH_DLPACK: &str = "
#include <assert.h>
static_assert(sizeof(cudamem_data_type) == sizeof(DLDataType), \"as DLPack has it\");
static_assert(offsetof(cudamem_data_type, lanes) == offsetof(DLDataType, lanes), \"as DLPack has it\");
static_assert((int)CUDAMEM_TYPE_BOOL == (int)kDLBool && (int)CUDAMEM_TYPE_FLOAT8_E8M0FNU == (int)kDLFloat8_e8m0fnu, \"codes\");
cudamem_status out(cudamem_view view, DLManagedTensorVersioned **tensor);
cudamem_status out(cudamem_view view, DLManagedTensorVersioned **tensor)
{
    return cudamem_view_export_dlpack(view, NULL, tensor, NULL);
}
cudamem_status in(DLManagedTensor *tensor, cudamem_stream stream, cudamem_view *view);
cudamem_status in(DLManagedTensor *tensor, cudamem_stream stream, cudamem_view *view)
{
    return cudamem_view_import_dlpack(NULL, tensor, stream, stream, view);
}
";
const WITH_ARROW: &str = "
cudamem_status out(cudamem_arrow_array array, cudamem_stream stream, struct ArrowDeviceArray *result);
cudamem_status out(cudamem_arrow_array array, cudamem_stream stream, struct ArrowDeviceArray *result)
{
    result->array.release = NULL;
    return cudamem_arrow_array_export(array, stream, result);
}
cudamem_status in(struct ArrowDeviceArrayStream *source, struct ArrowSchema *type, cudamem_arrow_stream *arrays);
cudamem_status in(struct ArrowDeviceArrayStream *source, struct ArrowSchema *type, cudamem_arrow_stream *arrays)
{
    cudamem_arrow_schema schema;
    cudamem_status status = cudamem_arrow_schema_import(type, &schema);
    return status == CUDAMEM_SUCCESS ? cudamem_arrow_stream_import(source, arrays) : status;
}
";

/// cudamem/interchange.h declares others' structs, and may be included before or after the header that defines them.
#[test]
fn c_header_compiles_before_and_after_dlpack_and_arrow_headers() {
    let (Some(dlpack), Some(site)) = (needed("DLPACK_HEADER"), needed("PYTHON_SITE")) else { return };
    let ours = root().join("include/cudamem/interchange.h");
    let views = root().join("include/cudamem/views.h");
    let arrow = site.join("pyarrow/include/arrow/c/abi.h");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("order.c");
    for (theirs, body) in [(&dlpack, WITH_DLPACK), (&arrow, WITH_ARROW)] {
        for [first, second] in [[&ours, theirs], [theirs, &ours]] {
            let includes = [first, second, &views].map(|file| format!("#include \"{}\"\n", file.display())).concat();
            std::fs::write(&source, includes + body).unwrap();
            for (compiler, language, standard) in [("gcc", "c", "-std=c11"), ("g++", "c++", "-std=c++17")] {
                let flags = [standard, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", language];
                run(Command::new(compiler).args(flags).arg(&source));
            }
        }
    }
}

#[test]
fn numpy_and_pyarrow_take_our_memory_and_give_theirs() {
    let (Some(library), Some(site)) = (needed("INTERCHANGE_LIBRARY"), needed("PYTHON_SITE")) else { return };
    // Use the software GPU even if there is a driver, because these are the CPU versions of the libraries.
    let script = root().join("ffi-tests/python/test_cpu.py");
    let mut python = Command::new("python3");
    python.arg(script).env("INTERCHANGE_LIBRARY", library).env("PYTHONPATH", site);
    if Driver::load().is_err() {
        python.env("CUDA_MEM_LIBCUDA", "softgpu");
    }
    let text = run(&mut python);
    assert!(text.contains("test result: ok. 14 passed; 0 failed"), "{text}");
}
