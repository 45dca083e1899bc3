use std::io::Read;

use super::*;

#[test]
fn regular_files_alone_are_opened() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::write(&path, "text").expect("room");
    let mut text = String::new();
    open_regular(&path).expect("regular").read_to_string(&mut text).expect("text");
    assert_eq!(text, "text");
    let kind = |path: &Path| open_regular(path).expect_err("refused").kind();
    assert_eq!(kind(dir.path()), io::ErrorKind::IsADirectory);
    assert_eq!(kind(&dir.path().join("none")), io::ErrorKind::NotFound);
}

#[cfg(target_os = "linux")]
#[test]
fn pipes_sockets_and_devices_are_refused_without_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pipe, socket) = (dir.path().join("pipe"), dir.path().join("socket"));
    let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).expect("no zero in it");
    // SAFETY: the name ends with a zero and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let held = HeldDir::open(dir.path()).expect("a directory");
    for (path, what) in [(&*pipe, "a pipe"), (&*socket, "a socket"), (Path::new("/dev/zero"), "a device")] {
        let error = open_regular(path).expect_err("not regular");
        assert_eq!(error.kind(), io::ErrorKind::NotSeekable);
        assert!(error.to_string().starts_with(&format!("this is {what}, not a regular file")), "{error}");
    }
    assert_eq!(held.open_file("pipe".as_ref()).expect_err("a pipe").kind(), io::ErrorKind::NotSeekable);
}

#[cfg(target_os = "linux")]
#[test]
fn a_held_directory_is_the_one_that_was_opened() {
    let dir = tempfile::tempdir().expect("a directory");
    let [set, other] = ["set", "other"].map(|name| {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("room");
        fs::write(path.join("file"), name).expect("room");
        path
    });
    let held = HeldDir::open(&set).expect("a directory");
    assert!(held.is_in_place());
    fs::rename(&set, dir.path().join("old")).expect("renamed");
    assert!(!held.is_in_place());
    fs::rename(&other, &set).expect("renamed");
    assert!(!held.is_in_place());
    let mut text = String::new();
    held.open_file("file".as_ref()).expect("there").read_to_string(&mut text).expect("text");
    assert_eq!(text, "set");
    fs::remove_dir_all(dir.path().join("old")).expect("removed");
    assert_eq!(held.open_file("file".as_ref()).expect_err("removed").kind(), io::ErrorKind::NotFound);
}
