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
