//! Epilogue of a layer in one pass over its output: bias, activation, dropout.

use burn_tensor::Tensor;
use morphgl_model_core::Activation;

use crate::bridge::{InPlaceOp, apply_in_place};
use crate::mask::Mask;
use crate::matrix::{Matrix, MatrixRef, axpy, for_slices, sum_rows};

/// Adds `bias` (`[1, width]`), applies `activation`, then `dropout`; each is optional.
pub fn epilogue(
    x: Tensor<2>,
    bias: Option<Tensor<2>>,
    activation: Option<Activation>,
    dropout: Option<Mask>,
) -> Tensor<2> {
    if bias.is_none() && activation.is_none() && dropout.is_none() {
        return x;
    }
    let op = Epilogue { activation, dropout };
    match bias {
        Some(bias) => apply_in_place(op, [x, bias]),
        None => apply_in_place(op, [x]),
    }
}

#[derive(Debug)]
struct Epilogue {
    activation: Option<Activation>,
    dropout: Option<Mask>,
}

impl Epilogue {
    /// Converts the gradient of an output row to that of the row before activation and dropout, in place.
    fn backward_row(&self, row: usize, grad: &mut [f32], output: &[f32]) {
        let scale = self.dropout.as_ref().map_or(1.0, |mask| mask.dropout.scale());
        match self.activation {
            // A dropped element is 0 too, so the sign of the output suffices.
            Some(Activation::Relu) => {
                for (g, &y) in grad.iter_mut().zip(output) {
                    *g = if y > 0.0 { *g * scale } else { 0.0 };
                }
            }
            Some(Activation::Elu) => {
                for (g, &y) in grad.iter_mut().zip(output) {
                    *g *= if y > 0.0 { 1.0 } else { y / scale + 1.0 };
                }
                self.drop(row, grad);
            }
            None => self.drop(row, grad),
        }
    }

    fn drop(&self, row: usize, values: &mut [f32]) {
        if let Some(mask) = &self.dropout {
            mask.apply(row, values.len(), values);
        }
    }
}

impl InPlaceOp for Epilogue {
    fn forward(&self, values: &mut [f32], cols: usize, others: &[MatrixRef<'_>]) {
        if let Some(bias) = others.first() {
            assert_eq!((bias.rows, bias.cols), (1, cols), "a bias per column");
        }
        for_slices(values, cols, |row, out| {
            if let Some(bias) = others.first() {
                out.iter_mut().zip(bias.values).for_each(|(o, &b)| *o += b);
            }
            match self.activation {
                Some(Activation::Relu) => out.iter_mut().for_each(|o| *o = if *o < 0.0 { 0.0 } else { *o }),
                Some(Activation::Elu) => out.iter_mut().for_each(|o| *o = if *o > 0.0 { *o } else { o.exp_m1() }),
                None => {}
            }
            self.drop(row, out);
        });
    }

    fn saves_output(&self) -> bool {
        self.activation.is_some()
    }

    fn backward(
        &self,
        grad: &mut [f32],
        cols: usize,
        output: Option<MatrixRef<'_>>,
        wanted: &[bool],
    ) -> Vec<Option<Matrix>> {
        if self.activation.is_some() || self.dropout.is_some() {
            for_slices(grad, cols, |row, grad| {
                self.backward_row(row, grad, output.as_ref().map_or(&[], |y| y.row(row)));
            });
        }
        let rows = grad.len() / cols.max(1);
        let bias_gradient = || {
            let sums = sum_rows(rows, cols, |row, sums| axpy(sums, 1.0, &grad[row * cols..(row + 1) * cols]));
            Matrix::new(sums, 1, cols)
        };
        wanted.iter().map(|wanted| wanted.then(bias_gradient)).collect()
    }
}
