//! Trains a GCN on Cora, and evaluates and predicts with it: `morphgl train`, `evaluate` and `predict` as a program.
//! Run: `cargo run --release -p morphgl --example cora -- CORA`, where CORA was made by
//! `morphgl import planetoid testdata/planetoid/ind.cora -o CORA`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::PathBuf;

use morphgl::session::{InferenceConfig, Session, SessionConfig, Trained};
use morphgl::{ModelKind, RunContext};

fn main() -> anyhow::Result<()> {
    let cora = std::env::args_os().nth(1).map(PathBuf::from);
    let model = std::env::temp_dir().join(format!("cora-{}.safetensors", std::process::id()));
    let mut config = SessionConfig::default();
    config.planning.data.dataset.clone_from(&cora);
    config.planning.model.model = ModelKind::Gcn;
    config.planning.model.hidden = Some(16);
    config.planning.batch.fanouts = Some("-1,-1".parse()?);
    config.training.epochs = Some(50);
    config.training.save = Some(model.clone());
    let run = Session::new(RunContext::new()?, config).train()?;
    println!("{}", run.text);

    let mut of_model = InferenceConfig::of(&model);
    of_model.data.dataset = cora;
    let mut trained = Trained::open(&RunContext::new()?, of_model, None, true)?;
    for split in trained.evaluate(None, &[])?.splits {
        println!("{}: {:.1}% of {}", split.split, 100.0 * split.score.accuracy(), split.nodes);
    }
    println!("classes of the first nodes: {:?}", trained.predict(&[0, 1, 2])?.classes);
    std::fs::remove_file(model)?;
    Ok(())
}
