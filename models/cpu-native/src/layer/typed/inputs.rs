//! Input rows per node type: projections of features, which are read from the dataset by node, and rows of learned embeddings.

use std::ops::Range;
use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_model_core::{Dropout, ModelSpec, ParameterSpec};
use morphgl_platform::SimdLevel;
use morphgl_registry::BatchFeatures;

use super::weights::range_of;
use crate::adjacency::groups::{Group, Task, divide};
use crate::buffer::{Buffer, resize};
use crate::epilogue::{Epilogue, add_rows, apply_dropout};
use crate::gemm::{Left, Right, multiply, pack, packed_len};
use crate::layer::{LANES, Upstream, add_lanes};
use crate::optimizer::TableRows;
use crate::parallel::{self, ROWS, row_blocks, with_scratch};
use crate::rows::{InputRows, NodeIds};

/// The inputs of a model, and the rows of its last mini-batch by node type.
#[derive(Debug)]
pub(crate) struct TypedInputs {
    dataset: Arc<Dataset>,
    dim: usize,
    of_types: Vec<OfType>,
    /// The rows of each type that has some; its number takes the place of a weight's.
    groups: Vec<Group>,
    /// Position of each row among the input rows, type after type, and its number among the nodes of its type.
    positions: Vec<u32>,
    numbers: Vec<u32>,
    /// The type of each input row, and its place among the rows by type.
    places: Vec<[u32; 2]>,
    tasks: Vec<Task>,
    packed: Buffer,
    /// Where the packed weight of each group begins.
    packed_starts: Vec<usize>,
    projected: Buffer,
    grads: Buffer,
    lane_sums: Buffer,
    /// Rows of tables with a gradient: where they begin among the elements of all parameters.
    touched: Vec<usize>,
}

/// The parameters of a node type.
#[derive(Debug, Clone)]
enum OfType {
    /// Features of this width, and the weight and bias of their projection.
    Projected { width: usize, weight: Range<usize>, bias: Range<usize> },
    /// The table.
    Embedded(Range<usize>),
}

impl TypedInputs {
    /// The inputs of a model that has some per node type; `spec` has the dataset's types.
    ///
    /// # Panics
    ///
    /// When a parameter is missing.
    pub(crate) fn new(spec: &ModelSpec, specs: &[ParameterSpec], dataset: &Arc<Dataset>) -> Option<Self> {
        let of_type = |(node_type, &width): (usize, &usize)| {
            let (weight, bias) = spec.input_names(node_type);
            let weight = range_of(specs, &weight);
            match bias {
                Some(bias) => OfType::Projected { width, weight, bias: range_of(specs, &bias) },
                None => OfType::Embedded(weight),
            }
        };
        (!spec.input_widths.is_empty()).then(|| Self {
            dataset: Arc::clone(dataset),
            dim: spec.in_dim,
            of_types: spec.input_widths.iter().enumerate().map(of_type).collect(),
            groups: Vec::new(),
            positions: Vec::new(),
            numbers: Vec::new(),
            places: Vec::new(),
            tasks: Vec::new(),
            packed: Buffer::default(),
            packed_starts: Vec::new(),
            projected: Buffer::default(),
            grads: Buffer::default(),
            lane_sums: Buffer::default(),
            touched: Vec::new(),
        })
    }

    /// Marks all rows of all tables as touched.
    pub(crate) fn touch_all(&mut self) {
        self.touched.clear();
        for of_type in &self.of_types {
            if let OfType::Embedded(table) = of_type {
                self.touched.extend(table.clone().step_by(self.dim));
            }
        }
    }

