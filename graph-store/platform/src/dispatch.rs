//! Run-time dispatch of a function over SIMD levels.

/// Defines `fn name(level: SimdLevel, …)`, which evaluates the expression given for `level`, compiled for the
/// instructions of that level.
///
/// The arms see the function's arguments. What an arm calls is compiled for its level where it is `#[inline(always)]`,
/// or where it has `#[target_feature]`s of that level. On processors other than x86-64 only the portable arm exists. The
/// function may have a type parameter with a bound, `fn name<T: Bound>(…)`, which the types of its arguments determine.
///
/// ```
/// use morphgl_platform::{SimdLevel, simd_dispatch};
///
/// #[inline(always)]
/// fn add_all(values: &[u32]) -> u32 {
///     values.iter().sum()
/// }
///
/// simd_dispatch! {
///     /// The sum of `values`.
///     fn sum(values: &[u32]) -> u32;
///     avx512: add_all(values), avx2: add_all(values), portable: add_all(values)
/// }
///
/// assert_eq!(sum(SimdLevel::current(), &[1, 2, 3]), 6);
/// ```
///
/// The function panics when the processor lacks `level`.
#[macro_export]
macro_rules! simd_dispatch {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$element:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;
        avx512: $avx512:expr, avx2: $avx2:expr, portable: $portable:expr $(,)?
    ) => {
        $(#[$meta])*
        $vis fn $name $(<$element: $bound>)? (level: $crate::SimdLevel, $($arg: $ty),*) $(-> $ret)? {
            assert!(level <= $crate::SimdLevel::detected(), "this processor has no {level}");
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2 $(<$element: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    $avx2
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                fn avx512 $(<$element: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    $avx512
                }
                match level {
                    $crate::SimdLevel::Portable => {}
                    // SAFETY: the assertion above: the processor has the level's instructions.
                    $crate::SimdLevel::Avx2 => return unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    $crate::SimdLevel::Avx512 | $crate::SimdLevel::Amx => return unsafe { avx512($($arg),*) },
                }
            }
            $portable
        }
    };
}
