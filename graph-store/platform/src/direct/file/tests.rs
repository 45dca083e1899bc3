use super::*;

/// A read of a file of `len` bytes on a disk with blocks of 4096 bytes, as the kernel does it.
fn read(len: u64, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    if at >= len {
        return Ok(0);
    }
    match at.is_multiple_of(4096) && buffer.len().is_multiple_of(4096) {
        true => Ok(buffer.len().min((len - at) as usize)),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[test]
fn small_blocks_are_refused_by_disks_with_large_ones_however_short_the_file() {
    for len in [1, 400, 512, 513, 4096, 100_000] {
        assert!(!accepts(|buffer, at| read(len, buffer, at), 512), "a file of {len} bytes");
        assert!(accepts(|buffer, at| read(len, buffer, at), 4096), "a file of {len} bytes");
    }
}
