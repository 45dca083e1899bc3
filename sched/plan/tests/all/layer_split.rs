//! Layer-split epochs with known times, laws of their simulation, refused problems, and the control of the hot ratio.

use crate::common::check::constraints;
use crate::common::{DEVICE, HOST, Random, TwoRoutes};
use morphgl_plan::{
    Curve, PerPhase, Phase, Point, Policy, Problem, Schedule, Seconds, Simulation, Split, SplitChoice, SplitPoint,
    SplitProblem, SplitSimulation, layer_split, next_ratio, simulate, simulate_split, split_timeline,
};
use proptest::prelude::*;

/// Super-batches of `n`, with these seconds of exact phases and of given rows, which one thread computes.
fn split(n: usize, [batching, transferring, training]: [f64; 3], embedding: f64) -> Split {
    let [batching, transferring, training] = [batching, transferring, training].map(Seconds::constant);
    let exact = PerPhase { batching, transferring, training };
    Split { super_batch: n, ratio: 0.2, exact, embedding: Seconds::constant(embedding), threads: 1 }
}

/// Six mini-batches by one worker on four cores: 1 s of batching, 1 s of transferring, 2 s of training.
fn six() -> Schedule {
    let mut schedule = TwoRoutes::new(6, 1, [1.0, 1.0, 0.0, 0.0, 2.0]).single(Policy::Pipeline, HOST);
    schedule.resources[0].cores = Some(4);
    schedule
}

#[track_caller]
fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a}, expected {b}");
}

/// The simulation of mini-batches alone, without the rows of the next epoch that may end last.
fn phases(found: &SplitSimulation) -> Simulation {
    let ends = found.simulation.activities.iter().map(|a| a.span.end);
    Simulation { seconds: ends.fold(0.0, f64::max), ..found.simulation.clone() }
}

/// Runs an epoch: its seconds, and start, end and slack of each computation of given rows.
#[track_caller]
fn expect_of(
    epoch: u32,
    (schedule, split): (&Schedule, &Split),
    seconds: f64,
    embeddings: &[[f64; 3]],
) -> SplitSimulation {
    let found = split_timeline(schedule, split, epoch);
    constraints(schedule, &phases(&found));
    assert_eq!(simulate_split(schedule, split, epoch).simulation.seconds, found.simulation.seconds);
    assert_close(found.simulation.seconds, seconds);
    assert_eq!(found.embeddings.len(), embeddings.len(), "{:?}", found.embeddings);
    for (e, [start, end, slack]) in found.embeddings.iter().zip(embeddings) {
        assert_close(e.span.start, *start);
        assert_close(e.span.end, *end);
        assert_close(e.slack(), *slack);
    }
    found
}

/// The first epoch, see [`expect_of`].
#[track_caller]
fn expect(schedule: &Schedule, split: &Split, seconds: f64, embeddings: &[[f64; 3]]) -> SplitSimulation {
    expect_of(0, (schedule, split), seconds, embeddings)
}

#[test]
fn rows_in_time_do_not_delay_training() {
    // Steps of super-batch 0 are at 2-6 and 6-10, of super-batch 1 at 10-12 and 12-14. Rows of super-batch 2 take from 10 to 13,
    // in time for a transfer until 14.
    let found = expect(&six(), &split(2, [1.0, 1.0, 4.0], 3.0), 18.0, &[[2.0, 5.0, 4.0], [10.0, 13.0, 0.0]]);
    assert_close(found.load(), 6.0 / 18.0);
    assert_close(found.late(), 0.0);
    // Cores: six mini-batches of a second, and the rows.
    assert_close(found.simulation.busy[0], 6.0 + 6.0);
}

#[test]
fn late_rows_delay_training() {
    let found = expect(&six(), &split(2, [1.0, 1.0, 4.0], 4.0), 19.0, &[[2.0, 6.0, 3.0], [10.0, 14.0, -1.0]]);
    assert_close(found.slack().expect("there are two"), -1.0);
    assert_close(found.late(), 1.0);
}

#[test]
fn later_epochs_have_given_rows_throughout_and_compute_those_of_the_next() {
    let (schedule, exact) = (six(), [1.0, 1.0, 4.0]);
    let later = |rows: f64, seconds: f64, embeddings: &[[f64; 3]]| {
        expect_of(1, (&schedule, &split(2, exact, rows)), seconds, embeddings)
    };
    // The steps are at 2-6, 6-10 and 10-14, and the rows just in time, but for the next epoch's.
    let found = later(3.0, 14.0, &[[2.0, 5.0, 0.0], [6.0, 9.0, 0.0], [10.0, 13.0, 1.0]]);
    assert_close(found.load(), 9.0 / 14.0);
    assert_eq!(found.embeddings.last().map(|e| e.super_batch), Some(3));
    // Rows that take 5 s are 2 s late each time; the epoch ends a second after its last step at 14-18.
    let found = later(5.0, 19.0, &[[2.0, 7.0, -2.0], [8.0, 13.0, -2.0], [14.0, 19.0, -1.0]]);
    assert_close(found.late(), 5.0);
    // A whole epoch in one super-batch.
    expect_of(1, (&schedule, &split(7, exact, 3.0)), 14.0, &[[2.0, 5.0, 9.0]]);
}

