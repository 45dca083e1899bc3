//! What ends a layer, in one pass over its output: bias, activation, dropout.

use burn_tensor::Tensor;
use morphgl_model_spec::{Activation, Dropout};

use crate::bridge::{HostOp, InPlace, Keeps, Kept, apply1, apply2};
use crate::matrix::{Matrix, MatrixRef, axpy, for_slices, sum_rows};

/// Adds `bias` (`[1, width]`), applies `activation`, drops by `dropout`; each where there is one.
pub fn finish(
    x: Tensor<2>,
    bias: Option<Tensor<2>>,
    activation: Option<Activation>,
    dropout: Option<Dropout>,
) -> Tensor<2> {
    let op = Finish { activation, dropout };
    match bias {
        Some(bias) => apply2(op, x, bias),
        None if activation.is_none() && dropout.is_none() => x,
        None => apply1(op, x),
    }
}

#[derive(Debug)]
struct Finish {
    activation: Option<Activation>,
    dropout: Option<Dropout>,
}

impl Finish {
    /// Turns the gradient of an output row into that of the row before activation and dropout.
    fn backward_row(&self, row: usize, grad: &mut [f32], output: &[f32]) {
        let scale = self.dropout.map_or(1.0, |d| d.scale());
        match self.activation {
            // What was dropped is 0 as well, so the output tells all.
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
        if let Some(dropout) = &self.dropout {
            dropout.apply(row as u64 * values.len() as u64, values);
        }
    }
}

impl InPlace for Finish {
    fn forward(&self, values: &mut [f32], cols: usize, others: &[MatrixRef<'_>]) {
        if let Some(bias) = others.first() {
            assert_eq!((bias.rows, bias.cols), (1, cols), "a bias a column");
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

    fn backward(&self, grad: &mut [f32], cols: usize, kept: &Kept<'_>, others: &[bool]) -> Vec<Option<Matrix>> {
        if self.activation.is_some() || self.dropout.is_some() {
            for_slices(grad, cols, |row, grad| {
                let output = kept.output.as_ref().map_or(&[][..], |y| y.row(row));
                self.backward_row(row, grad, output);
            });
        }
        let rows = grad.len() / cols.max(1);
        let of_bias = || {
            let sums = sum_rows(rows, cols, |row, sums| axpy(sums, 1.0, &grad[row * cols..(row + 1) * cols]));
            Matrix::new(sums, 1, cols)
        };
        others.iter().map(|wanted| wanted.then(of_bias)).collect()
    }
}

impl HostOp for Finish {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        let mut out = Matrix::new(inputs[0].values.to_vec(), inputs[0].rows, inputs[0].cols);
        InPlace::forward(self, &mut out.values, out.cols, &inputs[1..]);
        out
    }

    fn keeps(&self) -> Keeps {
        Keeps { inputs: false, output: self.activation.is_some() }
    }

    fn backward(&self, grad: MatrixRef<'_>, kept: &Kept<'_>, wanted: &[bool]) -> Vec<Option<Matrix>> {
        let mut before = Matrix::new(grad.values.to_vec(), grad.rows, grad.cols);
        let others = InPlace::backward(self, &mut before.values, grad.cols, kept, &wanted[1..]);
        std::iter::once(Some(before)).chain(others).collect()
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        Some(self)
    }
}
