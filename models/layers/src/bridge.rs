//! burn operations as plain functions over host memory.
//!
//! burn's `flex` backend runs elementwise operations on one thread and has no segment reduction, so everything but GEMM
//! is an operation of this crate: a forward and a backward function over slices.

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

/// The paths that `backend_extension` emits, which are those of the crate `burn`.
mod burn {
    pub(super) mod backend {
        pub(crate) use burn_backend::*;
        pub(crate) use burn_dispatch::{backend::*, backends::*, device::*, tensor::*};
    }
}

/// A differentiable operation on one to three matrices in host memory that computes a new matrix.
///
/// Its result is a function of its inputs alone, on any number of threads.
pub(crate) trait HostOp: fmt::Debug + Send + Sync + 'static {
    /// Computes the output.
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix;

    /// Whether [`HostOp::backward`] reads the inputs; it gets none otherwise.
    fn saves_inputs(&self) -> bool;

    /// Computes the gradient of each input that is `wanted` from that of the output.
    fn backward(&self, grad: MatrixRef<'_>, inputs: &[MatrixRef<'_>], wanted: &[bool]) -> Vec<Option<Matrix>>;
}

/// A differentiable operation that overwrites its first input with the output, and the gradient with the first input's.
pub(crate) trait InPlaceOp: fmt::Debug + Send + Sync + 'static {
    /// Overwrites the first input, `cols` wide, with the output.
    fn forward(&self, values: &mut [f32], cols: usize, others: &[MatrixRef<'_>]);

    /// Whether [`InPlaceOp::backward`] reads the output; it gets none otherwise.
    fn saves_output(&self) -> bool;

    /// Overwrites the output's gradient with the first input's; returns those of the other inputs that are `wanted`.
    fn backward(
        &self,
        grad: &mut [f32],
        cols: usize,
        output: Option<MatrixRef<'_>>,
        wanted: &[bool],
    ) -> Vec<Option<Matrix>>;
}

/// An operation of either kind.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    New(Arc<dyn HostOp>),
    InPlace(Arc<dyn InPlaceOp>),
}

/// A tensor of the `flex` backend.
type HostTensor = FloatTensor<Flex>;

/// The tensor with its elements row after row in memory.
fn contiguous(tensor: HostTensor) -> HostTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// Borrows the elements of a contiguous tensor.
fn view(tensor: &HostTensor) -> MatrixRef<'_> {
    let shape = tensor.shape();
    let values = tensor.as_slice::<f32>().expect("a contiguous tensor of f32");
    MatrixRef { values, rows: shape[0], cols: shape[1] }
}

/// Borrows the elements of a contiguous tensor for writing; copies them first if another tensor shares them.
fn view_mut(tensor: &mut HostTensor) -> &mut [f32] {
    // `storage_mut` returns the whole buffer, so a part of a larger buffer gets a buffer of its own.
    let MatrixRef { values, rows, cols } = view(tensor);
    if tensor.storage::<f32>().len() != values.len() {
        *tensor = from_matrix(Matrix::new(values.to_vec(), rows, cols));
    }
    tensor.storage_mut::<f32>()
}

/// A tensor of the elements, without a copy.
fn from_matrix(matrix: Matrix) -> HostTensor {
    HostTensor::from_data(TensorData::new(matrix.values, [matrix.rows, matrix.cols]))
}

/// Host operations as operations of a backend, by number of inputs.
#[backend_extension(Flex, Autodiff)]
pub(crate) trait HostOps: Backend {
    fn host1(a: FloatTensor<Self>, operation: Operation) -> FloatTensor<Self>;
    fn host2(a: FloatTensor<Self>, b: FloatTensor<Self>, operation: Operation) -> FloatTensor<Self>;
    fn host3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        operation: Operation,
    ) -> FloatTensor<Self>;
}

macro_rules! host_ops {
    ($($name:ident: $($input:ident),+;)+) => {
        impl HostOps for Flex {
            $(fn $name($($input: HostTensor,)+ operation: Operation) -> HostTensor {
                forward([$($input),+], &operation).0
            })+
        }

        impl<C: CheckpointStrategy> HostOps for Autodiff<Flex, C> {
            $(fn $name($($input: FloatTensor<Self>,)+ operation: Operation) -> FloatTensor<Self> {
                tracked::<C, _>([$($input),+], operation)
            })+
        }
    };
}

