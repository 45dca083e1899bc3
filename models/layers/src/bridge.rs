//! The bridge between burn's autodiff and operations written as plain functions over host memory.
//!
//! burn's `flex` backend runs elementwise operations on one thread and has no segment reduction, so what is not a
//! matrix product is an operation of ours. Each is a [`HostOp`]: a forward and a backward function over slices.

use std::fmt;
use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_backend_extension::backend_extension;
use burn_dispatch::Dispatch;
use burn_dispatch::backends::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_dispatch::backends::autodiff::grads::Gradients;
use burn_dispatch::backends::autodiff::ops::{Backward, Ops, OpsKind};
use burn_dispatch::backends::{Autodiff, Flex};
use burn_tensor::{Tensor, TensorData};

use crate::matrix::{Matrix, MatrixRef};

/// The paths that `backend_extension` writes, which are those of the crate `burn`.
mod burn {
    pub(super) mod backend {
        pub(crate) use burn_backend::*;
        pub(crate) use burn_dispatch::{backend::*, backends::*, device::*, tensor::*};
    }
}

/// A differentiable operation on one to three matrices in host memory.
///
/// Its result is a function of its inputs alone, whatever the number of threads it runs on.
pub trait HostOp: fmt::Debug + Send + Sync + 'static {
    /// Computes the output.
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix;

    /// Whether [`HostOp::backward`] reads the inputs, and the output. What it does not read is not kept.
    fn keeps(&self) -> Keeps;

    /// Computes the gradient of each input that is `wanted` from that of the output.
    fn backward(&self, grad: MatrixRef<'_>, kept: &Kept<'_>, wanted: &[bool]) -> Vec<Option<Matrix>>;

    /// The operation in place, where output and first input have one shape; it saves a matrix each way.
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }
}

/// An operation that turns its first input into its output, and the output's gradient into the first input's.
pub trait InPlace {
    /// Turns the first input, `cols` wide, into the output.
    fn forward(&self, values: &mut [f32], cols: usize, others: &[MatrixRef<'_>]);

    /// Turns the output's gradient into the first input's; returns those of the other inputs that are wanted.
    fn backward(&self, grad: &mut [f32], cols: usize, kept: &Kept<'_>, others: &[bool]) -> Vec<Option<Matrix>>;
}

/// What a backward function reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keeps {
    /// The inputs.
    pub inputs: bool,
    /// The output.
    pub output: bool,
}

/// What was kept for a backward function; empty where it asked for nothing.
#[derive(Debug, Default)]
pub struct Kept<'a> {
    /// The inputs.
    pub inputs: Vec<MatrixRef<'a>>,
    /// The output.
    pub output: Option<MatrixRef<'a>>,
}

/// A backend whose tensors can be seen as host memory.
pub trait HostTensors: Backend {
    /// The tensor with its elements row after row in host memory.
    fn laid_out(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Borrows the elements of a tensor that is laid out.
    fn view(tensor: &FloatTensor<Self>) -> MatrixRef<'_>;
    /// The elements of a tensor that is laid out, to be changed; copied first where another tensor shares them.
    fn view_mut(tensor: &mut FloatTensor<Self>) -> &mut [f32];
    /// Takes the elements without a copy.
    fn from_matrix(matrix: Matrix) -> FloatTensor<Self>;
}

impl HostTensors for Flex {
    fn laid_out(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
    }

    fn view(tensor: &FloatTensor<Self>) -> MatrixRef<'_> {
        let shape = tensor.shape();
        let values = tensor.as_slice::<f32>().expect("a laid out tensor of f32");
        MatrixRef { values, rows: shape[0], cols: shape[1] }
    }

    fn view_mut(tensor: &mut FloatTensor<Self>) -> &mut [f32] {
        // A part of a larger buffer gets a buffer of its own: only whole ones are seen whole.
        let shape = tensor.shape();
        let len = shape[0] * shape[1];
        if tensor.storage::<f32>().len() != len {
            let values = tensor.as_slice::<f32>().expect("a laid out tensor of f32").to_vec();
            *tensor = Self::from_matrix(Matrix::new(values, shape[0], shape[1]));
        }
        tensor.storage_mut::<f32>()
    }

    fn from_matrix(matrix: Matrix) -> FloatTensor<Self> {
        FloatTensor::<Flex>::from_data(TensorData::new(matrix.values, [matrix.rows, matrix.cols]))
    }
}

/// Host operations as operations of a backend. Called through [`apply1`], [`apply2`] and [`apply3`].
#[backend_extension(Flex, Autodiff)]
pub trait HostOps: Backend {
    /// Applies an operation with one input.
    fn host1(a: FloatTensor<Self>, op: Arc<dyn HostOp>) -> FloatTensor<Self>;
    /// Applies an operation with two inputs.
    fn host2(a: FloatTensor<Self>, b: FloatTensor<Self>, op: Arc<dyn HostOp>) -> FloatTensor<Self>;
    /// Applies an operation with three inputs.
    fn host3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn HostOp>,
    ) -> FloatTensor<Self>;
}