#[test]
fn rows_take_cores_from_batching() {
    let mut schedule = TwoRoutes::new(4, 1, [1.0, 1.0, 0.0, 0.0, 2.0]).single(Policy::Pipeline, HOST);
    schedule.oversubscription = 1.0;
    // One core: mini-batches 2 and 3 are batched at 2-4 and 4-6, at half speed beside the rows, which then have one second left.
    expect(&schedule, &split(2, [1.0, 1.0, 4.0], 3.0), 14.0, &[[2.0, 7.0, 2.0]]);
    schedule.oversubscription = 1.5;
    // At a third of their speed: batched at 2-5 and 5-8, the rows have one second left.
    expect(&schedule, &split(2, [1.0, 1.0, 4.0], 3.0), 14.0, &[[2.0, 9.0, 0.0]]);
}

#[test]
fn a_sequential_epoch_waits_for_each_super_batch() {
    let mut schedule = TwoRoutes::new(4, 1, [1.0; 5]).single(Policy::Sequential, HOST);
    schedule.resources[0].cores = Some(2);
    let embeddings = [[2.0, 5.0, 0.0], [6.0, 9.0, -1.0], [10.0, 13.0, -1.0]];
    let found = expect(&schedule, &split(1, [1.0, 1.0, 2.0], 3.0), 15.0, &embeddings);
    assert_close(found.late(), 2.0);
}

#[test]
fn a_device_batches_ahead_while_a_transfer_waits() {
    let schedule = TwoRoutes::new(4, 1, [0.0, 0.0, 1.0, 1.0, 1.0]).single(Policy::Pipeline, DEVICE);
    // Mini-batch 2 is batched at 10-11 and its transfer is due; mini-batch 3 is batched first.
    expect(&schedule, &split(2, [1.0, 1.0, 3.0], 10.0), 16.0, &[[2.0, 12.0, -1.0]]);
    expect(&schedule, &split(2, [1.0, 1.0, 3.0], 12.0), 18.0, &[[2.0, 14.0, -3.0]]);
}

#[test]
fn one_super_batch_is_an_exact_epoch() {
    let exact = TwoRoutes::new(6, 1, [1.0, 1.0, 0.0, 0.0, 4.0]).single(Policy::Pipeline, HOST);
    for n in [6, 7, usize::MAX] {
        let found = expect(&six(), &split(n, [1.0, 1.0, 4.0], 100.0), simulate(&exact).seconds, &[]);
        assert_eq!(found.slack(), None);
    }
}

