//! The crates of `docs/add-an-operator.md`, built outside of the workspace.
#![allow(dead_code, reason = "each test file uses one of them")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiles the crate that a section of the document builds, and runs its test: manifest and test are those of the document, the file
/// is `lib`.
#[track_caller]
pub(crate) fn conforms(section: &str, lib: &str) {
    let out = cargo(section, lib, &["test", "--test", "conformance"]);
    assert!(out.contains("1 passed"), "{out}");
}

/// Checks that the crate compiles, with its test and the binary that it links by its feature `morphgl`. The same file is linked and run
/// inside of the workspace: outside, that would compile and link burn and the runner once more.
#[track_caller]
pub(crate) fn compiles(section: &str, lib: &str) {
    cargo(section, lib, &["check", "--tests", "--bins", "--features", "morphgl"]);
}

/// Runs cargo on the crate of a section; what it prints.
#[track_caller]
fn cargo(section: &str, lib: &str, args: &[&str]) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the repository");
    let document = fs::read_to_string(repository.join("docs/add-an-operator.md")).expect("the document");
    let section = document.split_once(section).expect("its section").1.split("\n## ").next().expect("its text");
    let code = |language: &str, words: &str| {
        let blocks = section.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(language));
        let found = blocks.filter(|block| block.contains(words)).last();
        found.unwrap_or_else(|| panic!("{language} with {words}")).to_string()
    };
    let manifest = code("toml\n", "[package]").replace("../morphgl/", &format!("{}/", repository.display()));
    let package = manifest.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).and_then(|()| fs::write(path, text)).expect("room");
    };
    let krate = package.replace('-', "_");
    write("Cargo.toml", &manifest);
    write("Cargo.lock", &fs::read_to_string(repository.join("Cargo.lock")).expect("the lock"));
    write("src/lib.rs", lib);
    let main = format!("use {krate} as _;\n\nfn main() -> std::process::ExitCode {{\n    morphgl::cli::main()\n}}\n");
    write("src/main.rs", &main);
    write("tests/conformance.rs", &code("rust\n", "fn conforms()"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(args).args(["--offline", "--quiet"]).current_dir(dir.path());
    // Of the workspace's build, neither its target directory nor its flags.
    cargo.env("CARGO_TARGET_DIR", &target).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Compiled as fast as possible: the suite is small.
    cargo.envs([
        ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
        ("CARGO_PROFILE_DEV_DEBUG", "false"),
        ("CARGO_INCREMENTAL", "0"),
    ]);
    let output = cargo.output().expect("cargo starts");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{out}\n{err}");
    out
}
