//! Laws: backward is the transpose of forward, sparse equals dense, threads change nothing.

use std::sync::Arc;

use burn_tensor::{Device, Tensor, TensorData};
use half::f16;
use morphgl_graph_store::FeatureView;
use morphgl_layers::{
    Adjacency, AttentionOptions, Coefficients, Features, Mask, aggregate, aggregate_beside_self, edge_destinations,
    edge_sources, epilogue, gat_attention, sum_edges, values,
};
use morphgl_model_core::{Activation, Dropout, DropoutSite};
use morphgl_registry::Block;
use proptest::prelude::*;

fn tensor(values: Vec<f32>, cols: usize, device: &Device) -> Tensor<2> {
    let rows = values.len() / cols;
    Tensor::from_data(TensorData::new(values, [rows, cols]), device)
}

/// A random block, with a random coefficient per edge, and per row with `loops`.
fn adjacency(loops: bool) -> impl Strategy<Value = (Arc<Adjacency>, usize, usize)> {
    (1usize..70, 0usize..60).prop_flat_map(move |(num_dst, more)| {
        let num_src = num_dst + more;
        let rows = prop::collection::vec(prop::collection::vec((0..num_src as u32, -2.0f32..2.0), 0..6), num_dst);
        (rows, prop::collection::vec(-1.0f32..1.0, num_dst), any::<bool>()).prop_map(move |(rows, values, own)| {
            let mut indptr = vec![0];
            rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u32));
            let (indices, weights): (Vec<u32>, Vec<f32>) = rows.into_iter().flatten().unzip();
            let block = Block { num_dst, num_src, indptr, indices, ..Block::default() };
            let adjacency = Adjacency::new(&block, Coefficients::Edges(weights), (own && loops).then_some(values));
            (Arc::new(adjacency), num_dst, num_src)
        })
    })
}

fn numbers(len: usize, salt: u32) -> Vec<f32> {
    (0..len).map(|i| ((i as u32 ^ salt).wrapping_mul(2_654_435_761) >> 16) as f32 / 32768.0 - 1.0).collect()
}

proptest! {
    /// <A x, y> = <x, Aᵀ y>, where Aᵀ y is what backward gives.
    #[test]
    fn backward_is_the_transpose((adjacency, num_dst, num_src) in adjacency(true), cols in 1usize..9, beside: bool) {
        let device = Device::flex().autodiff();
        let x = tensor(numbers(num_src * cols, 1), cols, &device).require_grad();
        let run = if beside { aggregate_beside_self } else { aggregate };
        let out_cols = if beside { 2 * cols } else { cols };
        let y = numbers(num_dst * out_cols, 2);
        let inner = (run(x.clone(), &adjacency) * tensor(y, out_cols, &device)).sum();
        let grad = values(x.grad(&inner.backward()).expect("a gradient"));
        let left = f64::from(values(inner.inner().reshape([1, 1]))[0]);
        let right: f64 = values(x.inner()).iter().zip(&grad).map(|(&x, &g)| f64::from(x) * f64::from(g)).sum();
        prop_assert!((left - right).abs() < 1e-4 * (1.0 + left.abs()), "{left} {right}");
    }

    /// Messages per edge that are the sources' rows sum to what aggregation without messages gives, bit for bit.
    #[test]
    fn messages_of_sources_sum_to_the_aggregate((adjacency, num_dst, num_src) in adjacency(false), cols in 1usize..9) {
        let device = Device::flex();
        let x = tensor(numbers(num_src * cols, 1), cols, &device);
        let summed = values(sum_edges(edge_sources(x.clone(), &adjacency), &adjacency));
        let expected: Vec<f32> = values(aggregate(x.clone(), &adjacency));
        prop_assert_eq!(&summed, &expected);
        // A row of destinations comes back as often as it has edges.
        let ones = tensor(vec![1.0; num_dst * cols], cols, &device);
        let weights = values(sum_edges(edge_destinations(ones, &adjacency), &adjacency));
        prop_assert_eq!(weights, values(aggregate(tensor(vec![1.0; num_src * cols], cols, &device), &adjacency)));
    }

    /// Sparse rows give what dense rows give, in every stored type, with and without dropout.
    #[test]
    fn sparse_equals_dense(rows in 1usize..80, dim in 64usize..150, every in 10usize..40, dropped: bool, kind in 0usize..3) {
        let words: Vec<f32> =
            (0..rows * dim).map(|i| if i % every == 0 { (i % 7 + 1) as f32 } else { 0.0 }).collect();
        let halves: Vec<f16> = words.iter().map(|&w| f16::from_f32(w)).collect();
        let bytes: Vec<u8> = words.iter().map(|&w| w as u8).collect();
        let view = match kind {
            0 => FeatureView::F32(&words),
            1 => FeatureView::F16(&halves),
            _ => FeatureView::U8(&bytes),
        };
        let dropout = Dropout::new(1, 2, 3, 0, DropoutSite::Input, if dropped { 0.5 } else { 0.0 });
        let nodes: Arc<[u32]> = (0..rows as u32).map(|row| 5 * row + 2).collect();
        let mask = dropout.map(|dropout| Mask { dropout, nodes: Arc::clone(&nodes) });
        let sparse = Features::read(view, dim, mask.as_ref(), &Device::flex());
        prop_assert!(matches!(sparse, Features::Sparse(_)));
        let mut dense = words.clone();
        if let Some(dropout) = dropout {
            dropout.apply(&nodes, &mut dense);
        }
        let dense = Features::Dense(tensor(dense, dim, &Device::flex()));
        let weight = tensor(numbers(5 * dim, 3), dim, &Device::flex());
        // Gathered rows are the matrix's rows.
        let nodes: Vec<u32> = (0..rows as u32).rev().chain([0]).collect();
        let gathered = values(Features::gather(view, dim, &nodes, None, &Device::flex()).linear(weight.clone(), nodes.len()));
        let all = values(Features::read(view, dim, None, &Device::flex()).linear(weight.clone(), rows));
        for (row, &v) in gathered.chunks_exact(5).zip(&nodes) {
            prop_assert_eq!(row, &all[v as usize * 5..(v as usize + 1) * 5]);
        }
        for n in [rows, rows / 2 + 1] {
            let (a, b) = (values(sparse.linear(weight.clone(), n)), values(dense.linear(weight.clone(), n)));
            prop_assert_eq!(a.len(), b.len());
            prop_assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-3 * (1.0 + b.abs())));
        }
    }
}

