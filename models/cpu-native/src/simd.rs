//! SIMD dispatch, and vectors of f32 at every SIMD level.
//!
//! Hot loops are written once, generic over [`Simd`], and inlined into functions compiled for one level ([`dispatch!`]).
//! Methods of [`Simd`] are unsafe because the caller must run on a processor that has the level.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::{bf16, f16};
use morphgl_platform::SimdLevel;
use wide::{f32x4, u32x4};

/// Defines `fn name(level: SimdLevel, …)`, which calls `body(…)` or `body::<S>(…)`, an `#[inline(always)]` function,
/// compiled for `level`. A generic body is an `unsafe fn` whose only precondition is a processor with the instructions of
/// `S`; any other precondition is kept by the callers of `name`.
macro_rules! dispatch {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$element:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?) = $body:ident::<S $(, $t:ident)?>
    ) => {
        morphgl_platform::simd_dispatch! {
            $(#[$meta])*
            $vis fn $name $(<$element: $bound>)? ($($arg: $ty),*);
            // SAFETY: an arm runs only on processors that have its level.
            avx512: unsafe { $body::<$crate::simd::Avx512 $(, $t)?>($($arg),*) },
            // SAFETY: as above.
            avx2: unsafe { $body::<$crate::simd::Avx2 $(, $t)?>($($arg),*) },
            // SAFETY: the portable level is the target's baseline.
            portable: unsafe { $body::<$crate::simd::Portable $(, $t)?>($($arg),*) },
        }
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        morphgl_platform::simd_dispatch! {
            $(#[$meta])*
            $vis fn $name($($arg: $ty),*) $(-> $ret)?;
            avx512: $body($($arg),*), avx2: $body($($arg),*), portable: $body($($arg),*)
        }
    };
}
pub(crate) use dispatch;

/// Evaluates an expression, generic over the element type, for the values of a `FeatureView`.
macro_rules! by_type {
    ($view:expr, |$values:ident| $call:expr) => {
        match $view {
            morphgl_graph_store::FeatureView::F32($values) => $call,
            morphgl_graph_store::FeatureView::F16($values) => $call,
            morphgl_graph_store::FeatureView::Bf16($values) => $call,
            morphgl_graph_store::FeatureView::U8($values) => $call,
        }
    };
}
pub(crate) use by_type;

/// SIMD level of the vector registers: AVX-512 on processors with AMX, else `level` itself.
pub(crate) fn vector_level(level: SimdLevel) -> SimdLevel {
    #[cfg(target_arch = "x86_64")]
    if level == SimdLevel::Amx {
        return SimdLevel::Avx512;
    }
    level
}

/// Whether wide GEMMs use AMX tiles at this level.
pub(crate) fn has_tiles(level: SimdLevel) -> bool {
    vector_level(level) != level
}

/// Vector of f32.
///
/// # Safety
///
/// All methods: the processor has the instructions; loads and stores have `LANES` (or `n`) valid elements at the pointer,
/// `1 <= n <= LANES`.
pub(crate) trait Simd: Copy {
    type V: Copy;
    const LANES: usize;
    /// Number of vector registers, 16 or 32; it determines the size of GEMM tiles.
    const REGISTERS: usize;
    /// Whether `fma` is one instruction, which needs no register for the intermediate product.
    const FUSED: bool;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(at: *const f32) -> Self::V;
    /// Loads `n` elements; the others are 0.
    unsafe fn load_first(at: *const f32, n: usize) -> Self::V;
    unsafe fn store(at: *mut f32, v: Self::V);
    unsafe fn store_first(at: *mut f32, n: usize, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Elementwise maximum; `b` where either element is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Sum of the elements.
    unsafe fn sum(v: Self::V) -> f32;
    /// Sums of the elements of four vectors.
    unsafe fn sums(v: [Self::V; 4]) -> [f32; 4];
    /// 2^n where `v` is 1.5·2^23 + n, -126 <= n <= 127.
    unsafe fn power(v: Self::V) -> Self::V;
    /// Bit mask of the elements that are not 0.
    unsafe fn nonzeros(v: Self::V) -> u32;
    /// `v`, with 0 where x < least.
    unsafe fn zero_below(v: Self::V, x: Self::V, least: Self::V) -> Self::V;
    unsafe fn load_f16(at: *const f16) -> Self::V;
    unsafe fn load_bf16(at: *const bf16) -> Self::V;
    unsafe fn load_u8(at: *const u8) -> Self::V;
    /// Loads `n` elements of another type, widened to f32.
    unsafe fn widen_first<T: Element>(at: *const T, n: usize) -> Self::V {
        let mut copy = [T::ZERO; 16];
        // SAFETY: the caller promises `n <= LANES` elements; the copy has 16, at least `LANES`.
        unsafe {
            copy.as_mut_ptr().copy_from_nonoverlapping(at, n);
            T::load::<Self>(copy.as_ptr())
        }
    }
}

/// Storage type of features. The safety contract of the methods is that of [`Simd`].
pub(crate) trait Element: Copy {
    const ZERO: Self;
    unsafe fn load<S: Simd>(at: *const Self) -> S::V;
    unsafe fn load_first<S: Simd>(at: *const Self, n: usize) -> S::V;
}

macro_rules! element {
    ($($t:ty: $zero:expr, $load:ident, $load_first:ident;)*) => { $(impl Element for $t {
        const ZERO: Self = $zero;
        #[inline(always)]
        unsafe fn load<S: Simd>(at: *const Self) -> S::V {
            // SAFETY: the contract of the trait.
            unsafe { S::$load(at) }
        }
        #[inline(always)]
        unsafe fn load_first<S: Simd>(at: *const Self, n: usize) -> S::V {
            // SAFETY: the contract of the trait.
            unsafe { S::$load_first(at, n) }
        }
    })* };
}
element! {
    f32: 0.0, load, load_first;
    f16: f16::ZERO, load_f16, widen_first;
    bf16: bf16::ZERO, load_bf16, widen_first;
    u8: 0, load_u8, widen_first;
}

/// Methods of an impl of [`Simd`], one expression each.
macro_rules! simd_methods {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $body:expr;)*) => { $(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller promises the instructions and the elements at the pointers.
            unsafe { $body }
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    const FUSED: bool = true;
    simd_methods! {
        fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn load(at: *const f32) -> __m512 = _mm512_loadu_ps(at);
        fn load_first(at: *const f32, n: usize) -> __m512 = _mm512_maskz_loadu_ps(first(n), at);
        fn store(at: *mut f32, v: __m512) -> () = _mm512_storeu_ps(at, v);
        fn store_first(at: *mut f32, n: usize, v: __m512) -> () = _mm512_mask_storeu_ps(at, first(n), v);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn sum(v: __m512) -> f32 = _mm512_reduce_add_ps(v);
        fn sums(v: [__m512; 4]) -> [f32; 4] =
            Avx2::sums([fold_half(v[0]), fold_half(v[1]), fold_half(v[2]), fold_half(v[3])]);
        fn power(v: __m512) -> __m512 = {
            let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(v));
            _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f80_0000)))
        };
        fn nonzeros(v: __m512) -> u32 = u32::from(_mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(v, _mm512_setzero_ps()));
        fn zero_below(v: __m512, x: __m512, least: __m512) -> __m512 =
            _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, least), v);
        fn load_f16(at: *const f16) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()));
        fn load_bf16(at: *const bf16) -> __m512 =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()))));
        fn load_u8(at: *const u8) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast())));
    }
}

