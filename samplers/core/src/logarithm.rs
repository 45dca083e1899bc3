//! A natural logarithm with the same bits on all hardware.

/// ln 2, rounded to f64.
const LN_2: f64 = std::f64::consts::LN_2;

/// The natural logarithm of a positive normal number, by additions, multiplications and divisions of f64 alone, in a
/// fixed order, so that every machine that rounds as IEEE 754 says computes the same bits. No fused multiply-add may
/// be used. Its relative error is below 2^-50.
///
/// With `x = m * 2^e` and `m` in `(sqrt(1/2), sqrt(2)]`: `s = (m - 1) / (m + 1)`, `z = s * s`,
/// `p = 1/23`, then `p = p * z + 1/q` for q = 21, 19, …, 3, 1, and `ln x = e * LN_2 + (2 * s) * p`.
///
/// # Panics
///
/// In debug builds, when `x` is not a positive normal number.
#[inline]
pub fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0, "the logarithm of {x} is not computed");
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 23.0;
    for q in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        p = p * z + 1.0 / q;
    }
    f64::from(exponent) * LN_2 + (2.0 * s) * p
}

#[cfg(test)]
mod tests;
