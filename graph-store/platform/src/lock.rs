//! Holders of file locks.

use std::fs::File;

/// The process that has locked `file` ([`File::lock`]), by Linux's `/proc/locks`; `None` where nobody has, or the system does
/// not tell. A query: it locks nothing itself.
pub fn lock_holder(file: &File) -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let file = file.metadata().ok()?;
        holder(&std::fs::read_to_string("/proc/locks").ok()?, file.dev(), file.ino())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// The process that holds an exclusive `flock` on an inode, of lines such as `1: FLOCK  ADVISORY  WRITE 708 fe:00:2345 0 EOF`.
/// A line of a process that waits has `->` behind its number.
#[cfg(target_os = "linux")]
fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, "WRITE", process, of, ..] if of == file => process.parse().ok(),
        _ => None,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
