//! A layer's backward pass: gradients of its parameters and of its input.
//!
//! Rows are cut into lanes, whose number depends on the rows alone. A lane sums its rows' gradients of the weights one
//! after the other; the lanes' sums are added in order. So the bits do not depend on the number of threads.

use std::ops::Range;

use morphgl_graph_store::FeatureView;

use super::{Context, Layer, Order, ROWS, inputs, join};
use crate::attention::{Grads, Transposed};
use crate::buffer::{Buffer, resize};
use crate::epilogue::{self, Part};
use crate::gather::{Lists, sum_rows};
use crate::gemm::{Left, Right, multiply, multiply_all, pack, packed_len};
use crate::parallel::{self, with_scratch};
use crate::rows::Rows;
use crate::sparse::{Side, Sparse};
use morphgl_platform::SimdLevel;

/// Lanes at most: enough to be shared evenly, few enough that adding them up costs little.
const LANES: usize = 16;

/// Memory of a layer's backward pass.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    packed: [Buffer; 2],
    /// Gradient of the output before activation, where it is wanted as a whole.
    output: Buffer,
    /// The same for every head, where their mean is the output.
    wide: Buffer,
    /// Gradient of the whole input, and of the rows' own input. That of the sums takes the sums' place.
    sums: Buffer,
    own: Buffer,
    /// Gradient of the products, from attention.
    products: Buffer,
    scratch: Buffer,
    vectors: Vec<f32>,
    /// The lanes' sums.
    partial: Buffer,
}

