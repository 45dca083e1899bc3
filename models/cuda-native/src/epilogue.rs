//! Epilogue of a layer (bias, activation, dropout), column sums, and widening of features to f32.

use morphgl_cuda::{Floats, Kernel, Shape};
use morphgl_graph_store::Dtype;
use morphgl_model_core::Activation;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::InputRows;
use crate::gpu::{Gpu, Mask, Words, arguments, each, number, rows_by_units};

fn code(activation: Option<Activation>) -> u32 {
    match activation {
        None => 0,
        Some(Activation::Relu) => 1,
        Some(Activation::Elu) => 2,
    }
}

/// Epilogue in place: bias, activation and dropout, each optional.
pub(crate) fn epilogue(
    gpu: &Gpu,
    values: Region,
    columns: usize,
    bias: Option<Floats<'_>>,
    activation: Option<Activation>,
    mask: Mask<'_>,
) -> Result<()> {
    if values.len() == 0 || (bias.is_none() && activation.is_none() && !mask.drops()) {
        return Ok(());
    }
    assert!(bias.is_none_or(|b| b.len() == columns), "a bias per column");
    let [key, threshold, scale, nodes, keys, num_keys] = mask.arguments(values.len() / columns);
    let (len, activation) = (values.len() as u64, code(activation));
    let arguments =
        arguments![gpu, values, bias, len, columns, activation, key, threshold, scale, nodes, keys, num_keys];
    // SAFETY: the kernel's arguments; it stays below the number of values, of columns and of rows.
    unsafe { gpu.launch(&gpu.kernels.train_finish, each(mask.groups(values.len(), columns)), arguments) }
}

/// Backward of the epilogue, in place: the gradient of `output` becomes that of the values before activation and dropout;
/// `bias` receives its column sums.
pub(crate) fn epilogue_backward(
    gpu: &mut Gpu,
    gradient: Region,
    columns: usize,
    bias: Option<Floats<'_>>,
    (output, activation, mask): (Region, Option<Activation>, Mask<'_>),
) -> Result<()> {
    if activation.is_none() && !mask.drops() {
        return bias.map_or(Ok(()), |bias| column_sums(gpu, gradient, columns, Factors::default(), bias));
    }
    assert!(output.len() == gradient.len(), "an output and its gradient");
    let runs = Runs::of(gradient.len(), columns);
    let mark = gpu.mark();
    let partials = bias.map(|_| gpu.take(runs.count * columns)).transpose()?;
    let (Runs { rows, each, count }, activation) = (runs, code(activation));
    let [key, threshold, scale, nodes, keys, num_keys] = mask.arguments(rows);
    let arguments = arguments![
        gpu, gradient, output, partials, rows, columns, each, activation, key, threshold, scale, nodes, keys, num_keys
    ];
    // SAFETY: the kernel's arguments; a run has a row of partial sums.
    unsafe { gpu.launch(&gpu.kernels.train_finish_backward, rows_by_units(count, columns), arguments) }?;
    if let (Some(partials), Some(bias)) = (partials, bias) {
        columns_end(gpu, partials, count, columns, bias.into())?;
    }
    gpu.release(mark);
    Ok(())
}

/// Partition of rows into runs of equal length, each summed by one thread per column.
#[derive(Clone, Copy)]
struct Runs {
    rows: usize,
    count: usize,
    each: usize,
}

impl Runs {
    fn of(len: usize, columns: usize) -> Self {
        let rows = len / columns.max(1);
        // Enough runs to fill all multiprocessors, few enough for the pass that adds them up.
        let wanted = ((1 << 18) / columns.max(1)).clamp(1 << 10, 1 << 11);
        let each = rows.div_ceil(wanted).max(8);
        Self { rows, count: rows.div_ceil(each), each }
    }
}

/// Factors applied before columns are summed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Factors<'a> {
    /// One factor per element.
    pub(crate) elements: Option<Words<'a>>,
    /// One factor per row and head, and the width of a head.
    pub(crate) heads: Option<(Region, usize)>,
}

