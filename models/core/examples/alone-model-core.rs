//! Prints the parameters of a model. Run: `cargo run -p morphgl-model-core --example alone-model-core`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_model_core::{ModelKind, ModelSpec};

fn main() -> morphgl_registry::Result<()> {
    let spec = ModelSpec { hidden: 64, heads: 8, layers: 2, ..ModelSpec::new(ModelKind::Gat, 1433, 7) };
    spec.validate()?;
    for parameter in spec.parameters() {
        println!("{:24} {:?}", parameter.name, parameter.shape);
    }
    Ok(())
}
