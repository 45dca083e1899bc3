//! Row, layer and batch normalisation.

use morphgl_cuda::Floats;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::epilogue::{Factors, column_sums};
use crate::gpu::{Gpu, arguments, each, rows_by_lanes};

/// Momentum of batch normalisation's running statistics, as in PyTorch.
const MOMENTUM: f32 = 0.1;

/// A matrix in the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) region: Region,
    pub(crate) columns: usize,
}

impl Matrix {
    pub(crate) fn rows(self) -> usize {
        self.region.len() / self.columns.max(1)
    }

    fn sizes(self) -> [usize; 2] {
        [self.rows(), self.columns]
    }
}

/// Rows scaled to unit length, and the inverses of their lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) output: Matrix,
    inverses: Region,
}

impl Unit {
    pub(crate) fn new(gpu: &mut Gpu, x: Matrix) -> Result<Self> {
        let output = Matrix { region: gpu.take(x.region.len())?, ..x };
        let (inverses, [rows, columns]) = (gpu.take(x.rows())?, x.sizes());
        let arguments = arguments![gpu, x.region, output.region, inverses, rows, columns];
        // SAFETY: the kernel's arguments; a row has an inverse length; warps are whole.
        unsafe { gpu.launch(&gpu.kernels.train_unit, rows_by_lanes(rows, columns), arguments) }?;
        Ok(Self { output, inverses })
    }

    /// Converts the gradient of the output to that of the input, in place.
    pub(crate) fn backward(&self, gpu: &Gpu, gradient: Region) -> Result<()> {
        assert!(gradient.len() == self.output.region.len(), "an output and its gradient");
        let [rows, columns] = self.output.sizes();
        let arguments = arguments![gpu, self.output.region, self.inverses, gradient, rows, columns];
        // SAFETY: the arguments are the kernel's, and arrays are as long as asserted; every warp is full, as its shuffles require.
        unsafe { gpu.launch(&gpu.kernels.train_unit_backward, rows_by_lanes(rows, columns), arguments) }
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
    normal: Region,
    statistics: Statistics,
}

#[derive(Debug, Clone, Copy)]
enum Statistics {
    /// Inverse standard deviation of each row.
    Rows(Region),
    /// Column sums, and sums of squared deviations.
    Columns { sums: Region, squares: Region },
}

impl Normalized {
    /// Layer normalisation: each row to mean 0 and variance 1.
    pub(crate) fn layer(gpu: &mut Gpu, x: Matrix, affine: Affine<'_>) -> Result<Self> {
        let (normal, output, inverses) = (gpu.take(x.region.len())?, gpu.take(x.region.len())?, gpu.take(x.rows())?);
        let [rows, columns] = x.sizes();
        let Affine { weight, bias } = affine;
        let arguments = arguments![gpu, x.region, weight, bias, normal, output, inverses, rows, columns];
        // SAFETY: the kernel's arguments; a row has an inverse deviation, a column a weight and a bias; warps are whole.
        unsafe { gpu.launch(&gpu.kernels.train_layer_norm, rows_by_lanes(rows, columns), arguments) }?;
        Ok(Self { output: Matrix { region: output, ..x }, normal, statistics: Statistics::Rows(inverses) })
    }

    /// Batch normalisation: each column to mean 0 and variance 1.
    pub(crate) fn batch(gpu: &mut Gpu, x: Matrix, affine: Affine<'_>) -> Result<Self> {
        let (normal, output) = (gpu.take(x.region.len())?, gpu.take(x.region.len())?);
        let (sums, squares, [rows, columns]) = (gpu.take(x.columns)?, gpu.take(x.columns)?, x.sizes());
        column_sums(gpu, x.region, x.columns, Factors::default(), sums)?;
        let shape = each(x.region.len());
        let arguments = arguments![gpu, x.region, sums, normal, rows, columns];
        // SAFETY: the kernel's arguments; a column has a sum.
        unsafe { gpu.launch(&gpu.kernels.train_centre, shape, arguments) }?;
        let factors = Factors { elements: Some(normal.into()), heads: None };
        column_sums(gpu, normal, x.columns, factors, squares)?;
        let arguments = arguments![gpu, normal, squares, affine.weight, affine.bias, output, rows, columns];
        // SAFETY: as above; a column has a weight and a bias.
        unsafe { gpu.launch(&gpu.kernels.train_batch_norm, shape, arguments) }?;
        Ok(Self { output: Matrix { region: output, ..x }, normal, statistics: Statistics::Columns { sums, squares } })
    }

    /// Converts the gradient of the output to that of the input, in place; writes those of scale and shift.
    pub(crate) fn backward(&self, gpu: &mut Gpu, gradient: Region, affine: Affine<'_>, out: Affine<'_>) -> Result<()> {
        let [rows, columns] = self.output.sizes();
        let factors = Factors { elements: Some(self.normal.into()), heads: None };
        column_sums(gpu, gradient, columns, Factors::default(), out.bias)?;
        column_sums(gpu, gradient, columns, factors, out.weight)?;
        let (normal, weight) = (self.normal, affine.weight);
        match self.statistics {
            Statistics::Rows(inverses) => {
                let arguments = arguments![gpu, normal, weight, inverses, gradient, rows, columns];
                // SAFETY: the kernel's arguments; a row has an inverse deviation, a column a weight; warps are whole.
                unsafe { gpu.launch(&gpu.kernels.train_layer_norm_backward, rows_by_lanes(rows, columns), arguments) }
            }
            Statistics::Columns { squares, .. } => {
                let Affine { bias: sums, weight: along } = out;
                let arguments = arguments![gpu, normal, squares, weight, sums, along, gradient, rows, columns];
                // SAFETY: as above; a column has sums.
                unsafe { gpu.launch(&gpu.kernels.train_batch_norm_backward, each(rows * columns), arguments) }
            }
        }
    }

    /// Updates the running mean and variance with the mini-batch's, by `MOMENTUM`, unless `gate` is 0 on the device.
    pub(crate) fn blend(&self, gpu: &Gpu, gate: &morphgl_cuda::Buffer<u32>, running: [Floats<'_>; 2]) -> Result<()> {
        let Statistics::Columns { sums, squares } = self.statistics else { return Ok(()) };
        let [rows, columns] = self.output.sizes();
        let [mean, variance] = running;
        let arguments = arguments![gpu, gate, sums, squares, mean, variance, rows, columns, MOMENTUM];
        // SAFETY: the kernel's arguments; a column has running statistics.
        unsafe { gpu.launch(&gpu.kernels.train_blend, each(self.output.columns), arguments) }
    }
}

/// Batch normalisation by running mean and variance.
pub(crate) fn by_running(gpu: &mut Gpu, x: Matrix, affine: Affine<'_>, running: [Floats<'_>; 2]) -> Result<Matrix> {
    let output = gpu.take(x.region.len())?;
    let (Affine { weight, bias }, [mean, variance], len) = (affine, running, x.region.len() as u64);
    let arguments = arguments![gpu, x.region, weight, bias, mean, variance, output, len, x.columns];
    // SAFETY: the kernel's arguments; a column has statistics, a weight and a bias.
    unsafe { gpu.launch(&gpu.kernels.train_batch_norm_running, each(x.region.len()), arguments) }?;
    Ok(Matrix { region: output, ..x })
}
