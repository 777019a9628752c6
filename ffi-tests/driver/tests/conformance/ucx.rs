//! UCX's interface: compares the header of ucx-sys with UCX's own headers of the oldest release that it serves and of the
//! newest that it knows, by the methods of cuda.h. `scripts/ucx-wheels` downloads them.

use crate::compare::{Comparison, Difference};
use crate::ctype::CType;
use crate::gate::list;
use crate::interface::{Interface, Kind};
use crate::toolchain::{compilers, root, run, say, scratch, skip};
use crate::{layout, read};
use cuda_sys::Release;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The headers that declare what ucx-sys declares.
const INCLUDES: &str = "#include <ucp/api/ucp.h>\n#include <ucs/config/global_opts.h>";

/// Enumerations that have no name in UCX's headers.
const NAMED_HERE: [&str; 2] = ["ucp_mem_map_flags", "ucp_mem_map_prot"];

/// The headers of one release.
struct Headers {
    release: Release,
    folder: PathBuf,
    theirs: Interface,
}

/// The available releases, oldest first. If one is missing, prints a line that says so and returns none.
fn releases() -> &'static [Headers] {
    static RELEASES: OnceLock<Vec<Headers>> = OnceLock::new();
    if !read::has_libclang() {
        skip("libclang is missing: apt-get install libclang-dev");
        return &[];
    }
    let cache = root().join(".cache/ucx");
    if !cache.join("done").exists() {
        skip("UCX's headers are missing: run scripts/ucx-wheels");
        return &[];
    }
    RELEASES.get_or_init(|| ["1.14.1.post2", "1.22.0"].map(|version| load(&cache.join(version).join("include"))).into())
}

fn load(folder: &Path) -> Headers {
    let all = scratch("ucx").join("all.h");
    std::fs::write(&all, INCLUDES).expect("the folder is writable");
    let theirs = read::header(&all, &[format!("-I{}", folder.display())], read::UCX).expect("UCX's headers parse");
    let part = |name: &str| u32::try_from(theirs.constants[name].value).expect("a number");
    let release = Release::new(part("UCP_API_MAJOR"), part("UCP_API_MINOR"));
    Headers { release, folder: folder.to_owned(), theirs }
}

fn wrapper() -> PathBuf {
    root().join("ucx-sys/wrapper.h")
}

/// What a form of our header declares, without what it takes from the system's headers.
fn ours(header: &Path) -> Interface {
    let mut ours = read::header(header, &[], read::UCX).expect("the header parses");
    ours.types.retain(|name, _| name.starts_with("uc"));
    ours.records.retain(|name, _| name.starts_with("uc"));
    ours
}

/// The differences from a release, and the number of equal facts.
fn compare(ours: &Interface, headers: &Headers) -> (usize, Vec<Difference>) {
    let (mut old, newer) = ours.at(headers.release);
    for constant in old.constants.values_mut() {
        constant.of.take_if(|of| NAMED_HERE.contains(&of.as_str()));
    }
    old.enums.retain(|name, _| !NAMED_HERE.contains(&name.as_str()));
    let comparison = Comparison::new(&old, &headers.theirs, headers.release);
    let mut wrong = comparison.differences;
    let mut differs = |item: &String, text: &str| {
        wrong.push(Difference { item: item.clone(), text: format!("{text} (UCX {})", headers.release) });
    };
    for name in &comparison.unknown {
        differs(name, "the release does not know it");
    }
    for name in &comparison.absent {
        differs(name, "the release lacks the function");
    }
    for name in newer.iter().filter(|name| headers.theirs.constants.contains_key(*name)) {
        differs(name, "its comment says that a later release introduced it");
    }
    (comparison.counts.sum(), wrong)
}

#[test]
fn every_fact_of_the_ucx_header_is_in_ucxs_headers() {
    let mut report = String::from("ucx-sys/wrapper.h against UCX's headers:\n");
    for headers in releases() {
        let (facts, wrong) = compare(&ours(&wrapper()), headers);
        assert!(wrong.is_empty(), "UCX {}, {} differences:\n{}", headers.release, wrong.len(), list(&wrong));
        report += &format!("  UCX {}: {facts} facts the same\n", headers.release);
    }
    say(&report);
}

