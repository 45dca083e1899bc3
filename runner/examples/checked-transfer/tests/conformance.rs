//! The suites of the operators of this crate.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn conforms() {
    morphgl_conformance::transferring::run(&morphgl_transferring_cpu_checked::DESCRIPTION);
}

#[test]
fn the_sampler_with_mini_batches_of_its_own_conforms() {
    morphgl_conformance::batching::run(&morphgl_transferring_cpu_checked::labor::DESCRIPTION);
}

#[test]
fn the_sampler_conforms() {
    morphgl_conformance::batching::run(&morphgl_transferring_cpu_checked::mapped::DESCRIPTION);
}

/// The walk-through of a sampler outside of the repository: its manifest and test are those of the document, its file is ours.
#[test]
fn the_sampler_of_the_walk_through_conforms_outside_of_the_workspace() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the repository");
    let document = fs::read_to_string(repository.join("docs/add-an-operator.md")).expect("the document");
    let section = document.split_once("## A sampler\n").expect("its section").1;
    let code = |language: &str, words: &str| {
        let blocks = section.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(language));
        blocks
            .filter(|block| block.contains(words))
            .last()
            .unwrap_or_else(|| panic!("{language} with {words}"))
            .to_string()
    };
    let manifest = code("toml\n", "[package]").replace("../morphgl/", &format!("{}/", repository.display()));
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).and_then(|()| fs::write(path, text)).expect("room");
    };
    write("Cargo.toml", &manifest);
    write("Cargo.lock", &fs::read_to_string(repository.join("Cargo.lock")).expect("the lock"));
    write("src/lib.rs", include_str!("../src/labor.rs"));
    write(
        "src/main.rs",
        "use morphgl_batching_cpu_labor as _;\n\nfn main() -> std::process::ExitCode {\n    morphgl::cli::main()\n}\n",
    );
    write("tests/conformance.rs", &code("rust\n", "fn conforms()"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline", "--quiet", "--test", "conformance"]).current_dir(dir.path());
    // Of the workspace's build, neither its target directory nor its flags.
    cargo.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Compiled as fast as possible: the suite is small.
    cargo.envs([
        ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
        ("CARGO_PROFILE_DEV_DEBUG", "false"),
        ("CARGO_INCREMENTAL", "0"),
    ]);
    let output = cargo.output().expect("cargo starts");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}
