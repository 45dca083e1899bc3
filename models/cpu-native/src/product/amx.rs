//! Products on the tile registers of AMX (Intel, Linux), which multiply bfloat16 and add f32.
//!
//! Both factors are split into three planes ([`super::split`]), and six of the nine products of planes are summed, the
//! small ones first: hi·lo, hi·mid, mid·mid, mid·hi, lo·hi, hi·hi. What is left out is below 2^-23 of a product.

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid, __cpuid_count, _mm512_add_ps, _mm512_load_ps, _mm512_loadu_ps, _mm512_storeu_ps, _xgetbv,
};
use std::sync::OnceLock;

use super::split::{CHUNK, LANES, TILE};

/// Rows and columns of the result that one pass over the depth computes: two tiles by two.
pub(super) const BLOCK: usize = 2 * LANES;

/// Whether the processor has bfloat16 tiles of the size used here and the system lets this process use them.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        // Leaf 1: xgetbv may be used. Leaf 7: bfloat16 tiles. Leaf 0x1d: eight tiles of 16 rows of 64 bytes.
        if __cpuid(0).eax < 0x1d || __cpuid(1).ecx >> 27 & 1 == 0 || __cpuid_count(7, 0).edx >> 22 & 0b101 != 0b101 {
            return false;
        }
        let palette = __cpuid_count(0x1d, 1);
        let fits = palette.eax >> 16 >= 1024
            && palette.ebx & 0xffff >= 64
            && palette.ebx >> 16 >= 8
            && palette.ecx & 0xffff >= 16;
        // SAFETY: the processor says that it has the instruction.
        let saved = unsafe { _xgetbv(0) } >> 17 & 0b11 == 0b11;
        fits && saved && permitted()
    })
}

/// Asks the system for the tiles' state, once for all threads of the process.
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

/// Tile registers of this thread in use: eight of 16 rows of 64 bytes, given back when it is dropped.
struct Tiles;

