use super::*;

#[test]
fn the_share_inside_equals_a_sum_over_all_pairs() {
    let p = [0.57, 0.19, 0.19, 0.05];
    let pair = |s: u64, d: u64| -> f64 { (0..5).map(|l| p[(2 * (s >> l & 1) + (d >> l & 1)) as usize]).product() };
    for nodes in 17..=32u64 {
        let exact: f64 = (0..nodes).flat_map(|s| (0..nodes).map(move |d| pair(s, d))).sum();
        assert!((share_inside(p, 5, nodes) - exact).abs() < 1e-12, "{nodes} nodes");
    }
}