    /// The rows of tables that gradients were added to since the last call of [`TypedInputs::forget`].
    pub(crate) fn touched(&mut self) -> TableRows<'_> {
        self.touched.sort_unstable();
        self.touched.dedup();
        TableRows { starts: &self.touched, width: self.dim }
    }

    /// Sets the gradients of the touched rows to 0.
    pub(crate) fn forget(&mut self, gradients: &mut [f32]) {
        self.touched.drain(..).for_each(|start| gradients[start..start + self.dim].fill(0.0));
    }

    /// Orders the rows of nodes by their type.
    fn divide(&mut self, nodes: &[u32]) {
        let types = self.dataset.topology.types().expect("a graph with types");
        self.places.clear();
        self.places.extend(nodes.iter().map(|&node| [types.node_type(node) as u32, 0]));
        self.groups.clear();
        let mut end = 0;
        for weight in 0..self.of_types.len() {
            let count = self.places.iter().filter(|[of_type, _]| *of_type as usize == weight).count();
            self.groups.push(Group { weight, rows: end..end + count });
            end += count;
        }
        resize(&mut self.positions, nodes.len());
        resize(&mut self.numbers, nodes.len());
        for ((position, &node), [of_type, place]) in nodes.iter().enumerate().zip(&mut self.places) {
            let next = &mut self.groups[*of_type as usize].rows.start;
            self.positions[*next] = position as u32;
            self.numbers[*next] = node - types.range(*of_type as usize).start;
            *place = *next as u32;
            *next += 1;
        }
        // Each start is now the end of the group.
        let mut start = 0;
        for group in &mut self.groups {
            group.rows = start..group.rows.end;
            start = group.rows.end;
        }
        self.groups.retain(|group| !group.rows.is_empty());
    }

    /// Writes the input rows of nodes, with their dropout; features are those `gathered` of each type, or the dataset's where there are none.
    pub(crate) fn forward(
        &mut self,
        level: SimdLevel,
        parameters: &[f32],
        nodes: &[u32],
        gathered: &[Option<BatchFeatures>],
        dropout: Option<(Dropout, &[u32])>,
        out: &mut Buffer,
    ) {
        self.divide(nodes);
        let (dim, rows) = (self.dim, nodes.len());
        self.pack(level, parameters);
        divide(&self.groups, ROWS, &mut self.tasks);
        let (tasks, groups, packed) = (&self.tasks, &self.groups, &self.packed);
        let (packed_starts, of_types, numbers, dataset) =
            (&self.packed_starts, &self.of_types, &self.numbers, &self.dataset);
        let starts = |task: usize| [tasks[task].rows.start * dim];
        parallel::split(0..tasks.len(), &starts, [self.projected.get(rows * dim)], &|task, [out]| {
            let Task { group, rows } = tasks[task].clone();
            let Group { weight: node_type, rows: of_group } = groups[group].clone();
            let OfType::Projected { width, bias, .. } = &of_types[node_type] else { return };
            let (start, len) = (packed_starts[group], packed_len(level, *width, dim));
            let weight = Right::packed(level, &packed.read(start + len)[start..], *width);
            with_scratch([rows.len() * width, 0, 0], |[features, _, _]| {
                let first = of_group.start;
                features_of(dataset, gathered, node_type).copy(numbers, first, rows.clone(), features);
                let left = Left::rows(features, *width);
                multiply(level, [rows.len(), dim, *width], (left, weight), out, false);
            });
            let plain = Epilogue { activation: None, dropout: None };
            plain.forward(level, &[], &parameters[bias.clone()], out);
        });
        let (places, projected) = (&self.places, self.projected.read(rows * dim));
        row_blocks(rows, [(out.get(rows * dim), dim)], &|rows, [out]| {
            for (out, &[of_type, place]) in out.chunks_exact_mut(dim).zip(&places[rows.clone()]) {
                let (from, at) = match &of_types[of_type as usize] {
                    OfType::Projected { .. } => (projected, place),
                    OfType::Embedded(table) => (&parameters[table.clone()], numbers[place as usize]),
                };
                out.copy_from_slice(&from[at as usize * dim..][..dim]);
            }
            if let Some((dropout, nodes)) = &dropout {
                apply_dropout(level, dropout, &nodes[rows], out);
            }
        });
    }

    /// Packs the weights of the projections that have rows.
    fn pack(&mut self, level: SimdLevel, parameters: &[f32]) {
        let len_of = |group: &Group| match &self.of_types[group.weight] {
            OfType::Projected { width, .. } => packed_len(level, *width, self.dim),
            OfType::Embedded(_) => 0,
        };
        let mut end = 0;
        self.packed_starts.clear();
        for group in &self.groups {
            self.packed_starts.push(end);
            end += len_of(group);
        }
        let mut packed = self.packed.get(end);
        for group in &self.groups {
            if let OfType::Projected { width, weight, .. } = &self.of_types[group.weight] {
                let own = packed.split_off_mut(..packed_len(level, *width, self.dim)).expect("the sum of the lengths");
                pack(level, &parameters[weight.clone()], [*width, self.dim], true, own);
            }
        }
    }

    /// Adds the gradients of projections and embeddings, from that of the rows of the last mini-batch.
    pub(crate) fn backward(
        &mut self,
        level: SimdLevel,
        upstream: Upstream<'_>,
        gathered: &[Option<BatchFeatures>],
        dropout: Option<(Dropout, &[u32])>,
        gradients: &mut [f32],
    ) {
        let (dim, rows) = (self.dim, self.places.len());
        row_blocks(rows, [(self.grads.get(rows * dim), dim)], &|rows, [grad]| {
            upstream.fill(level, rows.clone(), dim, grad);
            if let Some((dropout, nodes)) = &dropout {
                apply_dropout(level, dropout, &nodes[rows], grad);
            }
        });
        let grads = self.grads.read(rows * dim);
        for group in &self.groups {
            let (positions, numbers) = (&self.positions[group.rows.clone()], &self.numbers[group.rows.clone()]);
            let (width, weight, bias) = match &self.of_types[group.weight] {
                OfType::Embedded(table) => {
                    add_to_table(level, (positions, numbers), (grads, dim), &mut gradients[table.clone()]);
                    self.touched.extend(numbers.iter().map(|&number| table.start + number as usize * dim));
                    continue;
                }
                OfType::Projected { width, weight, bias } => (*width, weight, bias),
            };
            let count = positions.len();
            let (rows_per_lane, size) = (count.div_ceil(LANES).next_multiple_of(ROWS), width * dim);
            let (lanes, lane_size) = (count.div_ceil(rows_per_lane), size + dim);
            let features = features_of(&self.dataset, gathered, group.weight);
            let outputs = [(self.lane_sums.get(lanes * lane_size), lane_size)];
            parallel::tasks(lanes, outputs, &|lane, [sums]| {
                let (weight, bias) = sums.split_at_mut(size);
                bias.fill(0.0);
                let lane = parallel::block(lane, rows_per_lane, count);
                with_scratch([ROWS * dim, ROWS * width, 0], |[grad, of_rows, _]| {
                    for start in lane.clone().step_by(ROWS) {
                        let block = start..(start + ROWS).min(lane.end);
                        let (grad, of_rows) = (&mut grad[..block.len() * dim], &mut of_rows[..block.len() * width]);
                        for (grad, &position) in grad.chunks_exact_mut(dim).zip(&positions[block.clone()]) {
                            grad.copy_from_slice(&grads[position as usize * dim..][..dim]);
                        }
                        features.copy(numbers, 0, block.clone(), of_rows);
                        add_rows(level, grad, bias);
                        let factors = (Left::transposed(grad, dim), Right::rows(of_rows, width));
                        multiply(level, [dim, width, block.len()], factors, weight, start > lane.start);
                    }
                });
            });
            add_lanes(level, self.lane_sums.read(lanes * lane_size), lane_size, [weight, bias], gradients);
        }
    }
}

