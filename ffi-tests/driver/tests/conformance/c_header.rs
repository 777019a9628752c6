//! Checks that the C headers in `include/` match the sources of the C library. `scripts/header` regenerates them.
//!
//! Each module becomes a group of one header: its description, then its types, constants and functions as cbindgen
//! writes them.

use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};
use std::fmt::Write;
use std::path::Path;
use testkit::compilers::{c_headers, root};

/// One generated header.
struct Header {
    /// The file in `include/`.
    file: &'static str,
    /// What the header is for.
    title: &'static str,
    /// The modules of the interface, in the order of the header.
    modules: &'static [&'static str],
}

/// The first header is what every program needs. The others include it.
const HEADERS: [Header; 9] = [
    Header {
        file: "cudamem.h",
        title: "memory shared by CPU and NVIDIA GPU, for C and C++",
        modules: &[
            "version",
            "status",
            "handles",
            "text",
            "library",
            "device",
            "context",
            "stream",
            "event",
            "waiting",
            "resource",
            "pool",
            "pool_figures",
            "pool_sleep",
            "address",
            "buffer",
            "objects",
            "mapped",
        ],
    },
    Header {
        file: "cudamem/adaptors.h",
        title: "resources on top of others that count, limit, log and check, and rings of staging",
        modules: &["adaptor", "guard", "ring_pool"],
    },
    Header {
        file: "cudamem/engine.h",
        title: "copies between host and device in the fastest way",
        modules: &["engine", "engine_work", "engine_profile"],
    },
    Header {
        file: "cudamem/memory.h",
        title: "virtual memory, buffers that grow, registered and managed memory",
        modules: &["virtual_memory", "host_memory"],
    },
    Header {
        file: "cudamem/views.h",
        title: "arrays of any layout in memory, and copies between them",
        modules: &["data_type", "view", "view_parts", "view_copy"],
    },
    Header {
        file: "cudamem/interchange.h",
        title: "exchange of arrays with other libraries: DLPack, array interfaces and Arrow",
        modules: &["dlpack", "array_interface", "arrow_schema", "arrow", "arrow_stream"],
    },
    Header {
        file: "cudamem/signals.h",
        title: "flags, counters, rings and frames between the CPU, streams and kernels",
        modules: &["signal", "word", "counter", "ring", "frames"],
    },
    Header { file: "cudamem/graphs.h", title: "recorded work of a stream", modules: &["graph"] },
    Header {
        file: "cudamem/sharing.h",
        title: "memory, pools and events shared between processes",
        modules: &["sharing", "channel"],
    },
];

/// Structs from other libraries' headers, which a program may or may not include. The header declares them and never
/// defines them.
const FOREIGN: [&str; 5] =
    ["DLManagedTensor", "DLManagedTensorVersioned", "ArrowSchema", "ArrowDeviceArray", "ArrowDeviceArrayStream"];

/// The rules for all functions, in the first header.
const RULES: &str = " *     cudamem_context context;
 *     cudamem_stream stream;
 *     cudamem_resource device, pool;
 *     cudamem_buffer buffer;
 *     if (cudamem_context_open_primary(0, &context) || cudamem_stream_create(context, NULL, &stream) ||
 *         cudamem_resource_create_device(context, &device) || cudamem_pool_create(device, NULL, &pool) ||
 *         cudamem_buffer_allocate(pool, 4096, stream, &buffer) || cudamem_buffer_write(buffer, 0, data, sizeof data)) {
 *         fprintf(stderr, \"%s\\n\", cudamem_last_error_message());
 *     }
 *
 * Errors: every function that can fail returns a cudamem_status, which is 0 for success. Results are written on success
 * only. cudamem_last_error_message() returns the text of the calling thread's last failure.
 *
 * Threads: every function may be called from any thread at any time, even with the same objects, unless its description
 * says otherwise.
 *
 * Pointers: the place for a result must not be NULL, unless the description allows it. The memory behind a pointer must
 * be valid during the call: as many bytes or entries as the argument beside it states, or a text terminated by a zero.
 * The library keeps no pointer to the program's memory beyond the call, unless the description says so.
 *
 * Options: a struct of options, or of results, begins with its size, which the program sets, so that programs and
 * libraries of different releases work together. Set all other fields of options to zero first; zero is the default.
 *
 *     cudamem_stream_options options = {0};
 *     options.size = sizeof options;
 *
 * Flags, enumerated values and sizes that this release does not know give CUDAMEM_ERROR_INVALID_ARGUMENT.
 *
 * Units: offsets and sizes are in bytes, times in seconds.
";

const INCLUDES: &str = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n";

fn version_macros() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let parts: Vec<&str> = version.split('.').collect();
    let [major, minor, patch] = parts[..] else { panic!("{version} has three parts") };
    format!(
        "/** The release of this header: a new major version changes the interface. */\n\
         #define CUDAMEM_VERSION_MAJOR {major}\n\
         /** A new minor version adds to the interface; before 1.0 it may change it. */\n\
         #define CUDAMEM_VERSION_MINOR {minor}\n\
         /** A new patch version changes no interface. */\n\
         #define CUDAMEM_VERSION_PATCH {patch}\n\
         /** The release as one number, for comparisons: major * 1000000 + minor * 1000 + patch. */\n\
         #define CUDAMEM_VERSION_NUMBER \\\n    \
         (CUDAMEM_VERSION_MAJOR * 1000000 + CUDAMEM_VERSION_MINOR * 1000 + CUDAMEM_VERSION_PATCH)\n\n"
    )
}

