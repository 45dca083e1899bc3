//! A machine with a third route: batched by the host and gathered by the device, whose transfers hold bus and device at once.

use crate::common::{Random, TwoRoutes, check::check};
use morphgl_plan::{Candidate, Durations, Problem, Strategy, bound, plan, timeline};

/// The two routes, and one of the host's workers whose batching takes `sampling` seconds without the features, and whose copy and
/// gather take `gather`.
fn problem(two: &TwoRoutes, sampling: f64, gather: f64) -> Problem {
    let problem = two.problem();
    let mut routes = problem.routes().to_vec();
    let mut third: Candidate = routes[0].clone();
    third.keys.transferring = "Transferring_PCIe+SIM_DmaGather".parse().expect("a key");
    third.hardware.transferring = vec!["PCIe".into(), "SIM".into()];
    third.durations = Durations::constant(two.workers, sampling, gather, two.training).expect("durations are valid");
    routes.push(third);
    Problem::new(two.n, two.resources(), routes).expect("the problem is valid").with_limits(two.limits())
}

#[test]
fn plans_keep_the_constraints_and_the_bound() {
    let mut random = Random(11);
    let mut chosen = [0; 2];
    for _ in 0..60 {
        let two = random.two_routes(97);
        let (sampling, gather) = (two.host * (0.1 + 0.9 * random.unit()), two.gather * (1.0 + random.unit()));
        let problem = problem(&two, sampling, gather);
        let plans = plan(&problem).expect("there is memory");
        let bound = bound(&problem);
        for p in plans.all() {
            check(&p.schedule, &timeline(&p.schedule));
            let seconds = p.prediction.epoch_seconds;
            assert!(seconds >= bound * (1.0 - 1e-9), "{two:?}: {} takes {seconds}, bound {bound}", p.strategy);
            assert!(plans.best().prediction.epoch_seconds <= seconds);
            // Two routes with the same workers are never mixed.
            let by_host = p.schedule.shares.iter().filter(|s| !s.in_place).count();
            assert!(by_host <= 1, "{}", p.schedule);
        }
        let pipelines = plans.all().iter().filter(|p| p.strategy == Strategy::Pipeline);
        assert_eq!(pipelines.count(), 2, "one per route of the host");
        let gathered = plans.best().schedule.shares.iter().any(|s| s.keys.transferring.operator() == "DmaGather");
        chosen[usize::from(gathered)] += 1;
    }
    assert!(chosen.iter().all(|&n| n > 0), "{chosen:?}: either is best on some machines");
}