/// Where the gradient of a layer's output comes from.
#[derive(Clone, Copy)]
pub(crate) enum Upstream<'a> {
    /// As it is, for its first rows.
    Rows(&'a [f32]),
    /// From the next layer's sums, and from its rows' own input.
    Sums { lists: Option<(Lists<'a>, usize)>, sums: &'a [f32], own: &'a [f32] },
}

impl Upstream<'_> {
    /// The gradient of rows `rows` of the output.
    fn fill(&self, level: SimdLevel, rows: Range<usize>, width: usize, out: &mut [f32]) {
        let put = |from: &[f32], out: &mut [f32], add: bool| {
            let start = (rows.start * width).min(from.len());
            let from = &from[start..(rows.end * width).min(from.len())];
            let (first, rest) = out.split_at_mut(from.len());
            if add {
                epilogue::add_rows(level, from, first);
            } else {
                first.copy_from_slice(from);
                rest.fill(0.0);
            }
        };
        match self {
            Upstream::Rows(all) => put(all, out, false),
            Upstream::Sums { lists, sums, own } => {
                if let Some((lists, num_src)) = lists {
                    let inside = rows.start.min(*num_src)..rows.end.min(*num_src);
                    let (first, rest) = out.split_at_mut(inside.len() * width);
                    sum_rows(level, lists, inside, FeatureView::F32(sums), width, first);
                    rest.fill(0.0);
                }
                put(own, out, lists.is_some());
            }
        }
    }
}

/// How rows are cut into lanes: rows a lane, and how many.
fn lanes(rows: usize) -> (usize, usize) {
    let each = rows.div_ceil(LANES).next_multiple_of(ROWS).max(ROWS);
    (each, rows.div_ceil(each))
}

/// The rows of a lane, in blocks.
fn blocks(lane: usize, each: usize, rows: usize) -> impl Iterator<Item = Range<usize>> {
    let end = ((lane + 1) * each).min(rows);
    (lane * each..end).step_by(ROWS).map(move |start| start..(start + ROWS).min(end))
}

impl Layer {
    /// What gives the layer before its gradient, after [`Layer::backward`].
    pub(crate) fn upstream<'a>(&'a self, context: Context<'a>) -> Upstream<'a> {
        let (width, num_dst) = (self.shape.in_dim, context.num_dst);
        match self.order {
            Order::AggregateFirst => {
                let lists = self.ranges.neighbours.is_some().then(|| {
                    let (block, adjacency) = context.graph();
                    (adjacency.lists_by_source(block), block.num_src)
                });
                let sums = if lists.is_some() { self.middle.read(num_dst * width) } else { &[] };
                let own = if self.own_in_out() { &self.out } else { &self.back.own };
                let own = if self.ranges.own.is_some() { own.read(num_dst * width) } else { &[] };
                Upstream::Sums { lists, sums, own }
            }
            Order::TransformFirst | Order::Attend => {
                Upstream::Rows(self.back.sums.read(context.graph().0.num_src * width))
            }
        }
    }

    /// Whether the gradient of the rows' own input takes the place of the output, which is as wide.
    fn own_in_out(&self) -> bool {
        self.shape.in_dim == self.width
    }

    /// Adds the gradients of the parameters to `gradients`; computes that of the input where there is a layer before.
    pub(crate) fn backward(&mut self, context: Context<'_>, upstream: Upstream<'_>, gradients: &mut [f32]) {
        if self.index > 0 {
            for (place, packed) in [&self.ranges.neighbours, &self.ranges.own].into_iter().zip(&mut self.back.packed) {
                if let Some(place) = place {
                    let (depth, columns) = (self.width, self.shape.in_dim);
                    let packed = packed.get(packed_len(context.level, depth, columns));
                    pack(context.level, &context.parameters[place.clone()], [depth, columns], false, packed);
                }
            }
        }
        match self.order {
            Order::AggregateFirst => self.backward_of_sums(context, upstream, gradients),
            Order::TransformFirst | Order::Attend => {
                self.output_gradient(context, upstream, gradients);
                if self.order == Order::Attend {
                    self.backward_of_attention(context, gradients);
                }
                match context.nonzeros {
                    Some(nonzeros) => self.backward_of_nonzeros(context, nonzeros, gradients),
                    None => self.backward_of_products(context, gradients),
                }
            }
        }
    }

    /// Gradients of the weights that multiply nonzeros, which are the first layer's.
    fn backward_of_nonzeros(&mut self, context: Context<'_>, nonzeros: &Sparse, gradients: &mut [f32]) {
        let Context { level, num_dst, .. } = context;
        let width = self.width;
        let Memory { output, products, sums, .. } = &mut self.back;
        if let Some(place) = &self.ranges.neighbours {
            let (block, adjacency) = context.graph();
            let len = block.num_src * width;
            if self.order != Order::Attend {
                let (lists, output) = (adjacency.lists_by_source(block), output.read(num_dst * width));
                parallel::pieces(products.get(len), ROWS * width, &|task, out| {
                    let rows = task * ROWS..task * ROWS + out.len() / width;
                    sum_rows(level, &lists, rows, FeatureView::F32(output), width, out);
                });
            }
            let grad = (products.read(len), width);
            nonzeros.gradient(level, Side::All, grad, sums, &mut gradients[place.clone()]);
        }
        if let Some(place) = &self.ranges.own {
            let grad = (output.read(num_dst * width), width);
            nonzeros.gradient(level, Side::First, grad, sums, &mut gradients[place.clone()]);
        }
    }

    fn backward_of_sums(&mut self, context: Context<'_>, upstream: Upstream<'_>, gradients: &mut [f32]) {
        let Context { level, x, num_dst, .. } = context;
        let (depth, width, epilogue) = (self.shape.in_dim, self.width, self.epilogue);
        let (summed, own) = (self.ranges.neighbours.is_some(), self.ranges.own.is_some());
        let (deeper, size) = (self.index > 0, width * depth);
        let copied = || Rows::local(FeatureView::F32(self.copied.read(num_dst * depth)));
        // What was read out of the store was kept, or is read again.
        let x = if own && x.nodes.is_some() && !self.reads_again() { copied() } else { x };
        let ((each, count), in_out, joins) = (lanes(num_dst), self.own_in_out(), self.joins(level));
        let Memory { packed, own: grad_own, partial, vectors, .. } = &mut self.back;
        let packed =
            packed.each_ref().map(|p| p.read(if deeper { p.len().min(packed_len(level, width, depth)) } else { 0 }));
        let part = if summed { size } else { 0 } + if own { size } else { 0 } + width;
        let room = |on: bool| if on { depth } else { 0 };
        let outputs = [
            (partial.get(count * part), part),
            // The sums and the output, and what takes their place: a block of rows is read before it is written.
            (self.middle.get(num_dst * room(summed)), each * room(summed)),
            (self.out.get(num_dst * width), each * width),
            (grad_own.get(num_dst * room(deeper && own && !in_out)), each * room(deeper && own && !in_out)),
        ];
        parallel::tasks(count, outputs, &|lane, [partial, sums, output, grad_own]| {
            let (weights, bias) = partial.split_at_mut(part - width);
            bias.fill(0.0);
            let both = if joins { ROWS * 2 * depth } else { 0 };
            with_scratch([ROWS * width, x.scratch(ROWS * depth), both], |[grad, scratch, both]| {
                for rows in blocks(lane, each, num_dst) {
                    let (m, add) = (rows.len(), rows.start > lane * each);
                    let grad = &mut grad[..m * width];
                    upstream.fill(level, rows.clone(), width, grad);
                    let inside = |width: usize| (rows.start - lane * each) * width..(rows.end - lane * each) * width;
                    epilogue::backward(
                        level,
                        epilogue,
                        Part { width, first: rows.start },
                        &output[inside(width)],
                        grad,
                    );
                    epilogue::add_rows(level, grad, bias);
                    let within = inside(depth);
                    let zeros = epilogue.makes_zeros();
                    let left = Left::transposed(grad, width).with_zeros(zeros);
                    if joins {
                        join([&sums[within.clone()], x.dense(rows.clone(), depth, scratch)], depth, both);
                        multiply(level, [width, 2 * depth, m], (left, Right::rows(both, 2 * depth)), weights, add);
                    } else {
                        // The neighbours' part stands first, where there is one.
                        let (of_sums, of_own) = weights.split_at_mut(if summed { size } else { 0 });
                        let of_sums = summed.then(|| (Right::rows(&sums[within.start..], depth), of_sums, add));
                        let of_own =
                            own.then(|| (Right::rows(x.dense(rows.clone(), depth, scratch), depth), of_own, add));
                        multiply_all(level, [width, depth, m], left, [of_sums, of_own]);
                    }
                    if deeper {
                        let grad_own = if in_out { &mut *output } else { &mut *grad_own };
                        let right = |packed| Right::packed(level, packed, width);
                        let times = [
                            summed.then(|| (right(packed[0]), &mut sums[within.clone()], false)),
                            own.then(|| (right(packed[1]), &mut grad_own[within.clone()], false)),
                        ];
                        multiply_all(level, [m, depth, width], Left::rows(grad, width).with_zeros(zeros), times);
                    }
                }
            });
        });
        let places = [&self.ranges.neighbours, &self.ranges.own].into_iter().flatten();
        if joins {
            resize(vectors, part);
            vectors.fill(0.0);
            add_lanes(level, partial.read(count * part), part, std::iter::once(&(0..part)), vectors);
            let (weights, bias) = vectors.split_at(part - width);
            for (side, place) in places.enumerate() {
                for (both, own) in weights.chunks_exact(2 * depth).zip(gradients[place.clone()].chunks_exact_mut(depth))
                {
                    epilogue::add_rows(level, &both[side * depth..(side + 1) * depth], own);
                }
            }
            epilogue::add_rows(level, bias, &mut gradients[self.ranges.bias.clone()]);
        } else {
            let places = places.chain(std::iter::once(&self.ranges.bias));
            add_lanes(level, partial.read(count * part), part, places, gradients);
        }
    }

    /// The gradient of the output before activation, as a whole, and that of the bias.
    fn output_gradient(&mut self, context: Context<'_>, upstream: Upstream<'_>, gradients: &mut [f32]) {
        let Context { level, num_dst, .. } = context;
        let (width, epilogue) = (self.shape.out_dim, self.epilogue);
        let output = self.out.read(num_dst * width);
        let (each, count) = lanes(num_dst);
        let Memory { output: grad, partial, .. } = &mut self.back;
        let outputs = [(partial.get(count * width), width), (grad.get(num_dst * width), each * width)];
        parallel::tasks(count, outputs, &|lane, [bias, grad]| {
            bias.fill(0.0);
            for (rows, grad) in blocks(lane, each, num_dst).zip(grad.chunks_mut(ROWS * width)) {
                upstream.fill(level, rows.clone(), width, grad);
                let here = rows.start * width..rows.end * width;
                epilogue::backward(level, epilogue, Part { width, first: rows.start }, &output[here], grad);
                epilogue::add_rows(level, grad, bias);
            }
        });
        add_lanes(level, partial.read(count * width), width, std::iter::once(&self.ranges.bias), gradients);
    }

    fn backward_of_attention(&mut self, context: Context<'_>, gradients: &mut [f32]) {
        let (block, adjacency) = context.graph();
        let (width, heads, all, num_dst) = (self.shape.out_dim, self.shape.heads, self.width, context.num_dst);
        let attention = self.attention(block);
        let averages = self.averages();
        let Memory { output, wide, products, scratch, vectors, .. } = &mut self.back;
        let mut grad = output.read(num_dst * width);
        if averages {
            let outputs = [(wide.get(num_dst * all), ROWS * all)];
            parallel::tasks(num_dst.div_ceil(ROWS), outputs, &|task, [out]| {
                let grad = &grad[task * ROWS * width..];
                for (out, grad) in out.chunks_exact_mut(all).zip(grad.chunks_exact(width)) {
                    out.chunks_exact_mut(width).for_each(|out| {
                        out.iter_mut().zip(grad).for_each(|(o, g)| *o = g / heads as f32);
                    });
                }
            });
            grad = wide.read(num_dst * all);
        }
        resize(vectors, 2 * all);
        let (att_src, att_dst) = vectors.split_at_mut(all);
        let by_source = adjacency.by_source();
        let transposed = Transposed { indptr: &by_source.indptr, dst: &by_source.rows, edge: &by_source.edges };
        attention.backward(
            (inputs(&self.ranges, context.parameters, self.middle.read(block.num_src * all)), transposed),
            self.kept.read(attention.kept_len()),
            grad,
            scratch.get(attention.scratch_len()),
            Grads { values: products.get(block.num_src * all), att_src, att_dst },
        );
        let places = self.ranges.attention.as_ref().expect("a layer that attends has attention vectors");
        for (place, found) in places.iter().zip(vectors.chunks_exact(all)) {
            epilogue::add_rows(context.level, found, &mut gradients[place.clone()]);
        }
    }

    /// Gradients of the weights and of the input, from that of the products of all source nodes.
    fn backward_of_products(&mut self, context: Context<'_>, gradients: &mut [f32]) {
        let Context { level, x, num_dst, .. } = context;
        let (block, adjacency) = context.graph();
        let (depth, width, num_src) = (self.shape.in_dim, self.width, block.num_src);
        let (own, deeper, size) = (self.ranges.own.is_some(), self.index > 0, width * depth);
        let attends = self.order == Order::Attend;
        let copied = || Rows::local(FeatureView::F32(self.copied.read(num_src * depth)));
        // What was read out of the store was kept.
        let x = if x.nodes.is_some() { copied() } else { x };
        let lists = (!attends).then(|| adjacency.lists_by_source(block));
        let Memory { packed, output, products, sums: grad_input, partial, .. } = &mut self.back;
        let output = output.read(if attends { 0 } else { num_dst * width });
        let products = products.read(if attends { num_src * width } else { 0 });
        let packed =
            packed.each_ref().map(|p| p.read(if deeper { p.len().min(packed_len(level, width, depth)) } else { 0 }));
        let (each, count) = lanes(num_src);
        let part = if own { 2 * size } else { size };
        let room = if deeper { depth } else { 0 };
        let outputs = [(partial.get(count * part), part), (grad_input.get(num_src * room), each * room)];
        parallel::tasks(count, outputs, &|lane, [weights, grad_input]| {
            let (of_neighbours, of_own) = weights.split_at_mut(size);
            of_own.fill(0.0);
            with_scratch([ROWS * width, x.scratch(ROWS * depth), 0], |[summed, scratch, _]| {
                for rows in blocks(lane, each, num_src) {
                    let (m, add) = (rows.len(), rows.start > lane * each);
                    let grad = match &lists {
                        Some(lists) => {
                            let out = &mut summed[..m * width];
                            sum_rows(level, lists, rows.clone(), FeatureView::F32(output), width, out);
                            &*out
                        }
                        None => &products[rows.start * width..rows.end * width],
                    };
                    let x = x.dense(rows.clone(), depth, scratch);
                    let factors = (Left::transposed(grad, width), Right::rows(x, depth));
                    multiply(level, [width, depth, m], factors, of_neighbours, add);
                    let first = (rows.start - lane * each) * room;
                    let grad_input = &mut grad_input[first..first + m * room];
                    if deeper {
                        let factors = (Left::rows(grad, width), Right::packed(level, packed[0], width));
                        multiply(level, [m, depth, width], factors, grad_input, false);
                    }
                    let own_rows = rows.start.min(num_dst)..rows.end.min(num_dst);
                    if own && !own_rows.is_empty() {
                        let (grad, k) = (&output[own_rows.start * width..own_rows.end * width], own_rows.len());
                        let factors = (Left::transposed(grad, width), Right::rows(&x[..k * depth], depth));
                        multiply(level, [width, depth, k], factors, of_own, true);
                        if deeper {
                            let factors = (Left::rows(grad, width), Right::packed(level, packed[1], width));
                            multiply(level, [k, depth, width], factors, grad_input, true);
                        }
                    }
                }
            });
        });
        let places = [&self.ranges.neighbours, &self.ranges.own].into_iter().flatten();
        add_lanes(level, partial.read(count * part), part, places, gradients);
    }
}

/// Elements a task adds up.
const TASK: usize = 1 << 12;

/// Adds the lanes' sums, `part` numbers each, to the gradients; `places` says where their pieces belong.
fn add_lanes<'a>(
    level: SimdLevel,
    lanes: &[f32],
    part: usize,
    places: impl Iterator<Item = &'a Range<usize>>,
    gradients: &mut [f32],
) {
    let mut start = 0;
    for place in places {
        let len = place.len();
        parallel::tasks(len.div_ceil(TASK), [(&mut gradients[place.clone()], TASK)], &|task, [sums]| {
            let first = start + task * TASK;
            for lane in lanes.chunks_exact(part) {
                epilogue::add_rows(level, &lane[first..first + sums.len()], sums);
            }
        });
        start += len;
    }
}