/// Computes the output; the inputs come back where the operation keeps them.
fn forward<B: HostTensors>(inputs: Vec<FloatTensor<B>>, op: &dyn HostOp) -> (FloatTensor<B>, Vec<FloatTensor<B>>) {
    let mut inputs: Vec<FloatTensor<B>> = inputs.into_iter().map(B::laid_out).collect();
    match op.in_place() {
        Some(in_place) if !op.keeps().inputs => {
            let others = inputs.split_off(1);
            let mut first = inputs.pop().expect("an operation has an input");
            let cols = B::view(&first).cols;
            let views: Vec<MatrixRef<'_>> = others.iter().map(B::view).collect();
            in_place.forward(B::view_mut(&mut first), cols, &views);
            (first, Vec::new())
        }
        _ => {
            let views: Vec<MatrixRef<'_>> = inputs.iter().map(B::view).collect();
            let output = B::from_matrix(op.forward(&views));
            (output, if op.keeps().inputs { inputs } else { Vec::new() })
        }
    }
}

impl HostOps for Flex {
    fn host1(a: FloatTensor<Self>, op: Arc<dyn HostOp>) -> FloatTensor<Self> {
        forward::<Flex>(vec![a], op.as_ref()).0
    }

    fn host2(a: FloatTensor<Self>, b: FloatTensor<Self>, op: Arc<dyn HostOp>) -> FloatTensor<Self> {
        forward::<Flex>(vec![a, b], op.as_ref()).0
    }

    fn host3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn HostOp>,
    ) -> FloatTensor<Self> {
        forward::<Flex>(vec![a, b, c], op.as_ref()).0
    }
}

#[derive(Debug)]
struct Bridge;

#[derive(Debug, Clone)]
struct State<B: Backend> {
    op: Arc<dyn HostOp>,
    inputs: Vec<FloatTensor<B>>,
    output: Option<FloatTensor<B>>,
}

impl<B: HostTensors, const N: usize> Backward<B, N> for Bridge {
    type State = State<B>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let mut grad = B::laid_out(grads.consume::<B>(&ops.node));
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let state = &ops.state;
        let kept =
            Kept { inputs: state.inputs.iter().map(B::view).collect(), output: state.output.as_ref().map(B::view) };
        let found: Vec<Option<FloatTensor<B>>> = if let Some(in_place) = state.op.in_place() {
            let cols = B::view(&grad).cols;
            let others = in_place.backward(B::view_mut(&mut grad), cols, &kept, &wanted[1..]);
            std::iter::once(Some(grad)).chain(others.into_iter().map(|g| g.map(B::from_matrix))).collect()
        } else {
            let found = state.op.backward(B::view(&grad), &kept, &wanted);
            found.into_iter().map(|g| g.map(B::from_matrix)).collect()
        };
        assert_eq!(found.len(), N, "{:?} gives a gradient an input", state.op);
        for (node, grad) in ops.parents.into_iter().zip(found) {
            if let (Some(node), Some(grad)) = (node, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

fn tracked<B: HostTensors, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    op: Arc<dyn HostOp>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = inputs.each_ref().map(|x| x.node());
    let inputs = inputs.into_iter().map(|x| x.into_primitive()).collect();
    let (output, inputs) = forward::<B>(inputs, op.as_ref());
    match Bridge.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let keeps = op.keeps();
            let state = State { op, inputs, output: keeps.output.then(|| output.clone()) };
            prep.finish(state, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

impl<B: HostTensors, C: CheckpointStrategy> HostOps for Autodiff<B, C> {
    fn host1(a: FloatTensor<Self>, op: Arc<dyn HostOp>) -> FloatTensor<Self> {
        tracked::<B, C, 1>([a], op)
    }

    fn host2(a: FloatTensor<Self>, b: FloatTensor<Self>, op: Arc<dyn HostOp>) -> FloatTensor<Self> {
        tracked::<B, C, 2>([a, b], op)
    }

    fn host3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn HostOp>,
    ) -> FloatTensor<Self> {
        tracked::<B, C, 3>([a, b, c], op)
    }
}

/// Applies an operation with one input.
pub fn apply1(op: impl HostOp, a: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as HostOps>::host1(a.into_dispatch(), Arc::new(op)))
}

/// Applies an operation with two inputs.
pub fn apply2(op: impl HostOp, a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as HostOps>::host2(a.into_dispatch(), b.into_dispatch(), Arc::new(op)))
}

/// Applies an operation with three inputs.
pub fn apply3(op: impl HostOp, a: Tensor<2>, b: Tensor<2>, c: Tensor<2>) -> Tensor<2> {
    let [a, b, c] = [a, b, c].map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as HostOps>::host3(a, b, c, Arc::new(op)))
}
