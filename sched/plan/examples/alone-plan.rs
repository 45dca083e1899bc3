//! Plans from durations given by hand. Run: `cargo run -p morphgl-plan --example alone-plan`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_plan::{Curve, Durations, Invalid, Limits, Point, PoolPoint, Problem, RouteKeys, Seconds, plan};

fn main() -> Result<(), Invalid> {
    let ms = |mean: f64| Seconds { mean: mean / 1e3, std: mean / 1e4 };
    let batching: Vec<PoolPoint> =
        [(1, 40.0), (2, 21.0), (4, 12.0)].map(|(workers, t)| PoolPoint { workers, threads: 1, seconds: ms(t) }).into();
    let training = [(1, 90.0), (2, 50.0), (4, 30.0)].map(|(at, t)| Point { at, seconds: ms(t) });
    let problem = Problem {
        route: RouteKeys { batching: "sampler".into(), transferring: "none".into(), training: "model".into() },
        num_batches: 1179,
        cores: 4,
        durations: Durations::new(&batching, Seconds::default(), Curve::new(training.into())?)?,
        limits: Limits::default(),
    };
    let plans = plan(&problem);
    println!("{plans}");
    println!("{}", plans.best());
    Ok(())
}
