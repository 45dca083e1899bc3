//! Rules of the source tree that the compiler does not check.

mod benchmarks;
mod documents;
mod modules;
mod statics;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Folders of all member crates.
fn crates() -> Vec<PathBuf> {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).expect("there").parse().expect("TOML");
    let members = manifest["workspace"]["members"].as_array().expect("a list");
    members.iter().map(|m| root().join(m.as_str().expect("a path"))).collect()
}

/// All but the Python package's, whose tests and examples are Python's.
fn rust_crates() -> impl Iterator<Item = PathBuf> {
    crates().into_iter().filter(|folder| !folder.ends_with("runner/python"))
}

/// Files below a folder with one of these endings; build outputs and hidden folders are left out.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|e| name.ends_with(e)) && path.is_file() {
            found.push(path);
        }
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, &[".rs"])
}

#[test]
fn every_crate_has_a_readme_tests_and_an_example_of_its_own() {
    for folder in rust_crates() {
        let name = folder.display();
        assert!(folder.join("README.md").exists(), "{name}: no README.md");
        let sources = [rust_files(&folder.join("src")), rust_files(&folder.join("tests"))].concat();
        let tested = sources.iter().any(|f| fs::read_to_string(f).expect("there").contains("#[test]"));
        assert!(tested, "{name}: no test");
        let own_binary = folder.join("src/main.rs").exists();
        // Named apart, because all examples of a workspace are built into one folder.
        let examples = rust_files(&folder.join("examples"));
        let alone = examples.iter().any(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("alone-")));
        assert!(own_binary && folder.ends_with("checked-transfer") || alone, "{name}: no examples/alone-….rs");
    }
}

/// For its unit tests cargo compiles a library once more. One without unit tests turns that off, by `test = false` in `[lib]`; in one
/// with some, `test = false` would leave them out.
#[test]
fn libraries_are_compiled_for_unit_tests_where_they_have_some() {
    for folder in rust_crates() {
        let text = |file: &Path| fs::read_to_string(file).expect("there");
        let manifest: toml::Table = text(&folder.join("Cargo.toml")).parse().expect("TOML");
        let is_compiled =
            manifest.get("lib").and_then(|lib| lib.get("test")).is_none_or(|test| test.as_bool() != Some(false));
        let mut sources = rust_files(&folder.join("src")).into_iter();
        let has_some = sources.any(|file| text(&file).lines().any(|line| line.trim() == "#[test]"));
        assert_eq!(is_compiled, has_some, "{}: `test` of [lib] in Cargo.toml, unit tests in src", folder.display());
    }
}

#[test]
fn operator_crates_run_their_phase_s_suite_and_know_no_other_operator() {
    let operators: Vec<PathBuf> = rust_crates()
        .filter(|c| {
            let text = |file: &PathBuf| fs::read_to_string(file).expect("there");
            // `morphgl-layers` submits for others, by its macros.
            rust_files(&c.join("src")).iter().any(|f| text(f).replace("__inventory::submit!", "").contains("submit!"))
        })
        .filter(|c| !c.ends_with("registry"))
        .collect();
    assert!(operators.len() >= 4, "{operators:?}");
    let package = |folder: &Path| -> String {
        let manifest: toml::Table =
            fs::read_to_string(folder.join("Cargo.toml")).expect("there").parse().expect("TOML");
        manifest["package"]["name"].as_str().expect("a name").to_string()
    };
    let names: Vec<String> = operators.iter().map(|c| package(c)).collect();
    for folder in &operators {
        let suite = fs::read_to_string(folder.join("tests/conformance.rs")).unwrap_or_default();
        assert!(suite.contains("morphgl_conformance::"), "{}: no tests/conformance.rs", folder.display());
        let manifest: toml::Table =
            fs::read_to_string(folder.join("Cargo.toml")).expect("there").parse().expect("TOML");
        for dependency in manifest["dependencies"].as_table().expect("a table").keys() {
            assert!(!names.contains(dependency), "{} depends on the operator {dependency}", folder.display());
        }
    }
}

#[test]
fn readmes_are_short() {
    let bytes = fs::metadata(root().join("README.md")).expect("there").len();
    assert!(
        bytes <= 10_000,
        "README.md: {bytes} bytes, at most 10,000: it says what a newcomer needs, and links the rest"
    );
    for readme in crates().iter().map(|c| c.join("README.md")) {
        let lines = fs::read_to_string(&readme).expect("there").lines().count();
        assert!(lines <= 200, "{}: {lines} lines, at most 200", readme.display());
    }
}

#[test]
fn lib_files_are_short() {
    for folder in crates() {
        let file = folder.join("src/lib.rs");
        let lines = fs::read_to_string(&file).map_or(0, |text| text.lines().count());
        assert!(lines <= 100, "{}: {lines} lines, at most 100", file.display());
    }
}