#[test]
fn the_ucx_headers_are_of_the_oldest_and_the_newest_release() {
    let releases: Vec<_> = releases().iter().map(|headers| headers.release).collect();
    if releases.is_empty() {
        return;
    }
    assert_eq!(releases, [ucx_sys::Ucp::OLDEST, Release::new(1, 22)]);
}

#[test]
fn c_compilers_find_our_layout_and_values_in_ucxs_headers() {
    if releases().is_empty() {
        return;
    }
    let (folder, ours) = (scratch("ucx"), ours(&wrapper()));
    let all = layout::assertions(&ours, &root().join("ucx-sys/src/bindings.rs"), &folder)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut report = String::from("layout and values of ucx-sys, by rustc, against UCX's headers, by C compilers:\n");
    for compiler in compilers(&["gcc", "clang"]) {
        for headers in releases() {
            let (_, newer) = ours.at(headers.release);
            let has_no_size = |tag: &String| {
                let is_opaque = ours.records.get(tag).is_some_and(|record| record.kind == Kind::Opaque);
                is_opaque || newer.contains(tag) || NAMED_HERE.contains(&tag.as_str())
            };
            let is_out = |item: &String| match ours.types.get(item) {
                Some(CType::Tagged(tag)) => has_no_size(tag),
                _ => has_no_size(item),
            };
            let held: Vec<_> = all.iter().filter(|assertion| !is_out(&assertion.item)).collect();
            let file = folder.join(format!("layout-{}-{compiler}.c", headers.release));
            layout::compile(compiler, INCLUDES, &headers.folder, &held, &file)
                .unwrap_or_else(|error| panic!("UCX {}, {compiler}:\n{error}", headers.release));
            report += &format!(
                "  UCX {}, {compiler}: {} assertions hold, {} are on what it lacks or does not define\n",
                headers.release,
                held.len(),
                all.len() - held.len()
            );
        }
    }
    say(&report);
}

