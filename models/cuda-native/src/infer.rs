//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows that pass through pinned memory.

use bytemuck::{cast_slice, cast_slice_mut};
use morphgl_cuda::{Event, Pinned};
use morphgl_graph_store::{Dataset, Dtype};
use morphgl_model_spec::ModelKind;
use morphgl_registry::{Error, Result};

use crate::KEY;
use crate::chunks::{Chunk, Chunker, Limits};
use crate::edges::{Block, Edges};
use crate::forward::{Mode, Pass};
use crate::gpu::{Gpu, Words};
use crate::layout::Model;

/// Arrays of a chunk begin at multiples of this many words.
const ALIGNMENT: usize = 64;

/// Rows of all nodes in host memory.
#[derive(Clone, Copy)]
struct Table<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    dtype: Dtype,
}

/// Pinned memory for one chunk on its way there and back.
struct Slot {
    up: Pinned<f32>,
    down: Pinned<f32>,
    /// When it is back.
    done: Option<Event>,
}

/// Logits of `nodes`, in their order.
pub(crate) fn infer(
    gpu: &mut Gpu,
    model: Model<'_>,
    dataset: &Dataset,
    nodes: &[u32],
    (limits, threads): (Limits, usize),
) -> Result<Vec<f32>> {
    let (num_nodes, spec) = (dataset.num_nodes(), model.spec);
    if let Some(node) = nodes.iter().find(|v| **v as usize >= num_nodes) {
        return Err(Error::setting(KEY, format!("there is no node {node} to infer, there are {num_nodes}")));
    }
    let features = dataset.features.as_ref().ok_or_else(|| {
        Error::setting(KEY, "the dataset has no features; import it with features, or with --random-features")
    })?;
    let everything: Vec<u32> = (0..num_nodes as u32).collect();
    let (asked, places) = distinct(nodes, num_nodes);
    let mut chunker = Chunker::new(&dataset.topology, spec.kind != ModelKind::Mlp, limits);
    let device = gpu.stream.device().clone();
    let slot = || Ok(Slot { up: Pinned::new(&device, 0)?, down: Pinned::new(&device, 0)?, done: None });
    let mut slots: [Slot; 2] = [slot()?, slot()?];
    let view = features.view();
    let mut x: Option<Vec<f32>> = None;
    for layer in 0..spec.layers {
        let shape = spec.layer(layer);
        let rows = if shape.last { &asked } else { &everything };
        let table = match &x {
            None => Table { bytes: view.as_bytes(), row_bytes: features.row_bytes(), dtype: features.dtype() },
            Some(x) => Table { bytes: cast_slice(x), row_bytes: 4 * shape.in_dim, dtype: Dtype::F32 },
        };
        let mut out = Vec::with_capacity(rows.len() * shape.out_dim);
        let (mut done, mut turn) = (0, 0);
        while done < rows.len() {
            // The host makes a chunk while the device works on the one before.
            let chunk = chunker.next(&rows[done..], table.row_bytes + 4 * (shape.in_dim + shape.out_dim));
            done += chunk.num_dst;
            let slot = &mut slots[turn % 2];
            collect(slot, &mut out)?;
            send(gpu, model, slot, layer, &chunk, (table, threads))?;
            turn += 1;
        }
        for slot in [turn % 2, (turn + 1) % 2] {
            collect(&mut slots[slot], &mut out)?;
        }
        x = Some(out);
    }
    let (logits, classes) = (x.unwrap_or_default(), spec.num_classes);
    if asked.len() == nodes.len() {
        return Ok(logits);
    }
    Ok(places.iter().flat_map(|&p| &logits[p as usize * classes..(p as usize + 1) * classes]).copied().collect())
}

/// Each node once, by first appearance, and the place of each of `nodes` among them.
fn distinct(nodes: &[u32], num_nodes: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut asked, mut place) = (Vec::new(), vec![u32::MAX; num_nodes]);
    let places = nodes.iter().map(|&v| {
        if place[v as usize] == u32::MAX {
            place[v as usize] = asked.len() as u32;
            asked.push(v);
        }
        place[v as usize]
    });
    let places = places.collect();
    (asked, places)
}

/// Waits for the slot's chunk and takes its result.
fn collect(slot: &mut Slot, out: &mut Vec<f32>) -> Result<()> {
    if let Some(done) = slot.done.take() {
        done.synchronize()?;
        out.extend_from_slice(&slot.down);
    }
    Ok(())
}

