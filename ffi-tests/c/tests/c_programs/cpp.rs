//! The C++ header. Each compiler compiles `c/cpp/` with each standard, and the program runs over the driver that the
//! environment names, else over the software GPU as a library, which must hold nothing at the end and must not have
//! been misused. Each program has files with exceptions and files without.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::{Library, SANITIZERS, look_for_leaks};
use testkit::compilers::{STRICT, c_headers, is_there, root, run};

/// The files of a program, with their compiler flags for exceptions.
const SOURCES: [(&str, &[&str]); 8] = [
    ("main.cpp", &[]),
    ("throwing.cpp", &[]),
    ("sources.cpp", &[]),
    ("faults.cpp", &[]),
    ("sharing.cpp", &[]),
    ("views.cpp", &[]),
    ("typed.cpp", &[]),
    ("values.cpp", &["-fno-exceptions"]),
];

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp_api");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    folder
}

fn compiler(name: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(flags).args(STRICT).arg("-I").arg(root().join("include"));
    command
}

/// Builds the program. Returns its path.
fn build(name: &str, compiler_name: &str, flags: &[&str], link: &[String]) -> PathBuf {
    let program = folder().join(name);
    let objects = SOURCES.map(|(source, own)| {
        let object = folder().join(format!("{name}-{source}.o"));
        let mut command = compiler(compiler_name, flags);
        run(command.args(own).arg("-c").arg(root().join("ffi-tests/c/cpp").join(source)).arg("-o").arg(&object));
        object
    });
    run(Command::new(compiler_name)
        .args(flags)
        .args(objects)
        .args(link)
        .args(["-lpthread", "-ldl", "-o"])
        .arg(&program));
    program
}

#[test]
fn objects_values_and_containers_with_and_without_exceptions() {
    let library = Library::build();
    let link = library.link_shared();
    for (compiler, standard) in [("g++", "-std=c++17"), ("clang++", "-std=c++20"), ("g++", "-std=c++23")] {
        if is_there(compiler) {
            let program = build(&format!("{compiler}{standard}"), compiler, &[standard], &link);
            let mut command = Command::new(&program);
            library.choose_driver(&mut command);
            run(&mut command);
            ends_that_cannot_be_told(&program, &library);
            let mut command = Command::new(&program);
            library.choose_driver(&mut command);
            run(command.arg("memory_by_address"));
        }
    }
    // Combinations that did not run above are only compiled.
    for (name, standard) in [("clang++", "-std=c++17"), ("g++", "-std=c++20"), ("clang++", "-std=c++2b")] {
        for (source, own) in &SOURCES[1..] {
            if is_there(name) {
                let source = root().join("ffi-tests/c/cpp").join(source);
                run(compiler(name, &[standard]).args(*own).arg("-fsyntax-only").arg(source));
            }
        }
    }
}

/// Where the interface cannot return an error, the program must end with a message.
fn ends_that_cannot_be_told(program: &Path, library: &Library) {
    for (case, message) in [
        ("given_back_twice", "cudamem: a freed pointer is not a live block of this memory resource"),
        ("given_back_with_another_size", "cudamem_resource_free: size is 9, for a block of 8 bytes"),
        ("no_memory", "no room for "),
        // The standard library's own `expected` ends the program without a message.
        ("no_value", ""),
    ] {
        let mut command = Command::new(program);
        library.choose_driver(&mut command);
        let output = command.arg(case).output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(message), "{case}: {}: {text}", output.status);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("went on"), "{case}");
    }
}

#[test]
fn no_object_does_what_the_sanitizers_know() {
    if !is_there("g++") {
        return;
    }
    let library = Library::build();
    let flags = [&["-std=c++20", "-g"], &SANITIZERS[..]].concat();
    let program = build("sanitized", "g++", &flags, &library.link_shared());
    let mut command = Command::new(program);
    library.choose_driver(&mut command);
    look_for_leaks(&mut command);
    run(&mut command);
}

