//! Input rows per node type: projections of features, which are tables in device memory, and rows of learned embeddings.

use std::ops::Range;

use morphgl_cuda::{Buffer, Floats, Stream};
use morphgl_graph_store::{Dataset, Dtype};
use morphgl_model_core::{DropoutSite, ModelSpec};
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::{InputRows, zero};
use crate::epilogue::{Factors, add, column_sums, epilogue, epilogue_backward, widen};
use crate::forward::Pass;
use crate::gpu::{Gpu, Mask, Words, arguments, rows_by_units};
use crate::groups::Groups;
use crate::input::Input;
use crate::layout::Layout;
use crate::norms::Matrix;
use crate::state::State;
use crate::transpose::{BLOCKS, sort_by_source};

/// The inputs of a model that has some per node type.
#[derive(Debug)]
pub(crate) struct TypedInputs {
    dim: usize,
    of_types: Vec<OfType>,
}

/// The features or the parameters of a node type.
#[derive(Debug)]
enum OfType {
    /// The features of all its nodes, and the weight and bias of their projection.
    Projected { table: Buffer<u8>, dtype: Dtype, width: usize, weight: Range<usize>, bias: Range<usize> },
    /// The table of embeddings.
    Embedded(Range<usize>),
}

/// Input rows by node type, and with their dropout in the order of the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Computed<'a> {
    groups: &'a Groups<'a>,
    output: Matrix,
    mask: Mask<'a>,
}

impl<'a> Computed<'a> {
    pub(crate) fn input(&self) -> Input<'a> {
        Input::of(self.output)
    }

    pub(crate) fn rows(&self) -> usize {
        self.output.rows()
    }
}

impl TypedInputs {
    /// Copies the features of all node types to the device.
    ///
    /// # Errors
    ///
    /// The device's memory is full, or the driver fails.
    pub(crate) fn new(stream: &Stream, spec: &ModelSpec, layout: &Layout, dataset: &Dataset) -> Result<Option<Self>> {
        let of_type = |(node_type, &width): (usize, &usize)| -> Result<OfType> {
            let (weight, bias) = spec.input_names(node_type);
            let weight = layout.range(&weight);
            let Some(bias) = bias else { return Ok(OfType::Embedded(weight)) };
            let matrix = dataset.features_by_type[node_type].as_ref().expect("features of the model's width");
            let table = Buffer::of(stream, matrix.view().as_bytes())?;
            Ok(OfType::Projected { table, dtype: matrix.dtype(), width, weight, bias: layout.range(&bias) })
        };
        if spec.input_widths.is_empty() {
            return Ok(None);
        }
        let of_types = spec.input_widths.iter().enumerate().map(of_type).collect::<Result<_>>()?;
        Ok(Some(Self { dim: spec.in_dim, of_types }))
    }

    /// The input rows of nodes of one type, without dropout; `rows` are their numbers among the nodes of the type.
    pub(crate) fn of_nodes(
        &self,
        gpu: &mut Gpu,
        values: Floats<'_>,
        node_type: usize,
        rows: Range<usize>,
    ) -> Result<Region> {
        let count = rows.len();
        match &self.of_types[node_type] {
            OfType::Projected { table, dtype, width, weight, bias } => {
                let out = gpu.take(count * self.dim)?;
                // A multiple of eight rows is one of words.
                let first = Words::Bytes(table).after(rows.start * width * dtype.size() / size_of::<f32>());
                let input = Input { rows: InputRows::packed(first, *dtype), columns: *width };
                input.linear(gpu, [count, self.dim, *width], values.part(weight.clone()), out, false)?;
                epilogue(gpu, out, self.dim, Some(values.part(bias.clone())), None, Mask::NONE)?;
                Ok(out)
            }
            OfType::Embedded(table) => {
                let out = gpu.take(count * self.dim)?;
                let start = table.start + rows.start * self.dim;
                add(gpu, values.part(start..start + count * self.dim), None, out)?;
                Ok(out)
            }
        }
    }
}

