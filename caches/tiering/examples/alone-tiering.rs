//! Reorders a graph by in-degree, and places its feature rows on two devices, host and disk.
//! Run: `cargo run -p morphgl-tiering --example alone-tiering`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, OpenOptions};
use morphgl_tiering::{Order, ReorderOptions, TierBudgets, TieredRows, Tiers, WarpAccess, WarpPattern, reorder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dataset = sbm(&SbmConfig { nodes: 10_000, dim: 120, ..SbmConfig::default() })?;
    let degrees: Vec<f32> = (0..10_000).map(|v| dataset.topology.degree(v) as f32).collect();
    let order = Order::by_hotness(&degrees)?;
    let dir = std::env::temp_dir().join(format!("morphgl-alone-tiering-{}", std::process::id()));
    let options = ReorderOptions { by: "in-degree".into(), replace: true };
    let dataset = Dataset::open(reorder(&dataset, &order, &dir, &options, &|_, _, _| {})?, OpenOptions::default())?;
    std::fs::remove_dir_all(&dir)?;

    let matrix = dataset.features.as_ref().ok_or("the graph has features")?;
    let (row_bytes, bytes) = (matrix.row_bytes(), matrix.view().as_bytes());
    let budgets = TierBudgets { devices: &[600_000, 600_000], replicated: 100_000, host: 2_000_000 };
    let tiers = Tiers::fit(10_000, row_bytes as u64, &budgets);
    let rows = |rows: &mut dyn Iterator<Item = u32>| -> Vec<u8> {
        rows.flat_map(|row| bytes[row as usize * row_bytes..][..row_bytes].to_vec()).collect()
    };
    let devices: Vec<Vec<u8>> = (0..2).map(|device| rows(&mut tiers.device_rows(device))).collect();
    let (host, disk) = (rows(&mut tiers.host_rows()), rows(&mut tiers.disk_rows()));
    let view = TieredRows::new(tiers, row_bytes, devices.iter().map(Vec::as_slice).collect(), &host, &disk)?;
    // The sources of the first edges: a sample by degree.
    let requests = &dataset.topology.indices()[..50_000];
    let counts = view.gather(requests, 0, &mut vec![0; requests.len() * row_bytes]);
    println!("{:?}\n{counts:?}, {} requests", tiers.division(), counts.requests());

    for access in [WarpAccess::Naive, WarpAccess::Shifted, WarpAccess::WholeLines] {
        let (mean, _) = WarpPattern::of_values(access).mean(row_bytes as u64);
        println!("a row of {row_bytes} bytes takes {mean:.2} requests over PCIe: {access:?}");
    }
    Ok(())
}
