//! AMX tiles: detection by CPUID, and the operating system's permission to use them.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// Whether the processor has bfloat16 tiles, eight of 16 rows of 64 bytes, and the system lets this process use them.
///
/// Requests the system's permission, which covers all threads of the process.
pub(super) fn available() -> bool {
    // Leaf 1: xgetbv may be used. Leaf 7: bfloat16 tiles. Leaf 0x1d: eight tiles of 16 rows of 64 bytes.
    if __cpuid(0).eax < 0x1d || __cpuid(1).ecx >> 27 & 1 == 0 || __cpuid_count(7, 0).edx >> 22 & 0b101 != 0b101 {
        return false;
    }
    let palette = __cpuid_count(0x1d, 1);
    let fits =
        palette.eax >> 16 >= 1024 && palette.ebx & 0xffff >= 64 && palette.ebx >> 16 >= 8 && palette.ecx & 0xffff >= 16;
    // SAFETY: CPUID reports the instruction.
    let saved = unsafe { _xgetbv(0) } >> 17 & 0b11 == 0b11;
    fits && saved && permitted()
}

/// Requests the kernel's permission to use AMX tile registers, by `arch_prctl`.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let answer: i64;
    // SAFETY: a system call that reads and writes no memory of the process.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => answer, in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}
