//! Row, layer and batch normalisation.

use morphgl_cuda::Floats;
use morphgl_registry::Result;

use crate::arena::Part;
use crate::epilogue::{Factors, column_sums};
use crate::gpu::{Gpu, each, number, rows_by_lanes};

/// Momentum of batch normalisation's running statistics, as in PyTorch.
const MOMENTUM: f32 = 0.1;

/// A matrix in the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) part: Part,
    pub(crate) columns: usize,
}

impl Matrix {
    pub(crate) fn rows(self) -> usize {
        self.part.len() / self.columns.max(1)
    }

    fn sizes(self) -> [u32; 2] {
        [number(self.rows()), number(self.columns)]
    }
}

/// Rows scaled to unit length, and the inverses of their lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) output: Matrix,
    inverses: Part,
}

impl Unit {
    pub(crate) fn new(gpu: &mut Gpu, x: Matrix) -> Result<Self> {
        let output = Matrix { part: gpu.take(x.part.len())?, ..x };
        let (inverses, [rows, columns]) = (gpu.take(x.rows())?, x.sizes());
        let arguments = &mut [gpu.at(x.part), gpu.at(output.part), gpu.at(inverses), rows.into(), columns.into()];
        // SAFETY: the kernel's arguments; a row has an inverse length; warps are whole.
        unsafe { gpu.launch(&gpu.kernels.train_unit, rows_by_lanes(x.rows(), x.columns), arguments) }?;
        Ok(Self { output, inverses })
    }

    /// Converts the gradient of the output to that of the input, in place.
    pub(crate) fn backward(&self, gpu: &Gpu, gradient: Part) -> Result<()> {
        assert!(gradient.len() == self.output.part.len(), "an output and its gradient");
        let [rows, columns] = self.output.sizes();
        let (output, inverses) = (gpu.at(self.output.part), gpu.at(self.inverses));
        let arguments = &mut [output, inverses, gpu.at(gradient), rows.into(), columns.into()];
        let shape = rows_by_lanes(self.output.rows(), self.output.columns);
        // SAFETY: the kernel's arguments, as long as asserted; warps are whole.
        unsafe { gpu.launch(&gpu.kernels.train_unit_backward, shape, arguments) }
    }
}

/// A normalisation's scale and shift, or their gradients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Affine<'a> {
    pub(crate) weight: Floats<'a>,
    pub(crate) bias: Floats<'a>,
}

/// Forward results of a layer or batch normalisation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Normalized {
    pub(crate) output: Matrix,
    /// Normalised values before scale and shift.
    normal: Part,
    by: By,
}

#[derive(Debug, Clone, Copy)]
enum By {
    /// Inverse standard deviation of each row.
    Rows(Part),
    /// Column sums, and sums of squared deviations.
    Columns { sums: Part, squares: Part },
}

impl Normalized {
    /// Layer normalisation: each row to mean 0 and variance 1.
    pub(crate) fn layer(gpu: &mut Gpu, x: Matrix, affine: Affine<'_>) -> Result<Self> {
        let (normal, output, inverses) = (gpu.take(x.part.len())?, gpu.take(x.part.len())?, gpu.take(x.rows())?);
        let [rows, columns] = x.sizes();
        let arguments = &mut [
            gpu.at(x.part),
            gpu.at(affine.weight),
            gpu.at(affine.bias),
            gpu.at(normal),
            gpu.at(output),
            gpu.at(inverses),
            rows.into(),
            columns.into(),
        ];
        // SAFETY: the kernel's arguments; a row has an inverse deviation, a column a weight and a bias; warps are whole.
        unsafe { gpu.launch(&gpu.kernels.train_layer_norm, rows_by_lanes(x.rows(), x.columns), arguments) }?;
        Ok(Self { output: Matrix { part: output, ..x }, normal, by: By::Rows(inverses) })
    }

