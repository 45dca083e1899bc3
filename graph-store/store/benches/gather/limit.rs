//! The plain loops that a gather is compared with: this machine's limit for random rows.

use morphgl_platform::Pages;
use rayon::prelude::*;

/// Prefetch distance in rows.
const AHEAD: usize = 8;

/// A loop that copies one row after the other.
#[derive(Clone, Copy)]
pub(crate) enum Loop {
    /// `memcpy` of each row.
    Copy,
    /// The same, with prefetch of a later row.
    Prefetch,
    /// Prefetch of a later row, and streaming stores of at most 16 bytes.
    Stream,
}

impl Loop {
    /// Those this processor has.
    pub(crate) const ALL: &[Self] =
        if cfg!(target_arch = "x86_64") { &[Self::Copy, Self::Prefetch, Self::Stream] } else { &[Self::Copy] };

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Copy => "loop: memcpy",
            Self::Prefetch => "loop: prefetch, memcpy",
            Self::Stream => "loop: prefetch, streaming",
        }
    }

    fn run(self, rows: &[u8], row_bytes: usize, nodes: &[u32], out: &mut [u8]) {
        for (i, (&node, to)) in nodes.iter().zip(out.chunks_exact_mut(row_bytes)).enumerate() {
            if let (Self::Prefetch | Self::Stream, Some(&later)) = (self, nodes.get(i + AHEAD)) {
                let start = later as usize * row_bytes;
                (start..start + row_bytes).step_by(64).for_each(|byte| morphgl_platform::prefetch(rows, byte));
            }
            let from = &rows[node as usize * row_bytes..][..row_bytes];
            match self {
                Self::Copy | Self::Prefetch => to.copy_from_slice(from),
                Self::Stream => stream(from, to),
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor of this architecture has the fence.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies a row of whole words of 4 bytes to where words of 4 bytes begin, past the caches.
fn stream(from: &[u8], to: &mut [u8]) {
    assert_eq!((from.len(), to.len() % 4, to.as_ptr().align_offset(4)), (to.len(), 0, 0), "rows of whole words");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        let (len, (from, to)) = (to.len(), (from.as_ptr(), to.as_mut_ptr()));
        let mut at = 0;
        // SAFETY: every access lies within the two slices of `len` bytes; streamed words are aligned.
        unsafe {
            while at < len && (to.addr() + at) % 16 != 0 {
                _mm_stream_si32(to.add(at).cast(), from.add(at).cast::<i32>().read_unaligned());
                at += 4;
            }
            while at + 16 <= len {
                _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.add(at).cast()));
                at += 16;
            }
            while at < len {
                _mm_stream_si32(to.add(at).cast(), from.add(at).cast::<i32>().read_unaligned());
                at += 4;
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Gathers the rows of mini-batch `i`, `nodes(i)`, into `outs[i]`, each split evenly over as many threads as it gets.
pub(crate) fn gather<'a>(
    by: Loop,
    rows: &[u8],
    row_bytes: usize,
    nodes: &(impl Fn(usize) -> &'a [u32] + Sync),
    outs: &mut [Pages],
    threads: usize,
) {
    let parts = threads / outs.len();
    outs.par_iter_mut().enumerate().for_each(|(i, out)| {
        let part = nodes(i).len().div_ceil(parts);
        let pieces = nodes(i).par_chunks(part).zip(out.par_chunks_mut(part * row_bytes));
        pieces.for_each(|(nodes, out)| by.run(rows, row_bytes, nodes, out));
    });
}

/// Fills `outs` by plain copies of what lies one after the other in `rows`.
pub(crate) fn memcpy(rows: &[u8], outs: &mut [Pages], threads: usize) {
    let parts = threads / outs.len();
    outs.par_iter_mut().enumerate().for_each(|(i, out)| {
        let len = out.len();
        let part = len.div_ceil(parts);
        out.par_chunks_mut(part).enumerate().for_each(|(j, out)| {
            let start = (i * len + j * part) % (rows.len() - out.len() + 1);
            out.copy_from_slice(&rows[start..start + out.len()]);
        });
    });
}
