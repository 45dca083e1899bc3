use std::sync::Mutex;

use crate::ModelKind;
use morphgl_conformance::batching::graphs;
use morphgl_conformance::training::tiny;
use morphgl_registry::{Hardware, Phase, SingleProcess};

use super::*;

/// Layers that return the rows of a chunk when the next one is queued; `finish` fails if `fails`.
struct DelayedLayers {
    rows: Vec<f32>,
    fails: bool,
}

impl QueuedLayers for DelayedLayers {
    fn row_bytes(&self, _layer: usize, _input: Input<'_>) -> usize {
        1
    }

    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()> {
        out.append(&mut self.rows);
        let row = |&v: &u32| match input {
            Input::Features(_) => v as f32,
            Input::Rows(x) => 100.0 * layer as f32 + x[v as usize],
        };
        self.rows.extend(chunk.nodes[..chunk.block.num_dst].iter().map(row));
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<f32>) -> Result<()> {
        out.append(&mut self.rows);
        if self.fails { Err(Error::failed("a device", "it is lost")) } else { Ok(()) }
    }
}

#[test]
fn rows_may_be_appended_later() {
    const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Delayed");
    let dataset = tiny();
    let model = ModelSpec { hidden: 1, layers: 2, ..ModelSpec::new(ModelKind::Gcn, dataset.feature_dim(), 1) };
    let limits = Limits { rows: 2, ..Limits::default() };
    let delayed = |fails| {
        let (mut layers, nodes) = (DelayedLayers { rows: Vec::new(), fails }, [7, 0, 7, 3, 5]);
        infer((KEY, &model), &mut layers, (&dataset, &nodes), model.layers, limits, &mut SingleProcess)
    };
    assert_eq!(delayed(false).expect("logits"), [107.0, 100.0, 107.0, 103.0, 105.0]);
    assert!(delayed(true).is_err_and(|e| e.to_string().contains("it is lost")));
}

/// Inference over all neighbours, which scores and predictions come from, in files that are changed while they are mapped.
#[test]
fn ids_that_change_in_a_mapped_file() {
    const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Delayed");
    let (dir, made) = (tempfile::tempdir().expect("a folder"), graphs::random(40, 3, false));
    let dataset = Dataset { features: made.features.clone(), ..graphs::mapped(&made, &dir.path().join("set")) };
    let model = ModelSpec { hidden: 1, layers: 2, ..ModelSpec::new(ModelKind::Gcn, dataset.feature_dim(), 1) };
    let run = |rows| {
        let (mut layers, limits) =
            (DelayedLayers { rows: Vec::new(), fails: false }, Limits { rows, ..Limits::default() });
        infer((KEY, &model), &mut layers, (&dataset, &[7, 0]), model.layers, limits, &mut SingleProcess)
    };
    run(usize::MAX).expect("the file is as it was");
    let indices = dataset.topology.indices();
    for node in [40, 63, u32::MAX] {
        let mut changed = indices.to_vec();
        *changed.last_mut().expect("edges") = node;
        graphs::overwrite(indices, &changed);
        for rows in [1, usize::MAX] {
            let error = run(rows).expect_err("a neighbour does not exist").to_string();
            assert!(error.contains(&indices.file().expect("mapped").display().to_string()), "{error}");
            let cure =
                format!("from node {node}, but there are 40 nodes; the mapped file was changed: import it again");
            assert!(error.ends_with(&cure), "{error}");
        }
    }
}

#[test]
fn a_repeated_node_is_inferred_once() {
    assert_eq!(distinct(&[4, 1, 4, 0], 5), (vec![4, 1, 0], vec![0, 1, 0, 2]));
}

/// A peer that finds what the others have computed in a table, and notes its own parts there.
#[derive(Debug)]
struct Noted<'a> {
    rank: usize,
    size: usize,
    /// What the others have, layer by layer.
    layers: Vec<Vec<f32>>,
    parts: &'a Mutex<Vec<Range<usize>>>,
}

impl GatherRows for Noted<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&mut self, rows: &mut [f32], parts: &[Range<usize>]) -> Result<()> {
        let layer = self.layers.remove(0);
        let own = parts[self.rank].clone();
        assert_eq!(rows[own.clone()], layer[own.clone()], "rows of rank {}", self.rank);
        self.parts.lock().expect("no panic").push(own);
        rows.copy_from_slice(&layer);
        Ok(())
    }
}

#[test]
fn each_row_is_computed_once() {
    const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Delayed");
    let dataset = tiny();
    let model = ModelSpec { hidden: 1, layers: 2, ..ModelSpec::new(ModelKind::Gcn, dataset.feature_dim(), 1) };
    // Chunks of two rows, within a part and at its end.
    let limits = Limits { rows: 2, ..Limits::default() };
    let of_layers: Vec<Vec<f32>> =
        vec![(0..12).map(|v| v as f32).collect(), [7, 0, 3, 5].map(|v| 100.0 + v as f32).to_vec()];
    for size in [1, 2, 3, 4, 17] {
        let parts = Mutex::new(Vec::new());
        for rank in 0..size {
            let mut peers = Noted { rank, size, layers: of_layers.clone(), parts: &parts };
            let mut layers = DelayedLayers { rows: Vec::new(), fails: false };
            let logits =
                infer((KEY, &model), &mut layers, (&dataset, &[7, 0, 7, 3, 5]), model.layers, limits, &mut peers);
            assert_eq!(logits.expect("logits"), [107.0, 100.0, 107.0, 103.0, 105.0], "{size} peers");
        }
        let parts = parts.into_inner().expect("no panic");
        let rows: usize = parts.iter().map(Range::len).sum();
        assert_eq!(rows, 12 + 4, "{size} peers: {parts:?}");
        // No peer has all rows of a layer.
        assert!(size == 1 || parts.iter().step_by(2).all(|part| part.len() < 12), "{size} peers: {parts:?}");
    }
}
