use super::*;

#[test]
fn limits_have_cures_of_their_own() {
    let cure = |code| limit_cure(&io::Error::from_raw_os_error(code)).unwrap_or("");
    for (code, says) in [
        (libc::EMFILE, "ulimit -n"),
        (libc::ENFILE, "open files"),
        (libc::EAGAIN, "ulimit -u"),
        (libc::ENOSPC, "disk space"),
        (libc::EDQUOT, "disk space"),
        (libc::EFBIG, "ulimit -f"),
        (libc::ENOMEM, "memory"),
        (libc::EACCES, ""),
    ] {
        assert!(cure(code).contains(says) && cure(code).is_empty() == says.is_empty(), "{code}: {}", cure(code));
    }
}

#[test]
fn the_system_tells_memory_without_proc() {
    let [total, free] = system_memory().expect("Linux tells");
    let peak = peak_memory().expect("Linux tells");
    assert!(free > 0 && free <= total && peak >= 1 << 20 && peak <= total, "{free} of {total}, peak {peak}");
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("Linux has it");
    let field = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("a field");
    let kilobytes: u64 = field.trim().trim_end_matches(" kB").parse().expect("a number");
    assert_eq!(total, kilobytes << 10);
}
