//! Reference of the models: slow and plain, in f64 and over the whole graph.

mod typed;

use morphgl_graph_store::Dataset;
use morphgl_registry::NamedTensor;
use serde_json::Value;

use super::graph::features;
use super::layers;

type RowVectors = Vec<Vec<f64>>;

/// Logits of all nodes of a model without normalisation, residual or scaling to length 1, with all neighbours.
///
/// # Panics
///
/// When a parameter is missing.
pub fn logits(dataset: &Dataset, model: &Value, parameters: &[NamedTensor]) -> RowVectors {
    rows_by_layer(dataset, model, parameters).pop().unwrap_or_default()
}

/// As [`logits`], the rows after each layer.
pub(super) fn rows_by_layer(dataset: &Dataset, model: &Value, parameters: &[NamedTensor]) -> Vec<RowVectors> {
    let kind = model["kind"].as_str().expect("a kind");
    let layers = layers(model);
    let gcn = Norm::gcn(model);
    let mut x =
        if model.get("input_widths").is_some() { typed::inputs(dataset, parameters) } else { features(dataset) };
    let mut by_layer = Vec::new();
    for layer in 0..layers {
        let last = layer + 1 == layers;
        let get = |name: &str| {
            let name = format!("{}.{layer}.{name}", if kind == "mlp" { "lins" } else { "convs" });
            parameters.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no parameter {name}"))
        };
        let mut out = match kind {
            "gcn" => biased(aggregate(dataset, &linear(&x, get("lin.weight")), gcn), get("bias")),
            "sage" => {
                let neighbours = linear(&aggregate(dataset, &x, Norm::Mean), get("lin_l.weight"));
                biased(sum(&neighbours, &linear(&x, get("lin_r.weight"))), get("lin_l.bias"))
            }
            "gin" => {
                let own = 1.0 + f64::from(get("eps").values[0]);
                let own: RowVectors = x.iter().map(|row| row.iter().map(|v| own * v).collect()).collect();
                let all = sum(&aggregate(dataset, &x, Norm::Sum), &own);
                let hidden = biased(linear(&all, get("nn.lins.0.weight")), get("nn.lins.0.bias"));
                let hidden: RowVectors = hidden.iter().map(|row| row.iter().map(|v| v.max(0.0)).collect()).collect();
                biased(linear(&hidden, get("nn.lins.1.weight")), get("nn.lins.1.bias"))
            }
            "gat" if model["attention"] == "gatv2" => {
                let left = biased(linear(&x, get("lin_l.weight")), get("lin_l.bias"));
                let right = biased(linear(&x, get("lin_r.weight")), get("lin_r.bias"));
                let att = get("att");
                let score = |u: usize, v: usize, h: usize, c: usize| {
                    f64::from(att.values[h * att.shape[2] + c])
                        * leaky(left[u][c + h * att.shape[2]] + right[v][c + h * att.shape[2]])
                };
                let score = |u: usize, v: usize, h: usize| (0..att.shape[2]).map(|c| score(u, v, h, c)).sum();
                heads(attend(dataset, &left, att, &score), att, last, get("bias"))
            }
            "gat" => {
                let z = linear(&x, get("lin.weight"));
                let (src, dst) = (get("att_src"), get("att_dst"));
                let width = src.shape[2];
                let side = |row: &[f64], att: &NamedTensor, h: usize| -> f64 {
                    (h * width..(h + 1) * width).map(|c| row[c] * f64::from(att.values[c])).sum()
                };
                let score = |u: usize, v: usize, h: usize| leaky(side(&z[u], src, h) + side(&z[v], dst, h));
                heads(attend(dataset, &z, src, &score), src, last, get("bias"))
            }
            "mlp" => biased(linear(&x, get("weight")), get("bias")),
            "rgcn" | "rsage" | "rgat" | "hgt" => typed::layer(dataset, model, (layer, last), &x, parameters),
            other => panic!("no reference for {other}"),
        };
        if !last {
            let negative: fn(f64) -> f64 = if model["activation"] == "elu" { f64::exp_m1 } else { |_| 0.0 };
            out.iter_mut().flatten().filter(|v| **v <= 0.0).for_each(|v| *v = negative(*v));
        }
        by_layer.push(out.clone());
        x = out;
    }
    by_layer
}