host_ops! {
    host1: a;
    host2: a, b;
    host3: a, b, c;
}

/// Computes the output; returns the inputs too if the operation saves them.
fn forward<const N: usize>(inputs: [HostTensor; N], operation: &Operation) -> (HostTensor, Vec<HostTensor>) {
    let mut inputs = Vec::from(inputs.map(contiguous));
    match operation {
        Operation::InPlace(op) => {
            let mut output = inputs.remove(0);
            let cols = view(&output).cols;
            let others: Vec<MatrixRef<'_>> = inputs.iter().map(view).collect();
            op.forward(view_mut(&mut output), cols, &others);
            (output, Vec::new())
        }
        Operation::New(op) => {
            let views: Vec<MatrixRef<'_>> = inputs.iter().map(view).collect();
            let output = from_matrix(op.forward(&views));
            (output, if op.saves_inputs() { inputs } else { Vec::new() })
        }
    }
}

/// The backward step of an operation in burn's graph.
#[derive(Debug)]
struct BackwardStep;

/// An operation and the tensors that its backward function reads.
#[derive(Debug, Clone)]
struct Saved {
    operation: Operation,
    inputs: Vec<HostTensor>,
    output: Option<HostTensor>,
}

impl<const N: usize> Backward<Flex, N> for BackwardStep {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let mut grad = contiguous(grads.consume::<Flex>(&ops.node));
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let Saved { operation, inputs, output } = &ops.state;
        let input_grads: Vec<Option<HostTensor>> = match operation {
            Operation::InPlace(op) => {
                let cols = view(&grad).cols;
                let others = op.backward(view_mut(&mut grad), cols, output.as_ref().map(view), &wanted[1..]);
                std::iter::once(Some(grad)).chain(others.into_iter().map(|g| g.map(from_matrix))).collect()
            }
            Operation::New(op) => {
                let inputs: Vec<MatrixRef<'_>> = inputs.iter().map(view).collect();
                op.backward(view(&grad), &inputs, &wanted).into_iter().map(|g| g.map(from_matrix)).collect()
            }
        };
        assert_eq!(input_grads.len(), N, "{operation:?} returns a gradient per input");
        for (node, grad) in ops.parents.into_iter().zip(input_grads) {
            if let (Some(node), Some(grad)) = (node, grad) {
                grads.register::<Flex>(node.id, grad);
            }
        }
    }
}

fn tracked<C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<Flex, C>>; N],
    operation: Operation,
) -> FloatTensor<Autodiff<Flex, C>> {
    let nodes = inputs.each_ref().map(|x| x.node());
    let (output, inputs) = forward(inputs.map(|x| x.into_primitive()), &operation);
    match BackwardStep.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let saves_output = matches!(&operation, Operation::InPlace(op) if op.saves_output());
            prep.finish(Saved { operation, inputs, output: saves_output.then(|| output.clone()) }, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

/// Applies an operation to one to three inputs.
pub(crate) fn apply<const N: usize>(op: impl HostOp, inputs: [Tensor<2>; N]) -> Tensor<2> {
    apply_operation(Operation::New(Arc::new(op)), inputs)
}

/// Applies an operation in place to one to three inputs.
pub(crate) fn apply_in_place<const N: usize>(op: impl InPlaceOp, inputs: [Tensor<2>; N]) -> Tensor<2> {
    apply_operation(Operation::InPlace(Arc::new(op)), inputs)
}

fn apply_operation<const N: usize>(operation: Operation, inputs: [Tensor<2>; N]) -> Tensor<2> {
    let mut inputs = inputs.into_iter().map(Tensor::into_dispatch);
    Tensor::from_dispatch(match (inputs.next(), inputs.next(), inputs.next()) {
        (Some(a), None, None) => <Dispatch as HostOps>::host1(a, operation),
        (Some(a), Some(b), None) => <Dispatch as HostOps>::host2(a, b, operation),
        (Some(a), Some(b), Some(c)) => <Dispatch as HostOps>::host3(a, b, c, operation),
        _ => unreachable!("{operation:?} has {N} inputs"),
    })
}
