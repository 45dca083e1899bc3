//! Optimizers, clipping and schedules against trajectories of torch 2.15 in f64, and their laws.

use morphgl_model_core::{
    LrSchedule, LrScheduleKind, OptimizerKind, OptimizerSpec, OptimizerStep, Plateau, Steps, TrainingSpec,
    sum_of_squares,
};
use proptest::prelude::*;

/// Gradient of step `t`, which torch's trajectories have as well: `0.3 * sin(1.7 * t + 0.9 * i) * (1 + i)`.
fn gradient(t: u64) -> [f32; 4] {
    [0, 1, 2, 3].map(|i| (0.3 * (1.7 * t as f64 + 0.9 * f64::from(i)).sin() * f64::from(1 + i)) as f32)
}

/// Parameters after steps 1, 2 and 12 from `[0.5, -1.25, 2, 0]`.
fn trajectory(spec: &OptimizerSpec) -> Vec<[f32; 4]> {
    spec.validate().expect("a valid optimizer");
    let mut parameters = [0.5, -1.25, 2.0, 0.0];
    let mut moments = [0, 1].map(|i| vec![0.0; if i < spec.moments().len() { 4 } else { 0 }]);
    let mut after = Vec::new();
    for t in 0..12 {
        // Two seeds, whose gradients are summed.
        let sums = gradient(t).map(|g| 2.0 * g);
        let scale = spec.gradient_scale(2, || sum_of_squares(&sums));
        let step = OptimizerStep::at(spec, Steps { done: t + 1, reductions: 0 }, true);
        step.update(&mut parameters, moments.each_mut().map(|m| &mut m[..]), &sums, scale);
        if [0, 1, 11].contains(&t) {
            after.push(parameters);
        }
    }
    after
}

/// `torch.optim.{Adam, AdamW, SGD}(lr=0.05, weight_decay=0.1)`, with `clip_grad_norm_(0.4)` and without decay where clipped, and
/// `CosineAnnealingLR(T_max=12, eta_min=0.01)`.
#[test]
fn trajectories_are_torchs() {
    let adam = OptimizerSpec { lr: 0.05, weight_decay: 0.1, ..OptimizerSpec::default() };
    let adamw = OptimizerSpec { kind: OptimizerKind::AdamW, ..adam };
    let sgd = OptimizerSpec { kind: OptimizerKind::Sgd, ..adam };
    let momentum = OptimizerSpec { momentum: 0.9, ..sgd };
    let cosine = LrSchedule { kind: LrScheduleKind::Cosine, min: 0.01, epochs: 12, ..LrSchedule::default() };
    let cases: [(&str, OptimizerSpec, [[f64; 4]; 3]); 7] = [
        (
            "adam",
            adam,
            [
                [0.45, -1.2999999985507085, 1.9500000004644842, -0.04999999902506721],
                [0.4083457569923612, -1.3468895233007723, 1.9208540589347471, -0.02970182038038765],
                [0.2851498807432245, -1.23519762742191, 1.7702580047508618, -0.00934828091024191],
            ],
        ),
        (
            "adamw",
            adamw,
            [
                [0.4975, -1.2937499989361614, 1.9400000005704747, -0.04999999902506721],
                [0.4578056605898983, -1.3357243010029394, 1.9113959560070555, -0.0295264472672718],
                [0.4022414342778889, -1.3075094983589632, 1.8004757634747544, -0.009597094421986483],
            ],
        ),
        (
            "sgd",
            sgd,
            [
                [0.4975, -1.2672498072888245, 1.9461768566104811, -0.025642792814029786],
                [0.48013752784321295, -1.2763785994070243, 1.9522312175734615, 0.031581545583411315],
                [0.4722137563620962, -1.1964876554797763, 1.8427505561706217, -0.02820739034235662],
            ],
        ),
        (
            "momentum",
            momentum,
            [
                [0.4975, -1.2672498072888245, 1.9461768566104811, -0.025642792814029786],
                [0.477887527843213, -1.2919034259669664, 1.9037903885228946, 0.008503032050784506],
                [0.33488283144608527, -1.0436073605286733, 1.3609280810174282, 0.04307004195822454],
            ],
        ),
        (
            "nesterov",
            OptimizerSpec { nesterov: true, ..momentum },
            [
                [0.49525, -1.2827746338487667, 1.8977360275599142, -0.0487213063466566],
                [0.46025767790210464, -1.3139441969249748, 1.8661027551200473, 0.039453520307677334],
                [0.329779147469674, -1.0140667746840692, 1.2899063234327566, 0.007299477541588571],
            ],
        ),
        (
            "clipped",
            OptimizerSpec { weight_decay: 0.0, clip_norm: Some(0.4), ..momentum },
            [
                [0.5, -1.2584004700396605, 1.984334552255564, -0.009166522521651472],
                [0.49527813160632916, -1.2708700712751686, 1.9752464721515206, 0.0007080367890561918],
                [0.48689571236183005, -1.2959891202681537, 1.9535509761424619, 0.014983103879540277],
            ],
        ),
        (
            "cosine",
            OptimizerSpec { schedule: cosine, ..adamw },
            [
                [0.4975, -1.2937499989361614, 1.9400000005704747, -0.04999999902506721],
                [0.45834668131645845, -1.3351522051389317, 1.9117858196803712, -0.029805495010901746],
                [0.41898589409253456, -1.323255072579835, 1.8497669395344738, -0.011663569398716461],
            ],
        ),
    ];
    for (name, spec, torchs) in cases {
        for (ours, torchs) in trajectory(&spec).iter().flatten().zip(torchs.iter().flatten()) {
            // The first gradient of a parameter is 0, where Adam's step is 0 over eps.
            assert!((f64::from(*ours) - torchs).abs() < 4e-6, "{name}: {ours}, torch's {torchs}");
        }
    }
}

