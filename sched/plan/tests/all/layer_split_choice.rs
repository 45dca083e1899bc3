//! Random machines: with staleness allowed no plan is predicted slower than without. `MORPHGL_TEST_MACHINES` is their number; the
//! published figures are of 1,000.
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

use crate::common::{CpuOnly, Random, TwoRoutes};
use morphgl_plan::{Curve, Point, Problem, Seconds, SplitPoint, SplitProblem, layer_split, plan, simulate_split};

const MACHINES: usize = 300;
const SEED: u64 = 11;
const N: usize = 100;
const RATIOS: [f64; 2] = [0.1, 0.4];
const SUPER_BATCHES: [usize; 3] = [1, 4, 16];

/// A machine of a host and a device.
fn two_routes(random: &mut Random) -> (Problem, Vec<Problem>) {
    let two = random.two_routes(N);
    let saved = [0; 5].map(|_| random.unit());
    let at = |ratio: f64| {
        let [host, dma, device, gather, training] = saved.map(|saved| 1.0 - saved * ratio.sqrt());
        let given = TwoRoutes {
            host: host * two.host,
            dma: dma * two.dma,
            device: device * two.device,
            gather: gather * two.gather,
            training: training * two.training,
            ..two
        };
        given.problem()
    };
    (two.problem(), RATIOS.map(at).to_vec())
}

/// A machine without an accelerator, whose training gets faster with up to four threads.
fn cores(random: &mut Random) -> (Problem, Vec<Problem>) {
    let cores = 1 + (random.unit() * 8.0) as usize;
    let (batching, training) = (random.seconds(), random.seconds());
    let saved = [random.unit(), random.unit()];
    let at = |ratio: f64| {
        let [b, t] = [batching * (1.0 - saved[0] * ratio.sqrt()), training * (1.0 - saved[1] * ratio.sqrt())];
        let batching = vec![(1, 1, b), (cores.max(2), 1, b / cores.max(2) as f64)];
        CpuOnly { n: N, cores, batching, transferring: 0.0, training: vec![(1, t), (4, 0.3 * t)] }.problem()
    };
    (at(0.0), RATIOS.map(at).to_vec())
}

/// Given rows by one or two threads, with a part that does not depend on the hot ratio.
fn points(random: &mut Random, problems: Vec<Problem>) -> Vec<SplitPoint> {
    let (whole, fixed) = (random.seconds(), 0.1 * random.seconds());
    let mut points = Vec::new();
    for (ratio, problem) in RATIOS.into_iter().zip(problems) {
        for super_batch in SUPER_BATCHES {
            // Nodes are shared by the mini-batches of a super-batch.
            let seconds = fixed + whole * ratio * (super_batch as f64).powf(0.7);
            let point = |at: usize| Point { at, seconds: Seconds::constant(seconds / (at as f64).powf(0.9)) };
            let embedding = Curve::new(vec![point(1), point(2)]).expect("seconds are valid");
            points.push(SplitPoint { super_batch, ratio, problem: problem.clone(), embedding });
        }
    }
    points
}

#[test]
fn with_staleness_allowed_no_plan_is_slower() {
    let number = std::env::var("MORPHGL_TEST_MACHINES").map_or(MACHINES, |n| n.parse().expect("a number of machines"));
    let mut random = Random(SEED);
    let (mut chosen, mut late, mut gains) = ([0; 2], 0, Vec::new());
    for machine in 0..number {
        let on_cores = machine % 2;
        let (exact, given) = if on_cores == 1 { cores(&mut random) } else { two_routes(&mut random) };
        let points = points(&mut random, given);
        let without = plan(&exact).expect("there is memory").best().prediction.epoch_seconds;
        let mut before = without;
        // With a higher bound there are more points.
        for staleness in [0, 1, 7, 31] {
            let problem = SplitProblem::new(exact.clone(), points.clone(), staleness).expect("valid");
            let choice = layer_split(&problem).expect("there is memory");
            let seconds = choice.epoch_seconds();
            assert!(seconds <= before, "machine {machine}: {seconds} s at staleness {staleness}, {before} s below it");
            before = seconds;
            assert_eq!(choice.exact.best().prediction.epoch_seconds, without);
            assert!(staleness > 0 || choice.split.is_none());
            let Some(found) = choice.chosen() else {
                assert_eq!(seconds, without);
                continue;
            };
            assert!(found.split.staleness() <= staleness, "machine {machine}: {found:?}");
            found.check().expect("our own plan is valid");
            let again = simulate_split(&found.plan.schedule, &found.split, 1);
            assert_eq!(again.simulation.seconds, seconds, "machine {machine}");
            if staleness == 31 {
                chosen[on_cores] += 1;
                late += usize::from(found.late_seconds > 1e-3 * seconds);
                gains.push(without / seconds);
            }
        }
    }
    gains.sort_by(f64::total_cmp);
    let of = |part: f64| gains[(part * (gains.len() - 1) as f64) as usize];
    println!(
        "split on {chosen:?} of {} machines each (with a device, without), rows late on {late}; exact over split: median \
         {:.3}, 90th percentile {:.3}, most {:.3}",
        number / 2,
        of(0.5),
        of(0.9),
        of(1.0)
    );
    // Both outcomes occur on both kinds of machine.
    assert!(chosen.iter().all(|c| (number / 20..49 * number / 100).contains(c)), "{chosen:?}");
}

/// The choice beside every pipeline on the cores by hand, of every pool and count of training threads.
#[test]
fn the_search_is_near_the_best_pipeline_by_hand() {
    let mut random = Random(SEED);
    let mut worst: f64 = 1.0;
    for machine in 0..100 {
        let cores = 2 + (random.unit() * 6.0) as usize;
        let (b, t) = (random.seconds(), random.seconds());
        let with = |factor: f64| CpuOnly {
            n: N,
            cores,
            batching: vec![(1, 1, b * factor), (cores, 1, b * factor / cores as f64)],
            transferring: 0.0,
            training: vec![(1, t * factor), (4, 0.3 * t * factor)],
        };
        let embedding = Curve::new(vec![Point { at: 1, seconds: Seconds::constant(2.0 * random.seconds()) }]);
        let (exact, given) = (with(1.0), with(0.6));
        let embedding = embedding.expect("seconds are valid");
        let point = SplitPoint { super_batch: 8, ratio: 0.2, problem: given.problem(), embedding };
        let problem = SplitProblem::new(exact.problem(), vec![point], 15).expect("valid");
        let choice = layer_split(&problem).expect("there is memory");
        let found = choice.split.expect("a point is within the bound");
        let seconds = found.plan.prediction.epoch_seconds;
        for workers in 1..=cores {
            for threads in 1..=cores + 1 - workers {
                let [exact, given] = [&exact, &given].map(|m| m.pipeline(workers, threads, 10 + workers));
                let mut split = found.split.clone();
                let share = &exact.shares[0];
                split.exact.batching = share.batching;
                split.exact.training = share.training;
                let by_hand = simulate_split(&given, &split, 1).simulation.seconds;
                worst = worst.max(seconds / by_hand);
                assert!(
                    seconds <= 1.0011 * by_hand,
                    "machine {machine}: {seconds} s, {by_hand} s by {workers} and {threads}"
                );
            }
        }
    }
    println!("the search is at most {worst:.4} of the best pipeline by hand");
}
