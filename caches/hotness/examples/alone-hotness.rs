//! Scores a generated graph by degree and by inclusion probability. Run: `cargo run -p morphgl-hotness --example alone-hotness`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_generate::{SbmConfig, sbm};
use morphgl_hotness::{Cut, Degree, Inclusion, Kind, Policy};
use morphgl_registry::SamplerSettings;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dataset = sbm(&SbmConfig::default())?;
    let (graph, train, settings) = (&dataset.topology, &dataset.splits.train, SamplerSettings::default());
    let seeds = &train[..2048];
    let inclusion = Inclusion.score(graph, seeds, &settings)?;
    let degree = Degree.score(graph, seeds, &settings)?;
    let all: f32 = inclusion.features.iter().sum();
    for (name, hotness) in [("inclusion probability", &inclusion), ("in-degree", &degree)] {
        // A tenth of the rows, of 256 bytes each.
        let kind = Kind { saving: &|v| hotness.features[v as usize], bytes: &|_| 256 };
        let num_nodes = graph.num_nodes() as u32;
        let mut cut = Cut::new(num_nodes, std::slice::from_ref(&kind), u64::from(num_nodes) / 10 * 256);
        let held: f32 = (0..num_nodes).filter(|&v| cut.holds(&kind, v)).map(|v| inclusion.features[v as usize]).sum();
        println!("a tenth of the nodes by {name}: {:.1}% of the expected accesses", 100.0 * held / all);
    }
    Ok(())
}