/// Forward and backward of every operation of ours, to the bit, on one, two and four threads.
#[test]
fn threads_change_nothing() {
    let (num_dst, num_src, cols) = (3000usize, 4000usize, 24);
    let indptr: Vec<u32> = (0..=num_dst).map(|v| (v * (v % 3 + 6) / 2).min(v * 3) as u32).collect();
    let indptr: Vec<u32> = indptr
        .iter()
        .scan(0, |max, &p| {
            *max = p.max(*max);
            Some(*max)
        })
        .collect();
    let num_edges = indptr[num_dst] as usize;
    let indices = (0..num_edges).map(|e| (e * 7919 % num_src) as u32).collect();
    let block = Block { num_dst, num_src, indptr, indices, ..Block::default() };
    let adjacency = Arc::new(Adjacency::mean(&block));
    let words: Vec<f32> =
        numbers(num_src * 100, 9).into_iter().enumerate().map(|(i, w)| if i % 13 == 0 { w } else { 0.0 }).collect();
    let run = || {
        let device = Device::flex().autodiff();
        let weight = tensor(numbers(cols * 100, 1), 100, &device).require_grad();
        let bias = tensor(numbers(cols, 2), cols, &device).require_grad();
        let att = tensor(numbers(cols, 3), cols, &device).require_grad();
        let features = Features::read(FeatureView::F32(&words), 100, None, &device);
        let dropout = Dropout::new(1, 1, 1, 0, DropoutSite::Hidden, 0.5);
        let dropout = dropout.map(|dropout| Mask { dropout, nodes: (0..num_src as u32).collect() });
        let x = epilogue(
            features.linear(weight.clone(), num_src),
            Some(bias.clone()),
            Some(Activation::Relu),
            dropout.clone(),
        );
        let options = AttentionOptions { heads: 3, slope: 0.2, self_loops: true, dropout };
        let out = gat_attention(x.clone(), att.clone(), att.clone(), &adjacency, options) + aggregate(x, &adjacency);
        let grads = (out.clone() * tensor(numbers(num_dst * cols, 4), cols, &device)).sum().backward();
        let grad = |t: &Tensor<2>| values(t.grad(&grads).expect("a gradient"));
        [grad(&weight), grad(&bias), grad(&att), values(out.inner())]
    };
    let on = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(run);
    let one = on(1);
    for threads in [2, 4] {
        assert!(one == on(threads), "{threads} threads give other bits");
    }
}