/// Learning rates of all steps.
fn rates(schedule: LrSchedule, steps: u64) -> Vec<f64> {
    let spec = OptimizerSpec { lr: 0.05, schedule, ..OptimizerSpec::default() };
    spec.validate().expect("a valid schedule");
    (1..=steps).map(|done| spec.lr(Steps { done, reductions: 0 })).collect()
}

#[track_caller]
fn equal(ours: &[f64], torchs: &[f64]) {
    assert_eq!(ours.len(), torchs.len());
    ours.iter().zip(torchs).for_each(|(a, b)| assert!((a - b).abs() <= 1e-15, "{ours:?}, torch's {torchs:?}"));
}

/// `CosineAnnealingLR(T_max=12, eta_min=0.01)` at 0.05.
const COSINE: [f64; 12] = [
    0.05,
    0.04931851652578137,
    0.04732050807568878,
    0.04414213562373095,
    0.04,
    0.035176380902050414,
    0.03,
    0.024823619097949584,
    0.020000000000000004,
    0.01585786437626905,
    0.012679491924311226,
    0.010681483474218637,
];

/// `LambdaLR(lambda step: (step + 1) / 6)` at 0.05.
const WARMUP: [f64; 6] = [0.05 / 6.0, 0.05 / 3.0, 0.025, 0.05 / 1.5, 0.25 / 6.0, 0.05];

/// `CosineAnnealingLR`, `StepLR(step_size=2, gamma=0.3)` advanced every 3 steps, and `SequentialLR` of a `LambdaLR` and a
/// `CosineAnnealingLR`.
#[test]
fn schedules_are_torchs() {
    let cosine =
        LrSchedule { kind: LrScheduleKind::Cosine, min: 0.01, steps_per_epoch: 3, epochs: 4, ..Default::default() };
    equal(&rates(cosine, 12), &COSINE);
    assert_eq!(rates(cosine, 15)[12..], [0.01; 3], "a run that is longer stays at the minimum");
    let warm = LrSchedule { warmup: 2, epochs: 6, ..cosine };
    equal(&rates(warm, 18), &[&WARMUP[..], &COSINE].concat());
    let step =
        LrSchedule { kind: LrScheduleKind::Step, step_size: 2, gamma: 0.3, steps_per_epoch: 3, ..Default::default() };
    equal(&rates(step, 18), &[[0.05; 6], [0.015; 6], [0.0045; 6]].concat());
    let constant = LrSchedule { warmup: 2, steps_per_epoch: 3, ..Default::default() };
    equal(&rates(constant, 8), &[&WARMUP[..], &[0.05; 2]].concat());
    let plain = OptimizerSpec { lr: 0.1 + 0.2, ..OptimizerSpec::default() };
    assert_eq!(plain.lr(Steps { done: 17, reductions: 0 }), 0.1 + 0.2, "a constant rate is the rate itself");
}

/// `ReduceLROnPlateau(factor=0.3, patience=2, min_lr=0.002)` at 0.05, in both modes.
#[test]
fn plateaus_are_torchs() {
    let scores = [0.3, 0.5, 0.49, 0.50004, 0.48, 0.47, 0.6, f64::NAN, 0.59, 0.58, 0.57, 0.56, 0.55, 0.54, 0.53];
    let torchs =
        [0.05, 0.05, 0.05, 0.05, 0.015, 0.015, 0.015, 0.015, 0.015, 0.0045, 0.0045, 0.0045, 0.002, 0.002, 0.002];
    let schedule =
        LrSchedule { kind: LrScheduleKind::Plateau, gamma: 0.3, patience: 2, min: 0.002, ..Default::default() };
    for highest_is_best in [true, false] {
        let (mut plateau, mut reductions) = (Plateau::default(), 0);
        let rate = |(epoch, score): (u32, &f64)| {
            let score = if highest_is_best { *score } else { 1.0 - score };
            reductions += u32::from(plateau.reduces(epoch, score, highest_is_best, schedule.patience));
            schedule.lr(0.05, Steps { done: epoch.into(), reductions })
        };
        equal(&(1..).zip(&scores).map(rate).collect::<Vec<_>>(), &torchs);
    }
}

