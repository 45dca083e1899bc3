//! Imports a BV graph. Run: `cargo run --release -p morphgl-formats-bv --example alone-formats-bv -- …/cnr-2000 OUTPUT`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;

use morphgl_formats::{Options, RowContent, Silent};
use morphgl_graph_store::{Dataset, Error, Position, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, target] = arguments.as_slice() else {
        return Err(Error::invalid(
            "alone-formats-bv",
            Position::File,
            "two arguments are needed",
            "name a basename and an output",
        ));
    };
    let options = Options { replace: true, ..Options::default() };
    let path =
        morphgl_formats_bv::import(Path::new(source), Path::new(target), RowContent::Targets, &options, &Silent)?;
    let dataset = Dataset::open(path, Default::default())?;
    println!("{}: {} nodes, {} edges", dataset.name, dataset.num_nodes(), dataset.topology.num_edges());
    Ok(())
}
