//! What the README says of the folder, and what a test meets whose data is absent.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

use morphgl_testdata::{VARIABLE, extra, path};

/// Maximum of all files together.
const MAX_BYTES: u64 = 6_000_000;

fn bytes(path: &Path) -> u64 {
    if path.is_file() {
        return path.metadata().expect("a file").len();
    }
    fs::read_dir(path).expect("a folder").map(|entry| bytes(&entry.expect("an entry").path())).sum()
}

#[test]
fn folders_are_small_and_the_readme_has_source_licence_and_size_of_each() {
    let readme = fs::read_to_string(path("README.md")).expect("the README");
    let of_the_crate = ["src", "tests", "examples"];
    let mut sum = 0;
    for entry in fs::read_dir(path("")).expect("the folder") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        if !folder.is_dir() || of_the_crate.contains(&name.as_str()) {
            continue;
        }
        let bytes = bytes(&folder);
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{name}` ")));
        let row = row.unwrap_or_else(|| panic!("README.md has no row of {name}"));
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "folder, what, source, licence and kB: {row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
        assert_eq!(cells[4].parse(), Ok(bytes.div_ceil(1000)), "kB of {name}");
        sum += bytes;
    }
    assert!((1_000_000..MAX_BYTES).contains(&sum), "{sum} bytes");
}

#[test]
fn absent_data_fails_the_test_that_asks_for_it() {
    let refused = catch_unwind(|| path("planetoid/ind.nowhere")).expect_err("it is absent");
    let message = refused.downcast::<String>().expect("a message");
    assert!(message.ends_with("testdata/planetoid/ind.nowhere is absent"), "{message}");
}

/// Says in which of its runs by `the_variable_names_larger_data` the program is.
const CASE: &str = "MORPHGL_TESTDATA_CASE";

#[test]
fn the_variable_names_larger_data() {
    match std::env::var(CASE).as_deref() {
        Ok("absent") => return assert_eq!(extra("planetoid"), None),
        Ok("present") => return assert_eq!(extra("planetoid"), Some(path("planetoid"))),
        Ok(_) => return drop(extra("planetoid/ind.nowhere")),
        Err(_) => {}
    }
    for (case, root, passes) in
        [("absent", "".into(), true), ("present", path(""), true), ("incomplete", path(""), false)]
    {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["--exact", "the_variable_names_larger_data"]).env(CASE, case).env(VARIABLE, root);
        assert_eq!(again.output().expect("it runs").status.success(), passes, "{case}");
    }
}