/// Element types as values. The types of C++ have `cudamem::data_type_of`.
fn data_type_macros() -> String {
    let sized = |kind: &str, what: &str, sizes: &[u8]| -> String {
        let macros = sizes.iter().map(|bits| {
            let define = format!("#define CUDAMEM_{kind}{bits} CUDAMEM_ELEMENT(CUDAMEM_TYPE_{kind}, {bits})");
            format!("/** {what} of {bits} bits. */\n{define}\n")
        });
        macros.collect()
    };
    let numbers = [
        sized("INT", "Signed integers", &[8, 16, 32, 64]),
        sized("UINT", "Unsigned integers", &[8, 16, 32, 64]),
        sized("FLOAT", "Floating-point numbers", &[16, 32, 64]),
        sized("BFLOAT", "bfloat16 numbers", &[16]),
        sized("COMPLEX", "Complex numbers", &[64, 128]),
    ]
    .concat();
    format!(
        "/** The type of elements of one lane, as a value. */\n\
         #ifdef __cplusplus\n\
         #define CUDAMEM_ELEMENT(code, bits) (cudamem_data_type{{(code), (bits), 1}})\n\
         #else\n\
         #define CUDAMEM_ELEMENT(code, bits) ((cudamem_data_type){{(code), (bits), 1}})\n\
         #endif\n\
         /** Booleans of 8 bits. */\n\
         #define CUDAMEM_BOOL CUDAMEM_ELEMENT(CUDAMEM_TYPE_BOOL, 8)\n{numbers}\n"
    )
}

/// `types` are written even if no function of the module uses them.
fn config(types: Vec<String>) -> Config {
    Config {
        export: ExportConfig {
            include: types,
            rename: FOREIGN.map(|name| (name.to_owned(), format!("struct {name}"))).into(),
            ..ExportConfig::default()
        },
        language: Language::C,
        style: Style::Type,
        no_includes: true,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 120,
        tab_width: 4,
        ..Config::default()
    }
}

/// A module's description: its title and its text.
fn description(source: &str) -> (String, String) {
    let mut lines = source.lines().map_while(|line| line.strip_prefix("//!").map(str::trim));
    let title = lines.next().expect("a module begins with its title").to_owned();
    (title, lines.map(|line| format!("{}\n", format!(" * {line}").trim_end())).collect())
}

/// Replaces `Out<'_, T>`, the place of a result, with a pointer, because cbindgen does not resolve this type.
fn with_plain_pointers(source: &str) -> String {
    let mut plain = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("Out<'_, ") {
        let inner = &rest[at + "Out<'_, ".len()..];
        let mut depth = 1;
        let end = inner
            .find(|letter| {
                depth += i32::from(letter == '<') - i32::from(letter == '>');
                depth == 0
            })
            .expect("brackets are closed");
        write!(plain, "{}*mut {}", &rest[..at], &inner[..end]).expect("a string takes all");
        rest = &inner[end + 1..];
    }
    plain + rest
}