    /// Batch normalisation: each column to mean 0 and variance 1.
    pub(crate) fn batch(gpu: &mut Gpu, x: Matrix, affine: Affine<'_>) -> Result<Self> {
        let (normal, output) = (gpu.take(x.part.len())?, gpu.take(x.part.len())?);
        let (sums, squares, [rows, columns]) = (gpu.take(x.columns)?, gpu.take(x.columns)?, x.sizes());
        column_sums(gpu, x.part, x.columns, Factors::default(), sums)?;
        let shape = each(x.part.len());
        let arguments = &mut [gpu.at(x.part), gpu.at(sums), gpu.at(normal), rows.into(), columns.into()];
        // SAFETY: the kernel's arguments; a column has a sum.
        unsafe { gpu.launch(&gpu.kernels.train_centre, shape, arguments) }?;
        let factors = Factors { elements: Some(normal.into()), heads: None };
        column_sums(gpu, normal, x.columns, factors, squares)?;
        let arguments = &mut [
            gpu.at(normal),
            gpu.at(squares),
            gpu.at(affine.weight),
            gpu.at(affine.bias),
            gpu.at(output),
            rows.into(),
            columns.into(),
        ];
        // SAFETY: as above; a column has a weight and a bias.
        unsafe { gpu.launch(&gpu.kernels.train_batch_norm, shape, arguments) }?;
        Ok(Self { output: Matrix { part: output, ..x }, normal, by: By::Columns { sums, squares } })
    }

    /// Converts the gradient of the output to that of the input, in place; writes those of scale and shift.
    pub(crate) fn backward(&self, gpu: &mut Gpu, gradient: Part, affine: Affine<'_>, found: Affine<'_>) -> Result<()> {
        let (columns, rows) = (self.output.columns, self.output.rows());
        let factors = Factors { elements: Some(self.normal.into()), heads: None };
        column_sums(gpu, gradient, columns, Factors::default(), found.bias)?;
        column_sums(gpu, gradient, columns, factors, found.weight)?;
        let [num_rows, num_columns] = self.output.sizes();
        let (normal, weight, gradient) = (gpu.at(self.normal), gpu.at(affine.weight), gpu.at(gradient));
        match self.by {
            By::Rows(inverses) => {
                let inverses = gpu.at(inverses);
                let arguments = &mut [normal, weight, inverses, gradient, num_rows.into(), num_columns.into()];
                // SAFETY: the kernel's arguments; a row has an inverse deviation, a column a weight; warps are whole.
                unsafe { gpu.launch(&gpu.kernels.train_layer_norm_backward, rows_by_lanes(rows, columns), arguments) }
            }
            By::Columns { squares, .. } => {
                let (sums, along) = (gpu.at(found.bias), gpu.at(found.weight));
                let (squares, sizes) = (gpu.at(squares), [num_rows.into(), num_columns.into()]);
                let [num_rows, num_columns] = sizes;
                let arguments = &mut [normal, squares, weight, sums, along, gradient, num_rows, num_columns];
                // SAFETY: as above; a column has sums.
                unsafe { gpu.launch(&gpu.kernels.train_batch_norm_backward, each(rows * columns), arguments) }
            }
        }
    }

    /// Updates the running statistics by the mini-batch's, if the gate is open.
    pub(crate) fn blend(&self, gpu: &Gpu, gate: &morphgl_cuda::Buffer<u32>, running: [Floats<'_>; 2]) -> Result<()> {
        let By::Columns { sums, squares } = self.by else { return Ok(()) };
        let [rows, columns] = self.output.sizes();
        let [mean, variance] = running.map(|r| gpu.at(r));
        let arguments = &mut [
            gate.into(),
            gpu.at(sums),
            gpu.at(squares),
            mean,
            variance,
            rows.into(),
            columns.into(),
            MOMENTUM.into(),
        ];
        // SAFETY: the kernel's arguments; a column has running statistics.
        unsafe { gpu.launch(&gpu.kernels.train_blend, each(self.output.columns), arguments) }
    }
}

/// Batch normalisation by running mean and variance.
pub(crate) fn by_running(gpu: &mut Gpu, x: Matrix, affine: Affine<'_>, running: [Floats<'_>; 2]) -> Result<Matrix> {
    let output = gpu.take(x.part.len())?;
    let [mean, variance] = running.map(|r| gpu.at(r));
    let arguments = &mut [
        gpu.at(x.part),
        gpu.at(affine.weight),
        gpu.at(affine.bias),
        mean,
        variance,
        gpu.at(output),
        (x.part.len() as u64).into(),
        number(x.columns).into(),
    ];
    // SAFETY: the kernel's arguments; a column has statistics, a weight and a bias.
    unsafe { gpu.launch(&gpu.kernels.train_batch_norm_running, each(x.part.len()), arguments) }?;
    Ok(Matrix { part: output, ..x })
}