/// A spec without the fields that later versions added is Adam at a constant rate, and is written as it was read.
#[test]
fn specs_of_earlier_versions_are_read() {
    let optimizer = serde_json::json!({
        "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 5e-4, "weight_decay_on": "first_layer"
    });
    let json = serde_json::json!({"model": {"kind": "gcn", "in_dim": 1, "num_classes": 2}, "optimizer": optimizer});
    let spec = TrainingSpec::from_json(&json).expect("a spec of an earlier version");
    assert_eq!(spec.optimizer.kind, OptimizerKind::Adam);
    assert_eq!(spec.to_json()["optimizer"], optimizer);
}

#[test]
fn wrong_combinations_are_named() {
    for (field, json) in [
        ("momentum", r#"{"momentum": 0.9}"#),
        ("momentum", r#"{"kind": "adamw", "momentum": 0.9}"#),
        ("momentum", r#"{"kind": "sgd", "momentum": 1}"#),
        ("nesterov", r#"{"kind": "sgd", "nesterov": true}"#),
        ("clip_norm", r#"{"clip_norm": 0}"#),
        ("schedule.min", r#"{"lr": 0.1, "schedule": {"kind": "cosine", "min": 0.2}}"#),
        ("schedule.gamma", r#"{"schedule": {"kind": "step", "gamma": 1}}"#),
        ("schedule.step_size", r#"{"schedule": {"kind": "step", "step_size": 0}}"#),
        ("schedule.warmup", r#"{"schedule": {"kind": "cosine", "warmup": 3, "epochs": 3}}"#),
    ] {
        let spec: OptimizerSpec = serde_json::from_str(json).expect("a spec");
        let error = spec.validate().expect_err(json).to_string();
        assert!(error.starts_with(&format!("optimizer.{field}: ")), "{json}: {error}");
    }
}

/// Rows of a table with a gradient move as other parameters do; the others and their moments stay.
#[test]
fn rows_without_a_gradient_stay() {
    for json in [
        r#"{"weight_decay": 0.1}"#,
        r#"{"kind": "adamw", "weight_decay": 0.1}"#,
        r#"{"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1}"#,
        r#"{"kind": "sgd"}"#,
    ] {
        let spec: OptimizerSpec = serde_json::from_str(json).expect("a spec");
        let step = OptimizerStep::at(&spec, Steps { done: 3, ..Steps::default() }, true);
        let count = spec.moments().len();
        let moments = || [0, 1].map(|i| vec![0.5f32; if i < count { 6 } else { 0 }]);
        let [mut rows, mut all] = [(); 2].map(|()| (vec![1.0f32; 6], moments()));
        let gradients = [0.0, 2.0, 0.0, 0.0, f32::NAN, 0.0];
        step.update_rows(2, &mut rows.0, rows.1.each_mut().map(|m| &mut m[..]), &gradients, 0.5);
        step.update(&mut all.0, all.1.each_mut().map(|m| &mut m[..]), &gradients, 0.5);
        assert_eq!((rows.0[..2].to_vec(), rows.0[2..4].to_vec()), (all.0[..2].to_vec(), vec![1.0; 2]), "{json}");
        assert!(rows.0[4].is_nan() && rows.0[5] == all.0[5], "{json}");
        for (of_rows, of_all) in rows.1.iter().zip(&all.1).filter(|(m, _)| !m.is_empty()) {
            assert_eq!((&of_rows[..2], &of_rows[2..4]), (&of_all[..2], &[0.5; 2][..]), "{json}");
        }
    }
}

proptest! {
    /// The sum is that of f64 in a row but for its rounding, and has the same bits on any number of threads.
    #[test]
    fn squares_add_up(len in 0usize..70_000, seed: u32) {
        let value = |i: usize| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / 65536.0 - 128.0;
        let values: Vec<f32> = (0..len).map(value).collect();
        let sum: f64 = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| sum_of_squares(&values))
        };
        let one = on(1);
        prop_assert!((one - sum).abs() <= 1e-12 * sum);
        prop_assert_eq!(on(3), one);
    }

    /// Clipping never lengthens a gradient, leaves a short one as it is, and cuts a long one to the norm.
    #[test]
    fn norms_are_clipped(values in proptest::collection::vec(-10f32..10.0, 1..50), count in 1u64..100, max in 0.01f64..10.0) {
        let spec = OptimizerSpec { clip_norm: Some(max), ..OptimizerSpec::default() };
        let whole = 1.0 / count as f32;
        let scale = spec.gradient_scale(count, || sum_of_squares(&values));
        let norm = |scale: f32| sum_of_squares(&values).sqrt() * f64::from(scale);
        if norm(whole) + 1e-6 <= max {
            prop_assert_eq!(scale, whole);
        } else {
            prop_assert!(norm(scale) <= max * (1.0 + 1e-6) && norm(scale) >= max.min(norm(whole)) * (1.0 - 1e-3));
        }
        prop_assert_eq!(OptimizerSpec::default().gradient_scale(count, || unreachable!("nothing is clipped")), whole);
    }
}
