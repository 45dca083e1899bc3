//! SIMD registers of the gather, and the buffered line of its output.
//!
//! Requirements of all functions: the processor has the instructions, and the bytes at the pointers exist.

use std::arch::x86_64::*;
use std::ptr::copy_nonoverlapping;

use super::LINE;

/// Instructions of one register width.
pub(super) trait Registers {
    /// Bytes of a register.
    const BYTES: usize;
    /// The buffered line of the output.
    type Line: Default;

    /// Copies a register.
    unsafe fn copy(from: *const u8, to: *mut u8);
    /// Copies `n` bytes, fewer than a register.
    unsafe fn copy_short(from: *const u8, to: *mut u8, n: usize);
    /// Streams the 64 bytes at `from` to the line at `to`.
    unsafe fn pass(from: *const u8, to: *mut u8);
    /// Begins a line with its first `n` bytes, fewer than all.
    unsafe fn begin(line: &mut Self::Line, from: *const u8, n: usize);
    /// Adds `n` bytes, fewer than a line, after the first `full`.
    unsafe fn put(line: &mut Self::Line, from: *const u8, full: usize, n: usize);
    /// Streams a whole line to `to`.
    unsafe fn stream(line: &Self::Line, to: *mut u8);
    /// Stores the bytes `first..end` of a line at their positions in the line `to`.
    unsafe fn store(line: &Self::Line, to: *mut u8, first: usize, end: usize);
}

/// Registers of a line, with masks of bytes. Masked lanes are neither read nor written.
pub(super) struct Avx512;

/// A line in a register.
pub(super) struct InRegister(__m512i);

impl Default for InRegister {
    #[inline(always)]
    fn default() -> Self {
        // SAFETY: any 64 bytes are a valid register.
        Self(unsafe { std::mem::zeroed() })
    }
}

#[allow(clippy::undocumented_unsafe_blocks, reason = "the caller promises instructions and bytes, as the module says")]
impl Registers for Avx512 {
    const BYTES: usize = LINE;
    type Line = InRegister;

    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8) {
        unsafe { _mm512_storeu_si512(to.cast(), _mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn copy_short(from: *const u8, to: *mut u8, n: usize) {
        let mask = (1 << n) - 1;
        unsafe { _mm512_mask_storeu_epi8(to.cast(), mask, _mm512_maskz_loadu_epi8(mask, from.cast())) }
    }

    #[inline(always)]
    unsafe fn pass(from: *const u8, to: *mut u8) {
        unsafe { _mm512_stream_si512(to.cast(), _mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn begin(line: &mut InRegister, from: *const u8, n: usize) {
        line.0 = unsafe { _mm512_maskz_loadu_epi8((1 << n) - 1, from.cast()) };
    }

    #[inline(always)]
    unsafe fn put(line: &mut InRegister, from: *const u8, full: usize, n: usize) {
        let mask = ((1 << n) - 1) << full;
        line.0 = unsafe { _mm512_mask_loadu_epi8(line.0, mask, from.wrapping_sub(full).cast()) };
    }

    #[inline(always)]
    unsafe fn stream(line: &InRegister, to: *mut u8) {
        unsafe { _mm512_stream_si512(to.cast(), line.0) }
    }

    #[inline(always)]
    unsafe fn store(line: &InRegister, to: *mut u8, first: usize, end: usize) {
        let mask = (u64::MAX << first) & !u64::MAX.checked_shl(end as u32).unwrap_or(0);
        unsafe { _mm512_mask_storeu_epi8(to.cast(), mask, line.0) }
    }
}

/// Registers of half a line.
pub(super) struct Avx2;

/// A line in memory.
#[repr(align(64))]
pub(super) struct InMemory([u8; LINE]);

impl Default for InMemory {
    #[inline(always)]
    fn default() -> Self {
        Self([0; LINE])
    }
}

#[allow(clippy::undocumented_unsafe_blocks, reason = "the caller promises instructions and bytes, as the module says")]
impl Registers for Avx2 {
    const BYTES: usize = LINE / 2;
    type Line = InMemory;

    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8) {
        unsafe { _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn copy_short(from: *const u8, to: *mut u8, n: usize) {
        unsafe { copy_nonoverlapping(from, to, n) }
    }

    #[inline(always)]
    unsafe fn pass(from: *const u8, to: *mut u8) {
        unsafe {
            let (low, high) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast()));
            _mm256_stream_si256(to.cast(), low);
            _mm256_stream_si256(to.add(32).cast(), high);
        }
    }

    #[inline(always)]
    unsafe fn begin(line: &mut InMemory, from: *const u8, n: usize) {
        unsafe { Self::put(line, from, 0, n) }
    }

    #[inline(always)]
    unsafe fn put(line: &mut InMemory, from: *const u8, full: usize, n: usize) {
        unsafe { copy_nonoverlapping(from, line.0.as_mut_ptr().add(full), n) }
    }

    #[inline(always)]
    unsafe fn stream(line: &InMemory, to: *mut u8) {
        unsafe { Self::pass(line.0.as_ptr(), to) }
    }

    #[inline(always)]
    unsafe fn store(line: &InMemory, to: *mut u8, first: usize, end: usize) {
        unsafe { copy_nonoverlapping(line.0.as_ptr().add(first), to.wrapping_add(first), end - first) }
    }
}
