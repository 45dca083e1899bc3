//! Epilogue of a layer (bias, activation, dropout), column sums, and widening of features to f32.

use morphgl_cuda::{Floats, Kernel, Shape};
use morphgl_graph_store::Dtype;
use morphgl_model_spec::Activation;
use morphgl_registry::Result;

use crate::arena::Part;
use crate::edges::Rows;
use crate::gpu::{Gpu, Mask, Words, each, number, rows_by_units};

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
    values: Part,
    columns: usize,
    bias: Option<Floats<'_>>,
    activation: Option<Activation>,
    mask: Mask,
) -> Result<()> {
    if values.len() == 0 || (bias.is_none() && activation.is_none() && !mask.drops()) {
        return Ok(());
    }
    assert!(bias.is_none_or(|b| b.len() == columns), "a bias a column");
    let [key, site, batch, epoch, threshold, scale] = mask.arguments();
    let arguments = &mut [
        gpu.at(values),
        gpu.at_some(bias),
        (values.len() as u64).into(),
        number(columns).into(),
        code(activation).into(),
        key,
        site,
        batch,
        epoch,
        threshold,
        scale,
    ];
    // SAFETY: the kernel's arguments; it stays below the number of values and of columns.
    unsafe { gpu.launch(&gpu.kernels.train_finish, each(values.len().div_ceil(8)), arguments) }
}

/// Backward of the epilogue, in place: the gradient of `output` becomes that of the values before activation and dropout;
/// `bias` receives its column sums.
pub(crate) fn epilogue_backward(
    gpu: &mut Gpu,
    gradient: Part,
    columns: usize,
    bias: Option<Floats<'_>>,
    (output, activation, mask): (Part, Option<Activation>, Mask),
) -> Result<()> {
    if activation.is_none() && !mask.drops() {
        return bias.map_or(Ok(()), |bias| column_sums(gpu, gradient, columns, Factors::default(), bias));
    }
    assert!(output.len() == gradient.len(), "an output and its gradient");
    let runs = Runs::of(gradient.len(), columns);
    let mark = gpu.mark();
    let partials = bias.map(|_| gpu.take(runs.count * columns)).transpose()?;
    let [key, site, batch, epoch, threshold, scale] = mask.arguments();
    let arguments = &mut [
        gpu.at(gradient),
        gpu.at(output),
        gpu.at_some(partials),
        number(runs.rows).into(),
        number(columns).into(),
        number(runs.each).into(),
        code(activation).into(),
        key,
        site,
        batch,
        epoch,
        threshold,
        scale,
    ];
    // SAFETY: the kernel's arguments; a run has a row of partial sums.
    unsafe { gpu.launch(&gpu.kernels.train_finish_backward, rows_by_units(runs.count, columns), arguments) }?;
    if let (Some(partials), Some(bias)) = (partials, bias) {
        columns_end(gpu, partials, runs.count, columns, bias.into())?;
    }
    gpu.release(mark);
    Ok(())
}

/// Partition of rows into runs of equal length, each summed by one thread per column.
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
    pub(crate) heads: Option<(Part, usize)>,
}

/// Column sums, in a fixed order.
pub(crate) fn column_sums<'a>(
    gpu: &mut Gpu,
    x: Part,
    columns: usize,
    factors: Factors<'a>,
    out: impl Into<Words<'a>>,
) -> Result<()> {
    let (runs, out) = (Runs::of(x.len(), columns), out.into());
    let width = factors.heads.map_or(columns, |(_, width)| width);
    assert!(factors.elements.is_none_or(|y| y.len() >= x.len()), "a factor an element");
    assert!(factors.heads.is_none_or(|(w, width)| w.len() * width >= x.len()), "a factor a row and head");
    let mark = gpu.mark();
    let partials = gpu.take(runs.count * columns)?;
    let arguments = &mut [
        gpu.at(x),
        gpu.at_some(factors.elements),
        gpu.at_some(factors.heads.map(|(w, _)| w)),
        gpu.at(partials),
        number(runs.rows).into(),
        number(columns).into(),
        number(runs.each).into(),
        number(width).into(),
    ];
    // SAFETY: the kernel's arguments, as long as asserted; a run has a row of partial sums.
    unsafe { gpu.launch(&gpu.kernels.train_columns, rows_by_units(runs.count, columns), arguments) }?;
    columns_end(gpu, partials, runs.count, columns, out)?;
    gpu.release(mark);
    Ok(())
}

fn columns_end(gpu: &Gpu, partials: Part, runs: usize, columns: usize, out: Words<'_>) -> Result<()> {
    assert!(out.len() >= columns, "a sum a column");
    let arguments = &mut [gpu.at(partials), gpu.at(out), number(runs).into(), number(columns).into()];
    let (x, y) = (columns.next_power_of_two().min(32), runs.div_ceil(4).next_power_of_two().min(32));
    let shape = Shape { grid: [number(columns.div_ceil(x)), 1, 1], block: [x as u32, y as u32, 1], shared: 4 * x * y };
    // SAFETY: the kernel's arguments, as long as asserted; a thread has a float of shared memory.
    unsafe { gpu.launch(&gpu.kernels.train_columns_end, shape, arguments) }
}

