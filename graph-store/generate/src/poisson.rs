//! Poisson counts from counter-based random numbers.

use crate::random::Key;

/// Draws a Poisson number of mean `lambda`; uses as many of `key`'s values as it needs.
///
/// # Complexity
///
/// Expected O(lambda) below 30 by inversion, O(1) above by Hörmann's transformed rejection (PTRS, "The transformed
/// rejection method for generating Poisson random variables", 1993).
pub(crate) fn poisson(key: Key, lambda: f64) -> u64 {
    debug_assert!(lambda.is_finite() && lambda >= 0.0, "a Poisson mean of {lambda}");
    if lambda < 30.0 { by_inversion(key, lambda) } else { by_rejection(key, lambda) }
}

fn by_inversion(key: Key, lambda: f64) -> u64 {
    let mut left = key.unit(0);
    let mut p = (-lambda).exp();
    let mut k = 0;
    // Beyond 200 the tail of a mean of 30 is below f64's resolution.
    while left > p && k < 200 {
        left -= p;
        k += 1;
        p *= lambda / k as f64;
    }
    k
}

fn by_rejection(key: Key, lambda: f64) -> u64 {
    let log_lambda = lambda.ln();
    let b = 0.931 + 2.53 * lambda.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inv_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let v_r = 0.9277 - 3.6224 / (b - 2.0);
    for i in 0.. {
        let u = key.unit(2 * i) - 0.5;
        let v = key.unit(2 * i + 1);
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + lambda + 0.43).floor();
        if us >= 0.07 && v <= v_r {
            return k as u64;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        let accept = (v * inv_alpha / (a / (us * us) + b)).ln();
        if accept <= k * log_lambda - lambda - ln_factorial(k) {
            return k as u64;
        }
    }
    unreachable!("rejection ends with probability one")
}

/// ln(k!), by Stirling's series where it is exact to 1e-9.
fn ln_factorial(k: f64) -> f64 {
    if k < 10.0 {
        return (2..=k as u64).map(|i| (i as f64).ln()).sum();
    }
    let x = k + 1.0;
    (x - 0.5) * x.ln() - x + 0.918_938_533_204_672_7 + 1.0 / (12.0 * x) - 1.0 / (360.0 * x * x * x)
}

#[cfg(test)]
mod tests;
