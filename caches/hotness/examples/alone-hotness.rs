//! Hit rates of caches filled by several policies. Run: `cargo run -p morphgl-hotness --example alone-hotness`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_hotness::{Hindsight, Policy, PolicyKind, coverage, hottest};
use morphgl_registry::{BatchingContext, Fanouts, SamplerSettings, SeedSet};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dataset = Arc::new(sbm(&SbmConfig { dim: 1, ..SbmConfig::default() })?);
    let (graph, num_nodes) = (&dataset.topology, dataset.num_nodes());
    let fanouts: Fanouts = "5,5".parse()?;
    let settings = SamplerSettings { batch_size: 128, ..fanouts.into() };
    let seeds = SeedSet::new("seeds", &dataset.splits.train[..1024], num_nodes)?;
    let sampler = CpuNeighbor::new(&BatchingContext {
        gather: false,
        ..BatchingContext::new(Arc::clone(&dataset), seeds.clone(), settings.clone())
    })?;
    // What the first three epochs access; no cache can know it beforehand.
    let optimum = Hindsight { batching: &sampler, epochs: 0..3, threads: 2 };
    let trained = optimum.score(graph, seeds.nodes(), &settings)?;
    let rows = [1, 5, 10, 25].map(|percent| num_nodes * percent / 100);
    println!("hit rates with 1, 5, 10 and 25% of the rows of {num_nodes} nodes");
    for kind in PolicyKind::ALL {
        let policy = kind.policy_of(0, &sampler, 2).unwrap_or_else(|| Box::new(optimum.clone()));
        let hotness = policy.score(graph, seeds.nodes(), &settings)?;
        let order = hottest(&hotness.features, rows[3]);
        let rates = coverage(&trained.features, &order, &rows).into_iter().map(|rate| format!("{:5.1}%", 100.0 * rate));
        println!("{:26}{}", kind.to_string(), rates.collect::<Vec<_>>().join(" "));
    }
    Ok(())
}
