use std::fs;
use std::path::Path;

use super::get_or;

fn get(directory: &Path, content: &[&str], result: &str) -> String {
    let bytes = get_or(directory, "k-sm_80", content, || Ok(result.as_bytes().to_vec())).expect("the result is made");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn results_are_found_by_content() {
    let temporary = tempfile::tempdir().expect("a directory");
    let directory = temporary.path().join("not/there/yet");
    assert_eq!(get(&directory, &["source", "header"], "first"), "first");
    assert_eq!(get(&directory, &["source", "header"], "second"), "first");
    assert_eq!(get(&directory, &["source!", "header"], "third"), "third");
    assert_eq!(get(&directory, &["sourceh", "eader"], "fourth"), "fourth");
    let names: Vec<_> = fs::read_dir(&directory)
        .expect("a readable file or directory")
        .map(|e| e.expect("readable").file_name())
        .collect();
    assert!(names.len() == 3 && names.iter().all(|n| n.to_string_lossy().starts_with("k-sm_80-")), "{names:?}");
}

#[test]
fn a_damaged_file_is_made_again() {
    let temporary = tempfile::tempdir().expect("a directory");
    get(temporary.path(), &["source"], "first");
    let file = fs::read_dir(temporary.path())
        .expect("a readable file or directory")
        .next()
        .expect("one")
        .expect("readable")
        .path();
    let whole = fs::read(&file).expect("a readable file or directory");
    for at in 0..=whole.len() {
        let mut damaged = whole.clone();
        match damaged.get_mut(at) {
            Some(byte) => *byte ^= 1,
            None => damaged.truncate(at / 2),
        }
        fs::write(&file, damaged).expect("written");
        assert_eq!(get(temporary.path(), &["source"], "again"), "again", "byte {at}");
        fs::write(&file, &whole[..at]).expect("written");
        let expected = if at == whole.len() { "first" } else { "again" };
        assert_eq!(get(temporary.path(), &["source"], "again"), expected, "{at} bytes");
    }
}

#[test]
fn without_a_writable_directory_nothing_is_cached() {
    let temporary = tempfile::tempdir().expect("a directory");
    let file = temporary.path().join("file");
    fs::write(&file, "no directory").expect("written");
    assert_eq!(get(&file, &["source"], "made"), "made");
    assert_eq!(get(&file, &["source"], "made again"), "made again");
}

#[test]
fn failures_are_not_cached() {
    let temporary = tempfile::tempdir().expect("a directory");
    let failed = get_or(temporary.path(), "k", &["source"], || Err("no".to_string()));
    assert_eq!(failed, Err("no".to_string()));
    assert_eq!(get(temporary.path(), &["source"], "made"), "made");
}