/// Sum of both halves.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn fold_half(v: __m512) -> __m256 {
    // SAFETY: the caller promises AVX-512.
    unsafe {
        let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v));
        _mm256_add_ps(_mm512_castps512_ps256(v), _mm256_castpd_ps(high))
    }
}

/// Mask of the first `n` of 16 elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const FUSED: bool = true;
    simd_methods! {
        fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn load(at: *const f32) -> __m256 = _mm256_loadu_ps(at);
        fn load_first(at: *const f32, n: usize) -> __m256 = _mm256_maskload_ps(at, first_of_8(n));
        fn store(at: *mut f32, v: __m256) -> () = _mm256_storeu_ps(at, v);
        fn store_first(at: *mut f32, n: usize, v: __m256) -> () = _mm256_maskstore_ps(at, first_of_8(n), v);
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn sum(v: __m256) -> f32 = {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        };
        fn sums(v: [__m256; 4]) -> [f32; 4] = {
            // Four sums in each half of the register.
            let v = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let mut sums = [0.0; 4];
            _mm_storeu_ps(sums.as_mut_ptr(), v);
            sums
        };
        fn power(v: __m256) -> __m256 = {
            let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(v));
            _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f80_0000)))
        };
        fn nonzeros(v: __m256) -> u32 = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NEQ_UQ>(v, _mm256_setzero_ps())) as u32;
        fn zero_below(v: __m256, x: __m256, least: __m256) -> __m256 =
            _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(x, least), v);
        fn load_f16(at: *const f16) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(at.cast()));
        fn load_bf16(at: *const bf16) -> __m256 =
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()))));
        fn load_u8(at: *const u8) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())));
    }
}

