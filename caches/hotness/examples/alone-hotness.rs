//! Scores a generated graph by degree and by inclusion probability. Run: `cargo run -p morphgl-hotness --example alone-hotness`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_generate::{SbmConfig, sbm};
use morphgl_hotness::{Degree, Inclusion, Policy};
use morphgl_registry::SamplerSettings;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dataset = sbm(&SbmConfig::default())?;
    let (graph, train, settings) = (&dataset.topology, &dataset.splits.train, SamplerSettings::default());
    let seeds = &train[..2048];
    let inclusion = Inclusion.score(graph, seeds, &settings)?;
    let degree = Degree.score(graph, seeds, &settings)?;
    let all: f32 = inclusion.features.iter().sum();
    for (name, hotness) in [("inclusion probability", &inclusion), ("in-degree", &degree)] {
        let mut hottest: Vec<usize> = (0..graph.num_nodes()).collect();
        hottest.sort_by(|&a, &b| hotness.features[b].total_cmp(&hotness.features[a]));
        let held: f32 = hottest[..graph.num_nodes() / 10].iter().map(|&v| inclusion.features[v]).sum();
        println!("a tenth of the nodes by {name}: {:.1}% of the expected accesses", 100.0 * held / all);
    }
    Ok(())
}
