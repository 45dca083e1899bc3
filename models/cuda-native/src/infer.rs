//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows through pinned memory; and the first layer alone.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use morphgl_cuda::{Device, Event, Pinned};
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix};
use morphgl_model_core::{Chunk, Input, Limits, ModelKind, QueuedLayers, infer as infer_in_chunks};
use morphgl_registry::{Block as HostBlock, GatherRows, HostBatch, Result};

use crate::KEY;
use crate::edges::Edges;
use crate::forward::{Mode, Pass};
use crate::gpu::{Gpu, Words};
use crate::groups::{Grouping, Ungrouped};
use crate::inputs::TypedInputs;
use crate::layout::Model;
use crate::transpose::Block;

/// Maximum size of a chunk, unless a single row exceeds it.
pub(crate) const LIMITS: Limits = Limits { bytes: 256 << 20, edges: 4 << 20, rows: 1 << 17 };
/// Input rows of a node type at a time; a multiple of eight, so that those of any element type begin at a word.
const INPUT_ROWS: usize = if cfg!(feature = "emulate") { 64 } else { 1 << 16 };
/// Alignment of a chunk's arrays, in words.
const ALIGNMENT: usize = 64;

/// Rows of all nodes in host memory.
#[derive(Clone, Copy)]
struct HostRows<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    dtype: Dtype,
}

impl<'a> HostRows<'a> {
    fn of(features: &'a FeatureMatrix) -> Self {
        Self { bytes: features.view().as_bytes(), row_bytes: features.row_bytes(), dtype: features.dtype() }
    }
}

/// One hop in host memory, with the node and degree of each source.
#[derive(Clone, Copy)]
struct Hop<'a> {
    nodes: &'a [u32],
    degrees: &'a [f32],
    block: &'a HostBlock,
}

/// Pinned memory of one chunk in flight: input and output.
struct Slot {
    up: Pinned<f32>,
    down: Pinned<f32>,
    /// Event after the download.
    done: Option<Event>,
}

impl Slot {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self { up: Pinned::new(device, 0)?, down: Pinned::new(device, 0)?, done: None })
    }
}

/// Layers on the device, with two chunks in flight.
struct DeviceLayers<'g, 'm> {
    gpu: &'g mut Gpu,
    grouping: Option<&'g mut Grouping>,
    inputs: Option<&'g TypedInputs>,
    model: Model<'m>,
    slots: [Slot; 2],
    /// Number of chunks queued so far.
    queued: usize,
    threads: usize,
}

/// The rows of `nodes`, in their order, after the first `layers` layers, of which the `peers` compute their parts.
pub(crate) fn infer(
    (gpu, grouping, inputs): (&mut Gpu, Option<&mut Grouping>, Option<&TypedInputs>),
    model: Model<'_>,
    (dataset, nodes, layers): (&Dataset, &[u32], usize),
    (limits, threads): (Limits, usize),
    peers: &mut dyn GatherRows,
) -> Result<Vec<f32>> {
    let device = gpu.stream.device().clone();
    let slots = [Slot::new(&device)?, Slot::new(&device)?];
    let mut on_device = DeviceLayers { slots, gpu, grouping, inputs, model, queued: 0, threads };
    infer_in_chunks((KEY, model.spec), &mut on_device, (dataset, nodes), layers, limits, peers)
}

/// Appends the first layer's output over the only block of `batch` to `out`, without any dropout.
pub(crate) fn first_layer(
    gpu: &mut Gpu,
    model: Model<'_>,
    features: &FeatureMatrix,
    batch: &HostBatch,
    (threads, out): (usize, &mut Vec<f32>),
) -> Result<()> {
    let mut slot = Slot::new(gpu.stream.device())?;
    let hop = Hop { nodes: &batch.input_nodes, degrees: &batch.degrees, block: &batch.blocks[0] };
    send((gpu, None), model, &mut slot, 0, hop, (HostRows::of(features), threads))?;
    collect(&mut slot, out)
}

impl QueuedLayers for DeviceLayers<'_, '_> {
    fn row_bytes(&self, layer: usize, input: Input<'_>) -> usize {
        let shape = self.model.spec.layer(layer);
        let input = match input {
            Input::Features(features) => features.row_bytes(),
            Input::Rows(_) => 4 * shape.in_dim,
        };
        input + 4 * (shape.in_dim + shape.out_dim)
    }

    /// In chunks of rows, one after the other.
    fn inputs(&mut self, node_type: usize, nodes: Range<u32>, out: &mut Vec<f32>) -> Result<()> {
        let inputs = self.inputs.expect("the model has inputs per node type");
        for start in (0..nodes.len()).step_by(INPUT_ROWS) {
            let rows = start..(start + INPUT_ROWS).min(nodes.len());
            self.gpu.begin()?;
            let computed = inputs.of_nodes(self.gpu, self.model.values, node_type, rows)?;
            let down = &mut self.slots[0].down;
            resize(self.gpu, down, computed.len())?;
            self.gpu.download(computed, down)?;
            self.gpu.stream.synchronize()?;
            out.extend_from_slice(down);
        }
        Ok(())
    }

    /// Two chunks: the host prepares one while the device computes the other.
    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()> {
        let slot = &mut self.slots[self.queued % 2];
        collect(slot, out)?;
        self.queued += 1;
        let table = match input {
            Input::Features(features) => HostRows::of(features),
            Input::Rows(x) => {
                let row_bytes = 4 * self.model.spec.layer(layer).in_dim;
                HostRows { bytes: cast_slice(x), row_bytes, dtype: Dtype::F32 }
            }
        };
        let hop = Hop { nodes: &chunk.nodes, degrees: &chunk.degrees, block: &chunk.block };
        let typed = self.model.spec.kind.is_typed();
        let grouping = self.grouping.as_deref_mut().filter(|_| typed);
        send((self.gpu, grouping), self.model, slot, layer, hop, (table, self.threads))
    }

