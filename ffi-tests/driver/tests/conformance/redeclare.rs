//! The third method: C and C++ compilers read NVIDIA's cuda.h and then our prototypes, in one file. A different
//! argument or result is a compile error.

use crate::interface::{Interface, since};
use crate::releases::{ALL_FORMS, Headers, ours, releases, wrapper};
use crate::toolchain::{compilers, run, say, scratch};
use cuda_sys::Release;
use std::path::Path;
use std::process::Command;

/// Our header without the functions that are newer than a release, because that release may lack their types.
fn until(wrapper: &str, release: Release) -> String {
    let old = |block: &&str| since(block.rsplit_once("*/").map_or("", |(comment, _)| comment)) <= Some(release);
    wrapper.split("\n\n").filter(old).collect::<Vec<_>>().join("\n\n")
}

/// Lets a compiler read a release's header and then ours.
///
/// # Errors
///
/// The headers contradict each other. The error is the compiler's output.
pub fn check(compiler: &str, headers: &Headers, names: &Interface, text: &str, folder: &Path) -> Result<(), String> {
    let part = folder.join(format!("prototypes-{}-{compiler}.h", headers.release));
    std::fs::write(&part, until(text, headers.release)).map_err(|error| error.to_string())?;
    // cuda.h renames functions with macros.
    let names: String = names.functions.keys().map(|name| format!("#undef {name}\n")).collect();
    let source = format!(
        "#include <cuda.h>\n{names}#define CUDA_SYS_PROTOTYPES_ONLY\n#include \"{}\"\n",
        part.file_name().unwrap_or_default().display()
    );
    let (extension, standard) = if compiler.ends_with("++") { ("cpp", "-std=c++17") } else { ("c", "-std=c11") };
    let file = folder.join(format!("redeclare-{}-{compiler}.{extension}", headers.release));
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let mut command = Command::new(compiler);
    command.args([standard, ALL_FORMS, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    // Ignore warnings about NVIDIA's own header.
    run(command.arg("-isystem").arg(&headers.folder).arg(file)).map(drop)
}

#[test]
fn our_prototypes_match_nvidia_declarations_in_c_and_cpp() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let folder = scratch("redeclare");
    let text = std::fs::read_to_string(wrapper()).expect("wrapper.h is text");
    let mut files = 0;
    for compiler in compilers(&["gcc", "clang", "g++", "clang++"]) {
        for headers in releases {
            check(compiler, headers, ours(), &text, &folder)
                .unwrap_or_else(|error| panic!("CUDA {}, {compiler}:\n{error}", headers.release));
            files += 1;
        }
    }
    say(&format!("our prototypes after NVIDIA's: {files} files compile as C11 and C++17 without a warning\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_functions_are_left_out() {
        let text = "/* about */\n#ifndef A\n\n/** Since CUDA 11.2. */\nint cuOld(void);\n\n\
            /** Does.\n Since CUDA 12.8. */\nint cuNew(\n    void);\n\n#endif\n";
        let part = until(text, Release::new(12, 2));
        assert!(part.contains("cuOld") && part.contains("about") && part.contains("#endif"), "{part}");
        assert!(!part.contains("cuNew"), "{part}");
        assert_eq!(until(text, Release::new(12, 8)), text);
    }
}
