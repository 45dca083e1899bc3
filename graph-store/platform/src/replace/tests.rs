use super::*;

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    let mut names: Vec<String> = fs::read_dir(dir).expect("a directory").map(name).collect();
    names.sort();
    names
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("out.csv");
    let fail = |out: &mut BufWriter<File>| {
        out.write_all(&[b'x'; 100_000])?;
        Err(io::Error::other("no space"))
    };
    replace_file(&path, fail).expect_err("refused");
    assert_eq!(names(dir.path()), [""; 0]);
    fs::write(&path, "old").expect("written");
    replace_file(&path, fail).expect_err("refused");
    assert_eq!((fs::read_to_string(&path).expect("read"), names(dir.path())), ("old".into(), vec!["out.csv".into()]));
    replace_file(&path, |out| out.write_all(b"new")).expect("written");
    assert_eq!((fs::read_to_string(&path).expect("read"), names(dir.path())), ("new".into(), vec!["out.csv".into()]));
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = replace_file(dir.path(), |_| Ok(())).expect_err("a directory").to_string();
    assert!(error.contains("name a file"), "{error}");
    replace_file(Path::new(".."), |_| Ok(())).expect_err("a directory");
    replace_file(&dir.path().join("none/out"), |_| Ok(())).expect_err("no directory");
}

#[cfg(unix)]
#[test]
fn links_devices_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let dir = tempfile::tempdir().expect("a directory");
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "old").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
    symlink("file", &link).expect("a link");
    replace_file(&link, |out| out.write_all(b"new")).expect("written");
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert_eq!(fs::read_to_string(&file).expect("read"), "new");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o640);
    replace_file(Path::new("/dev/null"), |out| out.write_all(b"gone")).expect("written");
    assert!(!fs::metadata("/dev/null").expect("a device").is_file());
}
