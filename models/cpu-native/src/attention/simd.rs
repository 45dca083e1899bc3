//! Vector registers of the instruction sets that the attention's loops are compiled for.
//!
//! Loops are written once, over [`Simd`], and inlined into functions compiled for one set (see `versions!`).
//! The methods are unsafe because the caller must run on a processor that has the set.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Makes `$name(level, …)`, which runs the generic function `$body::<S>(…)` compiled for the level.
macro_rules! versions {
    ($name:ident, $body:ident, $($arg:ident: $type:ty),+) => {
        $crate::level::compiled! {
            fn $name($($arg: $type),+);
            avx512: {
                // SAFETY: the function is called on processors with these instructions alone.
                unsafe { $body::<simd::Avx512>($($arg),+) }
            }
            avx2: {
                // SAFETY: as above.
                unsafe { $body::<simd::Avx2>($($arg),+) }
            }
            portable: {
                // SAFETY: portable code needs no instructions.
                unsafe { $body::<simd::Portable>($($arg),+) }
            }
        }
    };
}
pub(super) use versions;

/// A vector of f32. All methods need the processor to have the instructions; loads and stores need `LANES` (or `n`)
/// valid elements at the pointer, `1 <= n <= LANES`.
pub(super) trait Simd: Copy {
    type V: Copy;
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(at: *const f32) -> Self::V;
    /// The first `n` elements; the others are 0.
    unsafe fn load_first(at: *const f32, n: usize) -> Self::V;
    unsafe fn store(at: *mut f32, v: Self::V);
    unsafe fn store_first(at: *mut f32, n: usize, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where one is no number.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The sum of the elements.
    unsafe fn sum(v: Self::V) -> f32;
    /// 2^n where `v` is 1.5·2^23 + n, -126 <= n <= 127.
    unsafe fn power(v: Self::V) -> Self::V;
    /// `v`, and 0 where x < least.
    unsafe fn zero_below(v: Self::V, x: Self::V, least: Self::V) -> Self::V;
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx512;

// SAFETY (of all blocks below): the trait's caller promises the instructions and the elements at the pointers.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::undocumented_unsafe_blocks, reason = "one sentence stands for all: the trait's caller promises both")]
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, n: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(first(n), at) }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(at, v) }
    }
    #[inline(always)]
    unsafe fn store_first(at: *mut f32, n: usize, v: __m512) {
        unsafe { _mm512_mask_storeu_ps(at, first(n), v) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(v: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(v) }
    }
    #[inline(always)]
    unsafe fn power(v: __m512) -> __m512 {
        unsafe {
            let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(v));
            _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f80_0000)))
        }
    }
    #[inline(always)]
    unsafe fn zero_below(v: __m512, x: __m512, least: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, least), v) }
    }
}

/// The mask of the first `n` of 16 elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
#[allow(clippy::undocumented_unsafe_blocks, reason = "one sentence stands for all: the trait's caller promises both")]
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, n: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(at, first_of_8(n)) }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(at, v) }
    }
    #[inline(always)]
    unsafe fn store_first(at: *mut f32, n: usize, v: __m256) {
        unsafe { _mm256_maskstore_ps(at, first_of_8(n), v) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(v: __m256) -> f32 {
        unsafe {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }
    #[inline(always)]
    unsafe fn power(v: __m256) -> __m256 {
        unsafe {
            let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(v));
            _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f80_0000)))
        }
    }
    #[inline(always)]
    unsafe fn zero_below(v: __m256, x: __m256, least: __m256) -> __m256 {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(x, least), v) }
    }
}

/// The mask of the first `n` of 8 elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_8(n: usize) -> __m256i {
    // SAFETY: the caller promises AVX2.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// Eight elements, left to the compiler.
#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn map2(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[allow(clippy::undocumented_unsafe_blocks, reason = "one sentence stands for all: the caller promises the elements")]
impl Simd for Portable {
    type V = [f32; 8];
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> [f32; 8] {
        unsafe { at.cast::<[f32; 8]>().read() }
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, n: usize) -> [f32; 8] {
        let mut v = [0.0; 8];
        v[..n].copy_from_slice(unsafe { std::slice::from_raw_parts(at, n) });
        v
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, v: [f32; 8]) {
        unsafe { at.cast::<[f32; 8]>().write(v) }
    }
    #[inline(always)]
    unsafe fn store_first(at: *mut f32, n: usize, v: [f32; 8]) {
        unsafe { std::slice::from_raw_parts_mut(at, n) }.copy_from_slice(&v[..n]);
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        map2(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        map2(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        map2(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        map2(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn sum(v: [f32; 8]) -> f32 {
        let [a, b, c, d, e, f, g, h] = v;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
    #[inline(always)]
    unsafe fn power(v: [f32; 8]) -> [f32; 8] {
        v.map(|v| f32::from_bits((v.to_bits() << 23).wrapping_add(0x3f80_0000)))
    }
    #[inline(always)]
    unsafe fn zero_below(v: [f32; 8], x: [f32; 8], least: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if x[i] < least[i] { 0.0 } else { v[i] })
    }
}
