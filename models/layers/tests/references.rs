//! Layer outputs against the numbers of TF-GNN's own tests.

use std::sync::Arc;

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_layers::{
    Adjacency, AttentionOptions, Degrees, Features, GcnNorm, epilogue, gatv2, gcn, l2_normalize, sage, values,
};
use morphgl_model_core::Activation;
use morphgl_registry::Block;
use serde_json::Value;

fn references() -> Value {
    let path = morphgl_testdata::path("reference-outputs/reference.json");
    let text = std::fs::read_to_string(path).expect("the reference file can be read");
    serde_json::from_str(&text).expect("the reference file is JSON")
}

fn numbers(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().expect("a number") as f32],
    }
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|x| x as u32).collect()
}

fn matrix(value: &Value) -> Tensor<2> {
    let rows = value.as_array().expect("rows");
    let (values, rows) = (numbers(value), rows.len());
    let cols = values.len() / rows;
    Tensor::from_data(TensorData::new(values, [rows, cols]), &Device::flex())
}

/// A graph of (source, destination) pairs as one block, and the weights in the block's order.
fn block(num_src: usize, num_dst: usize, src: &[u32], dst: &[u32], weights: Option<&[f32]>) -> Block {
    let mut edges: Vec<usize> = (0..src.len()).collect();
    edges.sort_by_key(|&e| dst[e]);
    let mut indptr = vec![0; num_dst + 1];
    dst.iter().for_each(|&v| indptr[v as usize + 1] += 1);
    (0..num_dst).for_each(|v| indptr[v + 1] += indptr[v]);
    Block {
        num_dst,
        num_src,
        indptr,
        indices: edges.iter().map(|&e| src[e]).collect(),
        weights: weights.map(|w| edges.iter().map(|&e| w[e]).collect()),
        ..Block::default()
    }
}

fn identity(n: usize) -> Tensor<2> {
    Tensor::eye(n, &Device::flex())
}

#[track_caller]
fn check(what: &str, actual: Tensor<2>, expected: &Value, tolerance: f32) {
    let (actual, expected) = (values(actual), numbers(expected));
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
        assert!((a - e).abs() <= tolerance, "{what}, element {i}: {a}, expected {e}");
    }
}

#[test]
fn graph_convolution() {
    let all = references();
    let cases = all["tfgnn_gcn"].as_array().expect("cases");
    assert_eq!(cases.len(), 8);
    for case in cases {
        let what = case["source"].as_str().expect("a source");
        let x = matrix(&case["x"]);
        let [num_nodes, dim] = x.dims();
        let (src, dst) = (ids(&case["src"]), ids(&case["dst"]));
        let weights = case.get("edge_weight").map(numbers).unwrap_or(vec![1.0; src.len()]);
        let block = block(num_nodes, num_nodes, &src, &dst, Some(&weights));
        let degree = |ends: &[u32]| {
            let mut degrees = vec![0.0; num_nodes];
            ends.iter().zip(&weights).for_each(|(&v, &w)| degrees[v as usize] += w);
            degrees
        };
        let norm = match case["norm"].as_str().expect("a norm") {
            "none" => GcnNorm::None,
            "in" => GcnNorm::In,
            "out" => GcnNorm::Out,
            "in_out" => GcnNorm::InOut,
            "in_in" => GcnNorm::InIn,
            other => panic!("unknown norm {other}"),
        };
        let (incoming, outgoing) = (degree(&dst), degree(&src));
        let degrees = Degrees { incoming: &incoming, outgoing: &outgoing };
        let self_loops = case["self_loops"].as_bool().expect("a flag");
        let adjacency = Arc::new(Adjacency::gcn(&block, degrees, norm, self_loops));
        let out = gcn(&Features::Dense(x), &adjacency, identity(dim));
        let relu = case.get("activation").map(|_| Activation::Relu);
        check(what, epilogue(out, None, relu, None), &case["expect"], 1e-6);
    }
}

