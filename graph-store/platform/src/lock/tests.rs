use super::*;

#[test]
fn the_holder_of_a_lock_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let (first, second) = (File::create(&path).expect("room"), File::open(&path).expect("there"));
    assert_eq!(lock_holder(&second), None);
    first.try_lock().expect("nobody else has it");
    assert_eq!(lock_holder(&second), Some(std::process::id()));
    second.try_lock().expect_err("it is locked");
    drop(first);
    assert_eq!(lock_holder(&second), None);
}

#[test]
fn other_locks_are_no_holders() {
    let device = libc::makedev(0xfe, 1);
    let locks = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n2: FLOCK  ADVISORY  READ  12 fe:01:77 0 EOF\n\
                 3: FLOCK  ADVISORY  WRITE 13 fe:02:77 0 EOF\n4: FLOCK  ADVISORY  WRITE 14 fe:01:778 0 EOF\n\
                 5: -> FLOCK  ADVISORY  WRITE 15 fe:01:77 0 EOF\n";
    assert_eq!(holder(locks, device, 77), None);
    let held = format!("{locks}6: FLOCK  ADVISORY  WRITE 16 fe:01:77 0 EOF\n");
    assert_eq!(holder(&held, device, 77), Some(16));
}