/// Sends a chunk there, through a layer, and back.
fn send(
    gpu: &mut Gpu,
    model: Model<'_>,
    slot: &mut Slot,
    layer: usize,
    chunk: &Chunk,
    (table, threads): (Table<'_>, usize),
) -> Result<()> {
    let shape = model.spec.layer(layer);
    let weights = chunk.weights.as_deref().unwrap_or_default();
    let words = (chunk.nodes.len() * table.row_bytes).div_ceil(4);
    let lengths = [words, chunk.indptr.len(), chunk.indices.len(), chunk.degrees.len(), weights.len()];
    let mut starts = [0; 5];
    for i in 1..starts.len() {
        starts[i] = (starts[i - 1] + lengths[i - 1]).next_multiple_of(ALIGNMENT);
    }
    room(gpu, &mut slot.up, starts[4] + lengths[4])?;
    let mut place = |i: usize, values: &[u8]| {
        let own: &mut [u8] = cast_slice_mut(&mut slot.up[starts[i]..starts[i] + lengths[i]]);
        own.copy_from_slice(values);
    };
    place(1, cast_slice(&chunk.indptr));
    place(2, cast_slice(&chunk.indices));
    place(3, cast_slice(&chunk.degrees));
    place(4, cast_slice(weights));
    gather(table, &chunk.nodes, cast_slice_mut(&mut slot.up[..words]), threads);

    gpu.begin()?;
    let all = gpu.upload(&slot.up)?;
    let part = |i: usize| Words::Part(all.from(starts[i], lengths[i]));
    let block = Block {
        num_dst: chunk.num_dst,
        num_src: chunk.nodes.len(),
        num_edges: chunk.indices.len(),
        indptr: part(1),
        indices: part(2),
        weights: chunk.weights.as_ref().map(|_| part(4)),
    };
    let edges = match model.spec.kind {
        ModelKind::Mlp => None,
        kind => Some(Edges::new(gpu, kind, block, part(3))?),
    };
    let mut pass = Pass { gpu, model, mode: Mode::Evaluation };
    let input = pass.stored(part(0), table.dtype, shape.in_dim);
    let done = pass.layer(layer, input, edges, chunk.num_dst)?;
    let output = done.output.part;
    room(gpu, &mut slot.down, output.len())?;
    gpu.download(output, &mut slot.down)?;
    slot.done = Some(gpu.stream.record(false)?);
    Ok(())
}

/// Gives pinned memory `len` elements: larger memory where it has no room.
fn room(gpu: &Gpu, pinned: &mut Pinned<f32>, len: usize) -> Result<()> {
    if pinned.capacity() < len {
        *pinned = Pinned::new(gpu.stream.device(), len)?;
    }
    pinned.set_len(len);
    Ok(())
}

/// Rows of some nodes, by some threads.
fn gather(table: Table<'_>, nodes: &[u32], out: &mut [u8], threads: usize) {
    let bytes = table.row_bytes;
    if bytes == 0 || nodes.is_empty() {
        return;
    }
    let copy = |nodes: &[u32], out: &mut [u8]| {
        for (row, &v) in out.chunks_exact_mut(bytes).zip(nodes) {
            row.copy_from_slice(&table.bytes[v as usize * bytes..(v as usize + 1) * bytes]);
        }
    };
    // Below a mebibyte a thread costs more than it copies.
    let each = nodes.len().div_ceil(threads.max(1)).max((1 << 20) / bytes + 1);
    if each >= nodes.len() {
        return copy(nodes, out);
    }
    std::thread::scope(|scope| {
        for (nodes, out) in nodes.chunks(each).zip(out.chunks_mut(each * bytes)) {
            scope.spawn(move || copy(nodes, out));
        }
    });
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use morphgl_conformance::training::tiny;
    use morphgl_cuda::Device;
    use morphgl_model_spec::{ModelSpec, OptimizerSpec, initial_parameters};

    use super::*;
    use crate::layout::Layout;
    use crate::state::State;

    #[test]
    fn chunks_of_any_size_give_the_same_logits() {
        let dataset = tiny();
        let all: Vec<u32> = (0..12).rev().collect();
        let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated");
        let mut gpu = Gpu::new(&device).expect("a stream");
        for kind in ModelKind::ALL {
            let spec = ModelSpec { hidden: 8, heads: 2, ..ModelSpec::new(kind, dataset.feature_dim(), 2) };
            let layout = Layout::new(&spec);
            let flat = layout.flat(&initial_parameters(&spec, 1));
            let state = State::new(&gpu.stream, &layout, &OptimizerSpec::default(), &flat).expect("memory");
            let [values, gradients] = state.views();
            let model = Model { spec: &spec, layout: &layout, values, gradients };
            let large = Limits::default();
            let whole = infer(&mut gpu, model, &dataset, &all, (large, 1)).expect("logits");
            for limits in [
                Limits { bytes: 1, ..large },
                Limits { bytes: 500, ..large },
                Limits { edges: 4, ..large },
                Limits { rows: 5, ..large },
            ] {
                let parts = infer(&mut gpu, model, &dataset, &all, (limits, 3)).expect("logits");
                let near = parts.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
                assert!(near && parts.len() == whole.len(), "{kind}, {limits:?}: {parts:?}, in one chunk {whole:?}");
            }
        }
    }
}
