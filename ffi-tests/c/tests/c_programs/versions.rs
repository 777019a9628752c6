//! Two releases of the C library in one process must not disturb each other, whether a program loads them, or links one
//! of them and a library that links the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::{Library, target_folder};
use testkit::compilers::{is_there, root, run};

/// This release, and the next release with another interface: the version, and the number in the SONAME.
fn releases() -> [(String, String); 2] {
    let version: Vec<u32> = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().expect("a number")).collect();
    let [major, minor, patch] = version[..] else { panic!("a version has three parts") };
    assert_eq!(major, 0, "from 1.0 on the next interface is that of the next major version");
    [(minor, patch), (minor + 1, 0)].map(|(minor, patch)| (format!("0.{minor}.{patch}"), format!("0.{minor}")))
}

/// Builds the sources as a release with another interface, in a folder with the names that programs link.
fn next_release() -> PathBuf {
    let [(version, _), (next, interface)] = releases();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_versions");
    let package = folder.join("next");
    std::fs::create_dir_all(&package).expect("the folder for temporary files is writable");
    let root = root().canonicalize().expect("it is there");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the manifest is there");
    // The workspace contains this package alone; its dependencies stay in place. Compile as fast as possible.
    let (members, rest) = (manifest.find("members = ["), manifest.find("[workspace.package]"));
    let (head, rest) = (&manifest[..members.expect("the members are listed")], &manifest[rest.expect("it follows")..]);
    let mut manifest = format!("{head}{rest}");
    for (old, new) in [
        (&*format!("version = \"{version}\"\nedition"), format!("version = \"{next}\"\nedition")),
        ("path = \"", format!("path = \"{}/", root.display())),
        ("publish = false\n", format!("publish = false\nbuild = \"{}/build.rs\"\n", root.display())),
        (
            "[lib]\nname = \"cudamem\"",
            format!("[lib]\nname = \"cudamem_next\"\npath = \"{}/src/lib.rs\"", root.display()),
        ),
        ("crate-type = [\"cdylib\", \"staticlib\", \"lib\"]", "crate-type = [\"staticlib\"]".to_owned()),
        ("opt-level = 1\ndebug = false", "opt-level = 0\ndebug = false".to_owned()),
    ] {
        assert!(manifest.contains(old), "{old:?} is not in the manifest");
        manifest = manifest.replace(old, &new);
    }
    // Do not rewrite an unchanged file, so that cargo does not check it again.
    let file = package.join("Cargo.toml");
    if std::fs::read_to_string(&file).ok().as_ref() != Some(&manifest) {
        std::fs::write(&file, manifest).expect("the folder is writable");
    }
    std::fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).expect("the folder is writable");
    let target = target_folder().join("install");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--manifest-path"]).arg(&file);
    run(cargo.arg("--target-dir").arg(&target));
    let archive = target.join("debug/libcudamem_next.a");
    run(Command::new(root.join("scripts/link-library")).arg(archive).arg(&next).arg(&folder));
    for name in [&format!("libcudamem.so.{interface}"), "libcudamem.so"] {
        let _ = std::fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(format!("libcudamem.so.{next}"), folder.join(name)).expect("the folder is writable");
    }
    folder
}

#[test]
fn two_releases_in_one_process_do_not_disturb_each_other() {
    if !is_there("gcc") {
        return;
    }
    let library = Library::build();
    let folder = next_release();
    let gcc = |source: &str, output: &Path, arguments: &[String]| {
        let mut command = Command::new("gcc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]);
        command.arg(format!("-I{}", library.prefix().join("include").display()));
        command.arg(root().join("ffi-tests/c/install").join(source)).arg("-o").arg(output).args(arguments);
        run(&mut command);
    };
    let (old, new) = (library.folder(), folder.clone());
    let part = |name: &str, release: &Path| {
        let file = folder.join(format!("lib{name}.so"));
        let options = ["-fPIC".to_owned(), "-shared".to_owned(), format!("-DPART={name}")];
        let link =
            [format!("-L{}", release.display()), "-lcudamem".to_owned(), format!("-Wl,-rpath,{}", release.display())];
        gcc("part.c", &file, &[&options[..], &link].concat());
        file
    };
    let (old_part, new_part) = (part("old_part", &old), part("new_part", &new));

    let loaded = folder.join("loaded");
    gcc("versions.c", &loaded, &["-ldl".to_owned()]);
    let mut command = Command::new(&loaded);
    library.choose_driver(&mut command);
    let text = run(command.args([&old_part, &new_part]));
    assert!(text.contains("everything as expected"), "{text}");

    // The first library that defines a name serves every caller, unless the caller needs the name with a version.
    for order in [[&old_part, &new_part], [&new_part, &old_part]] {
        let linked = folder.join("linked");
        let mut link = vec!["-DLINKED".to_owned(), "-Wl,--no-as-needed".to_owned()];
        link.extend(order.map(|part| part.display().to_string()));
        link.push(format!("-Wl,-rpath,{}", folder.display()));
        // Both parts need a library of the same name, and the linker checks only one of them.
        link.push("-Wl,--allow-shlib-undefined".to_owned());
        gcc("versions.c", &linked, &link);
        let loaded = run(Command::new("ldd").arg(&linked));
        for (_, interface) in releases() {
            assert!(loaded.contains(&format!("libcudamem.so.{interface} ")), "{loaded}");
        }
        let mut command = Command::new(&linked);
        library.choose_driver(&mut command);
        let text = run(&mut command);
        assert!(text.contains("everything as expected"), "{text}");
    }
}