/// Appends the structs that the table of handles defines, because cbindgen expands no macro.
fn with_handles(source: &str) -> String {
    let Some((_, table)) = source.split_once("\nhandles! {\n") else { return source.to_owned() };
    let rows = table.lines().map(str::trim).map(|row| match row.split_once(": ") {
        Some((handle, _)) if handle.starts_with("cudamem_") => {
            format!("#[repr(C)]\npub struct {handle} {{\n    /// 0 for the null handle.\n    pub id: u64,\n}}\n")
        }
        _ if row.starts_with("///") => format!("{row}\n"),
        _ => String::new(),
    });
    let description: String =
        source.lines().take_while(|line| line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
    description + &rows.collect::<String>()
}

/// Puts single-line comments on one line, and removes gaps in lists of constants.
fn compact(declarations: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in declarations.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        match &mut lines[..] {
            [.., begin, text] if line.trim() == "*/" && begin.trim() == "/**" => {
                let text = text.trim().trim_start_matches("* ").to_owned();
                lines.truncate(lines.len() - 2);
                let constants = lines.len() >= 2 && lines[lines.len() - 2].starts_with("#define");
                if constants && lines.last().is_some_and(String::is_empty) {
                    lines.pop();
                }
                lines.push(format!("{}/** {text} */", indent.strip_suffix(' ').unwrap_or(indent)));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

fn group(module: &str) -> String {
    let source = std::fs::read_to_string(root().join(format!("src/{module}.rs"))).expect("the module is there");
    let source = with_handles(&source);
    let (title, text) = description(&source);
    // Tests that generate the header at the same time must not share files.
    let thread = std::thread::current();
    let name = format!("{}-{module}.rs", thread.name().unwrap_or("header"));
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&copy, with_plain_pointers(&source)).expect("the folder for temporary files is writable");
    let types = source.split("pub struct ").skip(1).filter_map(|rest| rest.split([' ', '(']).next());
    let types: Vec<String> = types.filter(|name| name.starts_with("cudamem_")).map(str::to_owned).collect();
    let mut declarations = Vec::new();
    let bindings =
        Builder::new().with_src(&copy).with_config(config(types)).generate().expect("cbindgen reads the module");
    bindings.write(&mut declarations);
    let declarations = compact(&String::from_utf8(declarations).expect("cbindgen writes UTF-8"));
    let line = "-".repeat(111 - title.len());
    let macros = match module {
        "version" => version_macros(),
        "handles" => {
            "/** As a size: everything from the offset on. */\n#define CUDAMEM_WHOLE_SIZE SIZE_MAX\n\n".to_owned()
        }
        "data_type" => data_type_macros(),
        "arrow_schema" => {
            "struct ArrowSchema;\n\n/** As the index of a child, of schemas and of arrays: the dictionary. */\n#define \
             CUDAMEM_ARROW_DICTIONARY SIZE_MAX\n\n"
                .to_owned()
        }
        _ => FOREIGN
            .iter()
            .filter(|name| source.contains(&format!("*mut {name},")) || source.contains(&format!("Out<'_, {name}>")))
            .map(|name| format!("struct {name};\n"))
            .collect(),
    };
    let macros = if macros.ends_with(";\n") { macros + "\n" } else { macros };
    format!("/* ---- {title} {line}\n{text} */\n\n{macros}{}\n\n", declarations.trim())
}

impl Header {
    fn is_first(&self) -> bool {
        self.file == HEADERS[0].file
    }

    fn text(&self) -> String {
        let mut rules = " * cudamem.h has the rules for all functions.\n".to_owned();
        let mut includes = "#include \"../cudamem.h\"\n".to_owned();
        if self.is_first() {
            let others = HEADERS[1..].iter().map(|other| format!(" *     {:24}{}\n", other.file, other.title));
            rules = format!(
                "{RULES} *\n * Further headers, each of which includes this one:\n *\n{}",
                others.collect::<String>()
            );
            includes = INCLUDES.to_owned();
        }
        let guard = self.file.to_uppercase().replace(['/', '.'], "_");
        let groups: String = self.modules.iter().map(|module| group(module)).collect();
        format!(
            "/*\n * libcudamem: {}.\n *\n * SPDX-License-Identifier: MIT OR Apache-2.0\n *\n * scripts/header generates this \
             file from the library's sources.\n *\n{rules} */\n#ifndef {guard}\n#define {guard}\n\n{includes}\n#ifdef \
             __cplusplus\nextern \"C\" {{\n#endif\n\n{groups}#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {guard} */\n",
            self.title
        )
    }
}

#[test]
fn the_headers_are_what_the_sources_give() {
    for header in &HEADERS {
        let file = root().join("include").join(header.file);
        let text = header.text();
        if std::env::var_os("CUDAMEM_WRITE_HEADER").is_some() {
            std::fs::write(&file, &text).expect("the header is writable");
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(there == text, "include/{} differs from the sources: run scripts/header", header.file);
    }
    let written = HEADERS.map(|header| root().join("include").join(header.file));
    let mut files = c_headers();
    files.retain(|file| !written.contains(file));
    assert!(files.is_empty(), "no module is in {files:?}");
}

#[test]
fn every_exported_function_is_in_one_header() {
    let headers = HEADERS.map(|header| header.text());
    let mut functions = 0;
    for file in std::fs::read_dir(root().join("src")).expect("the sources are there") {
        let path = file.expect("the sources are readable").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("the source is readable");
        for declaration in source.split("#[unsafe(no_mangle)]").skip(1) {
            let name = declaration.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            let name = name.expect("a function follows");
            let declares = |header: &&String| {
                header.lines().any(|line| {
                    line.starts_with(|letter: char| letter.is_ascii_lowercase())
                        && (line.contains(&format!(" {name}(")) || line.contains(&format!("*{name}(")))
                })
            };
            assert_eq!(headers.iter().filter(declares).count(), 1, "{name} must be in one header");
            functions += 1;
        }
    }
    assert!(functions > 80, "{functions}");
}

#[test]
fn places_of_results_are_pointers() {
    let plain = with_plain_pointers("fn f(a: Out<'_, *mut Out2<u8>>, b: Out<'_, bool>) {}");
    assert_eq!(plain, "fn f(a: *mut *mut Out2<u8>, b: *mut bool) {}");
}