/// Column sums, in a fixed order.
pub(crate) fn column_sums<'a>(
    gpu: &mut Gpu,
    x: Region,
    columns: usize,
    factors: Factors<'a>,
    out: impl Into<Words<'a>>,
) -> Result<()> {
    let (runs, out) = (Runs::of(x.len(), columns), out.into());
    let width = factors.heads.map_or(columns, |(_, width)| width);
    assert!(factors.elements.is_none_or(|y| y.len() >= x.len()), "a factor per element");
    assert!(factors.heads.is_none_or(|(w, width)| w.len() * width >= x.len()), "a factor per row and head");
    let mark = gpu.mark();
    let partials = gpu.take(runs.count * columns)?;
    let (Factors { elements, heads }, Runs { rows, each, count }) = (factors, runs);
    let heads = heads.map(|(w, _)| w);
    let arguments = arguments![gpu, x, elements, heads, partials, rows, columns, each, width];
    // SAFETY: the arguments are the kernel's, and arrays are as long as asserted; each run of rows has a row of partial sums.
    unsafe { gpu.launch(&gpu.kernels.train_columns, rows_by_units(count, columns), arguments) }?;
    columns_end(gpu, partials, count, columns, out)?;
    gpu.release(mark);
    Ok(())
}

fn columns_end(gpu: &Gpu, partials: Region, runs: usize, columns: usize, out: Words<'_>) -> Result<()> {
    assert!(out.len() >= columns, "a sum per column");
    let arguments = arguments![gpu, partials, out, runs, columns];
    let (x, y) = (columns.next_power_of_two().min(32), runs.div_ceil(4).next_power_of_two().min(32));
    let shape = Shape { grid: [number(columns.div_ceil(x)), 1, 1], block: [x as u32, y as u32, 1], shared: 4 * x * y };
    // SAFETY: the kernel's arguments, as long as asserted; a thread has a float of shared memory.
    unsafe { gpu.launch(&gpu.kernels.train_columns_end, shape, arguments) }
}

/// Sum of a short array, in order.
pub(crate) fn total(gpu: &Gpu, x: Region, out: Floats<'_>) -> Result<()> {
    assert!(out.len() == 1, "a sum is a number");
    let arguments = arguments![gpu, x, out, x.len()];
    // SAFETY: the kernel's arguments.
    unsafe { gpu.launch(&gpu.kernels.train_total, Shape::linear(1, 1), arguments) }
}

/// `out = x + y`, or a copy of `x`; `out` may be one of them.
pub(crate) fn add<'a>(gpu: &Gpu, x: impl Into<Words<'a>>, y: Option<Region>, out: impl Into<Words<'a>>) -> Result<()> {
    let (x, out) = (x.into(), out.into());
    assert!(x.len() >= out.len() && y.is_none_or(|y| y.len() >= out.len()), "a sum of as many");
    let arguments = arguments![gpu, x, y, out, out.len() as u64];
    // SAFETY: the kernel's arguments, as long as asserted.
    unsafe { gpu.launch(&gpu.kernels.train_add, each(out.len()), arguments) }
}

/// Widens the first `rows` rows of features to f32, with dropout.
pub(crate) fn widen(gpu: &mut Gpu, x: InputRows<'_>, [rows, columns]: [usize; 2], mask: Mask<'_>) -> Result<Region> {
    let len = rows * columns;
    assert!(x.has(rows, columns), "elements to widen");
    let out = gpu.take(len)?;
    if len == 0 {
        return Ok(out);
    }
    let kernel: &Kernel = match x.dtype {
        Dtype::F32 => &gpu.kernels.train_widen_f32,
        Dtype::F16 => &gpu.kernels.train_widen_f16,
        Dtype::Bf16 => &gpu.kernels.train_widen_bf16,
        Dtype::U8 => &gpu.kernels.train_widen_u8,
        other => unreachable!("a feature matrix is never {other}"),
    };
    let [key, threshold, scale, nodes, keys, num_keys] = mask.arguments(rows);
    let (ids, first) = x.ids.unzip();
    let first = first.unwrap_or(0) as u64;
    let arguments =
        arguments![gpu, x.words, ids, first, out, len as u64, columns, key, threshold, scale, nodes, keys, num_keys];
    // SAFETY: the kernel's arguments, as long as asserted; numbers of rows are those of a table with all of them; four elements at a time
    // lie at multiples of their length.
    unsafe { gpu.launch(kernel, each(mask.groups(len, columns)), arguments) }?;
    Ok(out)
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
