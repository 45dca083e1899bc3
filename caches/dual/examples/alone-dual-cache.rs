//! Divides budgets between rows and lists of a power-law graph. Run: `cargo run -p morphgl-dual-cache --example alone-dual-cache`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_dual_cache::{Curve, Kind, Slopes, allocate};
use morphgl_row_cache::NodeMap;

fn main() {
    let num_nodes = 100_000u32;
    let degree = |v: u32| (200_000 / (v + 20)).max(2);
    // As many accesses as neighbours; a list is read again at every hop.
    let slopes =
        Slopes { row: Curve::new([(256.0, 3e-6)]), list: Curve::new([(4.0, 3e-6), (1000.0, 3.5e-6), (8000.0, 12e-6)]) };
    let rows = Kind {
        saving: &|v| (f64::from(degree(v)) * slopes.row.at(256.0)) as f32,
        bytes: &|_| 256,
        tables: NodeMap::num_bytes_of(num_nodes as usize),
    };
    let lists = Kind {
        saving: &|v| (2.0 * f64::from(degree(v)) * slopes.list.at(degree(v).into())) as f32,
        bytes: &|v| 4 * u64::from(degree(v)) + 4,
        tables: NodeMap::num_bytes_of(num_nodes as usize) + 4,
    };
    println!("saved by a hit: {slopes}");
    for budget in [20_000, 100_000, 1 << 20, 4 << 20, 32 << 20] {
        let shares = allocate(num_nodes, [rows, lists], budget);
        let [rows, lists] = shares.map(|share| share.map_or((0, 0, 0.0), |s| (s.map.len(), s.bytes, s.saving)));
        println!(
            "{budget} bytes: {} rows in {} bytes save {:.2} s, {} lists in {} bytes save {:.2} s",
            rows.0, rows.1, rows.2, lists.0, lists.1, lists.2
        );
    }
}