/// Sum of a short array, in order.
pub(crate) fn total(gpu: &Gpu, x: Part, out: Floats<'_>) -> Result<()> {
    assert!(out.len() == 1, "a sum is a number");
    let arguments = &mut [gpu.at(x), gpu.at(out), number(x.len()).into()];
    // SAFETY: the kernel's arguments.
    unsafe { gpu.launch(&gpu.kernels.train_total, Shape::linear(1, 1), arguments) }
}

/// `out = x + y`, or a copy of `x`; `out` may be one of them.
pub(crate) fn add<'a>(gpu: &Gpu, x: impl Into<Words<'a>>, y: Option<Part>, out: Part) -> Result<()> {
    let x = x.into();
    assert!(x.len() >= out.len() && y.is_none_or(|y| y.len() >= out.len()), "a sum of as many");
    let arguments = &mut [gpu.at(x), gpu.at_some(y), gpu.at(out), (out.len() as u64).into()];
    // SAFETY: the kernel's arguments, as long as asserted.
    unsafe { gpu.launch(&gpu.kernels.train_add, each(out.len()), arguments) }
}

/// Widens the first `len` elements of features to f32, with dropout.
pub(crate) fn widen(gpu: &mut Gpu, x: Rows<'_>, len: usize, mask: Mask) -> Result<Part> {
    assert!(4 * x.words.len() + 3 >= len * x.dtype.size(), "elements to widen");
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
    let [key, site, batch, epoch, threshold, scale] = mask.arguments();
    let length = (len as u64).into();
    let arguments = &mut [gpu.at(x.words), gpu.at(out), length, key, site, batch, epoch, threshold, scale];
    // SAFETY: the kernel's arguments, as long as asserted; groups of eight lie at multiples of their length.
    unsafe { gpu.launch(kernel, each(len.div_ceil(8)), arguments) }?;
    Ok(out)
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use morphgl_cuda::{Device, Pinned};
    use morphgl_model_spec::{Dropout, DropoutSite};

    use super::*;
    use crate::KEY;

    fn gpu() -> Gpu {
        Gpu::new(&Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated"), Default::default())
            .expect("a stream")
    }

    fn download(gpu: &mut Gpu, part: Part) -> Vec<f32> {
        let mut host = Pinned::new(gpu.stream.device(), part.len()).expect("memory");
        gpu.download(part, &mut host).expect("a copy");
        gpu.stream.synchronize().expect("no failure");
        host.to_vec()
    }

    /// Masks equal the spec's bit for bit, also for lengths that are no multiple of a group.
    #[test]
    fn masks_are_the_specs() {
        let mut gpu = gpu();
        for (len, columns, probability) in [(1, 1, 0.5), (7, 7, 0.5), (64, 8, 0.3), (1003, 17, 0.9)] {
            let dropout = Dropout::new(u64::MAX / 7, 3, 9, 2, DropoutSite::Hidden, probability).expect("it drops");
            let values: Vec<f32> = (0..len).map(|i| 1.0 + i as f32).collect();
            let pinned = Pinned::of(gpu.stream.device(), &values).expect("memory");
            let [part, output] = [gpu.upload(&pinned), gpu.upload(&pinned)].map(|p| p.expect("memory"));
            let wide = widen(&mut gpu, Rows { words: part.into(), dtype: Dtype::F32 }, len, Mask::new(Some(dropout)));
            let wide = wide.expect("a launch");
            epilogue(&gpu, part, columns, None, None, Mask::new(Some(dropout))).expect("a launch");
            let end = (output, None, Mask::new(Some(dropout)));
            epilogue_backward(&mut gpu, output, columns, None, end).expect("a launch");
            let mut expected = values;
            dropout.apply(0, &mut expected);
            for found in [part, wide, output] {
                assert_eq!(download(&mut gpu, found), expected, "{len} elements, {probability}");
            }
        }
    }

    #[test]
    fn columns_are_summed() {
        let mut gpu = gpu();
        for (rows, columns) in [(1, 1), (3, 40), (700, 5), (20_000, 2)] {
            // Small integers: the sum is exact in any order.
            let values: Vec<f32> = (0..rows * columns).map(|i| (i * 7 % 5) as f32).collect();
            let part = gpu.upload(&Pinned::of(gpu.stream.device(), &values).expect("memory")).expect("memory");
            let out = gpu.take(columns).expect("memory");
            column_sums(&mut gpu, part, columns, Factors::default(), out).expect("a launch");
            let expected: Vec<f32> = (0..columns).map(|c| values[c..].iter().step_by(columns).sum()).collect();
            assert_eq!(download(&mut gpu, out), expected, "{rows} x {columns}");
        }
    }
}
