use super::equation6;

#[test]
fn equation_6_is_at_its_least() {
    let time = |x: f64, [host, device, dma, training]: [f64; 4]| {
        x * device / (1.0 + x) + (dma / (1.0 + x)).max(training).max((host - x * device) / (1.0 + x))
    };
    for case in [[10.0, 3.0, 1.0, 2.0], [4.0, 1.0, 3.0, 0.5], [2.0, 9.0, 0.1, 1.0], [50.0, 1.0, 2.0, 1.0]] {
        let x = equation6(case[0], case[1], case[2], case[3]);
        let best = if x.is_finite() { time(x, case) } else { case[1] + case[3] };
        for i in 0..10_000 {
            let other = f64::from(i) / 100.0;
            assert!(best <= time(other, case) + 1e-12, "{case:?}: {x} gives {best}, {other} less");
        }
    }
}