#[test]
fn every_part_of_the_header_can_be_included_alone() {
    let folder = root().join("include/cudamem");
    let parts = std::fs::read_dir(&folder).expect("the headers are there");
    let mut parts: Vec<_> = parts.map(|part| part.expect("the folder is readable").path()).collect();
    // That header needs headers of other projects.
    parts.retain(|part| part.extension().is_some_and(|end| end == "hpp") && !part.ends_with("cuda_mr.hpp"));
    parts.sort();
    assert!(parts.len() >= 13, "{parts:?}");
    for (part, name) in parts.iter().zip(["g++", "clang++"].into_iter().cycle()) {
        if is_there(name) {
            run(compiler(name, &["-std=c++17"])
                .args(["-fsyntax-only", "-x", "c++", "-include"])
                .arg(part)
                .arg("/dev/null"));
        }
    }
}

/// Whether a compiler accepts an expression over a `resource` and a `stream`, and its output.
fn takes(name: &str, include: &str, expression: &str) -> (bool, String) {
    takes_as(name, "-std=c++17", include, expression)
}

fn takes_as(name: &str, standard: &str, include: &str, expression: &str) -> (bool, String) {
    let file = folder().join(format!("expression-{name}-{}.cpp", include.replace(['.', '/'], "")));
    let parameters = "const cudamem::resource &resource, const cudamem::stream &stream";
    let text = format!(
        "#include \"cudamem/{include}.hpp\"\n#include \"cudamem/stream.hpp\"\n#include \"cudamem/pool.hpp\"\n#include <array>\n\
         #include <vector>\nvoid use({parameters}) {{ (void)resource, (void)stream, (void){expression}; }}\n"
    );
    std::fs::write(&file, text).expect("the folder is writable");
    let output = compiler(name, &[standard, "-fsyntax-only"]).arg(file).output().expect("the compiler starts");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The CPU's own number format, which its size does not reveal.
#[test]
fn elements_that_no_device_has_are_refused_by_the_compiler() {
    for name in ["g++", "clang++"].into_iter().filter(|name| is_there(name)) {
        let (took_it, words) = takes(name, "view", "cudamem::data_type_of<double>()");
        assert!(took_it, "{words}");
        let (took_it, words) = takes(name, "view", "cudamem::data_type_of<const long double>()");
        assert!(!took_it && words.contains("devices have no such type"), "{words}");
    }
}

/// The first error names the mistake, in words of the program.
#[test]
fn mistakes_with_values_get_one_clear_error_each() {
    let mistakes = [
        ("cudamem::buffer().read(0, std::as_const(*new std::vector<int>(3)))", "cudamem: the destination is const"),
        ("cudamem::buffer().read(0, *new const std::array<int, 3>{})", "cudamem: the destination is const"),
        ("cudamem::buffer().write(0, std::vector<std::vector<int>>())", "must be trivially copyable"),
        ("cudamem::buffer().write(0, 5)", "no contiguous values of the CPU"),
        ("cudamem::buffer().write(0, *new std::vector<bool>(3))", "no contiguous values of the CPU"),
        ("cudamem::buffer().write(0, cudamem::typed_buffer<int>())", "for memory of a device: copy"),
        ("cudamem::buffer().read(0, *new cudamem::typed_buffer<int>())", "for memory of a device: copy"),
        ("cudamem::typed_buffer<int>().write(0, std::vector<float>())", "values of another type"),
        ("cudamem::typed_buffer<int>().read(0, *new std::vector<long>())", "values of another type"),
        ("cudamem::typed_buffer<int>().read(0, *new const std::vector<int>())", "the destination is const"),
        ("cudamem::typed_buffer<std::vector<int>>()", "Value must be trivially copyable"),
        ("cudamem::typed_buffer<const int>()", "Value must be a type without const"),
        ("cudamem::typed_buffer<std::array<int, 3>>().fill({})", "values of 1, 2, 4, 8 or 16 bytes"),
    ];
    let mut compilers =
        [("g++", "-std=c++17"), ("clang++", "-std=c++17"), ("g++", "-std=c++20"), ("clang++", "-std=c++20")]
            .into_iter()
            .cycle();
    for (expression, message) in mistakes {
        let Some((name, standard)) = compilers.next().filter(|(name, _)| is_there(name)) else { continue };
        let (took_it, words) = takes_as(name, standard, "typed_buffer", expression);
        let first = words.lines().find(|line| line.contains("error: ")).unwrap_or_default();
        assert!(!took_it && first.contains(message), "{name} {standard} {expression}: {words}");
    }
    for (name, standard) in compilers.take(4).filter(|(name, _)| is_there(name)) {
        let right = "cudamem::buffer().write(0, std::vector<int>{1}), cudamem::typed_buffer<int>().write(0, {1, 2})";
        let (took_it, words) = takes_as(name, standard, "typed_buffer", right);
        assert!(took_it, "{name} {standard}: {words}");
    }
}

#[test]
fn a_standard_before_cpp_17_is_named_as_the_error() {
    for name in ["g++", "clang++"].into_iter().filter(|name| is_there(name)) {
        for (standard, include) in [("-std=c++14", "buffer"), ("-std=c++11", "values"), ("-std=c++14", "../cudamem")] {
            let (took_it, words) = takes_as(name, standard, include, "0");
            let first = words.lines().find(|line| line.contains("error: ")).unwrap_or_default();
            assert!(!took_it && first.contains("need C++17 or later"), "{name} {standard} {include}: {words}");
        }
    }
}

/// Otherwise containers would allocate from a resource that ended with the expression.
#[test]
fn memory_of_a_temporary_resource_is_refused_by_the_compiler() {
    let mut compilers = ["g++", "clang++"].into_iter().cycle();
    for (include, class) in [("memory_resource", "cudamem::memory_resource"), ("allocator", "cudamem::allocator<int>")]
    {
        for make in [class.to_owned(), format!("{class}::create")] {
            let Some(name) = compilers.next().filter(|name| is_there(name)) else { continue };
            let (took_it, words) = takes(name, include, &format!("{make}(resource, stream)"));
            assert!(took_it, "{words}");
            for temporary in ["cudamem::pool(resource), stream", "resource, cudamem::stream()"] {
                let (took_it, words) = takes(name, include, &format!("{make}({temporary})"));
                assert!(!took_it && words.contains("deleted"), "{make}({temporary}): {words}");
            }
        }
    }
}

#[test]
fn the_header_has_every_function_of_c() {
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("the headers are there");
    let include = root().join("include");
    let parts = std::fs::read_dir(include.join("cudamem")).expect("the headers are there");
    let parts = parts.map(|part| part.expect("the folder is readable").path());
    let parts = parts.filter(|part| part.extension().is_none_or(|extension| extension != "h"));
    let parts: String = parts.map(read).collect();
    let used: BTreeSet<&str> = words(&parts).collect();
    let header: String = c_headers().into_iter().map(read).collect();
    let code = header.lines().filter(|line| !line.starts_with([' ', '/', '#']));
    let functions: BTreeSet<&str> =
        code.filter_map(|line| line.split_once('(').and_then(|(start, _)| words(start).next_back())).collect();
    assert!(functions.len() > 90, "{functions:?}");
    let missing: Vec<_> = functions.difference(&used).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The library's names in a text.
fn words(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .filter(|word| word.starts_with("cudamem_"))
}

/// The resources work with Thrust, CUB and RMM.
#[test]
fn resources_are_those_of_cccl() {
    let Some(headers) = std::env::var_os("CCCL_HEADERS").map(PathBuf::from).filter(|path| path.join("done").exists())
    else {
        assert!(
            std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(),
            "CCCL_HEADERS names no folder of scripts/cccl-headers"
        );
        println!("skipped: CCCL_HEADERS names no folder of scripts/cccl-headers");
        return;
    };
    let library = Library::build();
    let link = library.link_shared();
    for (name, standard) in [("g++", "-std=c++17"), ("clang++", "-std=c++20")] {
        if is_there(name) {
            let program = folder().join(format!("cuda_mr-{name}"));
            let mut command = compiler(name, &[standard]);
            command.arg("-isystem").arg(headers.join("cccl")).arg("-isystem").arg(headers.join("runtime"));
            command.arg(root().join("ffi-tests/c/cpp/cuda_mr.cpp")).arg("-o").arg(&program);
            run(command.args(&link).args(["-lpthread", "-ldl"]));
            let mut command = Command::new(&program);
            library.choose_driver(&mut command);
            run(&mut command);
        }
    }
}