/// Our layer has one node set, so paper and author nodes stand in one: authors first, as destination nodes are.
#[test]
fn graphsage_mean() {
    let all = references();
    let case = &all["tfgnn_sage_bipartite"];
    let expect = &case["expect"];
    let edges = |name: &str, source: &str| {
        let edges = &case[name];
        (ids(&edges[format!("src_{source}")]), ids(&edges["dst_author"]))
    };
    // Features side by side: what one kind of node lacks is 0, and the kernels of ones see to the rest.
    let (papers, authors, institutions) = (&case["paper"], &case["author"], &case["institution"]);
    let widths = [2, 3, 4];
    let side_by_side = |sets: &[(&Value, usize)]| {
        let mut rows = Vec::new();
        for &(set, slot) in sets {
            for row in set.as_array().expect("rows") {
                let mut wide = vec![0.0; 9];
                let start: usize = widths[..slot].iter().sum();
                let row = numbers(row);
                wide[start..start + row.len()].copy_from_slice(&row);
                rows.extend(wide);
            }
        }
        let n = rows.len() / 9;
        Tensor::<2>::from_data(TensorData::new(rows, [n, 9]), &Device::flex())
    };
    let ones = || Tensor::<2>::ones([1, 9], &Device::flex());
    let zeros = || Tensor::<2>::zeros([1, 9], &Device::flex());
    let part = |name: &str, source: &str, set: &Value, slot: usize| {
        let (src, dst) = edges(name, source);
        let x = Features::Dense(side_by_side(&[(authors, 0), (set, slot)]));
        let src: Vec<u32> = src.iter().map(|s| s + 4).collect();
        let adjacency = Arc::new(Adjacency::mean(&block(x.num_rows(), 4, &src, &dst, None)));
        (x, adjacency)
    };
    let (x, written) = part("written", "paper", papers, 1);
    let mean = sage(&x, &written, ones(), zeros());
    check("mean of written", mean.clone(), &expect["mean_agg_written"], 1e-6);
    // The sum over both edge sets: the node's own part once.
    let own_and_written = sage(&x, &written, ones(), ones());
    let (x, affiliated) = part("affiliated_with", "institution", institutions, 2);
    let affiliation = sage(&x, &affiliated, ones(), zeros());
    let sum = own_and_written + affiliation.clone();
    check("sum", sum.clone(), &expect["full_sum_unnormalized"], 1e-6);
    check("sum, scaled to length 1", l2_normalize(sum), &expect["full_sum_l2"], 1e-6);
    let own = sage(&x, &affiliated, zeros(), ones());
    // The reference concatenates its edge sets by name; each part has one unit.
    let concat = Tensor::cat(vec![own, affiliation, mean], 1);
    check("concat", concat, &expect["full_concat_unnormalized"], 1e-6);
}

#[test]
fn attention_of_gatv2() {
    let all = references();
    for (name, heads, expected) in
        [("tfgnn_gatv2_single_head", 1, "expect"), ("tfgnn_gatv2_two_heads", 2, "expect_before_activation")]
    {
        let case = &all[name];
        let x = matrix(&case["x"]);
        let (src, dst) = (ids(&case["src"]), ids(&case["dst"]));
        let adjacency = Arc::new(Adjacency::edges(&block(3, 3, &src, &dst, None)));
        // Kernels are [in, out]; the attention vector is [width] or [width, heads].
        let kernel = |name: &str| (matrix(&case[name]).transpose(), None);
        let logits = numbers(&case["attn_logits"]);
        let width = logits.len() / heads;
        let att: Vec<f32> =
            (0..heads).flat_map(|h| (0..width).map(move |c| c * heads + h)).map(|i| logits[i]).collect();
        let att = Tensor::from_data(TensorData::new(att, [1, heads * width]), &Device::flex());
        let options = AttentionOptions { heads, slope: 0.0, self_loops: false, dropout: None };
        let x = Features::Dense(x);
        let out = gatv2(&x, &adjacency, kernel("value_kernel"), kernel("query_kernel"), att, options);
        // The reference pins the numbers after a relu, and the last component of each head before it.
        let relu = |x| epilogue(x, None, Some(Activation::Relu), None);
        let expect = matrix(&case[expected]);
        for (actual, expected) in [(relu(out.clone()), relu(expect.clone()))]
            .into_iter()
            .chain((heads > 1).then(|| (out.clone().slice([0..3, 3..4]), expect.clone().slice([0..3, 3..4]))))
            .chain((heads > 1).then(|| (out.slice([0..3, 7..8]), expect.slice([0..3, 7..8]))))
        {
            let (actual, expected) = (values(actual), values(expected));
            let close = actual.iter().zip(&expected).all(|(a, e)| (a - e).abs() <= 1e-4);
            assert!(close && actual.len() == expected.len(), "{name}: {actual:?}, expected {expected:?}");
        }
    }
}