/// What each of the first layer's weights multiplies for `nodes`, row after row, with all neighbours: a matrix for each weight, none for a
/// model whose given rows have no part in the first layer's gradient.
pub(super) fn first_inputs(dataset: &Dataset, model: &Value, nodes: &[u32]) -> Vec<Vec<f32>> {
    let x = features(dataset);
    let plain = model.get("normalization").is_none() && model["l2_normalize"] != true;
    let inputs = match model["kind"].as_str() {
        Some("gcn") if plain => vec![aggregate(dataset, &x, Norm::gcn(model))],
        Some("sage") if plain => vec![aggregate(dataset, &x, Norm::Mean), x],
        _ => Vec::new(),
    };
    let rows = |input: RowVectors| nodes.iter().flat_map(|&v| input[v as usize].clone()).map(|x| x as f32).collect();
    inputs.into_iter().map(rows).collect()
}

fn leaky(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.2 * x }
}

fn linear(x: &RowVectors, weight: &NamedTensor) -> RowVectors {
    let cols = weight.shape[1];
    let dot = |row: &[f64], w: &[f32]| row.iter().zip(w).map(|(x, &w)| x * f64::from(w)).sum();
    x.iter().map(|row| weight.values.chunks_exact(cols).map(|w| dot(row, w)).collect()).collect()
}

fn biased(mut x: RowVectors, bias: &NamedTensor) -> RowVectors {
    for row in &mut x {
        row.iter_mut().zip(&bias.values).for_each(|(x, &b)| *x += f64::from(b));
    }
    x
}

fn sum(a: &RowVectors, b: &RowVectors) -> RowVectors {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

#[derive(Clone, Copy)]
enum Norm {
    Sum,
    Mean,
    /// Every node gets a self-loop of this weight.
    Gcn {
        added: f64,
    },
}

impl Norm {
    fn gcn(model: &Value) -> Self {
        Norm::Gcn { added: if model["self_loops"] == false { 0.0 } else { 1.0 } }
    }
}

fn aggregate(dataset: &Dataset, x: &RowVectors, norm: Norm) -> RowVectors {
    let topology = &dataset.topology;
    let degree = |v: u32| match topology.weights() {
        Some(w) if matches!(norm, Norm::Gcn { .. }) => w[topology.edge_range(v)].iter().map(|&w| f64::from(w)).sum(),
        _ => topology.degree(v) as f64,
    };
    let row = |v: u32| {
        let mut out = vec![0.0; x[0].len()];
        let mut add = |u: usize, a: f64| out.iter_mut().zip(&x[u]).for_each(|(o, x)| *o += a * x);
        for (&u, edge) in topology.neighbors(v).iter().zip(topology.edge_range(v)) {
            let weight = topology.weights().map_or(1.0, |w| f64::from(w[edge]));
            let coefficient = match norm {
                Norm::Sum => 1.0,
                Norm::Mean => 1.0 / degree(v),
                Norm::Gcn { added } => weight * inverse_root((degree(u) + added) * (degree(v) + added)),
            };
            add(u as usize, coefficient);
        }
        if let Norm::Gcn { added } = norm {
            add(v as usize, added * inverse_root((degree(v) + added).powi(2)));
        }
        out
    };
    (0..topology.num_nodes() as u32).map(row).collect()
}

fn inverse_root(x: f64) -> f64 {
    if x > 0.0 { 1.0 / x.sqrt() } else { 0.0 }
}

/// Attention over the other neighbours and the node itself once; heads side by side.
fn attend(
    dataset: &Dataset,
    values: &RowVectors,
    att: &NamedTensor,
    score: &dyn Fn(usize, usize, usize) -> f64,
) -> RowVectors {
    let (heads, width) = (att.shape[1], att.shape[2]);
    let row = |v: u32| {
        let others = dataset.topology.neighbors(v).iter().filter(|u| **u != v);
        let sources: Vec<usize> = others.chain([&v]).map(|&u| u as usize).collect();
        let mut out = vec![0.0; heads * width];
        for h in 0..heads {
            let scores: Vec<f64> = sources.iter().map(|&u| score(u, v as usize, h).exp()).collect();
            let total: f64 = scores.iter().sum();
            for (&u, score) in sources.iter().zip(&scores) {
                (h * width..(h + 1) * width).for_each(|c| out[c] += score / total * values[u][c]);
            }
        }
        out
    };
    (0..dataset.num_nodes() as u32).map(row).collect()
}

/// Averages the heads in the last layer, and adds the bias.
fn heads(x: RowVectors, att: &NamedTensor, last: bool, bias: &NamedTensor) -> RowVectors {
    let (heads, width) = (att.shape[1], att.shape[2]);
    let mean = |row: &Vec<f64>| -> Vec<f64> {
        (0..width).map(|c| (0..heads).map(|h| row[h * width + c]).sum::<f64>() / heads as f64).collect()
    };
    biased(if last { x.iter().map(mean).collect() } else { x }, bias)
}
