//! The second method, which does not use bindgen for NVIDIA's headers: rustc writes the layout of our bindings and the
//! values of our constants as C assertions, and C compilers check them against NVIDIA's cuda.h. `ucx` does the same.

use crate::compare::Comparison;
use crate::ctype::CType;
use crate::interface::{Interface, Kind};
use crate::releases::{Headers, ours, releases};
use crate::toolchain::{compilers, root, run, say, scratch};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// An item, and a C assertion about it.
#[derive(Debug, Clone)]
pub struct Assertion {
    /// The item's name.
    pub item: String,
    text: String,
}

/// The start of the program that prints the assertions.
const PROGRAM: &str = r#"
#![allow(warnings)]
mod bindings {
    macro_rules! function_table { ($($any:tt)*) => {} }
    // What ucx-sys takes from elsewhere.
    mod libc {
        #[derive(Clone, Copy, Debug)] pub struct sockaddr;
        #[repr(C, align(8))] #[derive(Clone, Copy, Debug)] pub struct sockaddr_storage([u8; 128]);
        pub type socklen_t = u32;
    }
    trait Mask { const BITS: &'static [Bit]; fn value(self) -> u32; }
    struct Bit;
    impl Bit { const fn new(_: &str, _: u32, _: u32) -> Bit { Bit } }
    include!("BINDINGS");
}
use bindings::*;
use core::mem::{align_of, offset_of, size_of, size_of_val};

trait Sign { const SIGNED: bool; }
macro_rules! sign { ($($number:ty)*) => { $(impl Sign for $number { const SIGNED: bool = <$number>::MIN != 0; })* } }
sign!(i8 u8 i16 u16 i32 u32 i64 u64 isize usize);
fn signed<T: Sign>(_: &T) -> bool { T::SIGNED }
fn zero<T>() -> T { unsafe { core::mem::zeroed() } }

fn state(item: &str, text: String) { println!("{item}\t_Static_assert({text}, \"{item}\");"); }

fn main() {
"#;

/// Lets rustc write the assertions about our bindings. `bindings` is a Rust file; `ours` lists the names in it.
///
/// # Errors
///
/// The bindings do not compile.
pub fn assertions(ours: &Interface, bindings: &Path, folder: &Path) -> Result<Vec<Assertion>, String> {
    let source = PROGRAM.replace("BINDINGS", &bindings.display().to_string()) + &statements(ours) + "}\n";
    let (file, program) = (folder.join("layout.rs"), folder.join("layout"));
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    run(Command::new(rustc).args(["--edition=2024", "-Copt-level=0", "-Cdebuginfo=0", "-o"]).arg(&program).arg(&file))?;
    let text = run(&mut Command::new(&program))?;
    let split = |line: &str| {
        let (item, text) = line.split_once('\t')?;
        Some(Assertion { item: item.to_owned(), text: text.to_owned() })
    };
    text.lines().map(|line| split(line).ok_or_else(|| format!("no assertion: {line}"))).collect()
}

/// The statements of the program, one for each fact.
fn statements(ours: &Interface) -> String {
    let mut out = String::new();
    let mut add = |item: &str, text: &str, value: &str| {
        let _ = writeln!(out, "    state({item:?}, format!({text:?}, {value}));");
    };
    for (name, constant) in &ours.constants {
        let value = match &constant.of {
            Some(tag) => format!("{tag}::{name}.0 as i128"),
            None => format!("{name} as i128"),
        };
        add(name, &format!("(long long)({name}) == {{}}LL"), &value);
    }
    for tag in ours.enums.keys() {
        add(tag, &format!("sizeof({}) == {{}}", spelled("enum", tag)), &format!("size_of::<{tag}>()"));
    }
    for (name, ctype) in &ours.types {
        add(name, &format!("sizeof({name}) == {{}}"), &format!("size_of::<{name}>()"));
        if is_integer(ctype) {
            add(name, &format!("(({name})-1 < ({name})1) == {{}}"), &format!("signed(&zero::<{name}>()) as u8"));
        }
    }
    for (tag, record) in ours.records.iter().filter(|(tag, _)| !Interface::is_unnamed(tag)) {
        let keyword = match record.kind {
            Kind::Opaque => continue,
            Kind::Struct => "struct",
            Kind::Union => "union",
        };
        let c = spelled(keyword, tag);
        add(tag, &format!("sizeof({c}) == {{}}"), &format!("size_of::<{tag}>()"));
        add(tag, &format!("_Alignof({c}) == {{}}"), &format!("align_of::<{tag}>()"));
        for member in ours.members(tag) {
            let (path, item) = (c_path(&member.path), format!("{tag}.{}", member.path));
            let place = &member.path;
            let of_field = |function: &str| format!("unsafe {{ let all = zero::<{tag}>(); {function}(&all.{place}) }}");
            add(&item, &format!("__builtin_offsetof({c}, {path}) == {{}}"), &format!("offset_of!({tag}, {place})"));
            add(&item, &format!("sizeof((({c} *)0)->{path}) == {{}}"), &of_field("size_of_val"));
            if is_integer(&member.ctype) {
                let of = format!("__typeof__((({c} *)0)->{path})");
                add(&item, &format!("(({of})-1 < ({of})1) == {{}}"), &(of_field("signed") + " as u8"));
            }
        }
    }
    out
}

/// A type as C spells it. Those of UCX that have no tag have the typedef's name in the bindings.
fn spelled(keyword: &str, tag: &str) -> String {
    if tag.ends_with("_t") || tag == "ucp_req_attr_field" { tag.to_owned() } else { format!("{keyword} {tag}") }
}

fn is_integer(ctype: &CType) -> bool {
    matches!(ctype, CType::Number(name) if !["float", "double", "bool"].contains(name))
}

/// A field's path as C writes it: bindgen appends an underscore to names that are Rust keywords.
fn c_path(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('.')
        .map(|part| match part {
            "type_" | "fn_" => part.trim_end_matches('_'),
            part => part,
        })
        .collect();
    parts.join(".")
}

/// Lets a C compiler check the assertions against a release. Leaves out assertions about items that the release does
/// not have.
///
/// # Errors
///
/// An assertion does not hold. The error is the compiler's output, which contains the item's name.
pub fn check(compiler: &str, headers: &Headers, all: &[Assertion], folder: &Path) -> Result<usize, String> {
    let Comparison { unknown, reshaped, .. } = Comparison::new(ours(), &headers.driver, headers.release);
    let out: BTreeSet<String> = unknown.into_iter().chain(reshaped).collect();
    let is_out = |item: &str| out.contains(item) || item.split_once('.').is_some_and(|(tag, _)| out.contains(tag));
    let held: Vec<_> = all.iter().filter(|assertion| !is_out(&assertion.item)).collect();
    let file = folder.join(format!("layout-{}-{compiler}.c", headers.release));
    compile(compiler, "#include <cuda.h>", &headers.folder, &held, &file)?;
    Ok(held.len())
}

/// Lets a C compiler check assertions after includes from a folder.
///
/// # Errors
///
/// As [`check`].
pub fn compile(
    compiler: &str,
    includes: &str,
    from: &Path,
    held: &[&Assertion],
    file: &Path,
) -> Result<String, String> {
    let held: Vec<&str> = held.iter().map(|assertion| &*assertion.text).collect();
    let source = format!("#include <stddef.h>\n{includes}\n{}\n", held.join("\n"));
    std::fs::write(file, source).map_err(|error| error.to_string())?;
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]);
    run(command.arg("-isystem").arg(from).arg(file))
}

#[test]
fn c_compilers_find_our_layout_and_values_in_nvidias_headers() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let folder = scratch("layout");
    let bindings = root().join("cuda-sys/src/bindings.rs");
    let all = assertions(ours(), &bindings, &folder).unwrap_or_else(|error| panic!("{error}"));
    let mut report = String::from("layout and values of our bindings, by rustc, against cuda.h, by C compilers:\n");
    for compiler in compilers(&["gcc", "clang"]) {
        for headers in releases {
            let held = check(compiler, headers, &all, &folder)
                .unwrap_or_else(|error| panic!("CUDA {}, {compiler}:\n{error}", headers.release));
            report += &format!(
                "  CUDA {}, {compiler}: {held} assertions hold, {} are on what the release lacks or shapes otherwise\n",
                headers.release,
                all.len() - held
            );
        }
    }
    say(&report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_c_names() {
        assert_eq!(c_path("type_"), "type");
        assert_eq!(c_path("fn_"), "fn");
        assert_eq!(c_path("params.fence.value"), "params.fence.value");
    }
}