/// The features of a node type: the dataset's, or those gathered of the type's input nodes.
#[derive(Clone, Copy)]
enum Features<'a> {
    Stored(&'a FeatureMatrix),
    Gathered(&'a BatchFeatures),
}

fn features_of<'a>(dataset: &'a Dataset, gathered: &'a [Option<BatchFeatures>], node_type: usize) -> Features<'a> {
    match gathered.get(node_type).and_then(Option::as_ref) {
        Some(features) => Features::Gathered(features),
        None => Features::Stored(dataset.features_by_type[node_type].as_ref().expect("features of the model's width")),
    }
}

impl Features<'_> {
    /// Writes some of the rows whose `numbers` among the nodes of the type are these; `first` is the index of the type's first row.
    fn copy(self, numbers: &[u32], first: usize, rows: Range<usize>, out: &mut [f32]) {
        match self {
            Self::Stored(store) => {
                let nodes = NodeIds { of_rows: numbers, of_edges: &[], store };
                InputRows { view: store.view(), nodes: Some(nodes) }.copy(rows, store.dim(), out);
            }
            Self::Gathered(features) => {
                let rows = rows.start - first..rows.end - first;
                InputRows { view: features.view(), nodes: None }.copy(rows, features.dim, out);
            }
        }
    }
}

/// Adds the gradients of rows to those of a table, of which no other row is touched. A task adds those of a range of the table, in
/// the order of the rows.
fn add_to_table(
    level: SimdLevel,
    (positions, numbers): (&[u32], &[u32]),
    (grads, dim): (&[f32], usize),
    table: &mut [f32],
) {
    let of_task = (table.len() / dim).div_ceil(LANES).max(1);
    parallel::pieces(table, of_task * dim, &|task, table| {
        let first = task * of_task;
        for (&position, &number) in positions.iter().zip(numbers) {
            let at = (number as usize).wrapping_sub(first).wrapping_mul(dim);
            if let Some(row) = table.get_mut(at..at.wrapping_add(dim)) {
                add_rows(level, &grads[position as usize * dim..][..dim], row);
            }
        }
    });
}