/// Lets a compiler read a release's headers and then the prototypes of ours.
fn redeclare(compiler: &str, headers: &Headers, wrapper: &Path) -> Result<String, String> {
    let (extension, standard) = if compiler.ends_with("++") { ("cpp", "-std=gnu++17") } else { ("c", "-std=gnu11") };
    let file = scratch("ucx").join(format!("redeclare-{}-{compiler}.{extension}", headers.release));
    let source = format!("{INCLUDES}\n#define UCX_SYS_PROTOTYPES_ONLY\n#include \"{}\"\n", wrapper.display());
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let mut command = Command::new(compiler);
    command.args([standard, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    run(command.arg("-isystem").arg(&headers.folder).arg(file))
}

#[test]
fn our_prototypes_match_ucxs_declarations_in_c_and_cpp() {
    if releases().is_empty() {
        return;
    }
    for compiler in compilers(&["gcc", "clang", "g++", "clang++"]) {
        for headers in releases() {
            redeclare(compiler, headers, &wrapper())
                .unwrap_or_else(|error| panic!("UCX {}, {compiler}:\n{error}", headers.release));
        }
    }
}

#[test]
fn errors_planted_in_the_ucx_header_are_found_by_name() {
    let (releases, text) = (releases(), std::fs::read_to_string(wrapper()).expect("the header is text"));
    for (item, from, to) in [
        ("UCP_FEATURE_AM", "UCP_FEATURE_AM = 1 << 6", "UCP_FEATURE_AM = 1 << 5"),
        ("UCP_FEATURE_AMS", "UCP_FEATURE_AM = 1 << 6", "UCP_FEATURE_AMS = 1 << 6"),
        ("UCS_ERR_BUSY", "UCS_ERR_BUSY = -15", "UCS_ERR_BUSY = -16"),
        ("UCP_EP_ATTR_FIELD_USER_DATA", "`user_data`. Since UCX 1.18.", "`user_data`. Since UCX 1.14."),
        ("UCP_OP_ATTR_FIELD_MEMH", "`memh`. Since UCX 1.13.", "`memh`. Since UCX 1.15."),
        ("ucp_ep_attr.user_data", "made with. Since UCX 1.18.", "made with."),
        (
            "ucp_context_attr.name",
            "char name[UCP_ENTITY_NAME_MAX];\n    /** The size of a",
            "char name[16];\n    /** The size of a",
        ),
        ("ucp_am_handler_param.flags", "    /** Bits of ucp_am_cb_flags. */\n    uint32_t flags;\n", ""),
        ("ucs_sock_addr.addrlen", "socklen_t addrlen", "size_t addrlen"),
        ("ucs_status_t", "} __attribute__((packed)) ucs_status_t", "} ucs_status_t"),
        (
            "ucp_am_recv_callback_t",
            "size_t length, const ucp_am_recv_param_t *param",
            "const ucp_am_recv_param_t *param",
        ),
        ("ucp_ep_h", "typedef struct ucp_ep *ucp_ep_h", "typedef struct ucp_end *ucp_ep_h"),
        ("ucp_worker_signals", "ucp_worker_signal(", "ucp_worker_signals("),
        (
            "ucp_worker_get_efd",
            "ucp_worker_get_efd(ucp_worker_h worker, int *fd)",
            "ucp_worker_get_efd(ucp_worker_h worker)",
        ),
        ("ucp_ep_query", "Asks an endpoint. Since UCX 1.11.", "Asks an endpoint. Since UCX 1.15."),
    ] {
        assert_eq!(text.matches(from).count(), 1, "wrapper.h has `{from}` once");
        if releases.is_empty() {
            continue;
        }
        let file = scratch("ucx").join(format!("{item}.h"));
        std::fs::write(&file, text.replacen(from, to, 1)).expect("the folder is writable");
        let ours = ours(&file);
        let wrong: Vec<_> = releases.iter().flat_map(|headers| compare(&ours, headers).1).collect();
        assert!(wrong.iter().any(|difference| difference.item == item), "{item}:\n{}", list(&wrong));
    }
}

#[test]
fn the_table_of_ucx_sys_is_what_its_header_says() {
    if !read::has_libclang() {
        return skip("libclang is missing: apt-get install libclang-dev");
    }
    let header = ours(&wrapper());
    let table: BTreeSet<_> = ucx_sys::Functions::SYMBOLS
        .iter()
        .map(|symbol| (symbol.name.to_string_lossy().into_owned(), Some(symbol.since)))
        .collect();
    let declared = header.functions.into_iter().map(|(name, function)| (name, function.since)).collect();
    assert_eq!(table, declared);
}

#[test]
fn the_status_of_an_address_is_what_ucxs_macro_gives() {
    let Some(headers) = releases().last() else { return };
    let Some(compiler) = compilers(&["gcc", "clang"]).first().copied() else { return };
    let addresses: [isize; 10] = [0, 1, 4096, -1, -3, -25, -80, -100, -101, isize::MIN];
    let prints: String = addresses.map(|at| format!("printf(\"%d \", (int)UCS_PTR_STATUS((void *)({at}L)));")).concat();
    let prints = prints.replace("-9223372036854775808L", "1UL << 63");
    let (file, program) = (scratch("ucx").join("status.c"), scratch("ucx").join("status"));
    let source = format!("{INCLUDES}\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n");
    std::fs::write(&file, source).expect("the folder is writable");
    let mut compile = Command::new(compiler);
    run(compile.arg("-isystem").arg(&headers.folder).arg("-o").arg(&program).arg(&file)).expect("it compiles");
    let ours = addresses.map(|at| {
        let address = core::ptr::without_provenance_mut(at.cast_unsigned());
        format!("{} ", ucx_sys::UCS_PTR_STATUS(address).0)
    });
    assert_eq!(run(&mut Command::new(program)).expect("it runs"), ours.concat());
}