impl<'a> Pass<'_, 'a> {
    /// Computes the input rows of nodes, which are grouped by their type.
    pub(crate) fn typed_inputs(&mut self, inputs: &'a TypedInputs, groups: &'a Groups<'a>) -> Result<Computed<'a>> {
        let (dim, rows) = (inputs.dim, groups.num_rows());
        let values = self.model.values;
        let out = self.gpu.take(rows * dim)?;
        let mark = self.gpu.mark();
        let (sorted, biases) = (self.gpu.take(rows * dim)?, self.gpu.take(inputs.of_types.len() * dim)?);
        zero(self.gpu, biases)?;
        for (of, of_type) in inputs.of_types.iter().enumerate() {
            let [start, count] = groups.rows(of);
            if count == 0 {
                continue;
            }
            let (numbers, to) = (Some((groups.numbers(), start)), sorted.from(start * dim, count * dim));
            match of_type {
                OfType::Projected { table, dtype, width, weight, bias } => {
                    let rows = InputRows { words: Words::Bytes(table), dtype: *dtype, ids: numbers };
                    let weight = values.part(weight.clone());
                    Input { rows, columns: *width }.linear(self.gpu, [count, dim, *width], weight, to, false)?;
                    add(self.gpu, values.part(bias.clone()), None, biases.from(of * dim, dim))?;
                }
                OfType::Embedded(table) => {
                    let mark = self.gpu.mark();
                    let words = Words::Floats(values.part(table.clone()));
                    let rows = InputRows { words, dtype: Dtype::F32, ids: numbers };
                    let found = widen(self.gpu, rows, [count, dim], Mask::NONE)?;
                    add(self.gpu, found, None, to)?;
                    self.gpu.release(mark);
                }
            }
        }
        let of_nodes = InputRows { ids: Some((groups.of_entries, 0)), ..InputRows::packed(sorted, Dtype::F32) };
        let found = widen(self.gpu, of_nodes, [rows, dim], Mask::NONE)?;
        groups.add_biases(self.gpu, (groups.of_entries, rows), biases, found, dim)?;
        add(self.gpu, found, None, out)?;
        self.gpu.release(mark);
        let mask = self.mode.mask(0, DropoutSite::Input, self.model.spec.input_dropout);
        epilogue(self.gpu, out, dim, None, None, mask)?;
        Ok(Computed { groups, output: Matrix { region: out, columns: dim }, mask })
    }

    /// Computes the gradients of projections, and adds those of embeddings to the accumulated ones, from that of the input rows, which is
    /// overwritten.
    pub(crate) fn typed_inputs_backward(
        &mut self,
        inputs: &'a TypedInputs,
        computed: Computed<'a>,
        gradient: Region,
        state: &State,
    ) -> Result<()> {
        let Computed { groups, output, mask } = computed;
        let (dim, rows) = (inputs.dim, groups.num_rows());
        let mark = self.gpu.mark();
        epilogue_backward(self.gpu, gradient, dim, None, (output.region, None, mask))?;
        let of_rows = InputRows { ids: Some((groups.destinations, 0)), ..InputRows::packed(gradient, Dtype::F32) };
        let sorted = widen(self.gpu, of_rows, [rows, dim], Mask::NONE)?;
        for (of, of_type) in inputs.of_types.iter().enumerate() {
            let [start, count] = groups.rows(of);
            let of_rows = sorted.from(start * dim, count * dim);
            match of_type {
                OfType::Projected { table, dtype, width, weight, bias } => {
                    let [weight, bias] = [weight, bias].map(|range| self.model.gradients.part(range.clone()));
                    if count == 0 {
                        zero(self.gpu, weight)?;
                        zero(self.gpu, bias)?;
                        continue;
                    }
                    let ids = Some((groups.numbers(), start));
                    let input =
                        Input { rows: InputRows { words: Words::Bytes(table), dtype: *dtype, ids }, columns: *width };
                    input.linear_weight(self.gpu, [count, dim, *width], of_rows, weight)?;
                    column_sums(self.gpu, of_rows, dim, Factors::default(), bias)?;
                }
                OfType::Embedded(_) if count == 0 => {}
                OfType::Embedded(table) => {
                    let total = Floats::from(&state.gradients).part(table.clone());
                    add_to_table(self.gpu, (groups.numbers().after(start), count), (of_rows, dim), total, state)?;
                }
            }
        }
        self.gpu.release(mark);
        Ok(())
    }
}

/// Adds gradients of rows to those of a table's rows with these numbers, those of one number in order, if the gate is open.
fn add_to_table(
    gpu: &mut Gpu,
    (numbers, count): (Words<'_>, usize),
    (of_rows, dim): (Region, usize),
    total: Floats<'_>,
    state: &State,
) -> Result<()> {
    let mark = gpu.mark();
    let (_, order) = sort_by_source(gpu, numbers, [total.len() / dim, count], None, BLOCKS)?;
    let arguments = arguments![gpu, &state.gate, numbers, order, of_rows, total, count, dim];
    // SAFETY: the kernel's arguments; numbers are of the table's rows, and each has a gradient.
    unsafe { gpu.launch(&gpu.kernels.train_table_gradients, rows_by_units(count, dim), arguments) }?;
    gpu.release(mark);
    Ok(())
}