impl Tiles {
    /// # Safety
    ///
    /// [`available`].
    unsafe fn configure() -> Self {
        #[repr(C, align(64))]
        struct Config {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        let mut config = Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(64);
        config.rows[..8].fill(16);
        // SAFETY: a configuration that the processor has said to support.
        unsafe {
            asm!("ldtilecfg [{config}]", config = in(reg) &raw const config, options(nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
        Self
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: they were configured, so the processor has them.
        unsafe {
            asm!("tilerelease", options(nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
    }
}

/// A block of the result that does not lie in the output as a whole, or is added to it.
#[repr(C, align(64))]
struct Block([f32; BLOCK * BLOCK]);

/// Writes the product of split factors to the `rows` x `columns` matrix `out`, or adds it if `add`.
///
/// # Panics
///
/// When a factor or the output is too short.
///
/// # Safety
///
/// [`available`], and the processor has AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn run(
    [rows, columns, depth]: [usize; 3],
    (left, right): (&[u32], &[u32]),
    out: &mut [f32],
    add: bool,
) {
    let chunks = depth.div_ceil(CHUNK);
    // Dwords of two neighbouring lines' tiles.
    let pair = 2 * 3 * TILE * chunks;
    assert!(left.len() >= rows.div_ceil(BLOCK) * pair, "{rows} x {depth} elements of the left factor");
    assert!(right.len() >= columns.div_ceil(BLOCK) * pair, "{depth} x {columns} elements of the right factor");
    assert!(out.len() >= rows * columns, "room for {rows} x {columns} elements, not {}", out.len());
    let mut block = Block([0.0; BLOCK * BLOCK]);
    // SAFETY: the caller's promise.
    let _tiles = unsafe { Tiles::configure() };
    for row in (0..rows).step_by(BLOCK) {
        let left = left[row / BLOCK * pair..][..pair].as_ptr();
        for column in (0..columns).step_by(BLOCK) {
            let right = right[column / BLOCK * pair..][..pair].as_ptr();
            let (height, width) = (BLOCK.min(rows - row), BLOCK.min(columns - column));
            // SAFETY: two lines of tiles of each factor; the output's block is inside of it if it is whole.
            unsafe {
                if !add && height == BLOCK && width == BLOCK {
                    pass(left, right, chunks, out.as_mut_ptr().add(row * columns + column), columns);
                    continue;
                }
                pass(left, right, chunks, block.0.as_mut_ptr(), BLOCK);
            }
            for (r, sums) in block.0.chunks_exact(BLOCK).take(height).enumerate() {
                let out = &mut out[(row + r) * columns + column..][..width];
                match (add, <&mut [f32; BLOCK]>::try_from(&mut *out)) {
                    (true, Ok(out)) => {
                        for v in [0, LANES] {
                            // SAFETY: half of a row of the block, and of the output.
                            unsafe {
                                let at = out.as_mut_ptr().add(v);
                                let sums = _mm512_load_ps(sums.as_ptr().add(v));
                                _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sums));
                            }
                        }
                    }
                    (true, Err(_)) => out.iter_mut().zip(sums).for_each(|(o, s)| *o += s),
                    (false, _) => out.copy_from_slice(&sums[..width]),
                }
            }
        }
    }
}

/// Computes a block of 32 x 32 sums over `chunks` chunks of the depth.
///
/// # Safety
///
/// The tiles are configured; `left` and `right` point to two lines of `3 * chunks` tiles each, `out` to 32 rows, `stride`
/// floats apart, of 32.
unsafe fn pass(left: *const u32, right: *const u32, chunks: usize, out: *mut f32, stride: usize) {
    let line = 3 * TILE * chunks;
    // SAFETY: the pointers move over the tiles of the caller's promise, and the block is stored where it says.
    // Sums stand in tmm0 to tmm3; of the factors two tiles each are there at a time. A walk over the six products of
    // planes that changes one plane at a step needs 14 loads for 24 products.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            // hi * lo
            "tileloadd tmm4, [{a0} + {s}]",
            "tileloadd tmm6, [{b0} + {s} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {s} + 2048]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // hi * mid
            "tileloadd tmm6, [{b0} + {s} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {s} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // mid * mid
            "tileloadd tmm4, [{a0} + {s} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // mid * hi
            "tileloadd tmm6, [{b0} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {s}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // lo * hi
            "tileloadd tmm4, [{a0} + {s} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s} + 2048]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // hi * hi
            "tileloadd tmm4, [{a0} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a0}, 3072",
            "add {a1}, 3072",
            "add {b0}, 3072",
            "add {b1}, 3072",
            "dec {n}",
            "jnz 2b",
            "tilestored [{o0} + {os}], tmm0",
            "tilestored [{o0} + {os} + 64], tmm1",
            "tilestored [{o1} + {os}], tmm2",
            "tilestored [{o1} + {os} + 64], tmm3",
            a0 = inout(reg) left => _,
            a1 = inout(reg) left.add(line) => _,
            b0 = inout(reg) right => _,
            b1 = inout(reg) right.add(line) => _,
            n = inout(reg) chunks => _,
            s = in(reg) 64usize,
            o0 = in(reg) out,
            o1 = in(reg) out.add(LANES * stride),
            os = in(reg) 4 * stride,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Multiplies tiles of zeros `4 * rounds` times, from registers alone; returns the number of multiply-adds.
///
/// # Safety
///
/// [`available`].
pub(crate) unsafe fn turn(rounds: usize) -> usize {
    // SAFETY: the caller's promise.
    let _tiles = unsafe { Tiles::configure() };
    // SAFETY: registers alone, which are configured.
    unsafe {
        asm!(
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", "tilezero tmm4", "tilezero tmm6",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm4, tmm6",
            "tdpbf16ps tmm3, tmm4, tmm6",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) rounds.max(1) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
    4 * rounds.max(1) * LANES * LANES * CHUNK
}
