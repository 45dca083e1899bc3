use super::*;

#[test]
#[expect(clippy::print_stdout, reason = "the table is worth reading")]
fn the_ablation_of_neutronorch() {
    let mut thirds = Vec::new();
    println!(
        "| rows left | CPU layer / collection | hot share | L | H | S | S by rows alone | all | GPU training saved |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for once in [0.0, 0.02, 0.05, 0.1] {
        let fit = fitted(once);
        let Fit { cpu, hot, .. } = fit;
        let baseline = |g: &Graph| g.baseline().serial();
        let split = |g: &Graph| g.layer_split(fit).serial();
        let reuse = |fit: Fit| move |g: &Graph| g.hot_reuse(fit).serial();
        let [l, h, s] = steps(fit);
        let all = speed_up(baseline, |g| g.pipelined(fit));
        let alone = speed_up(reuse(fit), |g| reuse(fit)(g) - g.hot_reuse(fit).rows);
        let saved = 100.0 * BOTTOM * hot;
        println!("| {once} | {cpu:.2} | {hot:.2} | {l:.2} | {h:.2} | {s:.2} | {alone:.2} | {all:.2} | {saved:.1}% |");
        assert!(alone < 1.2, "given rows alone are {alone}");
        // The hot share that Fig. 15's 36.5% less training on the GPU implies is too low for the paper's H.
        let lower = speed_up(split, reuse(Fit { hot: 0.365 / BOTTOM, ..fit }));
        assert!((1.15..1.33).contains(&lower), "H is {lower}");
        for graph in &GRAPHS {
            let choice = graph.super_batches(fit);
            assert!(choice.chosen().is_some_and(|split| split.late_seconds <= 1e-9), "rows are late: {choice:?}");
        }
        assert!((l - 1.52).abs() < 0.005 && (h - 1.96).abs() < 0.005, "{l} and {h} are fitted");
        thirds.push(s);
    }
    assert!(thirds.is_sorted(), "more work to hide is more to gain: {thirds:?}");
    // The planner's third step encloses the paper's within the open range.
    assert!(thirds[0] < 1.65 && thirds[3] > 1.65 && thirds[3] < 1.85, "{thirds:?}");
}
