//! A natural logarithm that is the same number on every hardware.

/// ln 2, rounded to f64.
const LN_2: f64 = std::f64::consts::LN_2;

/// The natural logarithm of a positive normal number, by additions, multiplications and divisions of f64 alone, in a
/// fixed order, so that every machine that rounds as IEEE 754 says computes the same bits. No fused multiply-add may
/// be used in its place. Its relative error is below 2^-50.
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
mod tests {
    use super::*;

    #[test]
    fn is_the_logarithm() {
        let mut x: f64 = 0.5 / (1u64 << 52) as f64;
        while x < 4.0 {
            let (ours, exact) = (ln(x), x.ln());
            assert!((ours - exact).abs() <= exact.abs() * 2f64.powi(-50), "ln {x} = {exact}, not {ours}");
            x *= 1.000_37;
        }
        for ulps in 1..100u64 {
            let x = f64::from_bits(1f64.to_bits() - ulps);
            assert!((ln(x) / x.ln() - 1.0).abs() <= 2f64.powi(-50));
        }
        assert_eq!(ln(1.0), 0.0);
    }

    /// Bits that other implementations of the same rule have to give.
    #[test]
    fn known_bits() {
        let bits = [0.5, 0.1, 1e-10, 3.0].map(|x| ln(x).to_bits());
        assert_eq!(bits, [0xbfe6_2e42_fefa_39ef, 0xc002_6bb1_bbb5_5515, 0xc037_069e_2aa2_aa5a, 0x3ff1_93ea_7aad_030a]);
    }
}