#[test]
fn staleness_is_at_most_two_super_batches_less_one() {
    assert_eq!(split(1, [1.0; 3], 1.0).staleness(), 1);
    assert_eq!(split(4, [1.0; 3], 1.0).staleness(), 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows that cost nothing and change no duration leave the epoch as it is, where transfers are never ahead of training by a
    /// super-batch: rows of the next one are computed when this one begins training.
    #[test]
    fn free_rows_change_nothing(
        seed in any::<u64>(), n in 1usize..50, route in 0usize..2, pipeline in any::<bool>(), epoch in 0u32..2,
    ) {
        let two = Random(seed).two_routes(100);
        let schedule = two.single(if pipeline { Policy::Pipeline } else { Policy::Sequential }, route);
        let share = &schedule.shares[0];
        let exact = [share.batching.mean, share.transferring.mean, share.training.mean];
        let (found, plain) = (simulate_split(&schedule, &split(n, exact, 0.0), epoch).simulation, simulate(&schedule));
        if n > schedule.ready {
            // A thread of no duration still rounds the ends of what it shares the cores with.
            let alike = (found.seconds - plain.seconds).abs() <= 1e-9 * plain.seconds && found.order == plain.order;
            prop_assert!(alike, "{} s, and {} s without", found.seconds, plain.seconds);
        }
        prop_assert!(found.seconds >= plain.seconds * (1.0 - 1e-12));
    }

    /// Rows are computed with the parameters at the start of the super-batch before, one super-batch at a time, and are complete
    /// before the first transfer; so no row is older than the bound when it is trained with.
    #[test]
    fn rows_are_within_the_bound(
        seed in any::<u64>(), n in 1usize..20, route in 0usize..2, pipeline in any::<bool>(), embedding in 0.0..20.0f64,
        epoch in 0u32..2,
    ) {
        let mut random = Random(seed);
        let two = random.two_routes(100);
        let schedule = two.single(if pipeline { Policy::Pipeline } else { Policy::Sequential }, route);
        let split = split(n, [0; 3].map(|_| random.seconds()), embedding);
        let found = split_timeline(&schedule, &split, epoch);
        constraints(&schedule, &phases(&found));
        prop_assert_eq!(found.embeddings.len(), 99 / n + epoch as usize);
        let begin = |phase, index: usize| {
            let mut all = found.simulation.activities.iter().filter(|a| a.phase == phase);
            all.find(|a| a.id.index as usize == index).expect("an activity of each phase").span
        };
        for e in &found.embeddings[..99 / n] {
            let first = e.super_batch * n;
            prop_assert_eq!(e.span.start, begin(Phase::Training, first - n).start);
            prop_assert!(e.span.end <= begin(Phase::Transferring, first).start);
            let version = (0..100).filter(|&i| begin(Phase::Training, i).end <= e.span.start).count();
            let last = (first + n - 1).min(99);
            prop_assert!(last - version <= split.staleness(), "{} and {}", last, version);
        }
        // Training is no later than by the rows' own lateness, and each late second is a wait of it.
        for e in found.embeddings[..99 / n].iter().filter(|e| e.slack() < 0.0) {
            let first = e.super_batch * n;
            let (before, step) = (begin(Phase::Training, first - 1).end, begin(Phase::Training, first).start);
            prop_assert!(step - before >= -e.slack() - 1e-9 * step, "{:?}: {} to {}", e, before, step);
        }
        // The rows of the next epoch's first super-batch are complete when the epoch ends.
        for e in &found.embeddings[99 / n..] {
            prop_assert_eq!(e.span.start, begin(Phase::Training, 99 / n * n).start);
            let end = begin(Phase::Training, 99).end.max(e.span.end);
            prop_assert!((found.simulation.seconds - end).abs() <= 1e-9 * end);
        }
    }
}

/// A host of four cores and a device, and a point that halves training.
fn example() -> (Problem, SplitPoint) {
    let two = TwoRoutes::new(40, 4, [0.2, 0.1, 9.0, 9.0, 2.0]);
    let given = TwoRoutes { training: 1.0, ..two };
    let embedding = Curve::new(vec![Point { at: 1, seconds: Seconds::constant(3.9) }]).expect("valid");
    (two.problem(), SplitPoint { super_batch: 4, ratio: 0.2, problem: given.problem(), embedding })
}

#[test]
fn the_split_is_chosen_within_its_bound_of_staleness() {
    let (exact, point) = example();
    let with = |staleness| {
        layer_split(&SplitProblem::new(exact.clone(), vec![point.clone()], staleness).expect("valid")).expect("fits")
    };
    for staleness in [0, 6] {
        let SplitChoice { exact: plans, split } = with(staleness);
        assert_eq!(split, None);
        assert_eq!(plans, morphgl_plan::plan(&exact).expect("it fits"));
    }
    let choice = with(7);
    // The first fill of 0.3 s and 40 steps of 1 s, in the first epoch 4 of them of 2 s; the rows of 3.9 s are done 0.1 s before a
    // super-batch's last step ends, just in time for a transfer of 0.1 s.
    assert_close(choice.exact.best().prediction.epoch_seconds, 0.3 + 80.0);
    assert_close(choice.epoch_seconds(), 0.3 + 40.0);
    let found = choice.chosen().expect("it is shorter");
    assert_eq!((found.split.staleness(), found.split.ratio, found.split.threads), (7, 0.2, 1));
    assert!(found.slack_seconds.expect("nine deadlines").abs() < 1e-9, "{found:?}");
    assert_close(found.first_seconds, 0.3 + 8.0 + 36.0);
    assert_close(found.load, 10.0 * 3.9 / 40.3);
    found.check().expect("our own plan is valid");
    let text = serde_json::to_string(&choice).expect("a choice is plain data");
    let back: SplitChoice = serde_json::from_str(&text).expect("our own text");
    assert_eq!(serde_json::to_string(&back).expect("plain data"), text);
    let again = simulate_split(&found.plan.schedule, &found.split, 1);
    assert_eq!(again.simulation.seconds, found.plan.prediction.epoch_seconds);
}

#[test]
fn a_split_that_is_slower_is_told_and_not_chosen() {
    let (exact, mut point) = example();
    point.embedding = Curve::new(vec![Point { at: 1, seconds: Seconds::constant(20.0) }]).expect("valid");
    let choice = layer_split(&SplitProblem::new(exact, vec![point], 100).expect("valid")).expect("it fits");
    let slower = choice.split.as_ref().expect("the point is within the bound");
    assert!(slower.plan.prediction.epoch_seconds > 9.0 * 20.0 && slower.late_seconds > 100.0, "{slower:?}");
    assert_eq!(choice.chosen(), None);
    assert_eq!(choice.epoch_seconds(), choice.exact.best().prediction.epoch_seconds);
}

#[test]
fn impossible_problems_are_refused() {
    let (exact, point) = example();
    let error =
        |point: SplitPoint| SplitProblem::new(exact.clone(), vec![point], 7).expect_err("impossible").to_string();
    let zero = error(SplitPoint { ratio: 0.0, ..point.clone() });
    assert_eq!(zero, "layer-split: point 0: the hot ratio: 0 is not above 0 and at most 1; ratio 0 is the exact plan");
    assert!(error(SplitPoint { ratio: f64::NAN, ..point.clone() }).contains("NaN"));
    assert!(error(SplitPoint { super_batch: 0, ..point.clone() }).contains("super_batch: 0 is outside 1 to"));
    let shorter = error(SplitPoint { problem: exact.clone().with_batches(39), ..point.clone() });
    assert!(shorter.contains("num_batches: 39, and 40 in the exact problem; give the same"), "{shorter}");
    let other = TwoRoutes::new(40, 5, [1.0; 5]).problem();
    assert!(error(SplitPoint { problem: other, ..point.clone() }).contains("resources"));
    // A plan from a file.
    let problem = SplitProblem::new(exact, vec![point], 7).expect("valid");
    let mut plan = layer_split(&problem).expect("it fits").split.expect("a split");
    plan.split.super_batch = 0;
    assert!(plan.check().expect_err("no mini-batches").to_string().contains("super_batch"));
    plan.split.super_batch = 4;
    plan.split.exact.training.mean = f64::INFINITY;
    assert!(plan.check().expect_err("no number").to_string().contains("exact training"));
}

/// Seconds of given rows and of a super-batch, as lines of the hot ratio.
#[derive(Debug, Clone, Copy)]
struct Costs {
    embed: [f64; 2],
    train: [f64; 2],
}

impl Costs {
    fn at(self, ratio: f64) -> [f64; 2] {
        [self.embed[0] + self.embed[1] * ratio, self.train[0] - self.train[1] * ratio]
    }

    /// Share of a super-batch's seconds that its rows take.
    fn used(self, ratio: f64) -> f64 {
        let [embed, train] = self.at(ratio);
        embed / train
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The ratio approaches the balance from one side, and stays once rows take 90% to 100% of a super-batch's seconds.
    #[test]
    fn the_hot_ratio_converges_without_oscillating(
        fixed in 0.0..0.4f64, slope in 0.05..20.0f64, saved in 0.0..0.74f64, start in 0.01..1.0f64, scale in -3.0..3.0f64,
    ) {
        let scale = 10f64.powf(scale);
        let costs = Costs { embed: [scale * fixed * 0.24, scale * slope], train: [scale, scale * saved] };
        let (mut ratio, mut direction, mut settled) = (start, 0.0, false);
        for _ in 0..1000 {
            let [embed, train] = costs.at(ratio);
            let next = next_ratio(ratio, embed, train);
            prop_assert!((0.0..=1.0).contains(&next));
            let change = next - ratio;
            prop_assert!(change * direction >= 0.0, "turns at {} of {:?}", ratio, costs);
            if costs.used(ratio) > 1.0 {
                prop_assert!(change < 0.0, "late at {} of {:?}", ratio, costs);
            }
            if costs.used(ratio) < 0.9 && ratio < 1.0 {
                prop_assert!(change > 0.0, "idle at {} of {:?}", ratio, costs);
            }
            direction = change.signum() * f64::from(u8::from(change != 0.0));
            settled = change == 0.0;
            ratio = next;
            if settled {
                break;
            }
        }
        prop_assert!(settled, "{} after 1000 super-batches of {:?}", ratio, costs);
        let used = costs.used(ratio);
        prop_assert!((0.9..=1.0).contains(&used) || ratio == 1.0 && used < 0.9, "{} at {} of {:?}", used, ratio, costs);
    }
}

#[test]
fn a_hot_ratio_has_its_ends() {
    // Nothing is measured at ratio 0, and computing that takes no time is for all nodes in the end.
    assert_eq!(next_ratio(0.0, 0.0, 1.0), 0.0);
    assert_eq!(next_ratio(0.3, 0.0, 1.0), 0.6);
    assert_eq!(next_ratio(0.7, 0.0, 1.0), 1.0);
    assert_close(next_ratio(0.4, 1.0, 0.0), 0.3);
    assert_eq!(next_ratio(0.4, 0.0, 0.0), 0.4);
    assert_eq!(next_ratio(0.4, 0.95, 1.0), 0.4);
}