/// Mask of the first `n` of 8 elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_8(n: usize) -> __m256i {
    // SAFETY: the caller promises AVX2.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// Baseline vectors of the target, from the crate `wide`: SSE2 on x86-64, NEON on 64-bit ARM.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[allow(unused_unsafe, reason = "only loads and stores are unsafe at this level")]
impl Simd for Portable {
    type V = f32x4;
    const LANES: usize = 4;
    const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 32 } else { 16 };
    const FUSED: bool = cfg!(target_arch = "aarch64");
    simd_methods! {
        fn splat(x: f32) -> f32x4 = f32x4::splat(x);
        fn load(at: *const f32) -> f32x4 = f32x4::new(at.cast::<[f32; 4]>().read());
        fn load_first(at: *const f32, n: usize) -> f32x4 = {
            let mut v = [0.0; 4];
            v[..n].copy_from_slice(std::slice::from_raw_parts(at, n));
            f32x4::new(v)
        };
        fn store(at: *mut f32, v: f32x4) -> () = at.cast::<[f32; 4]>().write(v.to_array());
        fn store_first(at: *mut f32, n: usize, v: f32x4) -> () =
            std::slice::from_raw_parts_mut(at, n).copy_from_slice(&v.to_array()[..n]);
        fn add(a: f32x4, b: f32x4) -> f32x4 = a + b;
        fn sub(a: f32x4, b: f32x4) -> f32x4 = a - b;
        fn mul(a: f32x4, b: f32x4) -> f32x4 = a * b;
        fn fma(a: f32x4, b: f32x4, c: f32x4) -> f32x4 = a.mul_add(b, c);
        fn max(a: f32x4, b: f32x4) -> f32x4 = a.simd_gt(b).bitselect(a, b);
        fn sum(v: f32x4) -> f32 = {
            let [a, b, c, d] = v.to_array();
            (a + c) + (b + d)
        };
        fn sums(v: [f32x4; 4]) -> [f32; 4] = {
            let [a, b, c, d] = f32x4::transpose(v);
            ((a + c) + (b + d)).to_array()
        };
        fn power(v: f32x4) -> f32x4 = {
            let bits: u32x4 = bytemuck::cast(v);
            bytemuck::cast((bits << 23) + u32x4::splat(0x3f80_0000))
        };
        fn nonzeros(v: f32x4) -> u32 = v.simd_ne(f32x4::ZERO).to_bitmask();
        fn zero_below(v: f32x4, x: f32x4, least: f32x4) -> f32x4 = x.simd_lt(least).bitselect(f32x4::ZERO, v);
        fn load_f16(at: *const f16) -> f32x4 = f32x4::new(at.cast::<[f16; 4]>().read().map(f16::to_f32));
        fn load_bf16(at: *const bf16) -> f32x4 = f32x4::new(at.cast::<[bf16; 4]>().read().map(bf16::to_f32));
        fn load_u8(at: *const u8) -> f32x4 = f32x4::new(at.cast::<[u8; 4]>().read().map(f32::from));
    }
}
