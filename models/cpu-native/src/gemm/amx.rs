//! GEMM on AMX tile registers (Intel, Linux), which multiply bfloat16 and add f32.
//!
//! Both factors are split into three planes ([`super::split`]), and six of the nine products of planes are summed: hi·lo,
//! hi·mid, mid·mid, mid·hi, lo·hi, hi·hi. The omitted products are below 2^-23 of the whole.

use std::arch::asm;
use std::arch::x86_64::{__mmask16, _mm512_add_ps, _mm512_load_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps};
use std::marker::PhantomData;

use super::split::{CHUNK, GROUP, LANES, TILE};

/// Rows and columns of the result of one pass over the depth: two by two tiles.
pub(super) const BLOCK: usize = 2 * LANES;

/// The thread's configured tile registers, eight of 16 rows of 64 bytes; released on drop.
#[derive(Debug)]
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// # Safety
    ///
    /// The processor has AMX, and this process may use it: a level with tiles.
    pub(super) unsafe fn configure() -> Self {
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
        // SAFETY: a configuration of palette 1, which every processor with AMX supports.
        unsafe {
            asm!("ldtilecfg [{config}]", config = in(reg) &raw const config, options(nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
        Self(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the tiles were configured, so the processor has AMX.
        unsafe {
            asm!("tilerelease", options(nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
    }
}

/// Temporary for a block of the result that lies only partly inside the output, or is added to what the output holds.
#[repr(C, align(64))]
pub(super) struct Block(pub(super) [f32; BLOCK * BLOCK]);

impl Block {
    /// Writes the first `rows` rows to `out`, rows of `columns` elements, from `column` on, or adds them.
    ///
    /// # Safety
    ///
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn write(&self, rows: usize, [columns, column]: [usize; 2], out: &mut [f32], add: bool) {
        let width = BLOCK.min(columns - column);
        for (out, sums) in out.chunks_exact_mut(columns).zip(self.0.as_chunks::<BLOCK>().0).take(rows) {
            for (out, sums) in out[column..column + width].chunks_mut(LANES).zip(sums.as_chunks::<LANES>().0) {
                let mask = (0xffff_u32 >> (LANES - out.len())) as __mmask16;
                // SAFETY: `sums` has 16 elements, and the mask ends with the output's columns.
                unsafe {
                    let mut x = _mm512_load_ps(sums.as_ptr());
                    if add {
                        x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out.as_ptr()), x);
                    }
                    _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, x);
                }
            }
        }
    }
}

impl Tiles {
    /// Writes the product of two lines of each split factor to the first 32 columns of rows, `stride` elements apart.
    ///
    /// Calls `between` after each chunk of the depth: it is executed while the tiles are still multiplying.
    ///
    /// # Panics
    ///
    /// When a factor or the output is too short.
    #[inline(always)]
    pub(super) fn multiply(
        &self,
        (left, right): (&[u32], &[u32]),
        chunks: usize,
        (out, stride): (&mut [f32], usize),
        mut between: impl FnMut(),
    ) {
        let line = GROUP * chunks;
        assert!(
            chunks > 0 && left.len() >= 2 * line && right.len() >= 2 * line,
            "two lines of {chunks} chunks per factor"
        );
        assert!(stride >= BLOCK && out.len() >= (BLOCK - 1) * stride + BLOCK, "an output of 32 x 32 elements");
        // SAFETY: the tiles are configured, and the lengths are checked. `between` does not use the tiles, which nothing but
        // this module does.
        unsafe {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _);
            for chunk in 0..chunks {
                multiply_chunk(left.as_ptr().add(chunk * GROUP), right.as_ptr().add(chunk * GROUP), line);
                between();
            }
            asm!(
                "tilestored [{o0} + {os}], tmm0",
                "tilestored [{o0} + {os} + 64], tmm1",
                "tilestored [{o1} + {os}], tmm2",
                "tilestored [{o1} + {os} + 64], tmm3",
                o0 = in(reg) out.as_mut_ptr(),
                o1 = in(reg) out.as_mut_ptr().add(LANES * stride),
                os = in(reg) 4 * stride,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Prefetches a sixth of both factors' next chunk, from this byte of their lines on, from the second-level cache: 1.07 times
/// as fast for GEMMs of 96 rows.
macro_rules! prefetch_next {
    ($from:literal) => {
        concat!(
            ".irp at, 0, 64, 128, 192, 256, 320, 384, 448\n",
            concat!("prefetcht0 [{a0} + 3072 + ", $from, " + \\at]\n"),
            concat!("prefetcht0 [{a1} + 3072 + ", $from, " + \\at]\n"),
            concat!("prefetcht0 [{b0} + 3072 + ", $from, " + \\at]\n"),
            concat!("prefetcht0 [{b1} + 3072 + ", $from, " + \\at]\n"),
            ".endr"
        )
    };
}

/// Adds the products of a chunk of the depth to the 32 x 32 sums in tmm0 to tmm3.
///
/// # Safety
///
/// The tiles are configured; `left` and `right` point to the chunk's group of tiles in the first of two lines, `line` dwords
/// apart.
#[inline(always)]
unsafe fn multiply_chunk(left: *const u32, right: *const u32, line: usize) {
    // SAFETY: the loads stay inside the tiles that the caller promises.
    // Two tiles of each factor are in tmm4 to tmm7. The order of the six products of planes changes one plane at a time, so
    // that 24 tile products need 14 loads.
    unsafe {
        asm!(
            // hi * lo
            "tileloadd tmm4, [{a0} + {s}]",
            "tileloadd tmm6, [{b0} + {s} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {s} + 2048]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            prefetch_next!(0),
            // hi * mid
            "tileloadd tmm6, [{b0} + {s} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {s} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            prefetch_next!(512),
            // mid * mid
            "tileloadd tmm4, [{a0} + {s} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            prefetch_next!(1024),
            // mid * hi
            "tileloadd tmm6, [{b0} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {s}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            prefetch_next!(1536),
            // lo * hi
            "tileloadd tmm4, [{a0} + {s} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s} + 2048]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            prefetch_next!(2048),
            // hi * hi
            "tileloadd tmm4, [{a0} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {s}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            prefetch_next!(2560),
            a0 = in(reg) left,
            a1 = in(reg) left.add(line),
            b0 = in(reg) right,
            b1 = in(reg) right.add(line),
            s = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Multiplies tiles `4 * rounds` times from registers alone; returns the number of multiply-adds.
///
/// The elements are not zeros, which are multiplied at a higher clock.
///
/// # Safety
///
/// The processor has AMX, and this process may use it: a level with tiles.
pub(super) unsafe fn multiply_registers(rounds: usize) -> usize {
    let mut state = 1u32;
    let mut numbers = [0u32; TILE];
    numbers.fill_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Two bfloat16 numbers of either sign with magnitudes from 1 to 2.
        state & 0x807f_807f | 0x3f80_3f80
    });
    // SAFETY: the caller's promise.
    let _tiles = unsafe { Tiles::configure() };
    // SAFETY: the registers are configured, and `numbers` has a whole tile.
    unsafe {
        asm!(
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "tileloadd tmm4, [{from} + {s}]", "tileloadd tmm6, [{from} + {s}]",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm4, tmm6",
            "tdpbf16ps tmm3, tmm4, tmm6",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) rounds.max(1) => _,
            from = in(reg) numbers.as_ptr(),
            s = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
    4 * rounds.max(1) * LANES * LANES * CHUNK
}
