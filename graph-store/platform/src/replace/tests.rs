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
fn a_file_is_created_before_or_after_an_interrupt() {
    let dir = tempfile::tempdir().expect("a directory");
    let replacement = Replacement::new(&dir.path().join("out.csv")).expect("a file beside");
    // Holds the lock that the handler of interrupts holds to the end of the process.
    let handler = Unfinished::beside(&dir.path().join("other")).expect("a path");
    std::thread::scope(|scope| {
        let creating = handler.under_lock(|_| {
            let creating = scope.spawn(|| replacement.create());
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert_eq!(names(dir.path()), [""; 0]);
            Ok(creating)
        });
        creating.expect("a thread").join().expect("no panic").expect("created");
    });
    assert_eq!(names(dir.path()).len(), 1);
    drop(replacement);
    assert_eq!(names(dir.path()), [""; 0]);
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

/// Somebody else's link at a temporary name would have its file overwritten.
#[cfg(unix)]
#[test]
fn temporary_files_are_new() {
    let dir = tempfile::tempdir().expect("a directory");
    let (target, victim) = (dir.path().join("out"), dir.path().join("victim"));
    fs::write(&victim, "kept").expect("written");
    let replacement = Replacement::new(&target).expect("a file beside");
    let beside = replacement.unfinished.as_ref().expect("a file").path().to_path_buf();
    std::os::unix::fs::symlink(&victim, &beside).expect("a link");
    assert_eq!(replacement.create().expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
    drop(replacement);
    assert_eq!(fs::read_to_string(&victim).expect("read"), "kept");
    assert!(fs::symlink_metadata(&beside).is_err(), "the link is removed");
    replace_file(&target, |out| out.write_all(b"new")).expect("another name");
    assert_eq!(names(dir.path()), ["out", "victim"]);
}

#[cfg(target_os = "linux")]
#[test]
fn leftovers_of_killed_processes_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("out.csv");
    // Process ids end below 2^22 on Linux, so the first one does not live; the first process always does. A process may have
    // the number of one that was killed.
    let own = format!(".out.csv.partial-{}-77", std::process::id());
    let others = [".out.csv.partial-1-0", ".out.csv.partial-text", ".out.csv2.partial-99999999-0"];
    for name in [".out.csv.partial-99999999-0", ".out.csv.partial-99999999-1.discarded", &own].iter().chain(&others) {
        fs::write(dir.path().join(name), "left").expect("written");
    }
    replace_file(&path, |out| {
        // Two at once do not remove each other's.
        replace_file(&path, |out| out.write_all(b"first"))?;
        out.write_all(b"second")
    })
    .expect("written");
    assert_eq!(fs::read_to_string(&path).expect("read"), "second");
    assert_eq!(names(dir.path()), [others[0], others[1], others[2], "out.csv"]);
}

/// The directory that a link names is replaced, and the link stays.
#[cfg(unix)]
#[test]
fn a_directory_behind_a_link() {
    let dir = tempfile::tempdir().expect("a directory");
    let (real, link) = (dir.path().join("disk/set"), dir.path().join("link"));
    fs::create_dir_all(&real).expect("room");
    fs::write(real.join("old"), "").expect("written");
    std::os::unix::fs::symlink("disk/set", &link).expect("a link");
    let replacement = ReplacementDir::new(&link).expect("a directory beside");
    fs::write(replacement.path().join("new"), "").expect("written");
    assert_eq!(names(&real), ["old"]);
    replacement.finish(true).expect("replaced");
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert_eq!((names(&real), names(&dir.path().join("disk"))), (vec!["new".to_string()], vec!["set".to_string()]));
    // Unasked, nothing is replaced, even if it appears late.
    let late = dir.path().join("late");
    let replacement = ReplacementDir::new(&late).expect("a directory beside");
    fs::create_dir(&late).expect("room");
    fs::write(late.join("other"), "").expect("written");
    replacement.finish(false).expect_err("another process was faster");
    assert_eq!(
        (names(&late), names(dir.path())),
        (vec!["other".into()], ["disk", "late", "link"].map(Into::into).into())
    );
}