    fn finish(&mut self, out: &mut Vec<f32>) -> Result<()> {
        for slot in [self.queued % 2, (self.queued + 1) % 2] {
            collect(&mut self.slots[slot], out)?;
        }
        Ok(())
    }
}

/// Waits for the slot's chunk and appends its result.
fn collect(slot: &mut Slot, out: &mut Vec<f32>) -> Result<()> {
    if let Some(done) = slot.done.take() {
        done.synchronize()?;
        out.extend_from_slice(&slot.down);
    }
    Ok(())
}

/// Queues upload, layer and download of a chunk.
fn send(
    (gpu, mut grouping): (&mut Gpu, Option<&mut Grouping>),
    model: Model<'_>,
    slot: &mut Slot,
    layer: usize,
    Hop { nodes, degrees, block }: Hop<'_>,
    (table, threads): (HostRows<'_>, usize),
) -> Result<()> {
    let shape = model.spec.layer(layer);
    let weights = block.weights.as_deref().unwrap_or_default();
    let words = (nodes.len() * table.row_bytes).div_ceil(4);
    // Types and nodes are read by typed models alone.
    let edge_types = block.edge_types.as_deref().filter(|_| grouping.is_some()).unwrap_or_default();
    let destinations = if grouping.is_some() { &nodes[..block.num_dst] } else { &[] };
    let (edges, types) = (block.indices.len(), edge_types.len().div_ceil(2));
    let lengths = [words, block.indptr.len(), edges, degrees.len(), weights.len(), types, destinations.len()];
    let mut starts = [0; 7];
    for i in 1..starts.len() {
        starts[i] = (starts[i - 1] + lengths[i - 1]).next_multiple_of(ALIGNMENT);
    }
    resize(gpu, &mut slot.up, starts[6] + lengths[6])?;
    let mut write = |i: usize, values: &[u8]| {
        let target: &mut [u8] = cast_slice_mut(&mut slot.up[starts[i]..starts[i] + lengths[i]]);
        target[..values.len()].copy_from_slice(values);
    };
    write(1, cast_slice(&block.indptr));
    write(2, cast_slice(&block.indices));
    write(3, cast_slice(degrees));
    write(4, cast_slice(weights));
    write(5, cast_slice(edge_types));
    write(6, cast_slice(destinations));
    gather(table, nodes, cast_slice_mut(&mut slot.up[..words]), threads);

    gpu.begin()?;
    let all = gpu.upload(&slot.up)?;
    let region = |i: usize| Words::Region(all.from(starts[i], lengths[i]));
    let device_block = Block {
        num_dst: block.num_dst,
        num_src: block.num_src,
        num_edges: block.indices.len(),
        indptr: region(1),
        ends: None,
        indices: region(2),
        weights: block.weights.as_ref().map(|_| region(4)),
        importance: block.importance,
    };
    let groups = match &mut grouping {
        Some(grouping) => {
            let words = |i: usize| Words::Floats(gpu.floats(region(i)));
            let block = Block { indptr: words(1), indices: words(2), weights: None, ..device_block };
            let typed = Ungrouped::Block { block, edge_types: words(5), nodes: words(6) };
            grouping.group((&gpu.stream, &gpu.stream.record(false)?), &[typed])?
        }
        None => Vec::new(),
    };
    let edges = match model.spec.kind {
        kind if kind.is_typed() => Some(Edges::typed(gpu, kind, device_block, &groups[0])?),
        ModelKind::Mlp | ModelKind::Embedding | ModelKind::Custom | ModelKind::Submitted(_) => None,
        _ => Some(Edges::new(gpu, model.spec, device_block, region(3))?),
    };
    let mut pass = Pass { gpu, model, mode: Mode::Evaluation };
    let input = pass.stored(region(0), table.dtype, shape.in_dim);
    let done = pass.layer(layer, input, edges, block.num_dst)?;
    let output = done.output.region;
    resize(gpu, &mut slot.down, output.len())?;
    gpu.download(output, &mut slot.down)?;
    slot.done = Some(gpu.stream.record(false)?);
    grouping.map_or(Ok(()), |grouping| grouping.done(&gpu.stream))
}

/// Resizes pinned memory to `len` elements, reallocating if it is too small.
fn resize(gpu: &Gpu, pinned: &mut Pinned<f32>, len: usize) -> Result<()> {
    if pinned.capacity() < len {
        *pinned = Pinned::new(gpu.stream.device(), len)?;
    }
    pinned.set_len(len);
    Ok(())
}

/// Gathers rows of nodes on up to `threads` threads.
fn gather(table: HostRows<'_>, nodes: &[u32], out: &mut [u8], threads: usize) {
    let bytes = table.row_bytes;
    if bytes == 0 || nodes.is_empty() {
        return;
    }
    let copy = |nodes: &[u32], out: &mut [u8]| {
        for (row, &v) in out.chunks_exact_mut(bytes).zip(nodes) {
            row.copy_from_slice(&table.bytes[v as usize * bytes..(v as usize + 1) * bytes]);
        }
    };
    // Below 1 MiB a thread costs more than it saves.
    let per_thread = nodes.len().div_ceil(threads.max(1)).max((1 << 20) / bytes + 1);
    if per_thread >= nodes.len() {
        return copy(nodes, out);
    }
    std::thread::scope(|scope| {
        for (nodes, out) in nodes.chunks(per_thread).zip(out.chunks_mut(per_thread * bytes)) {
            scope.spawn(move || copy(nodes, out));
        }
    });
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
